"""The send path: one FIFO of whole frames, drained by the thread that gets the send lock.

Appending takes no lock (append and join under one lock fell from 1.3-3 M/s with one thread to 0.1 M/s with 64;
this keeps 0.44-0.51 of it). Two ways in:

* `post` coalesces: async publishes and acks leave at 64 KiB, by the flusher within about 1 ms, or before any call of
  ours blocks. `post_core` does the same at 108 KiB, but the first core publish after a quiet moment leaves at once: it
  arrives after 80 us instead of 590, for 40 us of the sender's CPU instead of 62, as no thread is woken;
* `post_now` appends, then sends at once what the kernel takes: requests, synchronous publishes, pulls, flushes. The
  caller sends its own bytes; a writer thread on this path costs a wake-up per request (p50 8.6-16 ms instead of 5.3
  beside a busy thread). What the kernel does not take at once is the flusher's: no caller waits for the network here.

Both are bounded: a caller that finds a megabyte queued waits for room, within its timeout, and otherwise learns that
nothing of its message was sent. A frame that is still queued when its caller gives up can be withdrawn.

Plain `bytes` frames (core publishes, acks) that the kernel has not taken when the link is lost are kept for the
next link. `Unkept` frames are not: their owners re-issue them or fail them.

The send lock is an RLock that is only ever *tried* on this path. It is reentrant for one reason: its ownership is
recorded in C together with the acquisition. So a KeyboardInterrupt between acquiring it and entering the `try` cannot
leave it held for ever; and a signal handler on top of its own thread's sending can tell. Such a handler ends the permit
of that lock (see `sending`), puts a new lock in its place, and sends: it may wait for an answer, and so may others,
although the thread beneath it cannot give the old lock back before the handler returns. A handler that makes no call
of ours (it joins a thread that does) does not step aside. Then the flusher takes the right over, see `look`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors, waiting
from jsclient._engine.sending import BULK, Sending, at_work
from jsclient._engine.unkept import UNKEPT, Unkept
from jsclient._transport.stream import permitted
from jsclient.durations import FOREVER, Deadline
from protocol.frames import Frame

if TYPE_CHECKING:
    from jsclient._transport import Transport

COALESCE: Final = 64 * 1024
"""Queued bytes that leave at once: 4-5 times cheaper than a write per message. Beside 32 KiB asynchronous publishes of
16 KiB take 0.8 of the CPU, small ones 0.97. With more (128 KiB) the server rests while the next ones are made."""

QUIET: Final = 0.0002
"""Seconds since a core publish left at once, after which another one does."""

FEW: Final = 8
"""Frames that the flusher may find at a tick; more are a crowd, and none leaves at once until its next look."""

CONVOY: Final = 0.002
"""Seconds that sending at once may take. `send` lets go of the interpreter lock: beside a thread that never does, the
publisher waits 5 ms to get it back."""

CONVOY_PAUSE: Final = 10.0
"""After that none leaves at once for so many times as long as it took: a publisher is held up for a tenth of its time
at most. A fixed pause was wrong: on a loaded machine any publish may be that slow."""

HIGH_WATER: Final = 1024 * 1024
"""While connected, a publisher that finds this much queued waits for the sender instead of adding to it."""

HIGH_WATER_FRAMES: Final = 65_536

FRAME_OVERHEAD: Final = 64
"""Bytes that a frame counts beside its own against the buffer limit while disconnected."""

WRITE_TIMEOUT: Final = 10.0
"""Seconds that a publisher waits for room unless its call has a timeout: then the message is not sent."""

PATIENCE: Final = 0.2
"""Seconds that a stalled write waits before it looks whether the connection was closed meanwhile."""

SETTLE: Final = 1.0
"""Seconds that the end of a link waits for the thread that is sending; the socket was shut down, so it has no reason
to stay but a signal handler on top of it."""

AT_ONCE: Final = Deadline(0)
"""For senders that send only what the kernel takes without waiting."""

MOST_LEFT, MOST_LEFT_SIZE = 32, 32 * 1024
"""Frames and bytes that may be left to others, see `leave`."""

ROUNDS: Final = 64
"""Writes that one caller does for the others before it hands the rest to the flusher."""

__all__ = ["AT_ONCE", "BULK", "COALESCE", "Outbox"]


_Right = tuple[Any, list[int], Iterator[None]]
"""The send lock, its permit, and an iterator with one item: the thread that takes it replaces the right."""


def _new_right() -> _Right:
    return waiting.new_turn(), [0], iter((None,))


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
        self.frames: deque[Frame] = deque()
        # Bytes queued. Without a lock, so a trigger and not an account; exact whenever the queue is empty.
        self.size: int = 0
        self.offline: bool = True
        self.closed: Callable[[], BaseException] | None = None
        self.ticking = False  # the flusher is awake and will drain within three milliseconds
        self.calm: bool = False  # it takes its time, as those that post also send: a core publish kicks it
        self.crowded: bool = False  # many frames come: they leave together
        self._first_sent = 0.0
        self._bytes_before = 0  # sent over links that have ended
        self._most_sent = 0  # see `bytes_sent`
        self._right = _new_right()
        self._sending: Sending | None = None
        self._seen: tuple[int, int] | None = None  # how far sending was at the flusher's last look
        self._kick = kick
        self._broken = broken
        self._limit = limit
        self._block_when_full = block_when_full
        self.write_timeout: float = min(write_timeout, FOREVER)
        self._stalled = False  # the last sender has waited in vain
        self._bounds: dict[int, Deadline] = {}  # thread -> see `sends_within`
        # Until `size` reaches this a publisher need not try to send: another thread is sending. A hint only.
        self.relief: int = 0
        # Guards the account of what is queued while offline, and the switch between online and offline. Reentrant,
        # because a signal handler or a finalizer may publish on top of a thread that is in there.
        self._account = waiting.new_lock()
        self._offline_bytes = 0
        self.online: waiting.Gate = waiting.Gate()  # opens when this offline time ends; each has its own

    # --- ways in ----------------------------------------------------------------------------------------

    def post(self, frame: Frame, limit: int = COALESCE) -> None:
        """Queue a frame; it leaves with others, at once when `limit` bytes are queued.

        Raises BufferFull, ConnectionLost (Unkept while offline) or why the connection is closed: in each case nothing
        of the frame is sent.
        """
        if self.offline:
            self._post_offline(frame)
            return
        self.frames.append(frame)
        size = len(frame)  # not inside the addition: a call is where threads change, and the count would be lost
        self.size += size
        if self.closed is not None:
            self._came_late(frame)
        if self.size >= limit and self.size >= self.relief:
            self._relieve(frame)
        elif not self.ticking:
            self._kick()

    def post_core(self, frame: Frame) -> None:
        """`post` for core publishes: after a quiet moment a frame leaves at once, in a crowd they are coalesced."""
        if self.offline:
            self._post_offline(frame)
            return
        self.frames.append(frame)
        size = len(frame)
        self.size += size
        if self.closed is not None:
            self._came_late(frame)
        if self.size >= BULK and self.size >= self.relief:
            self._relieve(frame)
        elif not self.crowded:
            self._post_first()

    def _post_first(self) -> None:
        now = time.monotonic()
        if now - self._first_sent >= QUIET:
            self._first_sent = now
            if self.drain(AT_ONCE):
                took = time.monotonic() - now
                if took >= CONVOY:
                    self._first_sent = now + CONVOY_PAUSE * took
                return
        self.crowded = True  # until the flusher's next look
        if self.calm or not self.ticking:
            self._kick()

    def post_now(self, frame: Frame, deadline: Deadline | None = None) -> None:
        """Queue a frame and send what the kernel takes at once. Raises as `post` does.

        `deadline` bounds the wait for room in a full queue (None: `patience`), then BufferFull.
        """
        if self.size >= HIGH_WATER and not self._make_room(deadline or self.patience()):
            raise self._full()
        self.post_at_once(frame)

    def post_at_once(self, frame: Frame) -> None:
        """`post_now` for pulls and the like: small, and bounded in number by their owners. It does not wait for room:
        what it is for has a deadline of its own."""
        if self.offline:
            self._post_offline(frame)
            return
        self.frames.append(frame)
        size = len(frame)
        self.size += size
        if self.closed is not None:
            self._came_late(frame)
        if not self.drain(AT_ONCE):
            self._kick()

    def _came_late(self, frame: Frame) -> None:
        """`closed` was set between the look at `offline` and the append: take the frame back, unless the last drain has
        it. Raises why the connection is closed."""
        assert self.closed is not None
        if self.withdraw(frame):
            raise self.closed()

    def post_control(self, frame: Frame) -> None:
        """Queue a SUB, UNSUB or PONG. It neither sends nor waits; `check_control` is its bound."""
        self.frames.append(frame)
        size = len(frame)
        self.size += size

    def check_control(self) -> None:
        """Raises BufferFull where more is queued than a full queue and what may have been kept for this link."""
        if self.size >= self._limit + 2 * HIGH_WATER:
            raise self._full()

    def leave(self, frame: Frame) -> bool:
        """Queue a frame that others will send (see `relay`); False when it has to be posted."""
        size = len(frame)
        if self.offline or len(self.frames) >= MOST_LEFT or max(size, self.size) + size > MOST_LEFT_SIZE:
            return False
        if self._right[0]._is_owned():
            return False  # on top of our own thread's sending: others cannot send
        self.frames.append(frame)
        self.size += size
        return self.closed is None or not self.withdraw(frame)

    def withdraw(self, frame: Frame) -> bool:
        """Take a frame back that its caller does not want any more; True when it was still queued: nothing is sent."""
        try:
            self.frames.remove(frame)
        except ValueError:
            return False
        size = len(frame)
        self.size -= size
        return True

    def nudge(self) -> None:
        """Send without ever blocking (the reader's way); what does not go out is left to the flusher."""
        if not self.drain(AT_ONCE):
            self._kick()

    def flush(self) -> None:
        """Send what is coalesced, if anything; called before every wait of ours, and never a wait itself."""
        if self._right[0]._is_owned():
            self._step_aside()  # whatever a handler waits for, others may have to send for it
        if self.frames and not self.offline and not self.drain(AT_ONCE):
            self._kick()

    # --- draining ---------------------------------------------------------------------------------------

    def drain(self, deadline: Deadline | None = None) -> bool:
        """Send until nothing is left. False when somebody else is sending (and looks again), or the link stalls.

        The deadline is that of the whole call. Without one every write may stall for `write_timeout`.
        """
        rounds = 0
        while True:
            if not self.frames:
                sending = self._sending  # `holds_back`, without its call: every request is here
                if sending is None or not (sending.batches or sending.transport.unsent):
                    return True
            if self._right[0]._is_owned() and not self._step_aside():
                return False
            right = self._right
            lock, permit, _ = right
            try:
                if not lock.acquire(False):
                    return False
                done = self._push(permit, deadline)
                if not permit:
                    self._replace(right)  # the lock is ours: nobody sends by this right any more
            finally:
                # Twice, because Ctrl-C may strike during the first look, and a lock left behind would silence us.
                try:
                    if lock._is_owned():
                        lock.release()
                finally:
                    if lock._is_owned():
                        lock.release()
            if not done:
                return False
            rounds += 1
            if rounds == ROUNDS:
                self._kick()
                return True

    def _step_aside(self) -> bool:
        """On top of our own thread's sending, as a signal handler is: end that, so that we and others may send.

        False when nobody can know how much of it is out.
        """
        sending, right = self._sending, self._right
        if sending is None or not sending.transport.resumable:
            return False
        if right[0]._is_owned():  # else the flusher has taken it over meanwhile
            self._replace(right)
        sending.transport.step_aside()
        return True

    def _replace(self, right: _Right) -> None:
        """End a right and put a new one in its place, if nobody has. What was sent by it must be known from here on."""
        _, permit, once = right
        permit.clear()
        # One call into C: of several threads that end a right one has the next.
        deque(map(setattr, (self,), ("_right",), map(permitted, once, (_new_right(),))), 0)

    def look(self) -> None:
        """The flusher's tick: a thread that has the right to send, and has not moved since the last one, loses it.

        A signal handler may be on top of it for long, and wait for something that others would have to send. First
        the permit ends. Then that thread enters no call that sends any more, but it may be within one: the right
        passes on once it was seen elsewhere.
        """
        right, sending = self._right, self._sending
        if sending is None or not sending.transport.resumable:
            return
        lock, permit, _ = right
        seen, self._seen = self._seen, (self.bytes_out, sending.unsent)
        if permit:
            if self._seen != seen:
                return
            holder = waiting.holder(lock)
            if not holder or at_work(holder):
                return
            permit.clear()
        holder = waiting.holder(lock)
        if holder is not None and not at_work(holder):
            if holder:
                sending.transport.pass_on(holder)
            self._replace(right)

    @property
    def lock(self) -> Any:
        """The send lock: the thread that holds it knows that no other thread is in a system call that sends."""
        return self._right[0]

    def holds_back(self) -> bool:
        """True when something that has left the queue may not be out."""
        sending = self._sending
        return sending is not None and bool(sending.batches or sending.transport.unsent)

    @property
    def is_sending(self) -> bool:
        """Whether it has a link to send over, or settles what a lost one has not taken."""
        return self._sending is not None

    def keeps(self) -> bool:
        """Without a link: whether anything waits for the next one. While a loss is being settled nobody knows: True."""
        return bool(self.frames) or self._sending is not None

    @property
    def unsent(self) -> int:
        """Bytes that have left the queue, and that the kernel has not taken."""
        sending = self._sending
        return 0 if sending is None else sending.unsent

    @property
    def bytes_out(self) -> int:
        """Bytes that have left the queue for a transport, in all."""
        sending = self._sending
        return self._bytes_before + (0 if sending is None else sending.bytes_taken)

    def bytes_sent(self) -> int:
        """Bytes that a kernel has taken, in all. It never falls."""
        self._most_sent = max(self._most_sent, self.bytes_out - self.unsent)
        return self._most_sent

    def _push(self, permit: list[int], deadline: Deadline | None) -> bool:
        """One write of up to 108 KiB; the caller holds the send lock. The clock is read only if the kernel is full."""
        sending = self._sending
        if sending is None:
            return False
        if deadline is AT_ONCE:
            done = sending.push(permit, 0)
            if done:
                self._stalled = False
            return done
        deadline = Deadline(self.write_timeout) if deadline is None else deadline
        done = sending.push(permit, deadline.at_most(PATIENCE))
        # It goes on unless the connection is closed meanwhile: a thread that sends then is let go.
        while not done and self.closed is None and not sending.broken and not deadline.expired():
            done = sending.push(permit, deadline.at_most(PATIENCE))
        self._stalled = not done
        return done

    # --- a full queue -----------------------------------------------------------------------------------

    def _relieve(self, frame: Frame) -> None:
        """The coalescing limit is reached: send, or make a publisher wait while too much is queued."""
        if not self.is_full():
            # On a link that has stalled the flusher waits for the kernel; publishers queue up to the high-water mark.
            if not self.drain(AT_ONCE if self._stalled else Deadline(PATIENCE)):
                # Another thread is sending and looks again. Beside eight that publish, nine of ten publishes came here
                # in vain, which was a third of what they cost: now one for each 64 KiB does.
                self.relief = min(self.size + COALESCE, HIGH_WATER)
                if not self.ticking:
                    self._kick()
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
        """In the body what this thread posts waits for room until then at most. For calls that have a timeout and are
        made of others that have none. It is asked for only where the queue is full, so that no post pays for it."""
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
        """How long a post of this thread that has no deadline of its own may wait for room."""
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

        Raises why the connection is closed.
        """
        while self.is_full() and not self.offline:
            if not self.drain(deadline):
                if deadline.expired() or self.lock._is_owned():
                    return False
                self._wait_for_sender(deadline.at_most(PATIENCE))
        if self.closed is not None:
            raise self.closed()  # sending is up to close() now; a thread that waited in line must not wait for it, too
        return True

    def _wait_for_sender(self, timeout: float) -> None:
        """Until nobody holds the send lock."""
        lock = self.lock
        try:
            lock.acquire(True, timeout)
        finally:
            try:
                if lock._is_owned():
                    lock.release()
            finally:
                if lock._is_owned():
                    lock.release()

    def _full(self) -> errors.BufferFull:
        queued = self.size + self.unsent
        return errors.BufferFull(f"{queued} bytes wait for the server, which takes no data or too little")

    # --- offline ----------------------------------------------------------------------------------------

    def _post_offline(self, frame: Frame) -> None:
        deadline: Deadline | None = None
        while True:
            online = self.online  # before the look: the end of this offline time is not missed
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
            if isinstance(frame, UNKEPT):
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
        """Go online: `first` (the subscriptions) leaves before what was kept.

        The server would end the link at a message that it does not take: these are thrown away, and returned.
        """
        with self._account:
            # An Unkept frame that slipped in while the old link went down belongs to nobody any more. Another one
            # may slip in right now, without a lock: so the queue is emptied and refilled, never iterated.
            kept = [frame for frame in self._take_all() if not isinstance(frame, UNKEPT)]
            refused = [frame for frame in kept if not takes(frame)]
            queue: list[Frame] = [*map(Unkept, first), *filter(takes, kept)]
            self.frames.extendleft(reversed(queue))
            self.size = sum(map(len, queue))
            self._offline_bytes = 0
            if self.closed is not None:
                return refused  # closed while the link was being made
            self._sending = Sending(transport, self, self._broken)
            self._stalled = False
            self.offline = False
            self.online.set()
            return refused

    def detach(self) -> list[Frame]:
        """Go offline: keep what may be sent again, forget the rest, and return what was forgotten unsent.

        The transport must have been shut down: a thread that is writing then fails and lets go of the send lock.
        """
        self.go_offline()
        lock = self._acquire(Deadline(SETTLE))
        try:
            if lock is None:
                # The thread beneath a handler cannot give its lock back, and will find that its permit has ended.
                self._replace(self._right)
            return self._withdraw_all(settled=lock is not None)
        finally:
            if lock is not None:
                lock.release()

    def go_offline(self) -> None:
        """Calls made from now on wait for the next link, or are counted against the limit."""
        with self._account:
            if not self.offline:
                self.online = waiting.Gate()
                self.offline = True

    def _acquire(self, deadline: Deadline) -> Any:
        """The send lock, acquired, or None: a thread that has it does not come back."""
        while True:
            lock = self.lock
            if not lock.acquire(True, deadline.at_most(SETTLE)):
                return None
            if lock is self.lock:
                return lock
            lock.release()

    def _withdraw_all(self, settled: bool) -> list[Frame]:
        with self._account:
            sending, self._sending = self._sending, None
            self._count(sending)
            pending = [*(sending.untouched() if sending is not None and settled else ()), *self._take_all()]
            kept = [frame for frame in pending if not isinstance(frame, UNKEPT)]
            withdrawn: list[Frame] = [frame for frame in pending if isinstance(frame, UNKEPT)]
            self.frames.extendleft(reversed(kept))
            self._offline_bytes = sum(map(len, kept)) + FRAME_OVERHEAD * len(kept)
            self.size = sum(map(len, kept))
            return withdrawn

    def _take_all(self) -> list[Frame]:
        taken: list[Frame] = []
        with suppress(IndexError):
            while True:
                taken.append(self.frames.popleft())
        return taken

    def refuse(self, reason: Callable[[], BaseException]) -> None:
        """Take nothing more: callers that post or wait for room get `reason()`. What is queued can still be drained."""
        with self._account:
            self.closed = reason
            self.offline = True
            self.online.set()

    def _count(self, sending: Sending | None) -> None:
        """The link is gone: count the bytes that it took."""
        if sending is not None:
            self._bytes_before += max(sending.bytes_taken - sending.unsent, 0)

    def close(self, reason: Callable[[], BaseException]) -> list[Frame]:
        """Nothing more goes out; returns the frames that were to be kept and are not sent. They stay in the queue: a
        thread that has just appended one takes it back from there."""
        self.refuse(reason)
        with self._account:
            sending, self._sending = self._sending, None
            self._count(sending)
            return [frame for frame in self.frames.copy() if not isinstance(frame, UNKEPT)]

    def forked(self, reason: Callable[[], BaseException]) -> None:
        """In a forked child: nothing of ours may reach the parent's socket, and its locks may be held for ever."""
        self._right = _new_right()
        self._account = waiting.new_lock()
        self._sending = None
        self._bounds = {}
        self.frames = deque()
        self.close(reason)
