"""Finite pulls: `fetch`, `fetch_bytes`, `fetch_no_wait`, `next`, and `ack_next`.

A fetch survives events that do not concern the application. After a reconnect, a leader change or a server shutdown, it
sends a new pull for the missing messages, within the same timeout. It ends with an error on a problem that it cannot
fix. If it received nothing it raises the error, else the error is in `Batch.error`.
"""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from jsclient import errors
from jsclient.cancel import Cancel
from jsclient.connection import engine_of
from jsclient.durations import Deadline, Timeout, resolve
from jsclient.instruments import taken
from jsclient.jetstream.consuming.credit import FetchCredit
from jsclient.jetstream.consuming.pull_inboxes import (
    ELECTION,
    FLUSH_TIMEOUT,
    SILENT_FLUSH,
    PullInbox,
    message_size,
    nak_all,
    nak_frames,
    pool_of,
)
from jsclient.jetstream.consuming.pull_options import FETCH_TIMEOUT, PullTerms, terms_for
from jsclient.jetstream.consuming.pull_statuses import StatusMeaning
from jsclient.jetstream.consuming.pump import Notice, Pump, too_large
from jsclient.jetstream.consuming.sources import ASK_TIMEOUT, AckedConsumer
from jsclient.jetstream.consuming.watchdog import NEVER, SHORTEST_ASK, Watchdog
from jsclient.states import LinkEvent, Wake

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.jetstream.consuming.sources import PullSource
    from jsclient.jetstream.message import JetStreamMsg, M
    from jsclient.message import Msg
else:
    M = TypeVar("M", covariant=True)

log: logging.Logger = logging.getLogger("jsclient.jetstream.pull")

GRACE: Final = 1.0
"""Seconds within which a pull that does not wait must be answered."""

LATE: Final = 0.08
"""Seconds beyond its timeout that a fetch waits for the server's report that the pull has ended. Not longer, because
the timeout bounds the complete call. On a longer line every fetch that times out costs another subscription.
"""

LAST: Final = 0.13
"""Seconds beyond its timeout after which a fetch stops waiting for anything."""

SHORTEST_PULL: Final = 0.05
"""Seconds: a fetch sends another pull only if at least this time is left."""

NO_WAIT_TIMEOUT: Final = 5.0
"""Seconds for a pull that does not wait, with interruptions (a lost link, a leader change): as for any API call."""

FOREVER: Final = Deadline(None)


class BatchEnd(str, enum.Enum):
    """Why a fetch ended.

    Values:
        COMPLETE: The requested number of messages came.
        TIMEOUT: Its time was over.
        NO_MESSAGES: The server had no more.
        MAX_BYTES: The next message did not fit into max_bytes.
        ERROR: An error ended it early: see `Batch.error`.
    """

    COMPLETE = "complete"
    TIMEOUT = "timeout"
    NO_MESSAGES = "no messages"
    MAX_BYTES = "max bytes"
    ERROR = "error"


class Batch(Sequence[M]):
    """The messages of a fetch: an immutable sequence, false when empty.

        batch = consumer.fetch(10, timeout=1)
        print(len(batch), "messages;", batch.ended)
        for msg in batch:
            msg.ack()

    `ended` is the reason why it ended. `error` is the error that ended it early, None in good order and after a plain
    timeout. If `on_bad` leaves out messages that cannot be decoded, `skipped` has a DecodeFailed for each of them.
    """

    __slots__ = ("_messages", "ended", "error", "skipped")

    def __init__(
        self,
        messages: list[M],
        ended: BatchEnd,
        error: Exception | None = None,
        skipped: tuple[Exception, ...] = (),
    ) -> None:
        self._messages = messages
        self.ended: BatchEnd = ended
        self.error: Exception | None = error
        self.skipped: tuple[Exception, ...] = skipped

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[M]:
        return iter(self._messages)

    @overload
    def __getitem__(self, index: int) -> M: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[M, ...]: ...

    def __getitem__(self, index: int | slice) -> M | tuple[M, ...]:
        return tuple(self._messages[index]) if isinstance(index, slice) else self._messages[index]

    def __repr__(self) -> str:
        error = f" error={self.error!r}" if self.error is not None else ""
        return f"<Batch {len(self._messages)} messages ended={self.ended.value!r}{error}>"


class Fetch:
    """One finite pull; made for one call, used by one thread."""

    # Initial values. They are class attributes because setting them one by one for every fetch takes 1 µs.
    size: int = 0
    """Bytes of `messages`; counted if there is a limit."""
    ended: BatchEnd | None = None
    error: Exception | None = None
    interrupted: Exception | None = None
    leaderless: Exception | None = None
    """The error of the last pull, if no server took the pull."""
    may_ask: bool = True
    answered: bool = False
    """The server has reported how a pull ended."""
    _just_pulled = False
    """True until something happens after a pull: until then no other pull can be due."""

    def __init__(
        self,
        consumer: PullSource,
        want: int,
        terms: PullTerms,
        make: Callable[[Msg, Connection], JetStreamMsg],
        *,
        timeout: float | None,
        max_bytes: int = 0,
        answer_within: float = NO_WAIT_TIMEOUT,
        cancel: Cancel | None = None,
    ) -> None:
        """`make` turns received messages into the messages of the batch."""
        if cancel is not None:
            cancel.check()
        self.cancel = cancel
        self._make = make
        self.consumer = consumer
        self.connection: Connection = consumer.nc
        self._engine = engine_of(self.connection)
        self.want = want
        self.group: str = terms.group
        self.max_bytes = max_bytes
        self.no_wait: bool = terms.no_wait
        self.messages: list[JetStreamMsg] = []
        self.started: float
        self.started = now = time.monotonic()
        # Takes only available messages: its time is for the answer, which an interruption must not replace.
        self.instant: bool = terms.no_wait and terms.expires == 0
        if self.instant:
            timeout = answer_within
        self.deadline: float = NEVER if timeout is None else now + timeout
        self.disturbed: float = now - ELECTION
        pull_bytes = 0 if max_bytes else consumer.pull_bytes(want)
        self._credit = FetchCredit(want, max_bytes, numbers=PullInbox.numbers, pull_bytes=pull_bytes)
        grace = min(GRACE, answer_within)
        watchdog = Watchdog(grace, grace / 2, now) if self.instant else None
        self._pump = Pump(consumer, terms, self._credit, watchdog=watchdog, questions=consumer.questions)
        self._pump.ends_at = self.deadline
        self.inbox: PullInbox = self._pump.inbox

    # --- the call -----------------------------------------------------------------------------------------

    def run(self) -> Batch:
        """Raises the error that ended it if no message was received; otherwise the error is in the batch."""
        calls = self._engine.drainables.calls
        try:
            calls.append(get_ident())
            if self.cancel is not None:
                # Its token goes into the mailbox, like everything that ends a fetch.
                self.cancel.enter(self, partial(self._pump.mailbox.put, self.cancel))
            self._pump.keep_pulling(self.started)
            self._just_pulled = True
            if self.instant and self._pump.unsent is not None:
                raise self._pump.unsent
            popleft = self._pump.mailbox.popleft
            while self.ended is None:
                try:
                    item = popleft()
                except IndexError:
                    item = self._wait()
                if item is not None:
                    self._handle(item)
        except BaseException as error:
            self._give_up(error)
            if not isinstance(error, errors.JsClientError) or not self.messages:
                raise  # even if messages had come: they went back
            self.ended, self.error = BatchEnd.ERROR, error
        else:
            self._release()
        finally:
            try:  # no contextlib.suppress: every fetch comes here
                calls.remove(get_ident())
            except ValueError:
                pass  # interrupted before it was entered
            if self.cancel is not None:
                self.cancel.leave(self)
        if self.error is not None and not self.messages:
            raise self.error
        if self.messages:
            self.consumer.learn_size(self._largest())
        return Batch(self.messages, self.ended, self.error)

    def _handle(self, item: Any) -> None:
        """Take one item, and every plain message behind it."""
        self._just_pulled = False  # the end of a pull may have come before the first wait
        connection, make, messages = self.connection, self._make, self.messages
        want, limited = self.want, self._credit.limited
        append, popleft, group = messages.append, self._pump.mailbox.popleft, self.group
        while True:
            try:
                headers = item.raw_headers
            except AttributeError:
                self._link_event(item)
                return
            # A blank at this place may be the server's status. A pinned group learns its pin from the headers.
            if headers is not None and (headers[8:9] == b" " or group):
                if self.inbox.is_control(item):
                    self._status(item)
                    return
                if group:
                    self.consumer.learn_pin(group, item)
            append(make(item, connection))
            if limited:
                self._count(item)
                if self.ended is not None:
                    return
            if len(messages) == want:
                self.ended = BatchEnd.COMPLETE
                return
            try:
                item = popleft()
            except IndexError:
                return

    def _count(self, item: Msg) -> None:
        """Count the size of a message.

        No server (2.9 to 2.15) reports that the bytes of a pull were used up exactly, but the pull has ended.
        """
        self.size += message_size(item)
        if not self.max_bytes:
            if self.size >= self._credit.granted_bytes:
                self._credit.go_on()  # it was the limit of one pull
        elif self.size >= self.max_bytes:
            self.ended = BatchEnd.MAX_BYTES

    def _largest(self) -> int:
        """About the size of the largest message, from three payloads and the complete size of one message.

        Looking at all of them would cost a tenth of a fetch.
        """
        got = self.messages
        last = got[-1].msg
        most = max(len(got[0].msg.data), len(got[len(got) // 2].msg.data), len(last.data))
        return most - len(last.data) + message_size(last)

    def _sync(self) -> None:
        """Update the credit with the received messages. Once for many messages, because only the pump looks at it."""
        self._credit.count, self._credit.taken_bytes = len(self.messages), self.size

    # --- nothing is there -----------------------------------------------------------------------------------

    def _wait(self) -> Any:
        """The next item, or None if a timer was due."""
        self._sync()
        # After the deadline it only waits for the end of its pull.
        until = self.deadline + (LATE if self._credit.open else 0.0)
        just_pulled, self._just_pulled = self._just_pulled, False
        item = self._pump.wait(FOREVER, until, just_pulled)
        if item is not None:
            return None if isinstance(item, Wake) else item
        if time.monotonic() >= until:
            self._time_is_up()
        elif self.instant and self.messages and self._credit.open:
            # The consumer has reached max_ack_pending: the server leaves the pull open until an ack comes.
            self.ended = BatchEnd.TIMEOUT
        else:
            told = self._pump.look(Deadline(min(self.deadline + LAST - time.monotonic(), ASK_TIMEOUT)))
            if not self._pump.mailbox.items:
                self._on_notices(told)
        return None

    def _time_is_up(self) -> None:
        if self.leaderless is not None:
            self._fail(self.leaderless)
        elif self.instant and (self.interrupted or self._pump.unsent) is not None:
            self._fail(self.interrupted or self._pump.unsent)
        else:
            self.ended = BatchEnd.TIMEOUT

    # --- what the pump found out ------------------------------------------------------------------------------

    def _on_notices(self, told: Sequence[Notice]) -> None:
        for kind, what in told:
            if kind == "event":
                continue
            if kind == "failed" or self._credit.meaning is not None or isinstance(what, errors.MaxWaitingExceeded):
                self._fail(what)
                return
            if isinstance(what, errors.NoHeartbeat):
                self._unanswered(what)
            elif isinstance(what, errors.PullNoResponders):
                self._nobody_there(what)
            else:
                self._interrupt(what)

    def _unanswered(self, error: errors.NoHeartbeat) -> None:
        """The pull was lost. If it had no heartbeats, silence is not an error, and the next pull goes out."""
        if self.instant:
            self._fail(errors.ReadStalled(f"the server did not answer a pull on {self.consumer.pull_subject!r}"))
        elif self._pump.terms.heartbeat and not (self._credit.pull_bytes and self.messages):
            self._fail(error)  # else its bytes may have been used up exactly, which no server reports

    def _interrupt(self, error: Exception | None) -> None:
        """Wait for the end of the interruption, within the time of the call."""
        log.info("%s: %s; pulling again", self.consumer, error)
        self.interrupted = error
        self.disturbed = time.monotonic()

    def _nobody_there(self, error: errors.PullNoResponders) -> None:
        """503: the consumer is gone, or has no leader at the moment.

        Unless the server reports that it is gone, the fetch waits for it, as a publish does.
        """
        now = time.monotonic()
        self.leaderless = self.interrupted = error
        log.info("%s: %s; pulling again", self.consumer, error)
        if self.may_ask and not pool_of(self.connection).electing(now, self.disturbed):
            left = min(max(self.deadline - now, 0.0), ASK_TIMEOUT)
            try:
                found = self.consumer.why_nobody(error, max(left, SHORTEST_ASK))
            except errors.PermissionViolation:
                self.may_ask, found = False, None
            if found is not None:
                self._fail(found)

    def _link_event(self, event: Any) -> None:
        if isinstance(event, LinkEvent):
            self._sync()
            if event is LinkEvent.DISCONNECTED:
                self.leaderless = None
                self.interrupted = errors.ConnectionLost("the connection was lost before the pull was answered")
            self.disturbed = time.monotonic()
            self._pump.link_event(event)
        elif isinstance(event, Cancel):
            if event is self.cancel:  # else of an earlier fetch with this inbox
                self._fail(event.error())
        else:
            self._fail(event)  # the server refused the pull: no permission to publish there

    def _status(self, message: Msg) -> None:
        self._sync()
        told = self._pump.status(message)
        if self._credit.meaning is not None and self._credit.meaning.kind == "quiet":
            self._ended_quietly(self._credit.meaning)
            return
        if told:
            self.leaderless = None
        self._on_notices(told)

    def _ended_quietly(self, meaning: StatusMeaning) -> None:
        self.answered = True
        self.leaderless = None
        if meaning.reason == "max bytes" and self._credit.pull_bytes:
            self._credit.go_on()  # it was the limit of one pull
        elif meaning.reason == "max bytes":
            self.ended = BatchEnd.MAX_BYTES
            if not self.messages and meaning.error is not None:
                self.error = too_large(self.max_bytes)
        elif meaning.reason == "complete":
            self._credit.go_on()  # the server has sent everything, but some of it was lost
        elif self.no_wait:
            self.ended = BatchEnd.NO_MESSAGES
        elif meaning.reason == "timeout" and self.deadline - time.monotonic() > SHORTEST_PULL:
            self._credit.go_on()  # it lived shorter than the call can wait
        else:
            self.ended = BatchEnd.TIMEOUT if meaning.reason == "timeout" else BatchEnd.NO_MESSAGES

    def _fail(self, error: Exception | None) -> None:
        self.ended, self.error = BatchEnd.ERROR, error

    # --- the end --------------------------------------------------------------------------------------------

    def _release(self) -> None:
        """Use the inbox again if no pull can be left on it, else make the server forget it."""
        complete = len(self.messages) == self.want or not self._credit.open
        if complete and not self._pump.doubtful:
            self._pump.put_back()
        else:
            self._pump.release()
            wait = SILENT_FLUSH if isinstance(self.error, (errors.NoHeartbeat, errors.Cancelled)) else FLUSH_TIMEOUT
            wait = min(wait, max(self.deadline + LAST - time.monotonic(), 0.0))
            nak_all(self._pump.settle(self.connection.is_connected, wait), self.connection)

    def _give_up(self, error: BaseException) -> None:
        """Interrupted, or the connection is closed: received messages go back immediately."""
        self._pump.release()
        left = self._pump.settle(False)
        if went_back(error, [message.msg for message in self.messages] + left, self.consumer):
            self.messages = []


def went_back(error: BaseException, held: list[Msg], source: PullSource) -> bool:
    """Return the messages of a call that `error` ended early, if the application will not ack them.

    That is the case if the call was interrupted, or if the application has closed the connection. Other clients then
    get them immediately.
    """
    if not isinstance(error, errors.JsClientError):
        nak_all(held, source.nc)
        return True
    if isinstance(error, errors.ConnectionClosed) and error.reason is None and not source.ack_none:
        engine_of(source.nc).drainables.left.extend(nak_frames(held))  # the end of the connection sends them
        return True
    return False


def next_after(message: JetStreamMsg, timeout: Timeout) -> JetStreamMsg:
    """Send +NXT: ack `message` (claimed by the caller) and wait for the next one of its consumer."""
    seconds = resolve(timeout, FETCH_TIMEOUT)
    reply = message.msg.raw_reply
    assert reply is not None
    try:
        source, terms = AckedConsumer(message.connection, reply), terms_for(seconds, 0.0, no_wait=seconds == 0)
        fetch = Fetch(source, 1, terms, type(message), timeout=seconds)
        batch = fetch.run()
    except BaseException:
        message.release()
        raise
    if not batch and not fetch.answered:
        message.release()
        raise errors.NoMessages(
            f"no next message within {seconds:g} s, and no answer of the server: the ack is not known to have arrived. "
            "Ack the message again, or it comes again after ack_wait."
        )
    if not batch:
        raise errors.NoMessages(f"acked; no next message within {seconds:g} s")
    taken(message.connection.options.instrumentation, batch)
    return batch[0]
