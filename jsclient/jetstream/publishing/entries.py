"""The state of a message in flight that recovery needs, however the message was published."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from jsclient.errors import JsClientError, NoStreamResponse, PublishUnknown
from jsclient.jetstream.api.models import PubAck
from jsclient.protocol.frames import split


class Entry(Protocol):
    """A message without an ack."""

    _token: bytes
    """The last token of its reply subject."""
    _sends: int
    """The number of copies sent, less those that are certainly not stored."""
    _no_responders: int
    """The number of copies that were answered with 503."""
    _first: float
    """When the sweep first saw it, or the first copy that may be stored was sent (`elapsed`); 0 if not yet."""
    _last: float
    """When the last copy was sent."""
    _since: float
    """The start of the wait for its ack; a reconnect starts it again."""
    _ack: PubAck | None
    _error: BaseException | None
    _watchers: list[Any] | None
    """Tickets and callbacks to notify when it ends."""

    @property
    def subject(self) -> str: ...

    @property
    def payload(self) -> bytes: ...

    @property
    def _block(self) -> bytes | None: ...

    def done(self) -> bool:
        """True if it has ended."""


class FrameEntry(msgspec.Struct, gc=False, eq=False):
    """A row, which has only its frame. The fields are read from the frame when needed, which is rare."""

    _token: bytes
    frame: bytes
    _sends: int = 1
    _no_responders: int = 0
    _first: float = 0.0
    _last: float = 0.0
    _since: float = 0.0
    _ack: PubAck | None = None
    _error: BaseException | None = None
    _watchers: list[Any] | None = None

    @property
    def subject(self) -> str:
        return split(self.frame)[0].decode("utf-8", "surrogateescape")

    @property
    def payload(self) -> bytes:
        return split(self.frame)[2]

    @property
    def _block(self) -> bytes | None:
        return split(self.frame)[1]

    def done(self) -> bool:
        return self._ack is not None or self._error is not None


def in_doubt(entry: Entry) -> bool:
    """True if some copy was sent that was not answered with 503."""
    return entry._sends > entry._no_responders


def unknown(entry: Entry, why: str) -> PublishUnknown:
    """The error for a message that may be stored."""
    return PublishUnknown(f"the message on {entry.subject!r} (sent {entry._sends} times) got no ack: {why}")


def no_stream(entry: Entry) -> JsClientError:
    """The error for a message that no stream took."""
    if in_doubt(entry):
        return unknown(entry, "nobody takes it now")
    return NoStreamResponse(
        f"nobody took the message on {entry.subject!r} in {entry._sends} attempts: no stream, or no leader",
        entry.subject,
    )
