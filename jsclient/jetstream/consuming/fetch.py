"""Finite pulls: `fetch`, `fetch_bytes`, `fetch_no_wait`, `next`, and `ack_next`.

A fetch lives through what is not the application's business: a reconnect, a leader change or a server that shuts
down gets a new pull for what is still missing, within the same timeout. It ends with an error (raised if nothing
was received, else in `Batch.error`) on what it cannot mend.
"""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, overload

from jsclient import errors
from jsclient.cancel import Cancel
from jsclient.connection import engine_of
from jsclient.durations import Deadline, Timeout, resolve
from jsclient.jetstream.api.ack_words import NEXT
from jsclient.jetstream.consuming.diagnosis import ASK_TIMEOUT
from jsclient.jetstream.consuming.pull_inboxes import (
    ELECTION,
    FLUSH_TIMEOUT,
    SILENT_FLUSH,
    message_size,
    nak_all,
    nak_frames,
    pool_of,
)
from jsclient.jetstream.consuming.pull_request import FETCH_TIMEOUT, PullTerms, terms_for
from jsclient.jetstream.consuming.pull_source import AckedConsumer
from jsclient.jetstream.consuming.pull_statuses import Verdict
from jsclient.jetstream.consuming.pump import Pulls
from jsclient.jetstream.consuming.watchdog import SHORTEST_ASK, Look, Watchdog
from jsclient.states import LinkEvent, Wake

if TYPE_CHECKING:
    from jsclient._engine import Engine
    from jsclient.connection import Connection
    from jsclient.jetstream.consuming.pull_source import PullSource
    from jsclient.jetstream.message import JetStreamMsg
    from jsclient.message import Msg

log = logging.getLogger("jsclient.jetstream.pull")

GRACE: Final = 1.0
"""Seconds that a pull which does not wait may take to be answered."""

LATE: Final = 0.08
"""Seconds beyond its timeout that a fetch waits for the server to say that the pull has ended. Not longer, because the
timeout bounds the whole call: from farther away every fetch that times out costs another subscription."""

LAST: Final = 0.13
"""Seconds beyond its timeout after which a fetch does not wait for anything any more."""

SHORTEST_PULL: Final = 0.05
"""Seconds: for less time than this no further pull is sent."""

NO_WAIT_TIMEOUT: Final = 5.0
"""Seconds for a pull that does not wait, with what interrupts it (a lost link, a leader change): as any API call."""

RETRY: Final = 0.25
"""Seconds before a pull is repeated after a leader change or while leaders are elected."""


class Ended(str, enum.Enum):
    """Why a fetch ended."""

    COMPLETE = "complete"
    TIMEOUT = "timeout"
    NO_MESSAGES = "no messages"
    MAX_BYTES = "max bytes"
    ERROR = "error"


class Batch(Sequence["JetStreamMsg"]):
    """What a fetch brought: an immutable sequence, false when empty.

    `ended` says why it ended; `error` is what cut it short, None in good order and after a plain timeout.
    """

    __slots__ = ("_messages", "ended", "error")

    def __init__(self, messages: list[JetStreamMsg], ended: Ended, error: Exception | None = None) -> None:
        self._messages = messages
        self.ended = ended
        self.error = error

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[JetStreamMsg]:
        return iter(self._messages)

    @overload
    def __getitem__(self, index: int) -> JetStreamMsg: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[JetStreamMsg, ...]: ...

    def __getitem__(self, index: int | slice) -> JetStreamMsg | tuple[JetStreamMsg, ...]:
        return tuple(self._messages[index]) if isinstance(index, slice) else self._messages[index]

    def __repr__(self) -> str:
        error = f" error={self.error!r}" if self.error is not None else ""
        return f"<Batch {len(self._messages)} messages ended={self.ended.value!r}{error}>"


class Fetch:
    """One finite pull; made for one call, used by one thread."""

    def __init__(
        self,
        consumer: PullSource,
        want: int,
        terms: PullTerms,
        make: Callable[[Msg, Engine], JetStreamMsg],
        *,
        timeout: float | None,
        max_bytes: int = 0,
        no_wait: bool = False,
        ack: bytes | None = None,
        answer_within: float = NO_WAIT_TIMEOUT,
        cancel: Cancel | None = None,
    ) -> None:
        """`make` turns what came into what the batch holds."""
        if cancel is not None:
            cancel.check()
        self.cancel = cancel
        self._make = make
        self.consumer = consumer
        self.connection: Connection = consumer.nc
        self._engine = engine_of(self.connection)
        self.want = want
        self.terms = terms
        self.max_bytes = max_bytes
        self.no_wait = no_wait
        self.subject = consumer.pull_subject if ack is None else ack.decode()
        self.messages: list[JetStreamMsg] = []
        self.size = 0
        self.ended: Ended | None = None
        self.error: Exception | None = None
        self.number = 0  # of the pull that is alive, 0 when none is
        self.pulls = 0
        self.retry_at: float | None = None
        self.dead_pull = False  # a pull of ours may be alive on the server although we do not count on it
        started = time.monotonic()
        # Takes only what is there: the time it has is for the answer, which an interruption must not replace.
        self.instant = no_wait and terms.expires == 0
        if self.instant:
            timeout = answer_within
        self.interrupted: Exception | None = None
        self.may_ask = True
        self.leaderless: Exception | None = None  # what the last pull ended with, if nobody took it
        self.deadline = float("inf") if timeout is None else started + timeout
        self.grace = min(GRACE, answer_within)
        self.disturbed = started - ELECTION
        self.heartbeat = terms.heartbeat  # of the pull that is alive, as the watch over it
        self.watchdog = self._watch(terms, started)
        self.pool = pool_of(self.connection)
        self.inbox = self.pool.lease(self.connection, self.subject)
        self._pulls = Pulls(consumer, self.inbox, self.subject, b"" if ack is None else NEXT + b" ")

    # --- the call -----------------------------------------------------------------------------------------

    def run(self) -> Batch:
        """Raises what ended it if no message was received; else it is in the batch."""
        try:
            if self.cancel is not None:
                # Its token goes into the mailbox, as everything that ends a fetch.
                self.cancel.enter(self, partial(self.inbox.mailbox.put, self.cancel))
            self._pull()
            popleft = self.inbox.mailbox.popleft
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
                raise  # also where messages had come: they went back
            self.ended, self.error = Ended.ERROR, error
        else:
            self._release()
        finally:
            if self.cancel is not None:
                self.cancel.leave(self)
        if self.error is not None and not self.messages:
            raise self.error
        return Batch(self.messages, self.ended, self.error)

    def _handle(self, item: Any) -> None:
        """Take one item, and every plain message behind it."""
        engine, make, append = self._engine, self._make, self.messages.append
        popleft, group = self.inbox.mailbox.popleft, self.terms.group
        try:
            # A blank there may be the server's status. A pinned group learns its pin from the headers.
            while (headers := item.raw_headers) is None or (headers[8:9] != b" " and not group):
                append(make(item, engine))
                if self.max_bytes:
                    self._count(item)
                    if self.ended is not None:
                        return
                if len(self.messages) == self.want:
                    self.ended = Ended.COMPLETE
                    return
                item = popleft()
        except IndexError:
            return
        except AttributeError:
            self._link_event(item)
            return
        if self.inbox.is_control(item):
            self._status(item)
            return
        append(make(item, engine))
        if self.terms.group:
            self.consumer.learn_pin(self.terms.group, item)
        if self.max_bytes:
            self._count(item)
        if len(self.messages) == self.want:
            self.ended = Ended.COMPLETE

    def _count(self, item: Msg) -> None:
        """No server (2.9 to 2.15) says anything when the bytes of a pull were used up exactly: it is over all the
        same."""
        self.size += message_size(item)
        if self.size >= self.max_bytes:
            self.ended = Ended.MAX_BYTES

    # --- pulls --------------------------------------------------------------------------------------------

    def _pull(self) -> None:
        """Ask for what is still missing."""
        self.retry_at = None
        left = self.deadline - time.monotonic()
        if self.pulls and left <= 0:
            self._time_is_up()
            return
        terms = self.terms
        if self.pulls and left < terms.expires:
            # The heartbeat must be at most half of what is left, or the server refuses the pull.
            heartbeat = terms.heartbeat if 2 * terms.heartbeat <= left else 0.0
            terms = PullTerms(left, heartbeat, terms.group, terms.min_pending, terms.min_ack_pending, terms.priority)
        self.pulls += 1
        number = next(self.inbox.numbers)
        self.inbox.inbox.grant(self.want - len(self.messages), self.max_bytes or 0)
        max_bytes = max(self.max_bytes - self.size, 1) if self.max_bytes else 0
        frame = self._pulls.frame(number, terms, self.want - len(self.messages), max_bytes, self.no_wait)
        self.heartbeat = terms.heartbeat
        try:
            self._pulls.post(frame)
        except errors.ConnectionLost:
            if self.instant and self.interrupted is None:
                raise
            self._lost_link()
            return
        self.number, self.watchdog = number, self._watch(terms, time.monotonic())

    def _wait(self) -> Any:
        """The next item, or None when a timer was due."""
        now = time.monotonic()
        due = min(self._timer_at(), self.retry_at or float("inf"))
        if now < due:
            item = self.inbox.inbox.next(None if due == float("inf") else due - now)
            if item is not None:
                return None if isinstance(item, Wake) else item
            now = time.monotonic()
        if self.retry_at is not None and now >= self.retry_at and now < self.deadline:
            self._pull()
        elif self.number and now >= self._timer_at():
            self._silent()
        elif not self.number and now >= self.deadline:
            self._time_is_up()
        return None

    def _time_is_up(self) -> None:
        if self.leaderless is not None:
            self._fail(self.leaderless)
        elif self.instant and self.interrupted is not None:
            self._fail(self.interrupted)
        else:
            self.ended = Ended.TIMEOUT

    def _timer_at(self) -> float:
        """When to look although nothing came."""
        return self.watchdog.due(self.inbox.mailbox.last_frame) if self.number else self.deadline

    def _watch(self, terms: PullTerms, now: float) -> Watchdog:
        """The watch over a pull that goes out now. After the deadline only its 408 is waited for."""
        if self.instant:
            return Watchdog(self.grace, self.grace / 2, now)
        return Watchdog.of_pulls(terms, now, self.deadline + LATE)

    def _silent(self) -> None:
        """Nothing came: ask what is wrong, or give the pull up (see Watchdog)."""
        if self.instant and self.messages:
            # The consumer has reached max_ack_pending: the server leaves the pull open until something is acked.
            self.number, self.dead_pull, self.ended = 0, True, Ended.NO_MESSAGES
            return
        watchdog = self.watchdog
        now, last_frame = time.monotonic(), self.inbox.mailbox.last_frame
        look = watchdog.look(now, last_frame)
        if look is Look.ASK:
            seconds = watchdog.ask_time(Deadline(None), last_frame, now)
            left = max(self.deadline + LAST - now, 0.0)
            found = self.consumer.diagnose(min(seconds, ASK_TIMEOUT, left)) if left else None
            if found is not None and not self.inbox.mailbox.items:
                self._fail(found)
        if look is not Look.ALARM:
            return
        self.number = 0
        self.dead_pull = True
        if self.heartbeat:
            self._fail(errors.NoHeartbeat(f"no heartbeat for {2 * self.heartbeat:g} s from {self.consumer}"))
        elif self.instant:
            self._fail(errors.ReadStalled(f"the server did not answer a pull on {self.subject!r}"))
        elif self.deadline - time.monotonic() > 0:
            self._pull()
        else:
            self.ended = Ended.TIMEOUT

    # --- what comes beside messages -------------------------------------------------------------------------

    def _link_event(self, event: Any) -> None:
        if event is LinkEvent.DISCONNECTED:
            self._lost_link()
        elif event is LinkEvent.RECONNECTED:
            self.disturbed = time.monotonic()
            if not self.number:
                self._pull()
        elif isinstance(event, Cancel):
            if event is self.cancel:  # else of an earlier fetch with this inbox
                self._fail(event.error())
        else:
            self._fail(event)  # the server refused the pull: no permission to publish there

    def _lost_link(self) -> None:
        self.number, self.retry_at, self.leaderless = 0, None, None
        self.interrupted = errors.ConnectionLost("the connection was lost before the pull was answered")
        self.disturbed = time.monotonic()
        self.dead_pull = True

    def _status(self, message: Msg) -> None:
        number = self.inbox.number(message)
        if number is not None and number != self.number:
            return  # of an earlier pull of this inbox
        verdict = self._pulls.verdict(message)
        if verdict.kind == "alive":
            return
        self.leaderless = None
        self.number = 0
        if verdict.kind == "quiet":
            self._ended_quietly(verdict)
        elif verdict.forget_pin:
            self.consumer.pins.pop(self.terms.group, None)
            self._pull()
        elif isinstance(verdict.error, errors.PullNoResponders):
            self._nobody_there(verdict.error)
        elif verdict.again:
            self.disturbed = time.monotonic()
            self._pull_later(verdict.error)
        elif isinstance(verdict.error, errors.ConsumerDeleted):
            self._fail(self.consumer.why_deleted(verdict.error, min(ASK_TIMEOUT, 2 * self.watchdog.doubt)))
        else:
            self._fail(verdict.error)

    def _nobody_there(self, error: errors.PullNoResponders) -> None:
        """503: gone for good, or without a leader for the moment? Unless somebody says that it is gone it is waited
        for, as a publish does."""
        now = time.monotonic()
        self.leaderless = error
        if self.may_ask and now >= max(self.disturbed, self.pool.reconnected_at) + ELECTION:
            left = min(max(self.deadline - now, 0.0), ASK_TIMEOUT)
            try:
                found = self.consumer.why_nobody(error, max(left, SHORTEST_ASK))
            except errors.PermissionViolation:
                self.may_ask, found = False, None
            if found is not None:
                self._fail(found)
                return
        self._pull_later(error)

    def _pull_later(self, error: Exception | None) -> None:
        log.info("%s: %s; pulling again", self.consumer, error)
        self.interrupted = error
        self.retry_at = time.monotonic() + RETRY

    def _ended_quietly(self, verdict: Verdict) -> None:
        if verdict.reason == "max bytes":
            self.ended = Ended.MAX_BYTES
            if not self.messages and verdict.error is not None:
                text = f"the next message is larger than max_bytes={self.max_bytes}"
                self.error = errors.MaxBytesExceeded(409, "Message Size Exceeds MaxBytes", text)
        elif verdict.reason == "complete":
            self.ended = Ended.COMPLETE
        elif self.no_wait:
            self.ended = Ended.NO_MESSAGES
        elif verdict.reason == "timeout" and self.deadline - time.monotonic() > SHORTEST_PULL:
            self._pull()  # it lived shorter than the call may wait
        else:
            self.ended = Ended.TIMEOUT if verdict.reason == "timeout" else Ended.NO_MESSAGES

    def _fail(self, error: Exception | None) -> None:
        self.ended, self.error = Ended.ERROR, error

    # --- the end --------------------------------------------------------------------------------------------

    def _release(self) -> None:
        """Use the inbox again if no pull can be left behind, else make the server forget it."""
        complete = len(self.messages) == self.want or not self.number
        if complete and not self.dead_pull:
            self.pool.give_back(self.inbox)
        else:
            self.pool.forget(self.inbox)
            wait = SILENT_FLUSH if isinstance(self.error, (errors.NoHeartbeat, errors.Cancelled)) else FLUSH_TIMEOUT
            wait = min(wait, max(self.deadline + LAST - time.monotonic(), 0.0))
            nak_all(self.inbox.settle(self.connection.is_connected, wait), self.connection)

    def _give_up(self, error: BaseException) -> None:
        """Interrupted, or the connection is closed: what was received goes back at once."""
        self.pool.forget(self.inbox)
        left = self.inbox.settle(False)
        held = [message.msg for message in self.messages] + left
        if not isinstance(error, errors.JsClientError):
            nak_all(held, self.connection)
        elif isinstance(error, errors.ConnectionClosed) and error.reason is None and not self.consumer.ack_none:
            # Closed by the application: their acks could not be sent any more, and others get them at once.
            self.messages = []
            self._engine.takers.left.extend(nak_frames(held))


def next_after(message: JetStreamMsg, timeout: Timeout) -> JetStreamMsg:
    """Send +NXT: ack `message` (claimed by the caller) and wait for the next one of its consumer."""
    seconds = resolve(timeout, FETCH_TIMEOUT)
    reply = message.msg.raw_reply
    assert reply is not None
    try:
        source, terms = AckedConsumer(message.connection), terms_for(seconds, 0.0)
        fetch = Fetch(source, 1, terms, type(message), timeout=seconds, no_wait=seconds == 0, ack=reply)
        batch = fetch.run()
    except BaseException:
        message.release()
        raise
    if not batch:
        raise errors.NoMessages(f"acked; no next message within {seconds:g} s")
    return batch[0]
