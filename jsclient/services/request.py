"""One request to an endpoint, and how to answer it; on the other side, how to see that an answer is an error."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from jsclient import codecs, handlers, kinds
from jsclient.codecs import Codec
from jsclient.connection import Connection
from jsclient.errors import ConfigError, ServiceError
from jsclient.message import Payload
from jsclient.protocol import Headers, Msg
from jsclient.protocol.errors import BAD_JSON, MalformedHeaders
from jsclient.services.models import ERROR_CODE_HEADER, ERROR_HEADER

T = TypeVar("T")

MAX_TEXT: Final = 1000
"""Characters of an error that its caller gets and that STATS shows: the application's text may have any length."""


class Request:
    """The request that a handler gets. Answer it once or several times, from any thread, also after the handler
    returned.

    If the handler has not answered, the value that it returns is the answer: bytes and text unchanged, any other value
    in the codec of the service. The client ignores None and a future.

    Attributes:
        message: The message as it came.
        error_sent: Code and description of the error with which it was answered; None without an error.
        answered: True once it was answered.

    Options of several methods:
        payload: The body: bytes, bytearray, memoryview or text (UTF-8), by default empty. A body larger than the
            server accepts raises PayloadTooLarge before anything is sent.
        headers: Headers, or a mapping of names to one value or several. An invalid header raises InvalidHeader before
            anything is sent.
    """

    __slots__ = ("_connection", "answered", "error_sent", "message")

    def __init__(self, message: Msg, connection: Connection) -> None:
        self.message: Msg = message
        self.error_sent: str | None = None
        self.answered: bool = False
        self._connection = connection

    @property
    def subject(self) -> str:
        """The subject of the request: with wildcards in the endpoint's subject it shows what they matched."""
        return self.message.subject

    @property
    def data(self) -> bytes:
        """The payload."""
        return self.message.data

    @property
    def headers(self) -> Headers:
        """The headers, empty when there are none."""
        return self.message.headers

    @property
    def reply(self) -> str:
        """The subject for the answer. It is empty if the sender does not want one."""
        return self.message.reply

    def json(self) -> Any:
        """The payload as JSON; anything else raises ServiceError 400, which answers the request if not caught."""
        try:
            return msgspec.json.decode(self.message.data)
        except BAD_JSON as error:
            raise ServiceError("400", f"the request is not JSON: {error}") from error

    def respond(self, payload: Payload = b"", headers: Mapping[str, str] | Headers | None = None) -> None:
        """Answer. A request without a reply subject raises ConfigError: check `reply` if that can happen."""
        if not self.message.reply:
            raise ConfigError(f"the request on {self.subject!r} has no reply subject: its sender waits for no answer")
        self._connection.publish(self.message.reply, payload, headers=headers)
        self.answered = True

    def respond_json(self, value: Any, headers: Mapping[str, str] | Headers | None = None) -> None:
        """Answer with a value as JSON."""
        self.respond(msgspec.json.encode(value), headers)

    def error(
        self,
        code: str | int,
        description: str,
        data: Payload = b"",
        headers: Mapping[str, str] | Headers | None = None,
    ) -> None:
        """Answer with an error. The statistics of the endpoint count it.

        `code` and `description` become headers. `data` is the body.
        """
        if not str(code) or not description:
            raise ConfigError("an error response needs a code and a description")
        every = Headers(headers or {})
        every[ERROR_HEADER] = one_line(description)
        every[ERROR_CODE_HEADER] = one_line(str(code))
        self.error_sent = f"{code}:{description}"
        self.respond(data, every)

    def __repr__(self) -> str:
        return f"<Request {self.subject} {len(self.data)} bytes>"


class TypedRequest(Request, Generic[T]):
    """A request with a value as its payload, for the handler of `add_endpoint(decode=Order)`.

    `respond` takes values, too.

    Attributes:
        value: The decoded request.
        codec: The codec that read it and writes the answer.

    It also has the fields of `Request`.

    Options of several methods:
        payload: The body: bytes, bytearray, memoryview or text (UTF-8), by default empty. A body larger than the
            server accepts raises PayloadTooLarge before anything is sent.
        headers: Headers, or a mapping of names to one value or several. An invalid header raises InvalidHeader before
            anything is sent.
    """

    __slots__ = ("codec", "value")

    def __init__(self, request: Request, value: T, codec: Codec) -> None:
        super().__init__(request.message, request._connection)
        self.value: T = value
        self.codec: Codec = codec

    def respond(self, payload: Any = b"", headers: Mapping[str, str] | Headers | None = None) -> None:
        """Answer with a value, or with bytes or text unchanged."""
        super().respond(codecs.payload_of(self.codec, payload), headers)


def typed_handler(
    handler: Callable[[TypedRequest[T]], object], decode: type[T], codec: Codec
) -> Callable[[Request], object]:
    """The handler of the application, after the decoding. A request that cannot be decoded gets error 400."""
    read = codecs.decoder(codec, decode)

    @functools.wraps(handler)
    def handle(request: Request) -> None:
        try:
            value = read(request.data)
        except Exception as error:
            raise ServiceError("400", f"the request is no {codecs.name_of(decode)}: {error}") from error
        typed = TypedRequest(request, value, codec)
        try:
            _answer(typed, handler(typed), codec)
        finally:
            request.error_sent, request.answered = typed.error_sent, typed.answered

    return handle


def plain_handler(handler: Callable[[Request], object], codec: Codec) -> Callable[[Request], object]:
    """The handler of the application, before the answer that it returns."""

    @functools.wraps(handler)
    def handle(request: Request) -> None:
        _answer(request, handler(request), codec)

    return handle


def _answer(request: Request, result: object, codec: Codec) -> None:
    """Answer with the result of a handler."""
    if result is None:
        return
    handlers.ran(result)
    if not request.answered and request.reply and not hasattr(result, "add_done_callback"):
        request.respond(codecs.payload_of(codec, result))


def one_line(text: str) -> str:
    """Text that a header and JSON can hold. Error texts of Python can have several lines, and surrogates."""
    return " ".join(text.encode(errors="backslashreplace").decode().replace("\0", " ").split())


def shortened(text: object, most: int = MAX_TEXT) -> str:
    """A text of the application on one line, at most this long. Returns "" if it has none."""
    try:
        plain = str(text)
    except Exception:  # of an object whose own code fails
        return ""
    line = one_line(plain[: 4 * most])
    return line if len(line) <= most else line[: most - 3] + "..."


def text_of(error: BaseException) -> str:
    """An exception of the application in one short line, even if its own code fails."""
    try:
        text = repr(error)
    except BaseException:  # also SystemExit: its own code fails
        text = f"{type(error).__name__} (without a text)"
    return shortened(text)


def check_response(message: Msg) -> Msg:
    """The answer of a service. Raises ServiceError if it is an error response (ADR-32 headers), or has broken headers:
    then it is not known whether it is one."""
    kinds.check(Msg, message=message)
    try:
        headers = message.headers
    except MalformedHeaders as error:
        raise ServiceError("", f"the headers of the answer cannot be read: {error.what}", message.data) from error
    if ERROR_CODE_HEADER in headers:
        raise ServiceError(headers[ERROR_CODE_HEADER], headers.get(ERROR_HEADER) or "", message.data)
    return message
