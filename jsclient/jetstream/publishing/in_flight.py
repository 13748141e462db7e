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
import queue
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from jsclient import checks, waiting
from jsclient._connection import Drainable, ReplySink
from jsclient.connection import engine_of
from jsclient.durations import Deadline
from jsclient.errors import ConnectionLost, DrainTimeout, NotStored, TimedOut
from jsclient.jetstream.api.models import PubAck
from jsclient.jetstream.publishing.outcome import Entry, Rules, decode_fast
from jsclient.jetstream.publishing.recovery import Recovery
from jsclient.nuid import TOKEN_LENGTH
from jsclient.protocol.errors import BAD_JSON
from jsclient.protocol.frames import Frame, split
from jsclient.states import LinkEvent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jsclient.connection import Connection
    from jsclient.jetstream.publishing.base import PublishingBase
    from jsclient.jetstream.publishing.streams import Streams
    from jsclient.message import Msg

INBOX_TIMEOUT: Final = 1.0
"""Seconds to wait for a refusal of the inbox for acks. If the server is slower, publishing starts anyway."""

MAX_CACHED: Final = 10_000
"""Number of subjects whose checked beginning of the PUB line is cached; then the cache starts again."""

ANY_TOKEN: Final = b"0" * TOKEN_LENGTH

LEAST_STEP: Final = 1.1
"""The least factor by which a window grows, because growing takes a look at all pending messages."""

LONGEST_LOOK: Final = 3
"""The largest number of round trips over which answers count."""


class FrameEntry(Entry, gc=False, eq=False):
    """A row, which has only its frame. The fields are read from the frame when needed, which is rare."""

    _token: bytes
    frame: bytes

    @property
    def subject(self) -> str:
        return split(self.frame)[0].decode("utf-8", "surrogateescape")

    @property
    def payload(self) -> bytes:
        return split(self.frame)[2]

    @property
    def _block(self) -> bytes | None:
        return split(self.frame)[1]


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


class InFlight(ReplySink):
    """The messages in flight of one publisher; thread-safe."""

    def __init__(self, js: PublishingBase, user: User, window: Window, rules: Rules, streams: Streams) -> None:
        self.js = js
        self.nc: Connection = js.nc
        self.window = window
        self.pending: dict[bytes, Any] = window.pending
        self.known: dict[bytes, Entry] = {}  # of rows that were looked up, as long as they are pending
        self.starts: dict[str | bytes, bytes] = {}  # subject -> "PUB subject inbox."
        self.recovery: Recovery = Recovery(self, rules, streams)
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
        if not self._permitted:
            checks.subject(text)  # before the inbox is opened
            self._open_inbox(patience)
        start = self._engine.pub_start(text, self._inbox_start + ANY_TOKEN)  # checks all of it, and its length
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

    def busy(self) -> bool:
        """True while a message is in flight, or a publisher waits for room."""
        return bool(self.pending or self.window.parked)

    def unpark(self) -> None:
        """Wake the threads that need not wait for room any more."""
        if self.window.parked:
            self.window.unpark()

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
                self._engine.drainables.enter(self._unacknowledged)
                self._engine.add_violation_listener(self.recovery.refused_publish)
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
        self._engine.remove_violation_listener(self.recovery.refused_publish)
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
            self.recovery.unusual(message.raw_subject[cut:], message)
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
            self.unpark()
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


class Window:
    """Bounds messages and bytes under way without a lock per message.

    Every message is charged an equal share of the bytes, so the number alone decides (`len(pending) < limit`). Only a
    message larger than its share takes the lock, to charge the rest by lowering the limit for all.

    Waiting publishers wake when a quarter of the window is free (one of `parts`), not at every ack. Their next messages
    then leave together, and the threads change places a thousand times less.

    A window that may grow to `most` messages holds `messages` plus the messages in flight on the line: rate of acks
    times round trip. The number of messages that wait in the server stays the same, because the server refuses messages
    if it becomes too large.
    """

    def __init__(self, messages: int, nbytes: int, most: int = 0, parts: int = 4) -> None:
        self.pending: dict[bytes, Entry] = {}
        self.limit: int = messages
        self.share: int = max(1, nbytes // messages)
        self.large: dict[bytes, int] = {}
        self.parked: list[tuple[int, waiting.Ticket[None]]] = []
        self.answers = 0  # the reader counts them
        self._messages = self._least = messages
        self._most = most
        self._parts = parts
        self._measured = (0.0, 0)  # the time of the last look at the answers, and their number
        self._bytes = nbytes
        self._extra = 0
        self._lock = waiting.new_lock()

    def forked(self) -> None:
        """In a forked child, where no other thread waits."""
        self._lock = waiting.new_lock()
        self.parked = []

    # --- bytes --------------------------------------------------------------------------------------------------

    def charge(self, token: bytes, size: int) -> None:
        """Charge a message for the bytes beyond its share."""
        with self._lock:
            self.large[token] = size - self.share
            self._change(size - self.share)

    def release(self, token: bytes) -> None:
        """The message is resolved."""
        with self._lock:
            self._change(-self.large.pop(token, 0))

    def _change(self, by: int) -> None:
        self._extra += by
        self.limit = max(1, min(self._messages, (self._bytes - self._extra) // self.share))

    def has_room(self, size: int = 0) -> bool:
        """True if a message of this size may go out now; a single one always may."""
        count = len(self.pending)
        if size <= self.share:
            return count < self.limit
        return not count or (count < self.limit and (count * self.share + self._extra + size) <= self._bytes)

    # --- growing ------------------------------------------------------------------------------------------------

    def fit(self, now: float, round_trip: float) -> bool:
        """The window is full: make it larger if the round trip is the cause. True if it has become larger."""
        if self._most <= self._messages:
            return False
        with self._lock:
            (since, before), answers = self._measured, self.answers
            seconds = now - since
            if seconds < round_trip:
                return False
            self._measured = now, answers
            if seconds > LONGEST_LOOK * round_trip:
                return False  # it was not full all the time, so the rate means nothing
            messages = min(self._least + int((answers - before) / seconds * round_trip), self._most)
            if messages < self._messages * LEAST_STEP:
                return False
            self._resize(messages)
            return True

    def _resize(self, messages: int) -> None:
        """The caller holds the lock."""
        self._messages, before = messages, self.share
        self.share = share = max(1, self._bytes // messages)
        large = self.large
        for token in large:
            large[token] += before - share
        # More messages are larger than a share now. The reader first takes a message out of `pending` and then looks
        # into `large`, so it will find the charge of a message that is still pending.
        sizes = [
            (token, len(entry.payload) + len(entry._block or b"")) for token, entry in waiting.items_of(self.pending)
        ]
        added = {token: size - share for token, size in sizes if size > share and token not in large}
        large.update(added)
        for token in added:
            if token not in self.pending:
                del large[token]
        self._extra = sum(large.values())
        self._change(0)

    # --- waiting ------------------------------------------------------------------------------------------------

    def wait_for_room(self, size: int, timeout: float | None) -> bool:
        """Wait until a message of this size may go out; False after `timeout` seconds (None: no limit)."""
        deadline = Deadline(timeout)
        while not self.has_room(size):
            if deadline.expired():
                return False
            count = min(len(self.pending), self.limit)
            below = max(0, count - max(1, count // self._parts))  # 0: all may be acknowledged by now
            self._park(below, lambda below=below: len(self.pending) <= below, deadline)  # type: ignore[misc]
        return True

    def wait_empty(self, timeout: float | None, done: Callable[[], bool] | None = None) -> bool:
        """Wait until no message is pending and `done()` is true; False after `timeout` seconds."""
        deadline = Deadline(timeout)
        done = done or (lambda: not self.pending)
        while not done():
            if deadline.expired():
                return False
            self._park(0, done, deadline)
        return True

    def _park(self, below: int, done: Callable[[], bool], deadline: Deadline) -> None:
        ticket: waiting.Ticket[None] = waiting.Ticket()
        entry = (below, ticket)
        with self._lock:
            self.parked = [*self.parked, entry]
        try:
            if not done():
                waiting.get(ticket, deadline.remaining())
        except queue.Empty:
            pass
        finally:
            with self._lock:
                self.parked = [other for other in self.parked if other is not entry]

    def unpark(self) -> None:
        """Wake threads that need not wait any more; wake publishers only for the room there is. The reader calls it."""
        with self._lock:
            count = len(self.pending)
            room = self.limit - count
            for below, ticket in self.parked:
                if count > below or (below and room <= 0):
                    continue
                if below:
                    room -= 1
                ticket.put(None)


class Unacknowledged(Drainable):
    """The messages of one window. The drain waits for them when every handler has ended and no one can publish."""

    publishes = True

    def __init__(self, window: Window) -> None:
        self._window = window

    def finish_drain(self, deadline: Deadline) -> None:
        if not self._window.wait_empty(deadline.remaining()):
            raise DrainTimeout(
                f"{len(self._window.pending)} published messages were not acknowledged while the connection drained. "
                "Each may be stored: its future resolves as PublishUnknown, which says what to do."
            )
