"""The message that subscriptions and requests hand to the application."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from jsclient import codecs, errors, protocol

if TYPE_CHECKING:
    from jsclient.connection import Connection

Payload: TypeAlias = bytes | bytearray | memoryview | str
"""The payload types of every publish. A str is sent as UTF-8, a bytearray or memoryview with its current contents."""

HeadersLike = Mapping[str, str | Iterable[str]] | protocol.Headers


def headers_of(block: bytes | None) -> protocol.Headers:
    """The headers in a received block; raises MalformedHeaders."""
    if block is None:
        return protocol.Headers()
    try:
        return protocol.Headers.decode(block)
    except protocol.MalformedHeaders as error:
        raise errors.MalformedHeaders(error.what) from None


class Msg(protocol.Msg, gc=False):
    """One message: `subject`, `reply` ("" when none), `data`, `headers` (empty when none), `status`.

        with nc.subscribe("greet") as sub:
            nc.publish("greet", b"hello", headers={"Language": "en"})
            msg = sub.next(timeout=1)
            print(msg.subject, msg.data, msg.headers["Language"])

    It decodes its fields at each access. It is immutable in practice, and you can use it from any thread.

    Attributes:
        connection: The connection that received it, on which `respond` publishes.
    """

    connection: Any = None

    @property
    def headers(self) -> protocol.Headers:
        """As in `jsclient.protocol.Msg`, with an error of jsclient."""
        return headers_of(self.raw_headers)

    def __repr__(self) -> str:
        reply = f", reply={self.reply!r}" if self.raw_reply else ""
        headers = ", with headers" if self.raw_headers else ""
        shown = repr(self.data[:40]) + ("..." if len(self.data) > 40 else "")
        return f"Msg(subject={self.subject!r}{reply}{headers}, data={shown}, {len(self.data)} bytes)"

    def json(self) -> Any:
        """The payload as JSON: dict, list, str, number ...; raises DecodeFailed."""
        return codecs.from_json(self.data, self.subject)

    def respond(self, payload: Payload = b"", *, headers: HeadersLike | None = None) -> None:
        """Publish `payload` to the reply subject. Raises InvalidSubject if the sender expects no answer."""
        connection: Connection | None = self.connection
        if connection is None or not self.raw_reply:
            raise errors.InvalidSubject("this message has no reply subject: its sender expects no answer")
        connection._respond(self, payload, headers)

    def __reduce__(self) -> tuple[Any, ...]:
        # A message is plain data; its connection stays behind.
        return (Msg, (self.raw_subject, self.sid, self.raw_reply, self.data, self.raw_headers))
