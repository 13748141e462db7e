"""What was asked of the server and has not come yet: the bookkeeping of pulls. No socket, no clock, no thread.

Each way to read says in `need` what to ask for next: `PullState` keeps a window full for ever, `Remainder` asks for
what a fetch still misses, and a range that is read as columns has its own. How pulls begin, end and get lost is the
same for all of them, and stands here.

The server answers every pull on its own reply subject `<inbox>.<number>`, so a status names the pull that it ends and a
late one is told from a current one; messages keep their own subject and count against the whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from jsclient.jetstream.consuming.pull_statuses import Verdict

REMEMBERED: Final = 1_024
"""Pulls remembered as open; the server holds at most max_waiting, 512 by default."""

FIRST_DELAY: Final = 0.1
LONGEST_DELAY: Final = 1.0
"""Back-off after statuses that would come again at once, such as 503 while a leader is elected (4-8 s): with 5 s the
first message after an election that took 4.3 s came after 9.3 s."""


class Credit:
    """Base of all credits. The owner calls its methods under one lock, or from one thread."""

    endless = False
    """The read has no end of its own: it lives through what others report to their caller."""

    # The start values stand here because every fetch makes a credit.
    due = True
    """A pull may be due: look when the application comes for the next message."""
    granted: int = 0
    """Messages requested up to now, without those that the server said will not come."""
    granted_bytes: int = 0
    taken_bytes = 0
    """The owner adds the size of what is taken."""
    retry_at: float = 0.0
    _newest = 0  # pull
    _settled = 0  # the newest pull with bytes given back before its status came
    _too_small = False  # the last pull brought nothing because of its bytes: the next one gets all of them
    _failures = 0

    def __init__(self, max_bytes: int = 0, *, numbers: Iterator[int] | None = None) -> None:
        self.max_bytes = max_bytes
        self.limited: bool = max_bytes > 0
        """The pulls have a limit of bytes, and the owner counts those of what is taken."""
        self.open: dict[int, tuple[int, int]] = {}
        self._numbers = itertools.count(1) if numbers is None else numbers

    def taken(self) -> int:
        """Messages taken up to now."""
        raise AssertionError("subclasses say it")

    def came(self) -> int:
        """The same, for comparing it with what it was before."""
        return self.taken()

    def need(self, now: float = 0.0, round_trip: float = 0.0) -> tuple[int, int] | None:
        """(messages, bytes) of the pull that is due, or None. 0 bytes: no limit. `round_trip`: seconds of the link."""
        raise AssertionError("subclasses say it")

    def _recount(self, taken: int) -> None:
        """What was granted or taken has changed."""

    def _under_way(self, taken: int) -> int:
        """Messages that were asked for and not taken; for `need`."""
        # More may come than was asked for: after a reconnect the old pull can be served beside the new one.
        self.granted = max(self.granted, taken)
        pending = self.granted - taken
        if pending == 0:
            # Nothing is under way, so no bytes are either; 2.9 ends a full pull without saying what was left.
            self.granted_bytes = self.taken_bytes
            self._settled = self._newest
        elif self.limited and self.granted_bytes <= self.taken_bytes and all(each[1] for each in self.open.values()):
            # No bytes are under way, so no messages are either: no server tells the end of a pull if its bytes were
            # used up exactly.
            self.open.clear()
            self.granted, pending = taken, 0
        return pending

    def outstanding(self, buffered: int) -> int:
        """Messages asked for that have not come yet; with any, the server owes us heartbeats."""
        taken = self.taken()  # first: it moves `granted` along
        return max(self.granted - taken - buffered, 0)

    def opened(self, batch: int, nbytes: int) -> int:
        """A pull goes out; its number is the last token of its reply subject."""
        number = self._newest = next(self._numbers)
        if len(self.open) >= REMEMBERED:
            del self.open[next(iter(self.open))]
        self.open[number] = (batch, nbytes)
        self.granted += batch
        self.granted_bytes += nbytes
        self._recount(self.taken())
        return number

    def ended(
        self, number: int | None, verdict: Verdict, buffered: int, now: float = 0.0, buffered_bytes: int = 0
    ) -> bool:
        """A status ended a pull. False when that pull is forgotten already: then it says nothing new.

        `buffered` is the number of messages received and not taken.
        """
        asked = self.open.pop(number, None) if number is not None else None
        if number is not None and asked is None:
            return False
        taken = self.taken()
        if verdict.all_pulls:
            self.lost(buffered, buffered_bytes)
        else:
            messages, nbytes = verdict.unserved or asked or (0, 0)
            if asked is not None:
                messages, nbytes = min(messages, asked[0]), min(nbytes, asked[1])
            self.granted = max(self.granted - messages, taken + buffered)
            if number is None or number > self._settled:
                self.granted_bytes = max(self.granted_bytes - nbytes, self.taken_bytes)
            self._too_small = verdict.reason == "max bytes" and asked is not None and nbytes >= asked[1]
            if verdict.reason == "complete":
                self.works()
        if verdict.back_off:
            self.failed(now)
        self._recount(taken)
        return True

    def lost(self, buffered: int, buffered_bytes: int = 0) -> None:
        """No pull is alive (leader change, reconnect, missed heartbeats): only what is buffered counts."""
        self.open.clear()
        taken = self.taken()
        self.granted = taken + buffered
        self.granted_bytes = self.taken_bytes + buffered_bytes
        self._recount(taken)

    def failed(self, now: float) -> None:
        """Wait before the next pull: 0.1 s, doubled up to 1 s until something works."""
        self.retry_at = now + min(FIRST_DELAY * 2**self._failures, LONGEST_DELAY)
        self._failures = min(self._failures + 1, 16)

    def works(self) -> None:
        """A message or heartbeat came, or the link is new: pull at once."""
        self._failures = 0
        self.retry_at = 0.0

    def stop_growing(self, batch: int) -> bool:
        """A pull of so many was refused because of its size. True when it was only that large because a window had
        grown, which is over now."""
        return False


class Remainder(Credit):
    """The credit of a fetch: one pull at a time, for all that is still missing. For one thread.

    The owner sets `count` and `taken_bytes` to what has come. A pull that ended asks no other one to follow, except
    after what a fetch lives through (see the table of statuses), and `go_on`.
    """

    count = 0
    _alone_from = float("inf")  # bytes taken before the last pull without a limit
    verdict: Verdict | None = None
    """What the last pull ended with, unless another one follows it."""

    def __init__(
        self, messages: int, max_bytes: int = 0, *, numbers: Iterator[int] | None = None, pull_bytes: int = 0
    ) -> None:
        """`pull_bytes`: the limit of each pull where the whole has none (0: none)."""
        super().__init__(max_bytes, numbers=numbers)
        self.messages = messages
        self.pull_bytes = pull_bytes
        if pull_bytes:
            self.limited = True

    def taken(self) -> int:
        return self.count

    def need(self, now: float = 0.0, round_trip: float = 0.0) -> tuple[int, int] | None:
        left = self.messages - self.count
        if self._under_way(self.count) or self.verdict is not None or now < self.retry_at or left <= 0:
            return None
        if self.max_bytes:
            return left, max(self.max_bytes - self.taken_bytes, 1)
        if self.pull_bytes and (self._too_small or self.taken_bytes - self._alone_from > self.pull_bytes):
            # One message needs more than the limit of a pull, and so may the one behind it.
            self._too_small, self._alone_from = False, self.taken_bytes
            return 1, 0
        self._alone_from = float("inf")
        return left, self.pull_bytes

    def ended(
        self, number: int | None, verdict: Verdict, buffered: int, now: float = 0.0, buffered_bytes: int = 0
    ) -> bool:
        if not super().ended(number, verdict, buffered, now, buffered_bytes):
            return False
        if not self.open:
            # No pull is left, so the rest does not come, even if the status names another number.
            self.granted: int = self.count + buffered
            self.granted_bytes: int = max(self.taken_bytes, buffered_bytes)
        if not verdict.again:
            self.verdict = verdict
        return True

    def go_on(self) -> None:
        """The pull that ended was not the last one."""
        self.verdict = None
        self.due = True
