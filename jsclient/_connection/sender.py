"""The sender of one link: writes frames of the outbox to the stream, up to 108 KiB per system call.

The thread that has `lock` writes for all threads. The call that writes also stores the answer of the kernel in the
batch. After an exception of a signal handler the next write continues from there.

TLS, websockets and sockets in Python code cannot answer for an interrupted write. Then the sender gives the link up: a
frame that is sent twice is worse than one that is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Protocol

from jsclient import waiting
from jsclient._transport.stream import unwritten
from jsclient.protocol.frames import LARGE_PAYLOAD, LargeFrame

if TYPE_CHECKING:
    from jsclient._transport import Transport
    from jsclient._transport.stream import Buffer
    from jsclient.protocol.frames import Frame


class LinkFrame(bytes):
    """A frame that must not be sent again on another link."""

    __slots__ = ()


class LargeLinkFrame(LargeFrame):
    """The same for a large frame."""

    __slots__ = ()


LINK_FRAMES: Final = (LinkFrame, LargeLinkFrame)

BULK: Final = 108 * 1024
"""Bytes that are joined into one write. A publish of 1 KiB takes 0.91 µs of CPU, and 1.27 with writes of 32 KiB. From
128 KiB on malloc maps memory for each write."""

FEW_BLOCKS: Final = 3
"""Buffers (one message with a large payload) that leave as they are: joining the small ones gains nothing."""

WHOLE: Final = 124 * 1024
"""Bytes of a queue that leave it in one call: as a rule a sender comes when one write is in it."""

AT_A_TIME: Final = 64
"""Frames taken in one call of more than that; a batch may exceed BULK by what the last call has brought."""

_popleft: Final = deque.popleft


class Batch:
    """Frames that have left the queue, and how much of them the stream has taken."""

    __slots__ = ("blocks", "frames", "size", "written")

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.written: list[int] = []  # bytes, as the stream answered
        self.size: int = 0  # known once there are blocks
        self.blocks: Sequence[Buffer] | None = None  # what to write; None: frames may still be added

    def form(self) -> None:
        """Make the blocks; no frames are added any more."""
        frames = self.frames
        if len(frames) == 1:
            frame = frames[0]
            self.size = len(frame)
            self.blocks = frame.parts if isinstance(frame, LargeFrame) else frames  # type: ignore[assignment]
            return
        if len(frames) <= FEW_BLOCKS or not self._join():
            self.size = sum(map(len, frames))
            self.blocks = _gather(frames)

    def _join(self) -> bool:
        """Make one block of all frames; False when one of them is in parts. Joining 650 frames takes 6 µs, and asking
        each for its size took 24."""
        try:
            block = b"".join(self.frames)  # type: ignore[arg-type]  # the exception is for a LargeFrame
        except TypeError as error:
            trace = error.__traceback__
            if not str(error).startswith("sequence item") or (trace is not None and trace.tb_next is not None):
                raise  # of a signal handler
            return False
        self.size = len(block)
        self.blocks = [block]
        return True

    def rest(self) -> Sequence[Buffer]:
        """The blocks that the stream has not taken."""
        return unwritten(self.blocks or (), sum(self.written))

    def unsent(self) -> int:
        return sum(map(len, self.frames)) if self.blocks is None else self.size - sum(self.written)

    def untouched(self) -> list[Frame]:
        """The frames that have not begun: the stream has taken no byte of them."""
        unsent = self.unsent()
        whole: list[Frame] = []
        for frame in reversed(self.frames):
            unsent -= len(frame)
            if unsent < 0:
                break
            whole.append(frame)
        return whole[::-1]

    def without(self, frame: Frame) -> Batch | None:
        """The same without a frame that has not begun; None if there is none."""
        untouched = self.untouched()
        if frame not in untouched:
            return None
        left = Batch()
        left.frames = self.frames[: len(self.frames) - len(untouched)]
        untouched.remove(frame)
        left.frames += untouched
        left.written = self.written.copy()
        left.form()
        return left


def _gather(frames: list[Frame]) -> list[Buffer]:
    """Join runs of small frames, leave large payloads alone: copying those costs more than a vector does."""
    parts: list[Buffer] = []
    for frame in frames:
        if isinstance(frame, LargeFrame):
            parts += frame.parts
        else:
            parts.append(frame)
    if len(parts) <= FEW_BLOCKS and max(map(len, parts), default=0) >= LARGE_PAYLOAD:
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
    """The part of an outbox from which a sender takes frames."""

    frames: deque[Frame]
    size: int
    relief: int

    def count_queued(self, size: int) -> None:
        """Add to `size`."""


class Sender:
    """The end of the queue at the stream of one link."""

    def __init__(self, stream: Transport, queue: Queue, broken: Callable[[Any, BaseException], None]) -> None:
        self.stream = stream
        self.lock: Any = waiting.new_turn()
        self.batch: Batch | None = None  # frames that have left the queue, and are not out yet
        self.turns: int = 0  # writes begun
        self.bytes_taken: int = 0  # from the queue
        self.broken: bool = False  # nothing is written any more
        self._in_doubt = False
        self._queue = queue
        self._tell_broken = broken

    @property
    def unsent(self) -> int:
        """Bytes that have left the queue, and that the kernel has not taken."""
        batch = self.batch
        return self.stream.unsent + (0 if batch is None else batch.unsent())

    def push(self) -> bool:
        """Write what an earlier call has left, or else up to 108 KiB of the queue. The caller has the lock.

        False when the kernel takes no more, or the link is broken; then it calls `broken`.
        """
        if self.broken:
            return False
        self.turns += 1
        batch = self.batch
        if batch is None:
            if not (self._queue.frames or self.stream.unsent):
                return True  # else two threads would take each other's empty batches for something to send
            batch = self.batch = Batch()
        if batch.blocks is None:
            self._fill(batch)
            if self.broken:  # a signal handler was on top of this thread for so long that the link was replaced
                self._put_back(batch)
                return False
        stream, written = self.stream, batch.written
        try:
            while True:
                written.extend(stream.write(batch.rest() if written else batch.blocks or ()))
                if sum(written) == batch.size:
                    break
        except OSError as error:
            if self.of_handler(error):
                self._interrupted(error)
                raise
            if not isinstance(error, BlockingIOError):
                self.give_up(error)
            return False
        except BaseException as error:
            self._interrupted(error)
            raise
        self.batch = None
        return True

    def _fill(self, batch: Batch) -> None:
        """Take frames from the queue: all of them, or about one write."""
        queue, frames = self._queue, batch.frames
        queued = queue.frames
        count = len(queued)
        try:
            if count == 1 or queue.size <= WHOLE:
                frames.extend(map(_popleft, repeat(queued, count)))  # one call into C
            else:
                size = 0
                while queued and size < BULK:
                    known = len(frames)
                    frames.extend(map(_popleft, repeat(queued, min(len(queued), AT_A_TIME))))
                    size += sum(map(len, frames[known:]))
        except IndexError as error:
            if self.of_handler(error):
                raise
            # Else some were withdrawn meanwhile.
        batch.form()
        # Counted before it is sent: that takes long, and other threads look at the size meanwhile.
        self.bytes_taken += batch.size
        queue.relief = 0
        if queued:
            queue.count_queued(-batch.size)
        else:
            queue.size = 0

    def _put_back(self, batch: Batch) -> None:
        kept = [frame for frame in batch.frames if not isinstance(frame, LINK_FRAMES)]
        self.batch = None
        self.bytes_taken -= batch.size
        self._queue.count_queued(sum(map(len, kept)))
        self._queue.frames.extendleft(reversed(kept))

    def withdraw(self, frame: Frame) -> bool:
        """Take back a frame that has left the queue and that the stream has not begun; True if that worked. It does not
        while another thread writes, or this thread does beneath a signal handler."""
        lock, held = self.lock, True  # True until `acquire` says no
        if self.batch is None or lock._is_owned():
            return False
        try:
            held = lock.acquire(False)
            batch = self.batch
            if not held or batch is None or batch.blocks is None or self._in_doubt:
                return False
            left = batch.without(frame)
            if left is None:
                return False
            self.batch = left
            self.bytes_taken -= len(frame)
            return True
        finally:  # twice, as in `Outbox.drain`
            try:
                if held:
                    waiting.free(lock)
            finally:
                if held:
                    waiting.free(lock)

    def of_handler(self, error: BaseException) -> bool:
        """True if a signal handler has raised it, False if the call itself has."""
        trace = error.__traceback__
        while trace is not None:
            where = trace.tb_frame.f_globals.get("__name__", "")
            if not where.startswith("jsclient._") and where != "ssl":
                # A socket of the application's that sends in Python code raises from there, too.
                return self.stream.exact or getattr(error, "errno", None) is None
            trace = trace.tb_next
        return False

    def _interrupted(self, error: BaseException) -> None:
        if not self.stream.exact:
            self._in_doubt = True
            self.give_up(error)

    def give_up(self, error: BaseException) -> None:
        self.broken = True
        self._tell_broken(self.stream, error)

    def untouched(self) -> list[Frame]:
        """The frames of which no byte is out, after the end of the link. Empty if no one can know."""
        return [] if self._in_doubt or self.batch is None else self.batch.untouched()
