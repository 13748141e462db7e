"""The send path: one FIFO of complete frames. The thread that gets the send lock of the link writes for all.

Appending takes no lock. There are two ways in:

* `enqueue` coalesces. Async publishes and acks leave at 64 KiB, by the flusher within about 2 ms, or before any call of
  this library blocks. `enqueue_core` does the same at 108 KiB, but after a quiet moment a core publish leaves
  immediately.

* `enqueue_now` appends, then writes as much as the kernel accepts. It is for requests, synchronous publishes, pulls and
  flushes. The flusher writes the rest, so no caller waits for the network here.

Both are bounded. A caller that finds a megabyte queued waits for room, within its timeout. If there is none, it learns
that nothing of its message was sent. A caller that gives up can withdraw its frame if no byte of it is out.

If the link is lost, plain `bytes` frames (core publishes, acks) that the kernel has not accepted stay for the next
link. `LinkFrame`s do not: their owners re-issue them or fail them.

Signal handlers have this contract, which the site's page on threads has for users. On top of a write of the same thread
a handler may enqueue, and the code beneath sends the frame. It cannot wait there, because no other thread can write
meanwhile, so a call that waits raises Reentered. A handler that stays there for longer than `STUCK` costs the link, see
`look`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors, waiting
from jsclient._connection.sender import BULK, LINK_FRAMES, LinkFrame, Sender
from jsclient.durations import FOREVER, Deadline
from jsclient.protocol.frames import Frame
from jsclient.waiting import GIL

if TYPE_CHECKING:
    from jsclient._transport import Transport

COALESCE: Final = 64 * 1024
"""Queued bytes that leave immediately, which is 4-5 times cheaper than a write per message. Compared with 32 KiB,
asynchronous publishes of 16 KiB take 0.8 of the CPU, small ones 0.97. With more (128 KiB) the server idles while the
next ones are made."""

QUIET: Final = 0.0002
"""Seconds since a core publish left immediately, after which another one does."""

CONVOY: Final = 0.002
"""Seconds that such a write may take. `send` releases the interpreter lock. If another thread never releases it, the
publisher waits 5 ms to get it back."""

CONVOY_PAUSE: Final = 10.0
"""After such a slow write, no core publish leaves immediately for this multiple of the time it took. So these writes
delay a publisher by a tenth of its time at most. A fixed pause was wrong: on a loaded machine any publish may be that
slow."""

HIGH_WATER: Final = 1024 * 1024
"""While connected, a publisher that finds this much queued waits for room instead of adding to it."""

HIGH_WATER_FRAMES: Final = 65_536

FRAME_OVERHEAD: Final = 64
"""Bytes that a frame counts in addition to its own against the buffer limit while disconnected."""

WRITE_TIMEOUT: Final = 10.0
"""Seconds that a publisher waits for room unless its call has a timeout: then the message is not sent."""

PATIENCE: Final = 0.2
"""Seconds that a stalled write waits before it looks whether the connection was closed meanwhile."""

SETTLE: Final = 1.0
"""Seconds that the end of a link waits for the thread that writes."""

STUCK: Final = 1.0
"""Seconds after which a thread that has the send lock and makes no progress costs the link."""

AT_ONCE: Final = Deadline(0)
"""For callers that write only as much as the kernel accepts without waiting."""

MOST_LEFT, MOST_LEFT_SIZE = 32, 32 * 1024
"""Frames and bytes that may be left to others, see `leave`."""

ROUNDS: Final = 64
"""Writes that one caller does for the others before it hands the rest to the flusher."""

__all__ = ["AT_ONCE", "BULK", "COALESCE", "Outbox"]


class Outbox:
    """The frames of one Connection on their way to the current link; survives every link."""

    def __init__(
        self,
        *,
        kick: Callable[[], None],
        broken: Callable[[Any, BaseException], None],
        limit: int,
        block_when_full: float | None = None,
        write_timeout: float = WRITE_TIMEOUT,
    ) -> None:
        self.frames: deque[Frame] = deque()
        # Bytes queued: a trigger. An exception between count and append makes it wrong until the queue is empty.
        self.size: int = 0
        self.offline: bool = True
        self.closed: Callable[[], BaseException] | None = None
        self.ticking = False  # the flusher is awake, and writes within two milliseconds
        self._first_sent = 0.0
        self._bytes_before = 0  # sent over links that have ended
        self._most_sent = 0  # see `bytes_sent`
        self.sender: Sender | None = None
        self.lock: Any = waiting.new_turn()  # The send lock of the link: while held, no other thread writes.
        self.awaited_until: float = 0.0  # A publisher waits for the kernel, and the flusher leaves the writing to it.
        self._stalled = False  # the last wait for the kernel timed out
        self._seen: tuple[Any, ...] = ()  # see `look`
        self._seen_at = 0.0
        self._kick = kick
        self._broken = broken
        self._limit = limit
        self._block_when_full = block_when_full
        self.write_timeout: float = min(write_timeout, FOREVER)
        self._bounds: dict[int, Deadline] = {}  # thread -> see `sends_within`
        # Until `size` reaches this a publisher need not try to write: another thread is writing. A hint only.
        self.relief: int = 0
        # Guards the count of frames queued while offline, and the switch between online and offline. Without the
        # interpreter lock it guards `size`, too.
        self._account = waiting.new_lock()
        self._offline_bytes = 0
        self.online: waiting.Gate = waiting.Gate()  # opens when this offline time ends; each has its own

    # --- ways in ----------------------------------------------------------------------------------------

    def enqueue(self, frame: Frame, limit: int = COALESCE) -> None:
        """Queue a frame. It leaves with others, or immediately when `limit` bytes are queued.

        Raises BufferFull, ConnectionLost (LinkFrame while offline) or the reason why the connection is closed. In each
        case nothing of the frame is sent.
        """
        if self.offline:
            self._enqueue_offline(frame)
            return
        size = len(frame)  # not inside the addition: threads may switch at a call, and a count would be lost
        if GIL:
            self.size += size
        else:
            self.count_queued(size)
        self.frames.append(frame)
        if self.closed is not None:
            self._came_late(frame)
        if self.size >= limit and self.size >= self.relief:
            self._relieve(frame)
        elif not self.ticking:
            self._kick()

    def enqueue_core(self, frame: Frame) -> None:
        """`enqueue` for core publishes: after a quiet moment a frame leaves immediately."""
        if self.offline:
            self._enqueue_offline(frame)
            return
        size = len(frame)
        if GIL:
            self.size += size
        else:
            self.count_queued(size)
        self.frames.append(frame)
        if self.closed is not None:
            self._came_late(frame)
        if self.size >= BULK and self.size >= self.relief:
            self._relieve(frame)
        elif not self.ticking:
            now = time.monotonic()
            if now - self._first_sent < QUIET:
                self._kick()
                return
            self._first_sent = now
            self.drain()
            took = time.monotonic() - now
            if took >= CONVOY:
                self._first_sent = now + CONVOY_PAUSE * took

    def enqueue_now(self, frame: Frame, deadline: Deadline | None = None) -> None:
        """Queue a frame and write as much as the kernel accepts. Raises as `enqueue` and Reentered as `check_wait`.

        `deadline` bounds the wait for room in a full queue (None: `patience`), then BufferFull.
        """
        if self.size >= HIGH_WATER and not self._make_room(deadline or self.patience()):
            raise self._full()
        self.enqueue_at_once(frame)

    def enqueue_at_once(self, frame: Frame) -> None:
        """`enqueue_now` for small frames such as pulls, whose owners limit their number. It does not wait for room,
        because its callers have their own deadlines."""
        if self.offline:
            self._enqueue_offline(frame)
            return
        self.count_queued(len(frame))
        self.frames.append(frame)
        if self.closed is not None:
            self._came_late(frame)
        if not self.drain() and self.lock._is_owned() and self.withdraw(frame):
            raise _reentered()

    def _came_late(self, frame: Frame) -> None:
        """`closed` was set between the check of `offline` and the append. Take the frame back, unless the last drain
        has it, and raise the reason why the connection is closed."""
        assert self.closed is not None
        if self.withdraw(frame):
            raise self.closed()

    def enqueue_control(self, frame: Frame) -> None:
        """Queue a SUB, UNSUB or PONG. It neither sends nor waits; `check_control` is its bound."""
        self.count_queued(len(frame))
        self.frames.append(frame)

    def check_control(self) -> None:
        """Raises BufferFull if the queue exceeds a full queue plus the most bytes that wait for a new link."""
        if self.size >= self._limit + 2 * HIGH_WATER:
            raise self._full()

    def leave(self, frame: Frame) -> bool:
        """Queue a frame that others will write (see `wake_chain`); False when the caller has to send it."""
        size = len(frame)
        if self.offline or len(self.frames) >= MOST_LEFT or max(size, self.size) + size > MOST_LEFT_SIZE:
            return False
        if self.lock._is_owned():
            return False  # on top of this thread's own write: others cannot write
        self.count_queued(size)
        self.frames.append(frame)
        return self.closed is None or not self.withdraw(frame)

    def withdraw(self, frame: Frame) -> bool:
        """Take back a frame that its caller no longer wants; True when no byte of it was sent, nor will be."""
        try:
            self.frames.remove(frame)
        except ValueError:
            sender = self.sender
            return sender is not None and sender.withdraw(frame)
        self.count_queued(-len(frame))
        return True

    def count_queued(self, size: int) -> None:
        """Change the number of queued bytes. A frame counts before it is queued: an empty queue must not look full."""
        if GIL:
            self.size += size
            return
        with self._account:
            self.size += size

    def check_wait(self) -> None:
        """Raises Reentered if the caller is a signal handler on top of a write of the same thread."""
        if self.lock._is_owned():
            raise _reentered()

    def flush(self) -> None:
        """Write the coalesced frames, if any. This library calls it before every wait; it never waits itself. Raises as
        `check_wait` does."""
        self.check_wait()
        if self.frames and not self.offline:
            self.drain()

    def nudge(self) -> None:
        """Write the queued frames, if any, for a caller that does not wait for their effect."""
        self.drain()

    # --- writing ----------------------------------------------------------------------------------------

    def drain(self, deadline: Deadline = AT_ONCE, in_line: bool = False) -> bool:
        """Write until nothing is left.

        Returns False when another thread is writing (and looks again), or the kernel accepts no more until the
        deadline. The flusher continues then. `in_line` waits a while for the other thread.
        """
        try:
            ended = False  # looked at in the next round, because of `test_interrupted_loops`
            for rounds in count(1):
                if ended:
                    break
                sender = self.sender
                if sender is None:
                    return not self.frames
                if not (self.frames or sender.batch or sender.stream.unsent):
                    return True
                lock = sender.lock
                if lock._is_owned():
                    break  # a signal handler on top of this thread's own write, which then sends the frames
                held = True  # until `acquire` says no
                try:
                    held = lock.acquire(True, deadline.at_most(PATIENCE)) if in_line else lock.acquire(False)
                    done = held and sender.push()
                finally:  # twice: what strikes within the first must not leave the lock behind
                    try:
                        if held and lock._is_owned():
                            lock.release()
                    finally:
                        if held and lock._is_owned():
                            lock.release()
                if not held:
                    if not self.ticking:
                        self._kick()  # the flusher checks that the other thread makes progress
                    return False
                ended = (rounds % ROUNDS == 0 and deadline.expired()) or not (
                    done or (deadline is not AT_ONCE and self._wait_writable(sender, deadline))
                )
        except BaseException:  # of a signal handler: the flusher writes what others have left to this thread
            self._kick()
            raise
        self._kick()
        return False

    def _wait_writable(self, sender: Sender, deadline: Deadline) -> bool:
        """Wait until the kernel accepts more; False when the time is up, or the link or the connection has ended."""
        while not sender.broken and not deadline.expired():
            patience = deadline.at_most(PATIENCE)
            self.awaited_until = time.monotonic() + patience
            try:
                if sender.stream.wait_writable(patience):
                    self._stalled = False
                    return True
            except (OSError, ValueError) as error:
                if sender.of_handler(error):
                    raise
                return False  # shut down or closed meanwhile
            finally:
                self.awaited_until = 0.0
            if self.closed is not None:
                return False  # release a thread that sends now
        self._stalled = True
        return False

    def look(self) -> None:
        """The flusher's tick: a thread that has the send lock and makes no progress costs the link.

        No code of this library waits with the lock. So the cause is a signal handler, on top of a write, that waits for
        something. The next link has its own lock.
        """
        sender = self.sender
        if sender is None or not sender.stream.never_blocks:
            return
        seen, now = (sender, sender.turns, sender.unsent), time.monotonic()
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        elif now - self._seen_at >= STUCK / 2:
            # Wait half of the time here: a process that was stopped for long resumes with all of its threads.
            if sender.lock.acquire(True, STUCK / 2):
                sender.lock.release()
                self._seen_at = time.monotonic()
            else:
                sender.give_up(TimeoutError("a signal handler holds up the thread that writes"))

    def holds_back(self) -> bool:
        """True when bytes that have left the queue may not be out yet."""
        sender = self.sender
        return sender is not None and bool(sender.batch or sender.stream.unsent)

    def keeps(self) -> bool:
        """Without a link: True if frames wait for the next one. While a loss is being settled, the result is True, too,
        because the answer is still open."""
        return bool(self.frames) or self.sender is not None

    @property
    def unsent(self) -> int:
        """Bytes that have left the queue, and that the kernel has not accepted yet."""
        sender = self.sender
        return 0 if sender is None else sender.unsent

    @property
    def bytes_out(self) -> int:
        """Bytes that have left the queue for a stream, in all."""
        sender = self.sender
        return self._bytes_before + (0 if sender is None else sender.bytes_taken)

    def bytes_sent(self) -> int:
        """Total bytes that the kernel has accepted. It never falls."""
        self._most_sent = max(self._most_sent, self.bytes_out - self.unsent)
        return self._most_sent

    # --- a full queue -----------------------------------------------------------------------------------

    def _relieve(self, frame: Frame) -> None:
        """The coalescing limit is reached: write, or make a publisher wait while too much is queued."""
        if not self.is_full():
            # On a link that has stalled the flusher waits for the kernel; publishers queue up to the high-water mark.
            if not self.drain(AT_ONCE if self._stalled else Deadline(PATIENCE)):
                # Another thread is writing and looks again. With eight publishing threads, nine of ten publishes came
                # here in vain, which was a third of their cost. Now one for each 64 KiB does.
                self.relief = min(self.size + COALESCE, HIGH_WATER)
            return
        refusal: BaseException | None = None
        try:
            if not self._make_room(self.patience()):
                refusal = self._full()
        except errors.JsClientError as closed:
            refusal = closed
        if refusal is not None and self.withdraw(frame):
            raise refusal

    @contextmanager
    def sends_within(self, deadline: Deadline) -> Iterator[None]:
        """In the body, this thread waits for room until `deadline` at most.

        It is for calls that have a timeout and are made of others that have none. Only a full queue looks at it, so an
        ordinary call does not pay for it.
        """
        me, bounds = get_ident(), self._bounds
        before = bounds.get(me)  # of the call beneath a signal handler
        bounds[me] = deadline
        try:
            yield
        finally:
            if before is None:
                bounds.pop(me, None)
            else:
                bounds[me] = before

    def patience(self) -> Deadline:
        """The time that a call of this thread without its own deadline may wait for room."""
        bound = self.bound()
        return Deadline(self.write_timeout if bound is None else bound.at_most(self.write_timeout))

    def bound(self) -> Deadline | None:
        """The deadline of `sends_within` that this thread is in."""
        return self._bounds.get(get_ident())

    def is_full(self) -> bool:
        """True when a thread that adds to the queue has to wait first."""
        return self.size + self.unsent >= HIGH_WATER or len(self.frames) >= HIGH_WATER_FRAMES

    def has_room(self, deadline: Deadline) -> bool:
        """Wait until the queue is not full; False when the time is up."""
        return not self.is_full() or self._make_room(deadline)

    def _make_room(self, deadline: Deadline) -> bool:
        """Wait until the queue is not full: back-pressure instead of memory. False when the time is up.

        Raises the reason why the connection is closed.
        """
        while self.is_full() and not self.offline:
            if self.drain(deadline, in_line=True):
                break  # nothing is queued, whatever the count says
            if deadline.expired() or self.lock._is_owned():
                return False
        if self.closed is not None:
            raise self.closed()  # close() sends now, and a thread that waited in line must not wait for it, too
        return True

    def _full(self) -> errors.BufferFull:
        queued = self.size + self.unsent
        return errors.BufferFull(f"{queued} bytes wait for the server, which takes no data or too little")

    # --- offline ----------------------------------------------------------------------------------------

    def _enqueue_offline(self, frame: Frame) -> None:
        deadline: Deadline | None = None
        while True:
            online = self.online  # taken before the check, to catch the end of this offline time
            with self._account:
                if self._admit_offline(frame):
                    break
            if deadline is None and self._block_when_full is not None:
                deadline = Deadline(self._block_when_full)
            if deadline is None or not online.wait(deadline.remaining()):
                raise errors.BufferFull(
                    f"{self._offline_bytes} bytes are waiting for the connection to come back, the limit "
                    f"(pending_buffer) is {self._limit}"
                )
        if not self.offline:
            self._kick()

    def _admit_offline(self, frame: Frame) -> bool:
        cost = len(frame) + FRAME_OVERHEAD
        if self.offline:
            if self.closed is not None:
                raise self.closed()
            if isinstance(frame, LINK_FRAMES):
                raise errors.ConnectionLost("not connected at the moment", sent=False)
            if self._offline_bytes + cost > self._limit:
                return False
        self._offline_bytes += cost
        self.frames.append(frame)
        self.size += cost - FRAME_OVERHEAD
        return True

    def attach(
        self, transport: Transport, first: list[bytes], takes: Callable[[Frame], bool] = lambda frame: True
    ) -> list[Frame]:
        """Go online: `first` (the subscriptions) leaves before the kept frames.

        The server would end the link at a message that it does not accept. Such frames are discarded and returned.
        """
        with self._account:
            # A LinkFrame that slipped in while the old link went down no longer has an owner. Another one may slip
            # in right now, without a lock. So the queue is emptied and refilled, never iterated.
            kept = [frame for frame in self._take_all() if not isinstance(frame, LINK_FRAMES)]
            refused = [frame for frame in kept if not takes(frame)]
            queue: list[Frame] = [*map(LinkFrame, first), *filter(takes, kept)]
            self.frames.extendleft(reversed(queue))
            self.size = sum(map(len, queue))
            self._offline_bytes = 0
            if self.closed is not None:
                return refused  # closed while the link was being made
            self.sender = Sender(transport, self, self._broken)
            self.lock = self.sender.lock
            self._stalled = False
            self.offline = False
            self.online.set()
            return refused

    def detach(self) -> list[Frame]:
        """Go offline: keep the frames that may be sent again, forget the rest, and return the forgotten unsent frames.

        The transport must have been shut down: a thread that is writing then fails and releases the send lock.
        """
        self.go_offline()
        lock = self.lock
        settled = lock.acquire(True, SETTLE)
        try:
            with self._account:
                sender = self._take_sender()
                untouched = sender.untouched() if sender is not None and settled else []
                pending = [*untouched, *self._take_all()]
                kept = [frame for frame in pending if not isinstance(frame, LINK_FRAMES)]
                self.frames.extendleft(reversed(kept))
                self._offline_bytes = sum(map(len, kept)) + FRAME_OVERHEAD * len(kept)
                self.size = sum(map(len, kept))
                return [frame for frame in pending if isinstance(frame, LINK_FRAMES)]
        finally:
            if settled:
                lock.release()

    def go_offline(self) -> None:
        """From now on calls wait for the next link, or count against the limit."""
        with self._account:
            if not self.offline:
                self.online = waiting.Gate()
                self.offline = True

    def _take_all(self) -> list[Frame]:
        taken: list[Frame] = []
        with suppress(IndexError):
            while True:
                taken.append(self.frames.popleft())
        return taken

    def refuse(self, reason: Callable[[], BaseException]) -> None:
        """Accept nothing more: callers that enqueue or wait for room get `reason()`. A drain can still send queued
        frames."""
        with self._account:
            self.closed = reason
            self.offline = True
            self.online.set()

    def _take_sender(self) -> Sender | None:
        """The link is gone: nothing more is written to it. Count the bytes that it accepted."""
        sender, self.sender = self.sender, None
        if sender is not None:
            sender.broken = True  # a thread that comes to hold its lock only now takes nothing from the queue
            self._bytes_before += max(sender.bytes_taken - sender.unsent, 0)
        return sender

    def close(self, reason: Callable[[], BaseException]) -> list[Frame]:
        """Stop sending and return the unsent frames that a new link would send. They stay queued, because a thread that
        has just appended one takes it back from there."""
        self.refuse(reason)
        with self._account:
            self._take_sender()
            return [frame for frame in waiting.copy_of(self.frames) if not isinstance(frame, LINK_FRAMES)]

    def forked(self, reason: Callable[[], BaseException]) -> None:
        """In a forked child: send nothing to the parent's socket. Its locks may be held forever, so replace them."""
        self.lock = waiting.new_turn()
        self._account = waiting.new_lock()
        self.sender = None
        self._bounds = {}
        self.frames = deque()
        self.close(reason)


def _reentered() -> errors.Reentered:
    return errors.Reentered(
        "a call that waits, in a signal handler or finalizer on top of a write of its own thread; nothing was sent"
    )
