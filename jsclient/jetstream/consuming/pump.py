"""The pump of everything that pulls: it keeps pulls under way, reads statuses, and finds out what silence means.

It runs without its own thread. The thread that takes messages drives it. That thread calls `keep_pulling` when
`state.due`, `status` and `link_event` for items other than messages, `wait` if there are no messages, and `look` if the
wait was in vain. The calls return reports for the application (`Notice`), so the pump does not depend on its driver.

Its Credit does all counting and decides what to request. Fetches, iterators and the reader of columns differ in that
alone. The pump takes the lock for an item other than a plain message, for a pull that is due, and before it waits. It
never takes the lock for an available message.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, TypeVar

from jsclient import errors
from jsclient._connection import LinkFrame
from jsclient.connection import engine_of
from jsclient.jetstream.api.headers import readable
from jsclient.jetstream.consuming.credit import FIRST_DELAY, Credit, WindowCredit
from jsclient.jetstream.consuming.pull_inboxes import FLUSH_TIMEOUT, PullInbox, nak_all, pool_of
from jsclient.jetstream.consuming.pull_options import LARGEST, MAX_BYTES, Paused, Resumed
from jsclient.jetstream.consuming.pull_statuses import StatusMeaning, classify
from jsclient.jetstream.consuming.sources import ASK_TIMEOUT, QuestionLimit
from jsclient.jetstream.consuming.watchdog import NEVER, Look, Watchdog, next_look
from jsclient.protocol import Status
from jsclient.states import LinkEvent

if TYPE_CHECKING:
    from jsclient._connection import Mailbox
    from jsclient.connection import Connection
    from jsclient.durations import Deadline
    from jsclient.jetstream.consuming.pull_options import PullTerms
    from jsclient.jetstream.consuming.sources import PullSource
    from jsclient.message import Msg

DIAGNOSE_EVERY: Final = 10.0
"""Seconds between two CONSUMER.INFO of one iterator."""

ASK_AGAIN: Final = 2.0

CLOSE: Final = 0.01
"""Seconds that a pull may outlive its read: the first one is sent a moment after the read has begun."""

COMPLETED: Final = b"NATS/1.0 409 Batch Completed\r\nNats-Pending-Messages: 0\r\nNats-Pending-Bytes: "
"""The usual end of a pull with a byte limit, read without the detour of other statuses (10 µs)."""


class Notice(NamedTuple):
    """A report for the application."""

    kind: Literal["failed", "reported", "event"]
    """"failed" if nothing can come any more, "reported" for an error that the pump survives, "event" for other news."""
    what: Any


C = TypeVar("C", bound=Credit)

NOTHING: Final[Sequence[Notice]] = ()

UNREADABLE: Final = Status(0, "a status that cannot be read")


def failed(error: Exception | None) -> list[Notice]:
    return [Notice("failed", error)]


def reported(error: Exception | None) -> list[Notice]:
    return [Notice("reported", error)]


def too_large(limit: int) -> errors.MaxBytesExceeded:
    text = f"the next message is larger than max_bytes={limit}"
    return errors.MaxBytesExceeded(409, "Message Size Exceeds MaxBytes", text)


class Intake:
    """The source of an iterator's messages: a Pump, or the subscription of a push consumer."""

    source: Any
    connection: Connection
    mailbox: Mailbox
    lock: Any
    _watchdog: Watchdog
    state: Any
    """The counters in the loop of an iterator: a credit, or its substitute."""

    # Initial values. They are class attributes because setting them one by one for every fetch takes 1 µs.
    missed_heartbeats: int = 0
    paused_until: Paused | None = None
    connected: bool = True
    halted: bool = False
    """It was stopped or drains, so it requests nothing more."""

    @property
    def delivered(self) -> int:
        """Messages taken up to now."""
        with self.lock:
            count: int = self.state.delivered(self.state.taken())
            return count

    def take(self, deadline: Deadline, until: float = NEVER) -> Any:
        """The next item. None at the deadline, when it is time to `look`, and at the time `until` (monotonic)."""
        item = self.mailbox.take()
        return self.wait(deadline, until) if item is None and not deadline.expired() else item

    def wait(self, deadline: Deadline, until: float = NEVER) -> Any:
        """The same, if nothing has come."""
        raise AssertionError("subclasses say it")

    def next(self, seconds: float | None) -> Any:
        """The next item, or None after a number of seconds."""
        raise AssertionError("subclasses say it")

    def keep_pulling(self) -> None:
        """Send the request that is due, if any."""

    def reached(self) -> bool:
        """The application has taken `state.check_at` messages. True if the last one was among them."""
        return False

    # --- silence ------------------------------------------------------------------------------------------

    def look(self, deadline: Deadline) -> Sequence[Notice]:
        """Nothing came: examine the silence, if it is time for that. Also for callers that only poll."""
        raise AssertionError("subclasses say it")

    def _silent(self, deadline: Deadline) -> Sequence[Notice]:
        """No frame although the server owes one: ask what is wrong, or raise the alarm (see Watchdog)."""
        watchdog, mailbox = self._watchdog, self.mailbox
        with self.lock:
            if mailbox.items or not self._owed():
                return NOTHING  # an item came after all, or a back-off ended
            now, last_frame = time.monotonic(), mailbox.last_frame
            look, alarm = watchdog.look(now, last_frame), watchdog.alarm_at(last_frame)
            if look is Look.ALARM:
                self._alarmed()
        if look is Look.ALARM:
            text = f"no heartbeat and no message of {self.source} for {watchdog.patience:g} s"
            return reported(errors.NoHeartbeat(text))
        if look is not Look.ASK:
            return NOTHING
        told = self.diagnose(watchdog.ask_time(deadline, last_frame, now))
        if _explains(told):
            with self.lock:
                if not mailbox.items and watchdog.alarm_at(mailbox.last_frame) == alarm:
                    self._alarmed()  # the answer replaces an alarm
        return told

    def _owed(self) -> bool:
        """True if the server owes a frame."""
        raise AssertionError("subclasses say it")

    def _alarmed(self) -> None:
        """The server was silent for too long."""
        self._watchdog.restart(time.monotonic())
        self.missed_heartbeats += 1

    def diagnose(self, timeout: float) -> Sequence[Notice]:
        """Ask for the reason of the silence."""
        raise AssertionError("subclasses say it")

    # --- what comes beside messages ---------------------------------------------------------------------------

    def is_control(self, item: Msg) -> bool:
        """True if the server sent it to us, instead of a message of the stream."""
        raise AssertionError("subclasses say it")

    def status(self, message: Msg) -> Sequence[Notice]:
        """A status came: act on it, and return its meaning."""
        raise AssertionError("subclasses say it")

    def link_event(self, event: LinkEvent) -> None:
        """The link was lost, or is new."""

    def disconnected(self) -> None:
        """The link was lost, and the owner does everything else."""
        self.connected = False

    def forget(self, ready: int, ready_bytes: int) -> None:
        """For ordered reads: drop messages of the old consumer, except checked ones that wait (`ready`)."""

    def go_on(self, ready: int, ready_bytes: int) -> None:
        """The new consumer exists: take from it."""

    def withdraw(self) -> None:
        """UNSUB: the server sends nothing more, but messages on their way still arrive. Does not wait."""

    def complete(self) -> None:
        """After `withdraw` and a flush: the end comes after the messages in the mailbox."""

    def leftovers(self) -> list[Msg]:
        """Empty the mailbox; returns the messages delivered and not taken."""
        raise AssertionError("subclasses say it")

    def release(self) -> None:
        """No thread takes from it any more."""

    def settle(self, give_back: bool, timeout: float = FLUSH_TIMEOUT, more: bool = False) -> list[Msg]:
        """Unsubscribe, wait for messages on their way, and return messages delivered and not taken.

        `more`: other messages go back with these.
        """
        raise AssertionError("subclasses say it")

    def abandon(self, give_back: bool) -> None:
        """For an iterator without references. A finalizer runs anywhere, even on a thread that holds our locks, so
        another thread does the work.
        """
        self.release()
        engine_of(self.connection).run_callback(_abandon, self, give_back)


class Pump(Intake, Generic[C]):
    """Keeps the pulls of one read under way. Threads may share it."""

    source: PullSource
    state: C
    doubtful: bool = False
    """After a lost link or silence, a pull may be alive on the server that the client has written off."""
    ends_at = NEVER
    """By `time.monotonic()`: no pull lives longer than the read."""
    unsent: errors.ConnectionLost | None = None
    """The reason why a pull could not be sent."""
    _large_at: int = -1
    """The messages that had come when the client reported one beyond max_bytes."""
    _at_pull = (0.0, 0)  # when the newest pull went out, and the number of messages until then
    _in_vain = 0  # pulls in a row that ended immediately without messages

    def __init__(
        self,
        source: PullSource,
        terms: PullTerms,
        state: C,
        *,
        watchdog: Watchdog | None = None,
        questions: QuestionLimit | None = None,
    ) -> None:
        """`state` counts with the numbers of PullInbox; `questions` limits its questions about silence (every 10 s)."""
        self.source = source
        self.terms: PullTerms = terms
        self.state = state
        self.connection: Connection = source.nc
        self._engine = engine_of(self.connection)
        self._pool = pool_of(self.connection)
        self.inbox: PullInbox = self._pool.lease(self.connection, source.pull_subject)
        self.mailbox: Mailbox = self.inbox.mailbox
        self.lock: Any = self.inbox.lock
        self._subject = source.pull_subject
        self._watchdog = watchdog or Watchdog.of_pulls(terms, time.monotonic())
        self._questions = questions or QuestionLimit(DIAGNOSE_EVERY)

    # --- pulls --------------------------------------------------------------------------------------------

    def keep_pulling(self, now: float | None = None) -> None:
        """Send the pull that is due, if any."""
        with self.lock:
            self.state.due = False
            now = time.monotonic() if now is None else now
            need = self.state.need(now, self._engine.round_trip) if self._active and now < self.ends_at else None
            if need is None:
                return
            if now + self.terms.expires > self.ends_at + CLOSE:
                self.terms = self.terms.within(self.ends_at - now)
                self._watchdog = Watchdog.of_pulls(self.terms, now)
            number = self.state.opened(*need)
            self.inbox.inbox.grant(*need)
            self._at_pull = now, self.state.came() + len(self.mailbox.items)
            self._watchdog.restart(now)
            frame = self._frame(number, *need)
        try:
            self._engine.enqueue_at_once(LinkFrame(frame))  # now or never: a lost link takes it along
        except errors.ConnectionLost as error:
            with self.lock:
                self.unsent = error
                self._lost_link()
                # If another thread has already handled the reconnect, only this shows it.
                self.connected: bool = self.connection.is_connected
                self.state.failed(time.monotonic())

    def _frame(self, number: int, batch: int, max_bytes: int) -> bytes:
        """The frame of a pull. With a pinned priority group it contains the pin that the server gave us."""
        source, terms = self.source, self.terms
        body = terms.request(batch, max_bytes, source.pins.get(terms.group, "") if source.pins else "")
        return self._engine.encode(self._subject, source.pull_prefix + body, self.inbox.reply(number))

    @property
    def _active(self) -> bool:
        return self.connected and not self.halted

    # --- waiting ------------------------------------------------------------------------------------------

    def wait(self, deadline: Deadline, until: float = NEVER, just_pulled: bool = False) -> Any:
        """Keep pulls going until an item comes. None at the deadline, at `until`, or when it is time to `look`.

        `just_pulled`: nothing has happened since `keep_pulling`.
        """
        now = time.monotonic()  # the same for both, or a back-off could end in between
        if not just_pulled:
            self.keep_pulling(now)
        due = min(self._next_timer(now), until)
        left = deadline.remaining()
        if due > now or self.mailbox.items:
            seconds = left if due == NEVER else due - now if left is None else min(left, due - now)
            return self.inbox.inbox.next(seconds)
        return None

    def next(self, seconds: float | None) -> Any:
        return self.inbox.inbox.next(seconds)

    def _next_timer(self, now: float) -> float:
        """The time to look again although nothing came: a back-off ends, or silence becomes an alarm."""
        with self.lock:
            if not self._active:
                return NEVER
            mailbox = self.mailbox
            return next_look(self.state, self._watchdog, len(mailbox), now, mailbox.last_frame)

    def look(self, deadline: Deadline) -> Sequence[Notice]:
        now = time.monotonic()
        self.keep_pulling(now)
        return self._silent(deadline) if now >= self._next_timer(now) else NOTHING

    def _owed(self) -> bool:
        return self._active and self.state.outstanding(0) > 0

    def _alarmed(self) -> None:
        self.state.lost(0)
        self.doubtful = True
        super()._alarmed()

    def diagnose(self, timeout: float = ASK_TIMEOUT) -> Sequence[Notice]:
        """Ask for the reason of the silence by one CONSUMER.INFO, at a limited rate."""
        if not self._questions.allow():
            return NOTHING
        found = self.source.examine(min(timeout, ASK_TIMEOUT))
        if isinstance(found, Paused):
            self.paused_until = found
            return [Notice("event", found)]
        told: list[Notice] = []
        if self.paused_until is not None:
            self.paused_until = None
            told.append(Notice("event", Resumed()))
        if isinstance(found, errors.MaxWaitingExceeded):
            with self.lock:
                self.state.failed(time.monotonic())
            told += reported(found)
        elif found is not None and self._pool.electing(time.monotonic()):
            # A cluster that has just come up may not know the consumer yet: ask again before accepting the answer.
            self._questions.shorten(ASK_AGAIN)
            told += reported(found)
        elif found is not None:
            told += failed(found)
        return told

    # --- what comes beside messages -------------------------------------------------------------------------

    def link_event(self, event: LinkEvent) -> None:
        if event is LinkEvent.DISCONNECTED:
            self.disconnected()
        elif event is LinkEvent.RECONNECTED:
            with self.lock:
                # The connection re-sends subscriptions. Pulls are our task, without a delay.
                self.connected = True
                self.state.lost(*self.inbox.snapshot())
                self.state.works()
            self.keep_pulling()

    def disconnected(self) -> None:
        with self.lock:
            self._lost_link()

    def _lost_link(self) -> None:
        self.connected, self.doubtful = False, True
        self.state.lost(*self.inbox.snapshot())

    def is_control(self, item: Msg) -> bool:
        return self.inbox.is_control(item)

    def status(self, message: Msg) -> Sequence[Notice]:
        """A status came: count it, send the pull that is due, and return its meaning."""
        raw = message.raw_headers or b""
        if raw.startswith(COMPLETED) and raw[len(COMPLETED) : -4].isdigit():
            meaning = StatusMeaning("quiet", unserved=(0, int(raw[len(COMPLETED) : -4])), reason="complete")
            with self.lock:
                # Unused bytes come back. No pull can be due, because no message came or went.
                self.state.ended(self.inbox.number(message), meaning, 0)
            return NOTHING
        sent = message.status or UNREADABLE
        meaning = classify(sent.code, sent.description, readable(message), self._subject)
        if meaning.kind == "alive":
            self.state.works()
            return NOTHING
        with self.lock:
            number = self.inbox.number(message)
            asked = self.state.open.get(number) if number is not None else None
            if asked and isinstance(meaning.error, errors.BadPullRequest) and self.state.stop_growing(asked[0]):
                meaning = StatusMeaning("quiet", unserved=meaning.unserved)
            # Every pull with a byte limit ends in a status (2.10): count the mailbox only if the status returns
            # messages.
            nothing_lost = meaning.unserved is not None and meaning.unserved[0] == 0 and not meaning.all_pulls
            buffered, size = (0, 0) if nothing_lost else self.inbox.snapshot()
            now = time.monotonic()
            if not self.state.ended(number, meaning, buffered, now, size):
                return NOTHING
            if not meaning.back_off and asked is not None:
                self._slow_down(meaning, asked, now)
            if meaning.forget_pin:
                self.source.pins.pop(self.terms.group, None)
        told = self._meaning(meaning, asked, buffered)
        self.keep_pulling()
        return told

    def _slow_down(self, meaning: StatusMeaning, asked: tuple[int, int], now: float) -> None:
        """Back off after pulls that end immediately without messages: another one would end like them."""
        since, before = self._at_pull
        if self.state.came() + len(self.mailbox.items) > before:
            self._in_vain = 0
            self.state.works()
        elif now - since >= FIRST_DELAY:
            self._in_vain = 0
        elif meaning.reason != "max bytes" or asked[1] in (0, self.state.max_bytes):
            self._in_vain += 1
            if self._in_vain > 1:
                self.state.failed(now)

    def _meaning(self, meaning: StatusMeaning, asked: tuple[int, int] | None, buffered: int) -> Sequence[Notice]:
        error = meaning.error
        if meaning.kind == "terminal":
            if isinstance(error, errors.ConsumerDeleted):
                error = self.source.why_deleted(error, min(ASK_TIMEOUT, 2 * self._watchdog.doubt))
            return failed(error)
        if meaning.kind == "report":
            # No responders: the consumer is gone, or has no leader at the moment. A finite read asks for itself.
            ask = self.state.endless and isinstance(error, errors.NoResponders)
            told = self.diagnose() if ask else NOTHING
            return told if _explains(told) else [*told, *reported(error)]
        if meaning.reason == "max bytes":
            return self._too_large(meaning, asked, buffered)
        if meaning.reason in ("timeout", "no messages"):
            self._large_at = -1  # the next message is not too large any more
        if (
            meaning.reason == "timeout"
            and self.state.endless
            and asked
            and meaning.unserved
            and meaning.unserved[0] == asked[0]
        ):
            return self.diagnose()  # it was in vain: perhaps the consumer is paused
        return NOTHING

    def _too_large(self, meaning: StatusMeaning, asked: tuple[int, int] | None, buffered: int) -> Sequence[Notice]:
        """A pull with the whole byte limit was in vain, because the next message is larger than the limit.

        The pump reports that once until a message arrives. It continues with slow pulls, because the message may be
        removed.
        """
        limit = self.state.max_bytes
        if not limit and asked is not None and asked[1]:
            return NOTHING  # it was the limit of one pull: the credit requests the message alone
        if buffered or asked is None or asked[1] < limit or (meaning.unserved and meaning.unserved[1] < limit):
            return NOTHING
        with self.lock:
            if limit == MAX_BYTES:  # it was our default, which does not apply while there is a larger message
                self.state.max_bytes = LARGEST
                return NOTHING
            self.state.failed(time.monotonic())
            came = self.state.came()
            again, self._large_at = self.state.endless and came == self._large_at, came
        return NOTHING if again else reported(too_large(limit))

    # --- a new consumer takes the place of the old one: for ordered reads ---------------------------------------

    def forget(self, ready: int, ready_bytes: int) -> None:
        """Drop messages of the old consumer, except checked ones that wait, and read the state of the link again."""
        self.inbox.leftovers()
        with self.lock:
            self.connected = self.connection.is_connected
            self.state.lost(ready, ready_bytes)

    def go_on(self, ready: int, ready_bytes: int) -> None:
        """The new consumer exists: pull from it."""
        with self.lock:
            self.inbox.pull_subject = self._subject = self.source.pull_subject
            self.state.lost(ready, ready_bytes)
            self.state.works()
            self._watchdog.restart(time.monotonic())
        self.keep_pulling()

    # --- the end --------------------------------------------------------------------------------------------

    def on_its_way(self) -> int:
        """The number of requested messages that are still to come.

        Messages that the server has cancelled by a status are left out, even if no thread has handled the status yet.
        """
        with self.lock:
            # In this order: a message taken in between counts as still to come, until the next look.
            left = self.state.outstanding(0)
            if left:
                left -= self.inbox.snapshot()[0] + sum(map(self._unserved, self.inbox.statuses()))
            return max(left, 0)

    def _unserved(self, message: Msg) -> int:
        """The number of messages that will not come, by a status that no thread has handled yet."""
        number = self.inbox.number(message)
        asked = self.state.open.get(number) if number is not None else None
        sent = message.status or UNREADABLE
        meaning = classify(sent.code, sent.description, readable(message), self._subject)
        if asked is None or meaning.kind == "alive":
            return 0
        if meaning.all_pulls:
            return sum(each[0] for each in self.state.open.values())
        return min((meaning.unserved or asked)[0], asked[0])

    def withdraw(self) -> None:
        self.halted = True
        if self.mailbox.closed is None:
            self._engine.remove_subscription(self.inbox.inbox, tell_server=True, keep_sink=True)

    def complete(self) -> None:
        self.inbox.inbox.drain_sub()

    def leftovers(self) -> list[Msg]:
        return self.inbox.leftovers()

    def release(self) -> None:
        self._pool.forget(self.inbox)

    def put_back(self) -> None:
        """As `release`, after a clean end: the next fetch may use the inbox."""
        self._pool.give_back(self.inbox)

    def settle(self, give_back: bool, timeout: float = FLUSH_TIMEOUT, more: bool = False) -> list[Msg]:
        return self.inbox.settle(give_back, timeout, more=more)


class WindowPump(Pump[WindowCredit]):
    """Keeps the window of an iterator full: its credit returns with each message that the application takes."""

    waiting: int = 0
    """Threads that wait for messages."""

    def wait(self, deadline: Deadline, until: float = NEVER, just_pulled: bool = False) -> Any:
        with self.lock:
            self.waiting += 1  # first: from here on a thread that takes a message pulls, see `reached`
            if self.waiting == 1:
                self.state.begin_wait(time.monotonic())
        try:
            return super().wait(deadline, until, just_pulled)
        finally:
            with self.lock:
                self.waiting -= 1
                if not self.waiting:
                    self.state.end_wait(time.monotonic())

    def reached(self) -> bool:
        """The threshold is reached: pull now if a thread waits for messages, else at the next request for one.

        A worker that takes one message at a time must not have another one sent while it works (nats.go #1338). True if
        the application has taken all messages of `stop_after`.
        """
        state = self.state
        if state.stop_after is not None:
            with self.lock:
                if state.taken() >= state.stop_after:
                    return True
        if self.waiting:
            self.keep_pulling()
        else:
            state.due = True
        return False

    def resize(self, max_messages: int, threshold_messages: int) -> None:
        """Set the window from the next pull on; pulls under way stay."""
        with self.lock:
            self.state.max_messages = max_messages
            self.state.threshold_messages = threshold_messages
            self.state.due = True


def _explains(told: Sequence[Notice]) -> bool:
    """True if an answer explains the silence; the end of a pause does not."""
    return any(one.kind != "event" or isinstance(one.what, Paused) for one in told)


def _abandon(intake: Intake, give_back: bool) -> None:
    left = intake.settle(give_back)
    if give_back:
        nak_all(left, intake.connection)
