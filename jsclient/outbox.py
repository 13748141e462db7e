"""The send path: one FIFO of whole frames, drained by whoever gets the send lock.

Appending takes no lock (append and join under one lock fell from 1.3-3 M/s with one thread to 0.1 M/s with 64;
this keeps 0.44-0.51 of it). Two ways in:

* `post` coalesces: async publishes and acks leave at 32 KiB, core publishes at 96, by the flusher about a
  millisecond later, or before any call of ours blocks;
* `post_now` appends, then drains at once: requests, synchronous publishes, pulls, flushes. The caller sends its
  own bytes; a writer thread on this path costs a wake-up per request (p50 8.6-16 ms instead of 5.3 beside a
  busy thread).

Plain `bytes` frames (core publishes, acks) that the kernel has not taken when the link is lost are kept for the
next link. `Unkept` frames are not: their owners re-issue them or fail them.

The send lock is an RLock that is only ever *tried* on this path. It is reentrant for one reason: its ownership is
recorded in C together with the acquisition, so a KeyboardInterrupt between acquiring it and entering the `try`
cannot leave it held for ever, and a signal handler that publishes while its own thread sends can tell.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors
from jsclient.durations import FOREVER, Deadline

if TYPE_CHECKING:
    from jsclient.transport import Transport

COALESCE: Final = 32 * 1024
"""Queued bytes that leave at once: 4-5 times cheaper than a write per message. More would let the server rest while
the next messages of a window are made: at 128 KiB asynchronous publishes were a tenth slower."""

BULK: Final = 96 * 1024
"""The same for messages that nobody answers, and the most that is joined into one write. Beside 32 KiB a publish of
128 B takes 0.49 us of CPU instead of 0.55, of 1 KiB 0.91 instead of 1.27, of 16 KiB 7.0 instead of 12.4. 512 KiB gain
another tenth, for large messages only."""

LARGE_FRAME: Final = 16 * 1024
"""From this size frames go out as an iovec: copying them into one block costs twice as much."""

HIGH_WATER: Final = 1024 * 1024
"""While connected, a publisher that finds this much queued waits for the sender instead of adding to it."""

HIGH_WATER_FRAMES: Final = 65_536

FRAME_OVERHEAD: Final = 64
"""Bytes that a frame counts beside its own against the buffer limit while disconnected."""

WRITE_TIMEOUT: Final = 10.0
"""Seconds that a write may stall: then the frames stay queued and the caller is told."""

PATIENCE: Final = 0.2
"""Seconds that a stalled write waits before it looks whether the connection was closed meanwhile."""

AT_ONCE: Final = Deadline(0)
"""For who sends only what the kernel takes without waiting."""

ROUNDS: Final = 64
"""Writes that one caller does for the others before it hands the rest to the flusher."""


class Unkept(bytes):
    """A frame that must not be sent again on another link: its owner re-issues it or fails it."""

    __slots__ = ()


class Vector(bytes):
    """A frame with a large payload, in parts that are never joined: a publish of 128 KiB was copied three times on
    its way to the kernel, 60 us of it. As bytes it is its first part (the control line), `len()` is that of all."""

    parts: tuple[bytes, ...]

    def __new__(cls, *parts: bytes) -> Vector:
        self = super().__new__(cls, parts[0])
        self.parts = parts
        return self

    def __len__(self) -> int:
        return sum(map(len, self.parts))


class UnkeptVector(Vector, Unkept):
    """The same for a frame that must not be sent again."""


class Outbox:
    """The frames of one Connection on their way to the current transport; survives every link."""

    def __init__(
        self,
        *,
        kick: Callable[[], None],
        broken: Callable[[Any, BaseException], None],
        limit: int,
        block_when_full: float | None = None,
        write_timeout: float = WRITE_TIMEOUT,
    ) -> None:
        self.frames: deque[bytes] = deque()
        self.size = 0  # bytes queued; lock-free, so a trigger and not an account. Exact whenever the queue is empty
        self.offline = True
        self.closed: Callable[[], BaseException] | None = None
        self.ticking = False  # the flusher is awake and will drain within a millisecond
        self.lock = threading.RLock()
        self.transport: Transport | None = None
        self.writing: list[bytes] = []  # popped, and perhaps not yet taken by the kernel
        self.bytes_out = 0
        self._kick = kick
        self._broken = broken
        self._limit = limit
        self._block_when_full = block_when_full
        self._write_timeout = min(write_timeout, FOREVER)
        # Guards the account of what is queued while offline, and the switch between online and offline.
        # Entered as a lock, never as a Condition: `with condition` runs Python code in which Ctrl-C leaves it locked.
        self._offline_lock = threading.Lock()
        self._offline_changed = threading.Condition(self._offline_lock)
        self._offline_bytes = 0

    # --- ways in ----------------------------------------------------------------------------------------

    def post(self, frame: bytes, limit: int = COALESCE) -> None:
        """Queue a frame; it leaves with others, at once when `limit` bytes are queued.

        Raises BufferFull, ConnectionLost (Unkept while offline) or why the connection is closed.
        """
        if self.offline:
            self._post_offline(frame)
            return
        self.frames.append(frame)
        size = len(frame)  # not inside the addition: a call is where threads change, and the count would be lost
        self.size += size
        if self.size >= limit:
            self._relieve()
        elif not self.ticking:
            self._kick()

    def post_now(self, frame: bytes, deadline: Deadline | None = None) -> None:
        """Queue a frame and send at once, until `deadline` at most. What is left then stays queued."""
        if self.offline:
            self._post_offline(frame)
            return
        self.frames.append(frame)
        size = len(frame)
        self.size += size
        if not self.drain(deadline):
            self._kick()

    def nudge(self) -> None:
        """Send without ever blocking (the reader's way); what does not go out is left to the flusher."""
        if not self.drain(AT_ONCE):
            self._kick()

    def flush(self) -> None:
        """Send what is coalesced, if anything; called before every wait of ours, and never a wait itself."""
        if self.frames and not self.offline and not self.drain(AT_ONCE):
            self._kick()

    # --- draining ---------------------------------------------------------------------------------------

    def drain(self, deadline: Deadline | None = None) -> bool:
        """Send until nothing is left. False when somebody else is sending (and looks again), or the link stalls.

        The deadline is that of the whole call. Without one every write may stall for `write_timeout`.
        """
        lock = self.lock
        rounds = 0
        while self.frames or self.unsent:
            if lock._is_owned():  # type: ignore[attr-defined]
                return False  # a signal handler inside our own write
            try:
                if not lock.acquire(False):
                    return False
                done = self._send(deadline)
            finally:
                # Twice, because Ctrl-C may strike during the first look, and a lock left behind would silence us.
                try:
                    if lock._is_owned():  # type: ignore[attr-defined]
                        lock.release()
                finally:
                    if lock._is_owned():  # type: ignore[attr-defined]
                        lock.release()
            if not done:
                return False
            rounds += 1
            if rounds == ROUNDS:
                self._kick()
                return True
        return True

    @property
    def unsent(self) -> int:
        """Bytes that the transport holds back because the kernel did not take them."""
        transport = self.transport
        return 0 if transport is None else transport.unsent

    def _send(self, deadline: Deadline | None) -> bool:
        """One write of up to 96 KiB; the caller holds the send lock. The clock is read only if the kernel is full."""
        transport = self.transport
        if transport is None:
            return False
        try:
            if transport.unsent and not (transport.send(b"", 0) or self._go_on(transport, deadline)):
                return False
            batch = self.writing = []
            size = large = 0
            popleft = self.frames.popleft
            append = batch.append
            try:
                while size < BULK:
                    frame = popleft()
                    append(frame)
                    size += len(frame)
                    if len(frame) >= LARGE_FRAME:
                        large += 1
            except IndexError:
                self.size = 0
            else:
                self.size -= size
            self.bytes_out += size
            if large:
                data: bytes | list[bytes] = _parts(batch)
            else:
                data = batch[0] if len(batch) == 1 else b"".join(batch)
            done = transport.send(data, 0) or self._go_on(transport, deadline)
            if done:
                self.writing = []
            return done
        except OSError as error:
            self._broken(transport, error)
            if transport.in_doubt or (error.errno is None and not isinstance(error, errors.TlsError)):
                raise  # of a signal handler that struck here (an alarm's TimeoutError): its thread waits for it
            return False
        except BaseException as error:
            # Interrupted in mid-write: how many bytes are out is unknown, so this link can never be used again.
            self._broken(transport, error)
            raise

    def _go_on(self, transport: Transport, deadline: Deadline | None) -> bool:
        """Send what a write has left, unless the connection is closed meanwhile: who sends then is let go."""
        deadline = Deadline(self._write_timeout) if deadline is None else deadline
        while True:
            if transport.send(b"", deadline.at_most(PATIENCE)):
                return True
            if self.closed is not None or deadline.expired():
                return False

    def _relieve(self) -> None:
        """The coalescing limit is reached: send, or make a publisher wait while too much is queued."""
        start, taken = time.monotonic(), self.bytes_out - self.unsent
        if self.drain():
            return
        if self.size < HIGH_WATER and len(self.frames) < HIGH_WATER_FRAMES:
            if not self.ticking:
                self._kick()
            return
        if self.offline or self.lock._is_owned():  # type: ignore[attr-defined]
            return
        # Somebody else is sending and falls behind, or the link stalls: back-pressure instead of memory.
        # `unsent` alone says nothing here: another thread may be in the middle of a write that makes progress.
        end = start + self._write_timeout
        self._wait_for_sender(max(0.0, end - time.monotonic()))
        if self.closed is not None:
            raise self.closed()  # sending is up to close() now; who waited in line must not wait for it, too
        self.drain(Deadline(end - time.monotonic()))
        stalled = self.bytes_out - self.unsent == taken and time.monotonic() >= end
        if stalled and self.unsent and not self.offline:
            raise errors.UnknownOutcome(
                f"the server has taken no data for {self._write_timeout:g} s; "
                "the message stays queued and may still be sent"
            )

    def _wait_for_sender(self, timeout: float) -> None:
        """Until nobody holds the send lock."""
        lock = self.lock
        try:
            lock.acquire(True, timeout)
        finally:
            try:
                if lock._is_owned():  # type: ignore[attr-defined]
                    lock.release()
            finally:
                if lock._is_owned():  # type: ignore[attr-defined]
                    lock.release()

    # --- offline ----------------------------------------------------------------------------------------

    def _post_offline(self, frame: bytes) -> None:
        with self._offline_lock:
            self._admit_offline(frame)
        if not self.offline:
            self._kick()

    def _admit_offline(self, frame: bytes) -> None:
        cost = len(frame) + FRAME_OVERHEAD
        deadline: Deadline | None = None
        while self.offline:
            if self.closed is not None:
                raise self.closed()
            if isinstance(frame, Unkept):
                raise errors.ConnectionLost("not connected at the moment: nothing was sent", sent=False)
            if self._offline_bytes + cost <= self._limit:
                break
            if self._block_when_full is not None and deadline is None:
                deadline = Deadline(self._block_when_full)
            if deadline is None or deadline.expired():
                raise errors.BufferFull(
                    f"{self._offline_bytes} bytes are waiting for the connection to come back, the limit "
                    f"(pending_buffer) is {self._limit}; this message was not added"
                )
            self._offline_changed.wait(deadline.remaining())
        self._offline_bytes += cost
        self.frames.append(frame)
        self.size += len(frame)

    def attach(self, transport: Transport, first: list[bytes]) -> None:
        """Go online: `first` (the subscriptions) leaves before what was kept."""
        with self._offline_lock:
            # An Unkept frame that slipped in while the old link went down belongs to nobody any more. Another one
            # may slip in right now, without a lock: so the queue is emptied and refilled, never iterated.
            kept = [frame for frame in self._take_all() if not isinstance(frame, Unkept)]
            queue = [*map(Unkept, first), *kept]
            self.frames.extendleft(reversed(queue))
            self.size = sum(map(len, queue))
            self._offline_bytes = 0
            if self.closed is not None:
                return  # closed while the link was being made
            self.transport = transport
            self.offline = False
            self._offline_changed.notify_all()

    def detach(self) -> list[bytes]:
        """Go offline: keep what may be sent again, forget the rest, and return what was forgotten unsent.

        The transport must have been shut down: a thread that is writing then fails and lets go of the send lock.
        """
        with self._offline_lock:
            self.offline = True
        owned = self.lock.acquire(True, self._write_timeout)
        try:
            return self._withdraw()
        finally:
            if owned:
                self.lock.release()

    def _withdraw(self) -> list[bytes]:
        with self._offline_lock:
            transport, self.transport = self.transport, None
            pending = [*self._not_taken(transport), *self._take_all()]
            self.writing = []
            kept = [frame for frame in pending if not isinstance(frame, Unkept)]
            withdrawn: list[bytes] = [frame for frame in pending if isinstance(frame, Unkept)]
            self.frames.extendleft(reversed(kept))
            self._offline_bytes = sum(map(len, kept)) + FRAME_OVERHEAD * len(kept)
            self.size = sum(map(len, kept))
            return withdrawn

    def _take_all(self) -> list[bytes]:
        taken: list[bytes] = []
        while True:
            try:
                taken.append(self.frames.popleft())
            except IndexError:
                return taken

    def _not_taken(self, transport: Transport | None) -> list[bytes]:
        """The frames being written of which the kernel has taken no byte.

        Under TLS and websockets the transport counts its own bytes, not ours, and after an interrupted write nobody
        knows: then nothing is claimed, because a frame that is sent twice is worse than a core message that is lost.
        """
        certain = transport is not None and transport.counts_plain_bytes and not transport.in_doubt
        unsent = transport.unsent if transport is not None and certain else 0
        batch = list(self.writing)
        whole: list[bytes] = []
        while batch and len(batch[-1]) <= unsent:
            frame = batch.pop()
            unsent -= len(frame)
            whole.append(frame)
        return whole[::-1]

    def refuse(self, reason: Callable[[], BaseException]) -> None:
        """Take nothing more: whoever posts or waits for room gets `reason()`. What is queued can still be drained."""
        with self._offline_lock:
            self.closed = reason
            self.offline = True
            self._offline_changed.notify_all()

    def close(self, reason: Callable[[], BaseException]) -> int:
        """Nothing more goes out; returns how many frames that were to be kept are thrown away."""
        self.refuse(reason)
        with self._offline_lock:
            self.transport = None
            left = sum(not isinstance(frame, Unkept) for frame in self._take_all())
            self.size = 0
            return left

    def forked(self, reason: Callable[[], BaseException]) -> None:
        """In a forked child: nothing of ours may reach the parent's socket, and its locks may be held for ever."""
        self.lock = threading.RLock()
        self._offline_lock = threading.Lock()
        self._offline_changed = threading.Condition(self._offline_lock)
        self.frames = deque()
        self.writing = []
        self.close(reason)


def _parts(frames: list[bytes]) -> list[bytes]:
    parts: list[bytes] = []
    for frame in frames:
        if isinstance(frame, Vector):
            parts += frame.parts
        else:
            parts.append(frame)
    return parts
