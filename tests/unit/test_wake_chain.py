"""The chain of wake-ups: every interleaving of the reader, waiting threads and the flusher, on the real code."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Any

import pytest
from tests.interleave import Interrupt, Steps, Thread, World, explore, stepwise

from jsclient._connection import wake_chain
from jsclient._connection.outbox import COALESCE, MOST_LEFT, Outbox
from jsclient._connection.wake_chain import WakeChain

Stepwise: Any = stepwise(WakeChain, "start", "step", "forget", "_open_next", "_end", "leave", "look")


class Refused(Exception):
    """There is no link, or no connection any more."""


class FakeTicket:
    def __init__(self, name: int) -> None:
        self.name, self.opened, self.holds = name, False, False

    def open(self) -> None:
        self.opened = True

    def put(self) -> None:
        self.holds = self.opened = True


class FakeOutbox:
    """Frames that are sent at once, or left."""

    ticking = True
    offline = False

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.sent: list[bytes] = []
        self.writes = 0

    def leave(self, frame: bytes) -> bool:
        if not self.offline:
            self.frames.append(frame)
        return not self.offline

    def enqueue_now(self, frame: bytes, deadline: Any) -> None:
        if self.offline:
            raise Refused
        self.frames.append(frame)
        self.nudge()

    def nudge(self) -> None:
        if not self.offline and self.frames:
            self.sent += self.frames
            self.frames.clear()
            self.writes += 1


class Chain(World):
    """The reader answers waiting threads in chunks; each then makes one more request."""

    def __init__(self, chunks: list[list[int]], timeouts: set[int], interruptible: set[int], rescue: bool) -> None:
        self.outbox = FakeOutbox()
        self.chain: Any = Stepwise(self.outbox, lambda: None)
        count = sum(map(len, chunks))
        self.tickets = [FakeTicket(number) for number in range(count)]
        self.finished: set[int] = set()
        self.waiting = set(range(count))
        self.enqueued: set[bytes] = set()
        self.timeouts, self.rescue = timeouts, rescue
        self.interruptible, self.interrupts = interruptible, 1 if interruptible else 0
        self.threads = [Thread(self.waiter(number)) for number in range(count)]
        self.threads.append(Thread(self.reader(chunks)))

    def reader(self, chunks: list[list[int]]) -> Steps:
        for chunk in chunks:
            for number in chunk:
                yield None
                if number in self.waiting:
                    yield None
                    self.tickets[number].holds = True
                    yield None
                    self.chain.answered.append(self.tickets[number])
            yield from self.chain.start()

    def waiter(self, number: int) -> Steps:
        ticket = self.tickets[number]
        # As in `request`: a `finally` that steps, and steps once more after an exception within.
        interrupted = False
        try:
            yield lambda: ticket.opened or number in self.timeouts
            if number in self.timeouts:
                self.waiting.discard(number)
                yield from self.chain.forget(ticket)
        except Interrupt:
            interrupted = True
        try:
            yield from self.chain.step(ticket)
        except Interrupt:
            interrupted = True
            yield from self.chain.step(ticket)
        if interrupted:
            return
        frame = b"%d" % number
        yield None
        if self.chain.running:
            yield from self.chain.leave(frame, None)
        else:
            self.outbox.enqueue_now(frame, None)
        self.enqueued.add(frame)
        self.finished.add(number)

    def state(self) -> Hashable:
        return (
            tuple(ticket.name for ticket in self.chain.answered),
            tuple((ticket.opened, ticket.holds) for ticket in self.tickets),
            self.chain.running,
            tuple(self.outbox.frames),
            frozenset(self.outbox.sent),
            frozenset(self.finished),
            frozenset(self.waiting),
        )

    def check(self) -> None:
        if self.rescue:  # two ticks of the flusher for each thread
            tick(self.chain, self.outbox, self.threads, 2 * len(self.tickets))
        unopened = [t.name for t in self.tickets if t.holds and not t.opened and not self.threads[t.name].done]
        assert not unopened, f"{unopened} were answered and never woken"
        assert not self.outbox.frames, "a frame was left and nobody sends it"
        assert not self.chain.answered
        assert not self.chain.running


def tick(chain: Any, outbox: FakeOutbox, threads: list[Thread], times: int) -> None:
    """What the flusher does so often while a chain runs; behind each tick all threads go on as far as they can."""
    for _ in range(times):
        writes = outbox.writes
        for thread in threads:
            while thread.enabled:
                thread.advance()
        if (not chain.running and not chain.answered) or not finish(chain.look()) or outbox.writes == writes:
            outbox.nudge()


def finish(steps: Steps) -> Any:
    """All steps of a call at once; what it returns."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


class Ended(World):
    """Threads that ask twice, and a link that ends meanwhile: by a close of another thread, or because it is lost, and
    then another one takes its place."""

    def __init__(self, chunk: list[int], count: int, end: str, interruptible: set[int]) -> None:
        self.outbox = FakeOutbox()
        self.chain: Any = Stepwise(self.outbox, lambda: None)
        self.asked = count  # the numbers of the second requests begin here
        self.tickets = [FakeTicket(number) for number in range(2 * count)]
        self.waiting = {*range(count)}
        self.refused: set[int] = set()
        self.end = end
        self.interruptible, self.interrupts = interruptible, 1 if interruptible else 0
        self.threads = [Thread(self.asker(number)) for number in range(count)]
        self.threads.append(Thread(self.reader(chunk)))
        if end == "closed":
            self.threads.append(Thread(self.closer()))

    def asker(self, number: int) -> Steps:
        interrupted = yield from self.wait(number)
        if interrupted:
            return
        again = number + self.asked
        frame = b"%d" % again
        yield None
        self.waiting.add(again)  # before the look whether there is a link: what ends it later tells us
        try:
            yield None
            if self.chain.running:
                yield from self.chain.leave(frame, None)
            else:
                self.outbox.enqueue_now(frame, None)
        except (Refused, Interrupt) as ended:
            self.refused.add(again)
            self.tickets[again].opened = True
            yield from self.wait(again)
            if isinstance(ended, Interrupt):
                return
        else:
            yield from self.wait(again)

    def wait(self, number: int) -> Steps:
        """As in `request`: with a `finally` that steps, and steps once more after an exception within."""
        ticket, interrupted = self.tickets[number], False
        try:
            yield lambda: ticket.opened
        except Interrupt:
            interrupted = True
        try:
            yield from self.hand_on(ticket)
        except Interrupt:
            interrupted = True
            yield from self.hand_on(ticket)
        yield None
        self.waiting.discard(number)
        return interrupted

    def hand_on(self, ticket: FakeTicket) -> Steps:
        yield None
        if self.chain.running or self.chain.answered:
            yield from self.chain.step(ticket)

    def answer(self, numbers: list[int]) -> Steps:
        for number in numbers:
            yield None
            if number in self.waiting and not self.tickets[number].holds:
                self.tickets[number].holds = True
                yield None
                self.chain.answered.append(self.tickets[number])
        yield from self.chain.start()

    def fail(self) -> Steps:
        for number in sorted(self.waiting):
            yield None
            self.tickets[number].put()

    def reader(self, chunk: list[int]) -> Steps:
        yield from self.answer(chunk)
        if self.end == "lost":
            yield None
            self.outbox.offline = True
            yield None
            self.outbox.frames.clear()  # their owners are among those who wait
            yield from self.fail()
            yield None
            self.outbox.frames.clear()  # what has slipped in
            self.outbox.sent.clear()
            self.outbox.offline = False
        while True:  # what is asked over this link is answered, as it comes
            yield lambda: self.unanswered() or self.all_asked()
            numbers = self.unanswered()
            if not numbers:
                return
            yield from self.answer(numbers)

    def unanswered(self) -> list[int]:
        asked = {int(frame) for frame in self.outbox.sent} & self.waiting
        return sorted(number for number in asked if not self.tickets[number].holds)

    def all_asked(self) -> bool:
        return all(thread.done for thread in self.threads[: self.asked]) or self.outbox.offline

    def closer(self) -> Steps:
        yield None
        self.outbox.offline = True
        yield from self.fail()
        yield None
        yield from self.fail()  # those that began meanwhile

    def state(self) -> Hashable:
        return (
            tuple(ticket.name for ticket in self.chain.answered),
            tuple((ticket.opened, ticket.holds) for ticket in self.tickets),
            *(self.chain.running, self.outbox.offline),
            *(tuple(self.outbox.frames), frozenset(self.outbox.sent)),
            *(frozenset(self.waiting), frozenset(self.refused)),
        )

    def check(self) -> None:
        if self.interruptible:
            tick(self.chain, self.outbox, self.threads, 2 * len(self.tickets))
        stuck = [number for number, thread in enumerate(self.threads) if not thread.done]
        assert not stuck, f"{stuck} wait for ever"
        if self.end == "lost":
            assert not self.outbox.frames, "a frame was left and nobody sends it"
            assert not self.chain.answered
            assert not self.chain.running


@pytest.mark.parametrize(
    ("answered", "end"),
    [
        ([0], "closed"),
        ([0, 1], "lost"),
        pytest.param([0, 1], "closed", marks=[pytest.mark.slow, pytest.mark.timeout(300)]),  # 125,000 states: 17 s
    ],
)
def test_a_link_that_ends_leaves_nobody_waiting(answered: list[int], end: str) -> None:
    """Nor a token in the way of those who ask over the next one. With more threads, and exceptions: tests/faults."""
    assert explore(lambda: Ended(answered, 2, end, set())) > 100


@pytest.mark.parametrize(
    ("chunks", "timeouts"),
    [([[0, 1, 2]], set()), pytest.param([[0], [1, 2]], set(), marks=pytest.mark.slow), ([[0, 1]], {1})],
)
def test_all_are_woken_and_everything_is_sent(chunks: list[list[int]], timeouts: set[int]) -> None:
    """Without any help of the flusher, unless a reply comes at the very end of its time. More orders: tests/faults."""
    assert explore(lambda: Chain(chunks, timeouts, set(), rescue=bool(timeouts))) > 100


def test_an_exception_anywhere_is_made_good_within_two_ticks() -> None:
    assert explore(lambda: Chain([[0, 1]], set(), {0, 1}, rescue=True)) > 100


def test_only_one_thread_is_on_its_way() -> None:
    """What the chain is for: opened, and not yet past its step."""
    outbox = FakeOutbox()
    chain = WakeChain(outbox, lambda: None)  # type: ignore[arg-type]
    tickets = [FakeTicket(number) for number in range(16)]
    chain.answered.extend(tickets)
    chain.start()
    for number in range(1, 16):
        assert sum(ticket.opened for ticket in tickets) == number
        chain.leave(b"%d" % number, None)  # type: ignore[arg-type]
        chain.start()  # the reader comes by: nothing
        chain.step()
    assert chain.running
    assert len(outbox.frames) == 15
    chain.step()
    assert not chain.running
    assert len(outbox.sent) == 15
    assert outbox.writes == 1


def test_a_chain_that_does_not_end_sends_what_is_enough_before_it_goes_on() -> None:
    outbox = FakeOutbox()
    chain = WakeChain(outbox, lambda: None)  # type: ignore[arg-type]
    tickets = [FakeTicket(number) for number in range(2 * wake_chain.ENOUGH + 2)]
    for ticket in tickets:
        ticket.open = lambda ticket=ticket: order.append((ticket.name, outbox.writes))  # type: ignore[method-assign,misc]
    order: list[tuple[int, int]] = []
    chain.answered.extend(tickets)
    chain.start()
    for number in range(2 * wake_chain.ENOUGH + 1):
        chain.leave(b"%d" % number, None)  # type: ignore[arg-type]
        chain.step()
    assert [number for number, _ in order] == [ticket.name for ticket in tickets]
    assert [writes for _, writes in order] == [number // wake_chain.ENOUGH for number in range(len(tickets))]


def test_the_flusher_leaves_a_chain_alone_that_moves_and_sends() -> None:
    """It sends what was left at the second tick at the latest: see invariant 6."""
    outbox = FakeOutbox()
    chain = WakeChain(outbox, lambda: None)  # type: ignore[arg-type]
    chain.answered.extend(FakeTicket(number) for number in range(8))
    chain.start()
    chain.step()
    assert chain.look()
    assert not chain.look(), "the token has not moved, so this was a step in its place"
    assert chain.look(), "and that one counts as a move"


def test_little_is_left() -> None:
    outbox = Outbox(kick=lambda: None, broken=lambda *_: None, limit=1 << 20)
    assert not outbox.leave(b"offline")
    outbox.offline = False
    assert not outbox.leave(bytes(COALESCE + 1))
    assert all(outbox.leave(b"x") for _ in range(MOST_LEFT))
    assert not outbox.leave(b"x")
