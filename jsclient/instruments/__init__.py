"""One small interface for tracing and metrics of a connection.

    connect(url, instrumentation=OpenTelemetry())

The client calls `Instrumentation.begin` when an operation starts. When the operation ends, it calls the function that
`begin` returned, with the error or None. There are two adapters, `jsclient.instruments.tracing.OpenTelemetry` (extra
`tracing`) and `jsclient.instruments.metrics.Prometheus` (extra `metrics`). Use `Together` to combine several. A
connection without an instrument is not slowed down, because it uses functions without these calls.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from jsclient import handlers
from jsclient.protocol import MalformedHeaders
from jsclient.protocol.frames import pub_start

log: logging.Logger = logging.getLogger("jsclient.instruments")

Kind = Literal["publish", "deliver", "request", "ack", "reconnect", "slow consumer"]
End = Callable[[BaseException | None], object]


class Operation:
    """An operation that begins.

    A "publish" is a core publish, or a message for a stream until its ack (`publish`, `publish_async`). A "deliver" is
    a handler at work on a message (`handled`), or a message that an iterator or a fetch has returned. A "request" is
    one request, including requests of the JetStream API. An "ack" is an ack that is sent or confirmed; `detail` is its
    word.

    A "reconnect" lasts from the loss of a link to the next one. A "slow consumer" means dropped messages.

    Attributes:
        kind: The kind of operation, one of Kind.
        subject: Subject of the message; "" if there is none.
        size: Bytes of the payload.
        headers: Headers of the message. For a publish or request you can replace them to send others.
        message: For a deliver, the message or list of messages that the handler or the application gets.
        handled: For a deliver, True if a handler works on it until the end of the operation.
    """

    __slots__ = ("detail", "handled", "headers", "kind", "message", "size", "subject")

    def __init__(
        self,
        kind: Kind,
        subject: str = "",
        size: int = 0,
        headers: Mapping[str, Any] | None = None,
        *,
        message: Any = None,
        handled: bool = False,
        detail: str = "",
    ) -> None:
        self.kind = kind
        self.subject: str = subject
        self.size: int = size
        self.headers: Mapping[str, Any] | None = headers
        self.message: Any = message
        self.handled: bool = handled
        self.detail: str = detail

    def __repr__(self) -> str:
        return f"<Operation {self.kind} {self.subject!r} {self.size} bytes>"


class Instrumentation:
    """Base of instruments. The client logs their exceptions and otherwise ignores them.

    They run in the thread that publishes, requests, acks or handles. For reconnects, slow consumers and the acks of
    `publish_async` they run on the events thread. They must be quick and thread-safe.
    """

    def begin(self, operation: Operation) -> End | None:
        """Called when an operation begins. The returned function is called once when it has ended, with None or the
        error."""
        return None


class Together(Instrumentation):
    """Several instruments that all get every operation. They end in the opposite order.

    Attributes:
        instruments: The instruments, in the order in which they begin.
    """

    def __init__(self, *instruments: Instrumentation) -> None:
        self.instruments = instruments

    def begin(self, operation: Operation) -> End | None:
        ends = [begin(one, operation) for one in self.instruments]

        def end(error: BaseException | None) -> None:
            for one in reversed(ends):
                finish(one, error)

        return end


# --- for the library: how its functions become instrumented ones --------------------------------------------


def _nothing(error: BaseException | None) -> None:
    pass


def begin(instrument: Instrumentation, operation: Operation) -> End:
    """Report the beginning of an operation to the instrument; returns the function that reports its end."""
    try:
        return handlers.ran(instrument.begin(operation)) or _nothing
    except Exception:
        log.exception("an instrument failed")
        return _nothing


def finish(end: End, error: BaseException | None = None) -> None:
    """Report the end of an operation."""
    try:
        handlers.ran(end(error))
    except Exception:
        log.exception("an instrument failed")


def told(instrument: Instrumentation, operation: Operation, error: BaseException | None = None) -> None:
    """Report an operation that ends when it begins."""
    finish(begin(instrument, operation), error)


def size_of(payload: Any) -> int:
    """Bytes of a payload; 0 if its size is unknown without encoding it."""
    return len(payload) if isinstance(payload, (bytes, bytearray, str)) else getattr(payload, "nbytes", 0)


def sending(instrument: Instrumentation, kind: Kind, send: Callable[..., Any]) -> Callable[..., Any]:
    """A function that sends (subject, payload, headers=...), with the instrument around it."""

    @functools.wraps(send)
    def instrumented(subject: str, payload: Any = b"", *, headers: Any = None, **options: Any) -> Any:
        plain = None if isinstance(headers, bytes) else headers  # an encoded block stays unchanged
        one = "ack" if kind == "request" and str(subject).startswith("$JS.ACK.") else kind
        operation = Operation(one, subject, size_of(payload), plain, detail=ack_word(payload) if one == "ack" else "")
        end = begin(instrument, operation)
        try:
            result = send(
                subject, payload, headers=headers if plain is None and headers else operation.headers, **options
            )
        except BaseException as error:
            finish(end, error)
            raise
        finish(end)
        return result

    return instrumented


def sending_later(instrument: Instrumentation, send: Callable[..., Any]) -> Callable[..., Any]:
    """`publish_async`, with the instrument around it until the future is resolved."""

    @functools.wraps(send)
    def instrumented(subject: str, payload: Any = b"", *, headers: Any = None, **options: Any) -> Any:
        operation = Operation("publish", subject, size_of(payload), headers)
        end = begin(instrument, operation)
        try:
            future = send(subject, payload, headers=operation.headers, **options)
        except BaseException as error:
            finish(end, error)
            raise
        future.add_done_callback(lambda future: finish(end, future.exception(0)))
        return future

    return instrumented


def handling(instrument: Instrumentation | None, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A handler of messages, or of lists of them, with the instrument around it."""
    if instrument is None:
        return handler
    watcher = instrument

    @functools.wraps(handler, updated=())
    def instrumented(message: Any) -> Any:
        end = begin(watcher, delivery(message, handled=True))
        try:
            result = handlers.ran(handler(message))
        except BaseException as error:
            finish(end, error)
            raise
        finish(end)
        return result

    return instrumented


def delivery(message: Any, handled: bool = False) -> Operation:
    """The "deliver" operation for a message, or for a list with the subject and headers of its first message."""
    first = message[0] if isinstance(message, (list, tuple)) and message else message
    size = sum(len(one.data) for one in message) if isinstance(message, (list, tuple)) else len(first.data)
    try:
        headers = first.headers
    except MalformedHeaders:
        headers = None
    return Operation("deliver", first.subject, size, headers, message=message, handled=handled)


def taken(instrument: Instrumentation | None, messages: Iterable[Any]) -> None:
    """Report messages that the application gets without a handler."""
    for message in messages if instrument is not None else ():
        told(instrument, delivery(message))  # type: ignore[arg-type]


def taking(instrument: Instrumentation, take: Callable[..., Any]) -> Callable[..., Any]:
    """A function that returns a message or None, and reports it to the instrument."""

    @functools.wraps(take)
    def instrumented(*args: Any) -> Any:
        message = take(*args)
        if message is not None:
            told(instrument, delivery(message))
        return message

    return instrumented


def enqueuing(instrument: Instrumentation, enqueue: Callable[..., None]) -> Callable[..., None]:
    """A function that queues frames, and reports acks among them to the instrument."""

    @functools.wraps(enqueue)
    def instrumented(frame: Any, *more: Any) -> None:
        if not (isinstance(frame, bytes) and frame.startswith(ACK_START)):
            return enqueue(frame, *more)
        subject, _, rest = frame[ACK_SUBJECT:].partition(b" ")
        body = rest.partition(b"\r\n")[2]
        end = begin(instrument, Operation("ack", subject.decode("utf-8", "replace"), detail=ack_word(body)))
        try:
            enqueue(frame, *more)
        except BaseException as error:
            finish(end, error)
            raise
        finish(end)
        return None

    return instrumented


ACK_START = pub_start(b"$JS.ACK.").rstrip()
ACK_SUBJECT = ACK_START.index(b"$")
_WORDS = {b"+ACK": "ack", b"-NAK": "nak", b"+TER": "term", b"+WPI": "in progress", b"+NXT": "ack next"}


def ack_word(body: Any) -> str:
    """The word for an ack, by its first bytes; an empty one is an ack."""
    return _WORDS.get(bytes(body[:4]), "ack") if isinstance(body, (bytes, bytearray)) else "ack"


__all__ = ["Instrumentation", "Kind", "Operation", "Together"]
