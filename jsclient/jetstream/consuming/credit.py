"""The bookkeeping of pulls: messages requested from the server and still to come. No socket, no clock, no thread.

Each way to read has its own `need`, the next request. `PullState` keeps a window full indefinitely. `FetchCredit`
requests the messages that a fetch still misses. A range that is read as columns has its own class. The start, end and
loss of pulls is the same for all of them, and is in this module.

The server answers every pull on its own reply subject `<inbox>.<number>`. So a status names the pull that it ends, and
a late status differs from a current one. Messages keep their own subject and count against the total.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from jsclient import waiting
from jsclient.jetstream.consuming.pull_statuses import StatusMeaning

REMEMBERED: Final = 1_024
"""Pulls remembered as open; the server holds at most max_waiting, 512 by default."""

FIRST_DELAY: Final = 0.1
LONGEST_DELAY: Final = 1.0
"""Back-off after statuses that would immediately come again, such as 503 while a leader is elected (4-8 s). With 5 s,
the first message after an election of 4.3 s came after 9.3 s.
"""


class Credit:
    """Base of all credits. The owner calls its methods under one lock, or from one thread."""

    endless = False
    """True for a read without an end: it survives errors that other reads report to their caller."""

    # The initial values are class attributes because every fetch makes a credit.
    due = True
    """A pull may be due: look when the application comes for the next message."""
    granted: int = 0
    """Messages requested up to now, without those that the server has cancelled."""
    granted_bytes: int = 0
    taken_bytes = 0
    """The owner adds the size of each message that it takes."""
    retry_at: float = 0.0
    _newest = 0  # pull
    _settled = 0  # the newest pull with bytes returned before its status came
    _too_small = False  # the last pull was in vain because of its bytes: the next one gets all of them
    _failures = 0

    def __init__(self, max_bytes: int = 0, *, numbers: Callable[[], int] | None = None) -> None:
        self.max_bytes = max_bytes
        self.limited: bool = max_bytes > 0
        """The pulls have a limit of bytes, and the owner counts the bytes of the messages that it takes."""
        self.open: dict[int, tuple[int, int]] = {}
        self._numbers = waiting.numbers() if numbers is None else numbers

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
        """Called after a change of the granted or taken messages."""

    def _under_way(self, taken: int) -> int:
        """The number of messages requested and not taken; for `need`."""
        # More messages may come than requested: after a reconnect the server can serve the old pull next to the new
        # one.
        self.granted = max(self.granted, taken)
        pending = self.granted - taken
        if pending == 0:
            # No messages and so no bytes are under way; 2.9 ends a full pull without reporting the rest.
            self.granted_bytes = self.taken_bytes
            self._settled = self._newest
        elif self.limited and self.granted_bytes <= self.taken_bytes and all(each[1] for each in self.open.values()):
            # No bytes and so no messages are under way: no server reports the end of a pull if its bytes were used up
            # exactly.
            self.open.clear()
            self.granted, pending = taken, 0
        return pending

    def outstanding(self, buffered: int) -> int:
        """The number of messages requested and still to come. If there are any, the server owes us heartbeats."""
        taken = self.taken()  # first: it moves `granted` along
        return max(self.granted - taken - buffered, 0)

    def opened(self, batch: int, nbytes: int) -> int:
        """A pull goes out; its number is the last token of its reply subject."""
        number = self._newest = self._numbers()
        if len(self.open) >= REMEMBERED:
            del self.open[next(iter(self.open))]
        self.open[number] = (batch, nbytes)
        self.granted += batch
        self.granted_bytes += nbytes
        self._recount(self.taken())
        return number

    def ended(
        self, number: int | None, meaning: StatusMeaning, buffered: int, now: float = 0.0, buffered_bytes: int = 0
    ) -> bool:
        """A status ended a pull. False if the credit has forgotten that pull already, so the status is not new.

        `buffered` is the number of messages received and not taken.
        """
        asked = self.open.pop(number, None) if number is not None else None
        if number is not None and asked is None:
            return False
        taken = self.taken()
        if meaning.all_pulls:
            self.lost(buffered, buffered_bytes)
        else:
            messages, nbytes = meaning.unserved or asked or (0, 0)
            if asked is not None:
                messages, nbytes = min(messages, asked[0]), min(nbytes, asked[1])
            self.granted = max(self.granted - messages, taken + buffered)
            if number is None or number > self._settled:
                self.granted_bytes = max(self.granted_bytes - nbytes, self.taken_bytes)
            self._too_small = meaning.reason == "max bytes" and asked is not None and nbytes >= asked[1]
            if meaning.reason == "complete":
                self.works()
        if meaning.back_off:
            self.failed(now)
        self._recount(taken)
        return True

    def lost(self, buffered: int, buffered_bytes: int = 0) -> None:
        """No pull is alive (leader change, reconnect, missed heartbeats): only buffered messages count."""
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
        """A message or heartbeat came, or the link is new: pull without a delay."""
        self._failures = 0
        self.retry_at = 0.0

    def stop_growing(self, batch: int) -> bool:
        """The server refused a pull of `batch` messages because of its size.

        True if it was only that large because a window had grown; the window is small again now.
        """
        return False


class FetchCredit(Credit):
    """The credit of a fetch: one pull at a time, for all missing messages. For one thread.

    The owner sets `count` and `taken_bytes` to the received messages and bytes. After the end of a pull another one
    follows only if a fetch survives that end (see the table of statuses), and after `go_on`.
    """

    count = 0
    _alone_from = float("inf")  # bytes taken before the last pull without a limit
    meaning: StatusMeaning | None = None
    """The meaning of the end of the last pull, unless another pull follows."""

    def __init__(
        self, messages: int, max_bytes: int = 0, *, numbers: Callable[[], int] | None = None, pull_bytes: int = 0
    ) -> None:
        """`pull_bytes` is the limit of each pull if the fetch has none (0 is unlimited)."""
        super().__init__(max_bytes, numbers=numbers)
        self.messages = messages
        self.pull_bytes = pull_bytes
        if pull_bytes:
            self.limited = True

    def taken(self) -> int:
        return self.count

    def need(self, now: float = 0.0, round_trip: float = 0.0) -> tuple[int, int] | None:
        left = self.messages - self.count
        if self._under_way(self.count) or self.meaning is not None or now < self.retry_at or left <= 0:
            return None
        if self.max_bytes:
            return left, max(self.max_bytes - self.taken_bytes, 1)
        if self.pull_bytes and (self._too_small or self.taken_bytes - self._alone_from > self.pull_bytes):
            # One message needs more than the limit of a pull, and the one behind it may need more, too.
            self._too_small, self._alone_from = False, self.taken_bytes
            return 1, 0
        self._alone_from = float("inf")
        return left, self.pull_bytes

    def ended(
        self, number: int | None, meaning: StatusMeaning, buffered: int, now: float = 0.0, buffered_bytes: int = 0
    ) -> bool:
        if not super().ended(number, meaning, buffered, now, buffered_bytes):
            return False
        if not self.open:
            # No pull is left, so the rest never comes, even if the status names another number.
            self.granted: int = self.count + buffered
            self.granted_bytes: int = max(self.taken_bytes, buffered_bytes)
        if not meaning.again:
            self.meaning = meaning
        return True

    def go_on(self) -> None:
        """The pull that ended was not the last one."""
        self.meaning = None
        self.due = True
