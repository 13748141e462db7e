"""What the parser makes of the bytes.

msgspec Structs outside the garbage collector: built in 121 ns against 307 (attrs.define) and 468
(attrs.frozen); 167 ns against 574 (`__slots__`) when 300,000 pile up. Every event has `sid`, None
except for messages, so that a dispatcher groups a chunk in one loop without asking for the type.
"""

from __future__ import annotations

from typing import ClassVar, TypeAlias

import msgspec

from jsclient.protocol.headers import Headers, Status, decode_status
from jsclient.protocol.info import ServerInfo, decode_info


class Msg(msgspec.Struct, gc=False):
    """MSG and HMSG. Holds the bytes of the wire; what is asked for is decoded when it is asked for.

    Names are decoded as UTF-8 with surrogateescape: a foreign subject that is not UTF-8 still encodes
    back to the very bytes it came as, so it can be answered, deleted or filtered by.

    Attributes:
        raw_subject: The subject as it came.
        sid: Number of the subscription, as digits.
        raw_reply: The reply subject as it came; None when there is none.
        data: The payload.
        raw_headers: the whole block with its NATS/1.0 line, as received
    """

    raw_subject: bytes
    sid: bytes
    raw_reply: bytes | None
    data: bytes
    raw_headers: bytes | None = None

    @property
    def subject(self) -> str:
        """The subject."""
        return self.raw_subject.decode("utf-8", "surrogateescape")

    @property
    def reply(self) -> str:
        """The reply subject, "" when there is none."""
        raw = self.raw_reply
        return "" if raw is None else raw.decode("utf-8", "surrogateescape")

    @property
    def headers(self) -> Headers:
        """Empty when the message has none. Decoded at every access: keep it in a local variable.

        Leaves out lines without a name and a colon. Raises MalformedHeaders for a block that does not begin with
        `NATS/1.0`: the server passes on unread what a publisher sends. `raw_headers` has the bytes.
        """
        raw = self.raw_headers
        return Headers() if raw is None else Headers.decode(raw)

    @property
    def status(self) -> Status | None:
        """The inline status of a server frame, else None. Never raises."""
        raw = self.raw_headers
        return None if raw is None else decode_status(raw)


class Info(msgspec.Struct, gc=False, frozen=True):
    """An INFO line; the server may send one at any time, also between CONNECT and the first PONG (2.15).

    Attributes:
        raw: The JSON as it came.
    """

    raw: bytes
    sid: ClassVar[None] = None

    def decode(self) -> ServerInfo:
        """Raises InvalidInfo (a ProtocolError) when it is not the JSON we know."""
        return decode_info(self.raw)


class Err(msgspec.Struct, gc=False, frozen=True):
    """-ERR, without its quotes.

    Attributes:
        text: What the server says.
    """

    text: str
    sid: ClassVar[None] = None


class Ping(msgspec.Struct, gc=False, frozen=True):
    """The server asks whether we are there; it wants a PONG."""

    sid: ClassVar[None] = None


class Pong(msgspec.Struct, gc=False, frozen=True):
    """The answer to a PING of ours."""

    sid: ClassVar[None] = None


class Ok(msgspec.Struct, gc=False, frozen=True):
    """+OK, only sent when CONNECT asked for verbose."""

    sid: ClassVar[None] = None


Event: TypeAlias = Msg | Info | Err | Ping | Pong | Ok
