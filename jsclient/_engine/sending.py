"""Handing frames to one transport so that no interruption loses a frame, sends one twice, or costs the link.

A signal handler or a finalizer may run between any two steps of the Python code below. It may raise, and it may send
and wait over the same connection itself. Therefore everything that is known about the stream stands in `Batch`es, and
every step that changes them is one call into C, which is done or not done:

* frames leave the queue and enter the batch in one `list.extend`;
* the answer of the kernel is stored by the same `list.extend` that makes the system call;
* a batch enters the line of batches by `append` and leaves it by `remove`, which names it.

So the thread that sends next, after an exception or on top of the interrupted code, reads in the batches where the
stream stands, and goes on from there.

The interrupted code must not go on with what it knew before. So each of these calls is driven by the permit that
belongs to its send lock, a list with one entry. Code that sends on top of interrupted code empties the permit and
brings a lock and a permit of its own (see `outbox`): from then on the calls of the interrupted code do nothing.

Another thread may do the same when the interrupted one does not return, once that is not within a call (`at_work`).
Then both run side by side. So code without a permit touches no batch but those that stood in line while it had one:
these are complete, and forming one of them twice makes the same blocks.

A transport that changes the bytes on their way (TLS, websocket) keeps what it has made of them in the same manner, see
`jsclient._transport.sealing`. A socket that sends in Python code cannot tell what is out after an interruption: nobody
sends on top of it, and its link is given up.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final, Protocol

from jsclient._transport.stream import Load, StreamFailed, permitted, untaken
from protocol.frames import LARGE_PAYLOAD, LargeFrame

if TYPE_CHECKING:
    from jsclient._transport import Transport
    from jsclient._transport.stream import Buffer
    from protocol.frames import Frame

BULK: Final = 108 * 1024
"""Bytes that are joined into one write. Beside 32 KiB a publish of 128 B takes 0.49 us of CPU instead of 0.55, of
1 KiB 0.91 instead of 1.27, of 16 KiB 7.0 instead of 12.4. 512 KiB gain another tenth, for large messages only. Beside
96 KiB a publish of 1 KiB over TLS takes 0.96 of the CPU; a write of 128 KiB and more costs malloc a map of memory."""

FEW_BLOCKS: Final = 3
"""Up to so many buffers (one message with a large payload) leave as they are: joining the small ones gains nothing."""

WHOLE: Final = 124 * 1024
"""Up to so many bytes a queue is taken in one call: as a rule a sender comes when one write is in it."""

AT_A_TIME: Final = 64
"""Frames taken in one call of more than that; a batch may exceed BULK by what the last call has brought."""


_popleft: Final = deque.popleft


class Batch:
    """Frames that have left the queue, and what the transport has taken of them."""

    __slots__ = ("blocks", "frames", "size", "taken")

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.taken: list[int] = []  # bytes, as the kernel answered
        self.size = 0  # known once there are blocks
        self.blocks: Sequence[Buffer] | None = None

    def form(self, little: bool = False) -> None:
        """Make the blocks to send; the frames are complete.

        `little`: together they are so few bytes that all of them may be copied. Then nobody asks how large each of
        them is: of 650 frames that took 24 us, and joining them takes 6.
        """
        if little and len(self.frames) > FEW_BLOCKS and self._join():
            return  # for few it is not worth the exception that a LargeFrame costs
        sizes = list(map(len, self.frames))
        self.size = sum(sizes)
        if max(sizes, default=0) >= LARGE_PAYLOAD:
            self.blocks = _gather(self.frames)
            return
        small: list[bytes] = self.frames  # type: ignore[assignment]  # a LargeFrame is never smaller
        self.blocks = small if len(small) == 1 else [b"".join(small)]

    def _join(self) -> bool:
        """Make one block of all frames; False when one of them is in parts."""
        try:
            block = b"".join(self.frames)  # type: ignore[arg-type]  # the exception is for a LargeFrame
        except TypeError as error:
            # A handler that takes no arguments raises one, too, and has no frame of its own.
            if not _straight(error) or not str(error).startswith("sequence item"):
                raise
            return False
        self.size = len(block)
        self.blocks = [block]
        return True

    def unsent(self) -> int:
        if self.blocks is None:
            return sum(map(len, self.frames))
        return self.size - sum(self.taken)

    def rest(self) -> Sequence[Buffer]:
        """The blocks that the transport has not taken."""
        taken = sum(self.taken)
        if taken == self.size:
            return []
        assert self.blocks is not None
        return untaken(self.blocks, taken)

    def untouched(self) -> list[Frame]:
        """The frames of which the transport has taken no byte."""
        unsent = self.unsent()
        whole: list[Frame] = []
        for frame in reversed(self.frames):
            if len(frame) > unsent:
                break
            unsent -= len(frame)
            whole.append(frame)
        return whole[::-1]


def _gather(frames: list[Frame]) -> list[Buffer]:
    """Join runs of small frames, leave large payloads alone: copying those costs more than a vector does."""
    parts: list[Buffer] = []
    for frame in frames:
        if isinstance(frame, LargeFrame):
            parts += frame.parts
        else:
            parts.append(frame)
    if len(parts) <= FEW_BLOCKS:
        return parts
    blocks: list[Buffer] = []
    small: list[Buffer] = []
    for part in parts:
        if len(part) < LARGE_PAYLOAD:
            small.append(part)
            continue
        if small:
            blocks.append(b"".join(small))
            small.clear()
        blocks.append(part)
    if small:
        blocks.append(b"".join(small))
    return blocks


class Queue(Protocol):
    """What is to be sent."""

    frames: deque[Frame]
    size: int
    relief: int


class Sending:
    """The end of the queue at one transport. The caller of `push` holds the send lock."""

    def __init__(self, transport: Transport, queue: Queue, broken: Callable[[Any, BaseException], None]) -> None:
        self.transport = transport
        self.broken = False
        self.bytes_taken = 0  # from the queue
        self._in_doubt = False
        self._queue = queue
        self._tell_broken = broken
        self.batches: deque[Batch] = deque()  # what has left the queue, and may not be out

    @property
    def unsent(self) -> int:
        """Bytes that have left the queue, and that the kernel has not taken."""
        unsent = self.transport.unsent
        return unsent + sum(batch.unsent() for batch in self.batches.copy()) if self.batches else unsent

    def push(self, permit: list[int], timeout: float) -> bool:
        """Send what an earlier call has left, or else up to 108 KiB from the queue, and wait `timeout` seconds for it.

        True when it is out, or the permit has ended. False when it is not, or the link is broken, of which its owner
        has been told.
        """
        if self.broken:
            return False
        if not self.transport.hands_over:
            return self._push_sealed(permit, timeout)
        # Usually there are none: else the link was full, or the last sender was interrupted.
        if self.batches:
            for batch in self.batches.copy():
                if batch.unsent() and permit:
                    return self._send(batch, permit, timeout)
                if not permit:
                    return True  # asked behind `unsent`: what looks empty may be another thread's, about to be filled
                self._forget(batch)
        waiting = len(self._queue.frames)
        if not waiting:
            return True  # else two threads would take each other's empty batches for something to send
        return self._send(self._take_one(permit) if waiting == 1 else self._take(permit), permit, timeout)

    def _take_one(self, permit: list[int]) -> Batch:
        """A batch of the first frame of the queue: of requests and lone publishes. A third of the steps of `_take`."""
        batch, queue = Batch(), self._queue.frames
        self.batches.append(batch)
        frames = batch.frames
        try:
            frames.extend(map(_popleft, map(permitted, permit, (queue,))))
        except IndexError as error:
            if not _straight(error):
                raise  # of a signal handler; ours says that the queue was emptied meanwhile
        if frames:
            frame = frames[0]
            size = len(frame)
            self._count(size)
            batch.size = size
            batch.blocks = frame.parts if isinstance(frame, LargeFrame) else frames  # type: ignore[assignment]
        return batch

    def _take(self, permit: list[int]) -> Batch:
        """A new batch, filled from the queue."""
        batch, queue = Batch(), self._queue.frames
        self.batches.append(batch)
        frames = batch.frames
        whole = self._queue.size <= WHOLE
        size = 0
        try:
            while permit and queue and size < BULK:
                known = len(frames)
                # One call into C: pops as often as `repeat` yields the queue.
                some = map(_popleft, repeat(queue, len(queue) if whole else min(len(queue), AT_A_TIME)))
                frames.extend(chain.from_iterable(map(permitted, permit, (some,))))
                size += BULK if whole else sum(map(len, frames[known:]))
        except IndexError as error:
            if not _straight(error):
                raise  # of a signal handler; ours says that the queue was emptied meanwhile
        batch.form(little=whole)
        self._count(batch.size)
        return batch

    def _count(self, size: int) -> None:
        """Taken from the queue. Counted before it is sent: that takes long, and others look at the size meanwhile."""
        self.bytes_taken += size
        queue = self._queue
        queue.relief = 0
        if queue.frames:
            queue.size -= size
        else:
            queue.size = 0

    def _send(self, batch: Batch, permit: list[int], timeout: float) -> bool:
        transport = self.transport
        if batch.blocks is None:
            batch.form()
        waited = False
        taken = batch.taken
        rest = batch.rest() if taken else batch.blocks
        while permit and rest:
            try:
                taken.extend(transport.hand_over(rest, permit))
                if taken and taken[-1] == batch.size:
                    break  # all at once, as usual
                rest = batch.rest()
                continue
            except OSError as error:
                # A handler that struck right behind the call may raise one, too. What the kernel took is stored then.
                if transport.resumable and not _straight(error):
                    raise
                if error.errno is None:
                    self._give_up(error)
                    raise
                if not isinstance(error, BlockingIOError):
                    self._break(error)
                    return False
            except BaseException as error:
                if not transport.resumable:
                    self._give_up(error)
                raise
            if waited or not timeout or not transport.wait_writable(timeout):
                return False
            waited = True
        if permit:
            try:
                self.batches.remove(batch)
            except ValueError:
                pass  # a signal handler on this thread has done it
        return True

    def _forget(self, batch: Batch) -> None:
        try:
            self.batches.remove(batch)
        except ValueError:
            pass  # a signal handler on this thread has done it

    def _push_sealed(self, permit: list[int], timeout: float) -> bool:
        """Over a transport that changes the bytes on their way. It keeps what it has made of them and is not out."""
        transport = self.transport
        try:
            batches = self.batches.copy()
            if not permit:
                return True
            if not batches and not self._queue.frames:
                return transport.carry(Load(), permit, timeout)  # what reading has left to send
            batch = batches[0] if batches else self._take(permit)
            if batch.blocks is None:
                batch.form()
            if batch.blocks and len(batch.blocks) > 1:
                batch.blocks = [b"".join(batch.blocks)]
            done = transport.carry(batch, permit, timeout)
            if permit and (done or not batch.unsent()):
                self._forget(batch)
            return done
        except StreamFailed as failed:
            self._break(failed.error)
            return False
        except BaseException as error:
            if not transport.resumable:
                self._give_up(error)
            raise

    def _give_up(self, error: BaseException) -> None:
        """Interrupted within a call that sends in Python code."""
        self._in_doubt = True
        self._break(error)

    def _break(self, error: BaseException) -> None:
        self.broken = True
        self._tell_broken(self.transport, error)

    def untouched(self) -> list[Frame]:
        """The frames of which no byte is out, after the end of the link.

        After the interruption of a transport that cannot tell, nothing is claimed: a frame that is sent twice is worse
        than a core message that is lost.
        """
        if self._in_doubt:
            return []
        return [frame for batch in self.batches.copy() for frame in batch.untouched()]


def at_work(thread: int) -> bool:
    """True when the thread may be in a call into C that sends, or waits for the kernel to take something.

    With other code on top of such a call it is over: signal handlers run behind it.
    """
    top = sys._current_frames().get(thread)
    return top is not None and top.f_globals.get("__name__") in _OWN_CODE


_STREAMS: Final = ("stream", "tcp", "sealing", "tls", "ws")
_OWN_CODE: Final = frozenset((__name__, *(f"jsclient._transport.{name}" for name in _STREAMS)))


def _straight(error: BaseException) -> bool:
    """True if a call into C has raised it, False if the code of a signal handler behind that call did."""
    trace = error.__traceback__
    return trace is not None and trace.tb_next is None
