"""The bookkeeping of pulls: messages requested from the server and still to come. No socket, no clock, no thread.

Each way to read has its own `need`, the next request. `FetchCredit` requests the messages that a fetch still misses.
`WindowCredit` keeps a window full indefinitely. A range that is read as columns has its own class. The start, end and
loss of pulls is the same for all of them, and is in `Credit`.

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


# --- the window of a continuous read ----------------------------------------------------------------------------

UNLIMITED_BATCH: Final = 1_000_000
"""Messages requested if only bytes are limited (nats.go, nats.java)."""

WINDOW: Final = 0.1
"""Seconds: a window that may grow holds the messages that the application takes in this time."""

ROUND_TRIPS: Final = 16
"""The same in round trips, for long ones. One half of a window is under way, so half a window comes per round trip.
With less than 2 an application that waits for the network would look slow, and never get a larger window. With 16 the
window is eight times as large after each round trip, until the application, the server or the line is the limit.
"""

LONGEST_WINDOW: Final = 5.0
"""The most seconds, because a link can be slower than any line."""

FASTEST: Final = 40_000
"""The highest rate, in messages per second, for which a window is made: 4,000 on a near server. Server and client then
wait less for each other. Without acks a message of 128 B costs the client 2.6 µs at 500, 2.2 at 2,000 and 2.0 at 4,000.
It costs the server 3.9, 2.9 and 2.9. The time from one message to the next is 4.3, 3.0 and 2.9.
"""


ENOUGH: Final = 8
"""Number of messages from which the recent size of a message is computed."""

SHORTEST: Final = 1e-6
"""Seconds; a round trip may have been shorter than the measured one."""


class WindowCredit(Credit):
    """The credit of one continuous read: the size of its window, and the time of the next pull.

    Buffered and requested messages together never exceed `max_messages` (and `max_bytes`). Credit returns when the
    *application* takes a message.

    `take()` counts a message that the application takes. It is the only call on the hot path, and any thread may make
    it. A new pull is due as soon as its result reaches `check_at`. All other methods are called
    under the owner's lock.
    """

    endless = True

    def __init__(
        self,
        max_messages: int,
        max_bytes: int = 0,
        *,
        threshold_messages: int | None = None,
        threshold_bytes: int | None = None,
        stop_after: int | None = None,
        numbers: Callable[[], int] | None = None,
        most_messages: int = 0,
    ) -> None:
        """Above 0, `most_messages` lets `max_messages` grow up to there: see `_fit_window`."""
        super().__init__(max_bytes, numbers=numbers)
        self.max_messages: int = max_messages
        self.threshold_messages: int = (max_messages + 1) // 2 if threshold_messages is None else threshold_messages
        if threshold_bytes is None:
            # If messages are limited too, a pull that is out of bytes ends, and its end makes the next one due.
            threshold_bytes = (max_bytes + 1) // 2 if max_messages >= UNLIMITED_BATCH else 0
        self.threshold_bytes = threshold_bytes
        self.stop_after = stop_after
        self.take: Callable[[], int] = waiting.numbers()
        self.check_at: int = 1
        self._least_messages = max_messages
        self._most_messages = most_messages
        self._asked_at = (0.0, 0)  # The time of the last pull, and the messages taken before it.
        self._waits_since: float | None = None  # The beginning of a wait for messages.
        self._waited = 0.0  # Seconds of such waits since the last pull.
        self._reads = 0  # The number of reads of the count.
        self._measured = (0, 0)  # Messages and bytes taken when `_late` was last looked at.
        self._late = 0  # Recent bytes of a message.
        self._whole_until = 0  # Messages delivered up to which a pull gets the whole limit.

    def taken(self) -> int:
        """Messages taken up to now. Reading the count adds one to it, so every limit moves by one as well."""
        self.granted: int = self.granted + 1
        self.check_at += 1
        self._reads += 1
        if self.stop_after is not None:
            self.stop_after += 1
        return self.take()

    def came(self) -> int:
        return self.delivered(self.taken())

    def need(self, now: float = 0.0, round_trip: float = 0.0) -> tuple[int, int] | None:
        taken = self.taken()
        pending = self._under_way(taken)
        pending_bytes = max(self.granted_bytes - self.taken_bytes, 0)
        if pending < self.threshold_messages and self._most_messages:
            self._fit_window(taken, now, round_trip)
        self._recount(taken)
        low = pending < self.threshold_messages
        low_bytes = pending_bytes < self.threshold_bytes
        if self._too_small and pending:
            # A message needs the whole limit: pull nothing more until the application has taken everything. Otherwise
            # two smaller pulls, which both come back empty, would alternate forever.
            self.check_at = max(self.check_at, self.granted)
            return None
        if not (low or low_bytes) or now < self.retry_at:
            return None
        batch = self.max_messages - pending if self.max_messages < UNLIMITED_BATCH else UNLIMITED_BATCH
        if self.stop_after is not None:
            batch = min(batch, self.stop_after - self.granted)
        if batch <= 0:
            return None
        if not self.max_bytes:
            return batch, 0
        nbytes = self._bytes_for(batch, taken, self.max_bytes - pending_bytes, pending == 0)
        # Twice the number of messages that fit. Otherwise a pull that bytes will end delays the next one.
        return (min(batch, self._fitting(nbytes, taken)), nbytes) if nbytes else None

    def begin_wait(self, now: float) -> None:
        """The application waits, and there are no messages."""
        self._waits_since = now

    def end_wait(self, now: float) -> None:
        if self._waits_since is not None:
            self._waited += now - self._waits_since
            self._waits_since = None

    def _fit_window(self, taken: int, now: float, round_trip: float) -> None:
        """Hold the messages that the application takes in WINDOW seconds or ROUND_TRIPS, at its latest rate.

        The rate is from the time since the last pull. A quick application gets a large window, because each pull that
        runs dry costs it and the server a wait. If an application works on its messages, a large window would only make
        more of them expire, or go back at the end.
        """
        (since, before), delivered = self._asked_at, taken - self._reads
        self._asked_at = now, delivered
        if self._waits_since is not None:
            self.end_wait(now)
            self.begin_wait(now)
        # The first message of a pull is a round trip away, whatever the rates of the application and the line are. With
        # it in the sum, a window over 300 ms needed one round trip more to be large enough.
        busy = now - since - min(self._waited, round_trip)
        self._waited = 0.0
        rate = min((delivered - before) / max(busy, SHORTEST), FASTEST) if now > since else 0.0
        seconds = max(WINDOW, min(ROUND_TRIPS * round_trip, LONGEST_WINDOW))
        most = min(self._most_messages, self._fitting(self.max_bytes, taken)) if self.max_bytes else self._most_messages
        self._hold(max(self._least_messages, min(int(rate * seconds), most)))

    def stop_growing(self, batch: int) -> bool:
        if batch <= self._least_messages:
            return False
        self._most_messages = 0
        self._hold(self._least_messages)
        return True

    def _hold(self, messages: int) -> None:
        self.max_messages = messages
        self.threshold_messages = (messages + 1) // 2

    def _fitting(self, nbytes: int, taken: int) -> int:
        """Twice the number of messages that fit into `nbytes`, by their mean or recent size, whichever is less.

        Tiny messages after large ones must not be requested as if they were large.
        """
        if not self.taken_bytes or self.max_messages >= UNLIMITED_BATCH:
            return UNLIMITED_BATCH
        delivered, nbytes_taken = taken - self._reads, self.taken_bytes
        since, before = self._measured
        if delivered - since >= ENOUGH:
            self._measured = delivered, nbytes_taken
            self._late = max((nbytes_taken - before) // (delivered - since), 1)
        mean = min(self._late or nbytes_taken, max(nbytes_taken // max(delivered, 1), 1))
        return max(2 * nbytes // mean, 1)

    def _bytes_for(self, batch: int, taken: int, credit: int, alone: bool) -> int:
        """Bytes of the limit that a pull gets: four times the need of its messages so far, at most half of the limit.

        With half of the limit, pulls can overlap. A pull with the small rest of the limit would end immediately with
        "Message Size Exceeds MaxBytes". In addition, servers up to 2.15 then forget a message of a last_per_subject
        consumer.
        """
        half = (self.max_bytes + 1) // 2
        wanted = half
        delivered = taken - self._reads
        if self._too_small:
            self._whole_until = delivered + ENOUGH
        if delivered < self._whole_until:  # messages behind one that needs more than half may need it, too
            return self.max_bytes if alone else 0
        if delivered > 0 and self.max_messages < UNLIMITED_BATCH:
            wanted = min(half, max(4 * batch * self.taken_bytes // delivered, self.max_bytes // 16))
        if alone:
            return min(credit, wanted)
        return wanted if credit >= wanted else 0

    def _recount(self, taken: int) -> None:
        check_at = max(taken + 1, self.granted - self.threshold_messages + 1)
        if self.threshold_bytes:
            # Half of the messages, by their mean size, that the application can take before the bytes run low.
            spare = self.granted_bytes - self.taken_bytes - self.threshold_bytes
            mean = self.taken_bytes // max(taken - self._reads, 1) or 1
            check_at = min(check_at, taken + max(spare // (2 * mean), 1) if self.taken_bytes else taken + 1)
        self.check_at = check_at if self.stop_after is None else min(check_at, self.stop_after)

    def delivered(self, count: int) -> int:
        """The number of messages taken when `take()` returned `count`, without reads of the count."""
        return count - self._reads
