"""What recovery needs to know about a message under way, however it was published."""

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
    """Copies that were sent, less those that are certainly not stored."""
    _no_responders: int
    """Copies that were answered with 503."""
    _first: float
    """When the sweep saw it first, or the first copy was sent that may be stored, as `elapsed` tells; 0: not yet."""
    _last: float
    """When it was sent last."""
    _since: float
    """Since when its ack is waited for; a reconnect starts anew."""
    _ack: PubAck | None
    _error: BaseException | None
    _watchers: list[Any] | None
    """What is to be told of its end."""

    @property
    def subject(self) -> str: ...

    @property
    def payload(self) -> bytes: ...

    @property
    def _block(self) -> bytes | None: ...

    def done(self) -> bool:
        """Whether it has ended."""


class FrameEntry(msgspec.Struct, gc=False, eq=False):
    """No more than the frame. What it says is read from it when that is needed, which is rare."""

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
    """Whether some copy was sent that nobody answered with 503."""
    return entry._sends > entry._no_responders


def unknown(entry: Entry, why: str) -> PublishUnknown:
    """The outcome of a message that may be stored."""
    return PublishUnknown(f"the message on {entry.subject!r} (sent {entry._sends} times) got no ack: {why}")


def no_stream(entry: Entry) -> JsClientError:
    """The outcome of a message that nobody took."""
    if in_doubt(entry):
        return unknown(entry, "nobody takes it now")
    return NoStreamResponse(
        f"nobody took the message on {entry.subject!r} in {entry._sends} attempts: no stream, or no leader",
        entry.subject,
    )
