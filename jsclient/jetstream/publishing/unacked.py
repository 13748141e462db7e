"""The messages of one publisher in flight: the window, the inbox of the acks, and how each message ends.

Everything with many messages in flight uses this: `publish_async` and the writer of rows. They differ in what they
keep of a message: a future, or only its frame. So this module notifies them of chunks of acks and of single failures,
and they build the frame of a message again when it is needed.

Every entry ends once: by its ack, by an error of the stream, or by the sweep that runs while anything is pending.
The thread that takes an entry out of `pending` ends it.

Of a row, `pending` has only its frame: to make and to free an entry was a fifteenth of its price. A row gets its
entry when its state is more than an ack to come; see `look_up`.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from jsclient import checks, waiting
from jsclient._connection import ReplySink
from jsclient.connection import engine_of
from jsclient.errors import ConnectionLost, NotStored, TimedOut
from jsclient.jetstream.publishing.attempts import decode_fast
from jsclient.jetstream.publishing.draining import Unacknowledged
from jsclient.jetstream.publishing.entries import FrameEntry
from jsclient.jetstream.publishing.recovery import Recovery
from jsclient.jetstream.publishing.refusals import Refusals
from jsclient.nuid import TOKEN_LENGTH, new_token
from jsclient.protocol.errors import BAD_JSON
from jsclient.states import LinkEvent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jsclient.connection import Connection
    from jsclient.jetstream.api.models import PubAck
    from jsclient.jetstream.context import JetStream
    from jsclient.jetstream.publishing.entries import Entry
    from jsclient.jetstream.publishing.rules import Rules
    from jsclient.jetstream.publishing.streams import Streams
    from jsclient.jetstream.publishing.window import Window
    from jsclient.message import Msg
    from jsclient.protocol.frames import Frame

INBOX_TIMEOUT: Final = 1.0
"""Seconds to wait for a refusal of the inbox for acks. If the server is slower, publishing starts anyway."""

MAX_CACHED: Final = 10_000
"""Number of subjects whose checked beginning of the PUB line is cached; then the cache starts again."""


class User(Protocol):
    """The publisher that uses this. It keeps any object for a message, as long as that is an `Entry`."""

    def frame(self, entry: Any) -> Frame:
        """The frame of a message that will be sent again."""

    wants_acks: bool
    """True to get every chunk of acks; otherwise only the messages that are watched are reported."""

    keeps_frames: bool
    """True if it puts frames, not entries, into `pending`. It wants acks then."""

    def acked(self, ended: list[Any]) -> None:
        """These entries were acknowledged; a user that keeps frames gets the acks instead. Mostly on the reader thread,
        so it must be quick."""

    def wake(self, entry: Any) -> None:
        """A message that is watched was acknowledged."""

    def failed(self, entry: Any, error: BaseException) -> None:
        """The outcome of a message is an error. On any thread."""


class Unacked(ReplySink):
    """The messages in flight of one publisher; thread-safe."""

    def __init__(self, js: JetStream, user: User, window: Window, rules: Rules, streams: Streams) -> None:
        self.js = js
        self.nc: Connection = js.nc
        self.window = window
        self.pending: dict[bytes, Any] = window.pending
        self.known: dict[bytes, Entry] = {}  # of rows that were looked up, as long as they are pending
        self.starts: dict[str | bytes, bytes] = {}  # subject -> "PUB subject inbox."
        self.recovery: Recovery = Recovery(self, rules, streams)
        self.refusals: Refusals = Refusals(self, self.recovery, rules)
        self._user = user
        self._engine = engine_of(js.nc)
        self._unacknowledged = Unacknowledged(window)
        self.lock: Any = waiting.new_lock()
        self._inbox: Any = None
        self._permitted = False  # as far as the client has heard
        self.closed: bool = False
        self._refusal: BaseException | None = None
        self._inbox_start = b""
        self._cut = 0
        self._set_limits()

    def _set_limits(self) -> None:
        self.max_payload: int = self.nc.max_payload
        self.small: int = min(self.window.share, self.max_payload)
        """A message of at most this number of bytes needs no second look."""

    # --- before a message goes out --------------------------------------------------------------------------------

    def start(self, subject: str | bytes, patience: float = INBOX_TIMEOUT) -> bytes:
        """Check a subject and make the beginning of its PUB line; opens the inbox at first use."""
        text = subject.decode("utf-8", "surrogateescape") if isinstance(subject, bytes) else subject
        checks.subject(text)  # before the inbox is opened
        if not self._permitted:
            self._open_inbox(patience)
        start = self._engine.pub_start(text, self._inbox_start + new_token())  # checks the length of all of it
        if len(self.starts) >= MAX_CACHED:
            self.starts.clear()
        start = self.starts[subject] = start[:-TOKEN_LENGTH]
        return start

    def make_room(self, size: int, timeout: float | None) -> bool:
        """Wait until the window has room; False after `timeout` seconds."""
        self._engine.flush_outbox()  # coalesced messages leave first, because their acks make the room
        if self.window.fit(time.monotonic(), self._engine.round_trip):
            self._set_limits()
        return self.window.wait_for_room(size, timeout)

    def charge(self, token: bytes, size: int) -> None:
        """Charge a message that has room and is larger than its share."""
        if size > self.window.share:
            self.window.charge(token, size)

    def frame(self, entry: Entry) -> Frame:
        """The frame of a message that will be sent again."""
        return self._user.frame(entry)

    # --- the inbox ------------------------------------------------------------------------------------------------

    def check_open(self, subject: str) -> None:
        """Raises NotStored after `close`."""
        if self.closed:
            raise NotStored(
                f"the message on {subject!r} was not sent, because its publisher was closed. Use another publisher."
            )

    def _open_inbox(self, patience: float) -> None:
        inbox = self.nc.new_inbox()  # before the lock, which a forked child may find held forever: this call refuses it
        with self.lock:
            if self._inbox is None:
                self._inbox_start = inbox.encode() + b"."
                self._cut = len(self._inbox_start)
                self._refusal = None
                self._inbox = self._engine.open_sink(inbox + ".*", self)
                self._engine.takers.enter(self._unacknowledged)
                self._engine.add_violation_listener(self.refusals.refused_publish)
        if self.nc.is_connected:
            # One round trip, once: a refusal must show before a message depends on acks that cannot come.
            with contextlib.suppress(TimedOut, ConnectionLost):
                self.nc.flush(min(INBOX_TIMEOUT, patience))
        refusal = self._refusal
        if refusal is not None:
            self._forget_inbox()  # once more: `failed` may have come before the inbox existed
            raise refusal
        self._permitted = True

    def _forget_inbox(self) -> None:
        """Without the lock: the reader does this too, and the holder may be waiting for the server."""
        self._engine.remove_violation_listener(self.refusals.refused_publish)
        self._permitted = False
        self._inbox = None
        self.starts.clear()

    @property
    def inbox_start(self) -> bytes:
        """The reply subjects of all messages, up to the token."""
        if not self._permitted:
            self._open_inbox(INBOX_TIMEOUT)
        return self._inbox_start

    def close(self) -> None:
        """Close the inbox; messages without an ack end with an unknown outcome."""
        self.closed = True
        self.recovery.abandon("the publisher was closed")
        with self.lock:
            inbox = self._inbox
            self._forget_inbox()
        if inbox is not None:
            inbox.close()

    # --- what the connection tells: on the reader thread, or another internal one ---------------------------------

    def deliver(self, messages: list[Msg], nbytes: int) -> None:
        """Match a chunk of acks with their messages."""
        pop = self.pending.pop
        cut = self._cut
        decode = decode_fast
        window = self.window
        known, large = self.known, window.large
        acked: list[Any] | None = [] if self._user.wants_acks else None
        for message in messages:
            if message.raw_headers is None:
                try:
                    ack = decode(message.data)
                except BAD_JSON:
                    ack = None
                if ack is not None and ack.seq:
                    token = message.raw_subject[cut:]
                    entry = pop(token, None)
                    if entry.__class__ is bytes:
                        acked.append(ack)  # type: ignore[union-attr]
                        if known or large:
                            self._row_acked(token, ack)
                    elif entry is not None:
                        entry._ack = ack
                        if entry._sends != 1 or large:
                            self._forget(token)
                        if acked is not None:
                            acked.append(entry)
                        elif entry._watchers is not None:
                            self._user.wake(entry)
                    continue
            self.refusals.unusual(message.raw_subject[cut:], message)
        if acked:
            self._user.acked(acked)
        window.answers += len(messages)
        if window.parked:
            window.unpark()

    def link_event(self, event: LinkEvent) -> None:
        """The link went down, came back, or the connection was closed."""
        if event is LinkEvent.RECONNECTED:
            self._set_limits()
        self.recovery.link_event(event)

    def under_way(self) -> list[bytes]:
        """The tokens of messages without an ack."""
        return list(self.pending)

    def withdrawn(self, frames: list[Frame]) -> None:
        """Frames that were queued when the link went down, and of which no byte was sent."""
        self.recovery.withdrawn(frames)

    def forked(self) -> None:
        """In a forked child: threads that the child does not have may hold these locks. Every call then raises."""
        self.lock = waiting.new_lock()
        self.pending.clear()
        self.known.clear()
        self.window.forked()
        self.recovery.forked()

    def failed(self, error: BaseException) -> None:
        """The server refused the inbox: no ack can come. The next publish asks for one again."""
        self._refusal = error
        self._forget_inbox()
        self.recovery.refused(error)

    # --- how messages end -----------------------------------------------------------------------------------------

    def look_up(self, token: bytes) -> Any:
        """The entry of a message in flight, or None. A row gets an entry here and keeps it until the row has ended."""
        kept = self.pending.get(token)
        if kept.__class__ is not bytes:
            return kept
        entry = self.known.setdefault(token, FrameEntry(token, kept))
        if token in self.pending:
            return entry
        # Its ack came meanwhile. Code that takes a row out of `pending` looks for its entry after that.
        self.known.pop(token, None)
        return None

    def entries(self) -> list[Any]:
        """The entries of all messages in flight, in the order of publishing."""
        if not self._user.keeps_frames:
            return list(self.pending.values())
        return [entry for entry in map(self.look_up, list(self.pending)) if entry is not None]

    def take(self, token: bytes) -> Any:
        """Take a message out of the window; the caller that gets it ends it. None if another thread has taken it."""
        entry = self.pending.pop(token, None)
        if entry is not None:
            if entry.__class__ is bytes:
                entry = self.known.pop(token, None) or FrameEntry(token, entry)
            self._forget(token)
            if self.window.parked:
                self.window.unpark()
        return entry

    def drop(self, tokens: Iterable[bytes]) -> None:
        """Forget messages without reporting an outcome."""
        for token in tokens:
            self.take(token)

    def succeed(self, entry: Entry, ack: PubAck) -> None:
        """An inquiry found the message in the stream; a message that has ended already stays as it is."""
        if self.take(entry._token) is not None:
            entry._ack = ack
            if self._user.wants_acks:
                self._user.acked([ack if self._user.keeps_frames else entry])
            else:
                self._user.wake(entry)

    def fail(self, entry: Entry, error: BaseException) -> None:
        """The outcome is an error; a message that has ended already stays as it is."""
        if self.take(entry._token) is not None:
            entry._error = error
            self._user.failed(entry, error)

    def _row_acked(self, token: bytes, ack: PubAck) -> None:
        """A row has ended, and it may have an entry or a charge in addition to its frame."""
        entry = self.known.pop(token, None)
        if entry is not None:
            entry._ack = ack
        self._forget(token)

    def _forget(self, token: bytes) -> None:
        self.recovery.forget(token)
        if token in self.window.large:
            self.window.release(token)
