"""The watch over silence, beside a model of a server that swallows pulls: each is reported in time, and repeated."""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any

import pytest

from jsclient.jetstream.consuming.credit import WindowCredit
from jsclient.jetstream.consuming.pull_options import PullTerms
from jsclient.jetstream.consuming.pull_statuses import StatusMeaning
from jsclient.jetstream.consuming.watchdog import NEVER, Look, Watchdog, next_look
from jsclient.workers.prefetch import Prefetch

BEAT = 1.0


@pytest.mark.parametrize(
    ("heartbeat", "last_frame", "last_pull", "expected"),
    [(5.0, 100.0, 90.0, 110.0), (5.0, 90.0, 100.0, 110.0), (0.0, 100.0, 90.0, 121.0)],
)
def test_silence_is_an_alarm_after_two_heartbeats_or_after_expiry(
    heartbeat: float, last_frame: float, last_pull: float, expected: float
) -> None:
    watchdog = Watchdog.of_pulls(PullTerms(30.0, heartbeat), last_pull)
    assert watchdog.alarm_at(last_frame) == expected
    assert watchdog.look(expected - watchdog.doubt - 0.01, last_frame) is Look.WAIT
    assert watchdog.look(expected - watchdog.doubt, last_frame) is Look.ASK
    assert watchdog.look(expected - 0.01, last_frame) is Look.WAIT  # asked already
    assert watchdog.look(expected, last_frame) is Look.ALARM
    watchdog.restart(expected)
    assert watchdog.look(expected, last_frame) is Look.WAIT


def test_without_heartbeats_nothing_is_owed() -> None:
    assert Watchdog.of_heartbeats(0.0, 5.0).due(0.0) == NEVER


class Stalled(AssertionError):
    """Nobody would ever look again."""


class Worker:
    """As far as `Prefetch` knows one."""

    def __init__(self) -> None:
        self.calls, self.spent, self.held, self.free_at = 0, 0.0, None, 0.0


class Consume:
    """An iterator, alone or below a pool, and its server: some pulls are swallowed, the others are served at once."""

    def __init__(self, state: WindowCredit, wanted: int, swallowed: tuple[bool, ...], threads: int = 0) -> None:
        self.state, self.wanted = state, wanted
        self.watchdog = Watchdog.of_heartbeats(BEAT, 0.0)
        self.fates = itertools.chain(swallowed, itertools.repeat(False))
        self.now = self.last_frame = self.silent_since = 0.0
        self.mailbox: deque[Any] = deque()
        self.taken = self.swallowed = 0
        self.alarms: list[float] = []
        self.workers = [Worker() for _ in range(threads)]
        self.prefetch = Prefetch(self, self.workers, 1, 0, 0) if threads else None  # type: ignore[arg-type]

    def resize(self, max_messages: int, threshold_messages: int) -> None:
        self.state.max_messages, self.state.threshold_messages = max_messages, threshold_messages

    def run(self) -> None:
        while self.taken < self.wanted:
            self._let_workers_ask()
            while not self.mailbox:
                self._pull()
                if not self.mailbox:
                    self._wait()
            item = self.mailbox.popleft()
            if isinstance(item, tuple):
                number, meaning = item
                buffered = len([one for one in self.mailbox if not isinstance(one, tuple)])
                self.state.ended(number, meaning, buffered, self.now)
                continue
            self.taken += 1
            self.state.take()
            self._work()

    def _let_workers_ask(self) -> None:
        """The pool asks for as many messages as workers are free."""
        if self.prefetch is None:
            return
        free_at = min(worker.free_at for worker in self.workers)
        self.now = max(self.now, free_at)
        for worker in self.workers:
            worker.held = None if worker.free_at <= self.now else object()  # type: ignore[assignment]
        self.prefetch.make_room(next(worker for worker in self.workers if worker.held is None))  # type: ignore[arg-type]

    def _work(self) -> None:
        for worker in self.workers:
            if worker.free_at <= self.now:
                worker.free_at = self.now + 0.7 * BEAT
                return

    def _pull(self) -> None:
        need = self.state.need(self.now)
        if need is None:
            return
        number = self.state.opened(*need)
        self.watchdog.restart(self.now)
        self.silent_since = self.now
        if next(self.fates):
            self.swallowed += 1
            return
        self.mailbox.extend(["message"] * need[0])
        self.mailbox.append((number, StatusMeaning("quiet", unserved=(0, 0), reason="complete")))
        self.last_frame = self.now

    def _wait(self) -> None:
        """Nothing came and nothing will: the server has swallowed what we asked for."""
        due = next_look(self.state, self.watchdog, 0, self.now, self.last_frame)
        if due == NEVER:
            raise Stalled(f"{self.taken} of {self.wanted} taken, {self.swallowed} pulls swallowed")
        self.now = max(self.now, due)
        assert self.now - max(self.silent_since, self.last_frame) <= 2 * BEAT + 1e-9
        if self.watchdog.look(self.now, self.last_frame) is Look.ALARM:
            self.alarms.append(self.now)
            self.state.lost(0)
            self.watchdog.restart(self.now)


FATES = list(itertools.product([False, True], repeat=4))


@pytest.mark.parametrize("window", [1, 2, 3, 4, 7, 10])
def test_every_swallowed_pull_is_reported_within_two_heartbeats_and_repeated(window: int) -> None:
    for threshold in {None, *range(1, window + 1)}:
        for stop_after in (None, *range(1, 2 * window + 2)):
            for fates in FATES:
                state = WindowCredit(window, threshold_messages=threshold, stop_after=stop_after)
                consume = Consume(state, stop_after or 3 * window, fates)
                consume.run()
                assert len(consume.alarms) == consume.swallowed


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_the_same_below_a_pool(threads: int) -> None:
    for fates in itertools.product([False, True], repeat=6):
        consume = Consume(WindowCredit(threads), 4 * threads, fates, threads)
        consume.run()
        assert bool(consume.alarms) == bool(consume.swallowed)


def test_a_back_off_that_ends_just_now_is_not_waited_for_without_end() -> None:
    """Asked with one and the same time, either the pull is due or the end of the back-off is."""
    state = WindowCredit(1)
    state.failed(10.0)
    watchdog = Watchdog.of_heartbeats(BEAT, 10.0)
    for now in (10.0, state.retry_at - 1e-9, state.retry_at, state.retry_at + 1e-9):
        assert state.need(now) is not None or next_look(state, watchdog, 0, now, 10.0) > now
        assert state.need(now) is not None or next_look(state, watchdog, 0, now, 10.0) != NEVER
