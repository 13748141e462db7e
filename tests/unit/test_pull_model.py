"""WindowCredit beside a model of the server: bounds hold, and what is there comes, whatever the sizes and limits."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest

from jsclient.jetstream.consuming.credit import UNLIMITED_BATCH, WindowCredit
from jsclient.jetstream.consuming.pull_statuses import StatusMeaning


class Server:
    """Serves pulls in order. A pull ends with a status when its messages are served or the next one does not fit into
    its bytes, and without one when its bytes are used up exactly (2.9 to 2.15)."""

    def __init__(self, sizes: list[int]) -> None:
        self.left = deque(sizes)
        self.pulls: deque[list[int]] = deque()  # number, messages, bytes
        self.sent: deque[tuple[int, StatusMeaning | None]] = (
            deque()
        )  # (size of a message or number of a pull, its status)

    def serve(self, count: int) -> None:
        while self.pulls and self.left and count:
            number, messages, nbytes = pull = self.pulls[0]
            if self.left[0] > nbytes:
                self._end(number, StatusMeaning("quiet", unserved=(messages, nbytes), reason="max bytes"))
                continue
            pull[1:] = messages - 1, nbytes - self.left[0]
            self.sent.append((self.left.popleft(), None))
            count -= 1
            if not pull[2]:
                self.pulls.popleft()
            elif not pull[1]:
                self._end(number, StatusMeaning("quiet", unserved=(0, pull[2]), reason="complete"))

    def expire(self) -> None:
        if self.pulls:
            number, messages, nbytes = self.pulls[0]
            self._end(number, StatusMeaning("quiet", unserved=(messages, nbytes), reason="timeout"))

    def _end(self, number: int, meaning: StatusMeaning) -> None:
        self.pulls.popleft()
        self.sent.append((number, meaning))

    def buffered(self) -> list[int]:
        return [size for size, meaning in self.sent if meaning is None]


class Application:
    """Takes messages as `Messages` does."""

    def __init__(self, server: Server, state: WindowCredit, limits: tuple[int, int, int]) -> None:
        self.server, self.state = server, state
        self.most, self.max_bytes, self.stop_after = limits
        self.taken, self.due, self.now = 0, True, 1.0

    def pull(self) -> None:
        self.due = False
        need = self.state.need(self.now)
        if need is None:
            return
        self.server.pulls.append([self.state.opened(*need), *need])
        buffered, pulls = self.server.buffered(), self.server.pulls
        assert len(buffered) + sum(pull[1] for pull in pulls) <= self.most
        assert sum(buffered) + sum(pull[2] for pull in pulls) <= self.max_bytes
        assert self.taken + len(buffered) + sum(pull[1] for pull in pulls) <= self.stop_after

    def take(self) -> bool:
        """One message; False when none came although everything was asked for."""
        for _ in range(100):
            if self.due or not self.server.sent:
                self.pull()
            if not self.server.sent:
                self.server.serve(50)
                continue
            item, meaning = self.server.sent.popleft()
            if meaning is not None:
                buffered = self.server.buffered()
                self.state.ended(item, meaning, len(buffered), self.now, sum(buffered))
                if meaning.reason != "complete":
                    self.pull()
                continue
            self.taken += 1
            if self.state.take() >= self.state.check_at:
                self.due = True
            self.state.taken_bytes += item
            return True
        return False


def sizes(r: random.Random, largest: int) -> list[int]:
    kinds: list[Any] = [
        lambda index: r.randint(1, largest),
        lambda index: r.choice([1, largest * 6 // 10]),
        lambda index: 1 + index % 3,
        lambda index: max(1, largest // 20),  # fills pulls exactly
        lambda index: 1 + index // 40 % 2 * (largest * 6 // 10),
    ]
    kind = r.choice(kinds)
    return [min(max(1, kind(index)), largest) for index in range(r.randint(1, 300))]


@pytest.mark.parametrize("seed", range(0, 2000, 100))
def test_bounds_hold_and_everything_comes(seed: int) -> None:
    for number in range(seed, seed + 100):
        r = random.Random(number)
        max_bytes = r.choice([100, 999, 1000, 1001, 5000, 100_000])
        messages = r.choice([1, 2, 3, 10, 11, 50, UNLIMITED_BATCH])
        threshold = r.choice([None, None, 1, min(messages, 50)])
        grows = 60 if threshold is None and messages < 60 and r.random() < 0.5 else 0
        stop_after = r.choice([None, None, r.randint(1, 300)])
        server = Server(sizes(r, max_bytes))
        state = WindowCredit(
            messages, max_bytes, threshold_messages=threshold, stop_after=stop_after, most_messages=grows
        )
        most = max(messages, grows) if messages < UNLIMITED_BATCH else 1 << 60
        application = Application(server, state, (most, max_bytes, stop_after or 1 << 60))
        wanted = min(len(server.left), stop_after or 1 << 60)
        while application.taken < wanted:
            application.now += r.choice([0, 1e-5, 1e-4, 1e-2])
            chance = r.random()
            if chance < 0.3:
                server.serve(r.randint(1, 30))
            elif chance < 0.31:
                server.expire()
            else:
                assert application.take(), f"seed {number}: {application.taken} of {wanted}"
