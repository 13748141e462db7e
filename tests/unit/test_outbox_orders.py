"""The send lock: every interleaving of two threads that enqueue and the flusher, on the real code.

With an exception of a signal handler at any point, with a handler that does not return before others have sent, with a
link that takes a part or nothing, with one that is lost and replaced meanwhile, with a connection that is closed, and
with a thread whose time is up and that takes back what was not sent.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tests.interleave import NOBODY, Interrupt, Numbered, Steps, Turn, World, explore, now, stepwise

from jsclient import waiting
from jsclient._connection import outbox as outbox_module
from jsclient._connection import sender as sender_module
from jsclient._connection.outbox import Outbox
from jsclient._connection.sender import Batch, Sender

StepwiseSender: Any = stepwise(Sender, "push", "_fill", "_put_back", "withdraw")
OF_OUTBOX = "enqueue_now", "enqueue_at_once", "drain", "withdraw"
StepwiseOutbox: Any = stepwise(Outbox, *OF_OUTBOX, calls=("push",))

FLUSHER = 3
ROUNDS = 2
"""Looks of the flusher, once nobody else goes on, after which everything must be out."""

LOCALS = ("batch", "count", "done", "held", "known", "left", "rounds", "size", "written")


class Wire:
    """Takes what `answers` says for each call: so many bytes, 0 for a full kernel; everything when they are used up."""

    exact = never_blocks = True
    needs_flush = False
    unsent = 0

    def __init__(self, answers: Iterable[int]) -> None:
        self.answers = deque(answers)
        self.got = b""
        self.lost = False

    def write(self, blocks: Sequence[bytes]) -> Iterator[int]:
        return map(self._take, (blocks,))

    def _take(self, blocks: Sequence[bytes]) -> int:
        if self.lost:
            raise OSError(errno.ECONNRESET, "lost")
        data = b"".join(blocks)
        if not data:
            return 0
        room = self.answers.popleft() if self.answers else len(data)
        if not room:
            raise BlockingIOError(errno.EAGAIN, "full")
        self.got += data[:room]
        return len(data[:room])

    def wait_writable(self, timeout: float) -> bool:
        return False


class Enqueuer(Numbered):
    """With `waits` a handler on top of it does not raise: it returns when others are done."""

    def __init__(self, number: int, program: Steps, waits: bool = False) -> None:
        self.waits, self.frozen = waits, False
        super().__init__(number, program)

    def advance(self, error: BaseException | None = None) -> None:
        if error is not None and self.waits:
            self.frozen = True
            return
        super().advance(error)

    @property
    def enabled(self) -> bool:
        return not self.frozen and super().enabled

    def locals(self) -> Iterator[Hashable]:
        inner: Any = self.program
        while inner is not None and getattr(inner, "gi_frame", None) is not None:
            yield tuple(
                (name, seen(inner.gi_frame.f_locals[name])) for name in LOCALS if name in inner.gi_frame.f_locals
            )
            inner = inner.gi_yieldfrom


def seen(value: Any) -> Hashable:
    if isinstance(value, Batch):
        return (tuple(value.frames), tuple(value.written), value.blocks is None, value.size)
    if isinstance(value, (list, deque)):
        return tuple(map(seen, value))
    return value  # type: ignore[no-any-return]


class Link(World):
    def __init__(self, answers: Sequence[int], frames: Sequence[int], kind: str) -> None:
        now[0] = 9
        self.box: Any = StepwiseOutbox(kick=lambda: None, broken=self._broken, limit=1 << 20)
        self.wires: list[Wire] = []
        self._attach(answers)
        self.enqueued = {
            number: [b"%d%d;" % (number, index) for index in range(frames[number - 1])] for number in (1, 2)
        }
        self.kind = kind
        self.withdrawn: list[bytes] = []
        self.looks = 0  # of the flusher: a part of the state, or each look would be taken for the one before
        #: With two that enqueue the flusher acts at any moment, but nobody within its steps: a million states instead.
        self.in_steps = not all(frames)
        self.interrupts = 1 if kind in ("raises", "waits") else 0
        self.interruptible = {0} if self.interrupts else set()
        enqueuers = [Enqueuer(number, self.enqueuer(number), kind == "waits") for number in (1, 2)]
        self.threads: list[Any] = [*enqueuers, Enqueuer(FLUSHER, self.flusher())]
        if kind == "lost":
            self.threads.append(Enqueuer(4, self.keeper()))
        if kind == "closed":
            self.threads.append(Enqueuer(4, self.closer()))

    def _attach(self, answers: Iterable[int]) -> None:
        self.wires.append(Wire(answers))
        self.box.attach(self.wires[-1], [])
        self.box.sender = StepwiseSender(self.wires[-1], self.box, self._broken)
        self.box.lock = self.box.sender.lock

    def _broken(self, wire: Any, _: BaseException) -> None:
        wire.lost = True

    def enqueuer(self, number: int) -> Steps:
        for frame in self.enqueued[number]:
            yield None
            yield from self.box.enqueue_now(frame)
            if self.kind == "gives up":
                yield None
                if (yield from self.box.withdraw(frame)):
                    self.withdrawn.append(frame)

    def flusher(self) -> Steps:
        for self.looks in range(1 + ROUNDS):
            yield self.settled if self.looks else None  # the first one at any moment
            if self.looks and self.kind == "waits":  # no thread goes on: a second look finds that
                self.box.look()
                self.box.look()
                if self.wires[-1].lost:
                    self.box.detach()
                    self._attach([])
            if self.in_steps:
                yield from self.box.drain()
            else:
                deque(self.box.drain(), 0)
        frozen = [thread for thread in self.threads if thread.frozen]
        if frozen and 2 not in [thread.number for thread in frozen]:
            assert not self.box.frames, "a handler that waits holds others up"
        for thread in frozen:
            thread.frozen = False  # its handler returns

    def settled(self) -> bool:
        return all(thread.done or thread.frozen for thread in self.threads if thread.number != FLUSHER)

    def keeper(self) -> Steps:
        """The link is lost: as the session ends it, and brings another."""
        yield None
        self.wires[-1].lost = True
        yield None
        self.box.go_offline()
        yield lambda: self.box.lock.owner == NOBODY
        self.box.detach()
        yield None
        self._attach([])

    def closer(self) -> Steps:
        """As the connection is closed: nothing more is taken, what is queued is sent, then all is over."""
        yield None
        self.box.refuse(lambda: Interrupt("closed"))  # what a thread that enqueues then ends with
        deque(self.box.drain(), 0)
        yield None
        self.box.close(lambda: Interrupt("closed"))

    def state(self) -> Hashable:
        box, sender = self.box, self.box.sender
        return (
            *(tuple(box.frames), box.size, box.offline, box.relief, box.lock.owner, box.lock.depth),
            None if sender is None else (seen(sender.batch), sender.broken, sender.bytes_taken),
            tuple((wire.got, len(wire.answers), wire.lost) for wire in self.wires),
            tuple((thread.frozen, *thread.locals()) for thread in self.threads),
            *(tuple(self.withdrawn), self.looks),
        )

    def check(self) -> None:
        stuck = [thread.number for thread in self.threads if not thread.done]
        assert not stuck, f"{stuck} are stuck"
        for _ in self.box.drain():
            pass
        for wire in self.wires:
            if not wire.lost and self.kind != "closed":
                assert wire.got.endswith(b";") or not wire.got, f"torn: {wire.got!r}"
        out = [frame + b";" for wire in self.wires for frame in wire.got.split(b";")[:-1]]
        assert len(out) == len(set(out)), f"doubled: {out}"
        assert not set(out).intersection(self.withdrawn), "not sent, as its thread was told, and sent"
        for number, frames in self.enqueued.items():
            own = [frame for frame in out if frame[:1] == b"%d" % number]
            missing = len([frame for frame in frames if frame not in self.withdrawn]) - len(own)
            allowed = 1 if self.kind == "raises" and number == 1 else 0  # the handler struck before it was queued
            # Of a frame that had begun when the link was lost nobody knows what has arrived: it does not go out again.
            begun = [wire.got.rpartition(b";")[2] for wire in self.wires if wire.lost]
            allowed += sum(rest.startswith(b"%d" % number) for rest in begun)
            if self.kind == "waits" and len(self.wires) > 1:
                allowed += len(frames)  # nor what the thread had taken on top of which the handler stayed
            assert missing <= allowed or self.kind == "closed", f"lost: {out}"
            assert own == [frame for frame in frames if frame in own], f"out of order: {out}"
        assert self.box.lock.owner == NOBODY, "the right is left behind"
        assert self.kind == "closed" or self.box.sender.batch is None


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    names = vars(waiting) | {"new_turn": Turn}
    for module in (outbox_module, sender_module):
        monkeypatch.setattr(module, "waiting", SimpleNamespace(**names))
    monkeypatch.setattr(outbox_module, "STUCK", 0.0)
    # What this wire raises stands for what the kernel says.
    monkeypatch.setattr(Sender, "of_handler", lambda self, error: isinstance(error, Interrupt))


ALL, PART, FULL = (), (1,), (0,)


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(ALL, id="all", marks=pytest.mark.slow),
        pytest.param(PART, id="part"),
        pytest.param(FULL, id="full", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        ((1, 0), "raises"),
        *(pytest.param(frames, kind, marks=[pytest.mark.slow, pytest.mark.timeout(900)])
          for frames, kind in [((1, 0), "gives up"), ((1, 0), "closed"), ((1, 0), "waits"), ((1, 0), "lost"),
                               ((1, 1), "goes on"), ((1, 1), "raises"), ((1, 1), "waits")]),
    ],
)  # fmt: skip
def test_each_frame_leaves_once_whole_and_in_order(answers: Sequence[int], frames: Sequence[int], kind: str) -> None:
    assert explore(lambda: Link(answers, frames, kind)) > 50
