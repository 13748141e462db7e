"""The iterator of an ordered consumer: every message once and in order, and a new consumer if one is missing."""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors, waiting
from jsclient.cancel import Cancel
from jsclient.durations import Deadline, Timeout
from jsclient.jetstream.api import consumer_requests
from jsclient.jetstream.api.models import ConsumerConfig, ConsumerInfo
from jsclient.jetstream.consuming.iterator import MessageIterator
from jsclient.jetstream.consuming.ordered_sequence import DELIVER, GAP, SKIP, OrderedState
from jsclient.jetstream.consuming.pull_inboxes import FLUSH_TIMEOUT, PullInbox, message_size
from jsclient.jetstream.consuming.pump import Intake, Notice, WindowPump, failed
from jsclient.jetstream.consuming.sources import PullSource, QuestionLimit, recreated
from jsclient.jetstream.consuming.watchdog import NEVER
from jsclient.jetstream.message import M
from jsclient.states import LinkEvent

if TYPE_CHECKING:
    from jsclient.jetstream.consuming.pull_options import PullOptions
    from jsclient.jetstream.consuming.typed import Values
    from jsclient.jetstream.context import JetStream
    from jsclient.message import Msg

log: logging.Logger = logging.getLogger("jsclient.jetstream.ordered")

CHECKED_AT_ONCE: Final = 200

FIRST_DELAY: Final = 0.25
LONGEST_DELAY: Final = 1.0
"""Back-off between attempts; elections last 4 to 8 s."""

CREATE_TIMEOUT: Final = 5.0

PATIENCE: Final = 2.0
"""Seconds for an attempt at first. A cluster that has not yet noticed the death of a server may place the consumer
there, and no answer ever comes. The next consumer has another name and may be placed elsewhere.
"""

IMPATIENT: Final = 6
"""Attempts with this little patience, longer than elections last. After that a server may only be slow."""

CREATE_AGAIN: Final = 1.0
"""Seconds after which a CONSUMER.CREATE without an answer is sent again, because requests get lost while leaders
change. All requests name the same consumer, so an answer to any of them is sufficient.
"""

SHORTEST_CREATE: Final = 0.15
"""Seconds for creating a consumer within a call that does not wait at all: a poll must make progress, too."""

OFFLINE_DELAY: Final = 1.0
"""Seconds between two looks at the link while it is down; its return ends the wait."""

GONE_ATTEMPTS: Final = 3
"""Number of answers "stream not found" after which the client accepts it: a cluster that starts may give it wrongly."""

QUESTIONS: Final = (0.05, 0.4, 0.8, 1.5, 3.0)
"""Seconds after a server has left the cluster at which an ordered read that gets nothing asks for its consumer. That
consumer is on one server only. In lame duck mode a server announces its end up to a second before its consumers stop.
"""

QUESTION_TIMEOUT: Final = 0.5
"""Seconds for the answer. A call with a shorter timeout has only that time, and then silence proves nothing."""

QUIET: Final = 0.04
"""Seconds without a frame before such a question is worth asking."""

MENDED: Final = (
    errors.NoHeartbeat,
    errors.ConsumerLeadershipChanged,
    errors.PullServerShutdown,
    errors.NoResponders,
    errors.ConsumerDeleted,
)
"""Errors that a new consumer fixes."""

HOPELESS: Final = (errors.ConfigError, errors.NotSupported, errors.PermissionViolation, errors.StreamRecreated)


def take_turn(order: Any, timeout: float | None) -> bool:
    """Wait for the thread that takes from the mailbox; False if it is still busy after `timeout` seconds."""
    taken: bool = order.acquire() if timeout is None else order.acquire(timeout=min(timeout, threading.TIMEOUT_MAX))
    return taken


class OrderedSource(PullSource):
    """The current consumer on the server: its name changes with every reset."""

    ack_none = True

    def __init__(self, js: JetStream, stream_name: str, state: OrderedState) -> None:
        super().__init__(js.nc, "")
        self.js = js
        self.stream_name = stream_name
        self.state = state
        self.info: ConsumerInfo | None = None
        self.lost: str = ""
        """The reason why the consumer must be re-created, or empty."""
        self._made: dt.datetime | None = None  # when the first consumer was created

    def ask(self, timeout: Timeout) -> ConsumerInfo:
        """CONSUMER.INFO. If the consumer does not exist, the next read re-creates it."""
        name = self.state.name
        try:
            return consumer_requests.info(self.js, self.stream_name, name.decode(), timeout=timeout)
        except errors.ConsumerNotFound:
            if name == self.state.name:
                self.lost = f"{self} does not exist any more"
            raise

    def create(self, timeout: float | None = CREATE_TIMEOUT) -> None:
        """Create the next consumer, and remove the old one without waiting."""
        state = self.state
        deadline = Deadline(timeout)
        self.delete()
        config = self.next_config()
        # In a variable, because another thread may close it meanwhile, which removes `self.info`.
        self.info = info = consumer_requests.put(
            self.js, self.stream_name, config, "", timeout=deadline.remaining(), every=CREATE_AGAIN
        )
        try:
            self.check_stream(info, deadline)
        except errors.StreamRecreated:
            self.delete()
            raise
        # A repeated create may find that a push consumer delivers already.
        state.created(info.num_pending + info.delivered.consumer_seq)
        self.pull_subject: str = self.js.api.subject(f"CONSUMER.MSG.NEXT.{self.stream_name}.{config.name}")
        self.lost = ""

    def next_config(self) -> ConsumerConfig:
        return self.state.next_config()

    def check_stream(self, info: ConsumerInfo, deadline: Deadline) -> None:
        """Raises StreamRecreated if the stream is not the one with which the read began.

        On a new stream of the same name, continuing after the last sequence would leave out its messages. Without
        permission for STREAM.INFO there is no check. If no server answers, the call raises that error, and the next
        attempt asks again.
        """
        if self._made is None:
            self._made = info.created
            return
        timeout = max(deadline.at_most(CREATE_TIMEOUT), SHORTEST_CREATE)
        try:
            error = recreated(self.js, self.stream_name, self._made, timeout)
        except (errors.PermissionViolation, errors.JetStreamUnavailable):
            return
        if error is not None:
            raise error

    def examine(self, timeout: float) -> Exception | None:
        """Nothing came for a while: the reason to re-create the consumer, or None if it exists and is healthy.

        The consumer may be gone, or its server may not answer. In both cases a new one costs less than waiting for the
        old.
        """
        if self.lost:
            return None
        try:
            consumer_requests.info(self.js, self.stream_name, self.state.name.decode(), timeout=timeout)
        except (errors.ConsumerNotFound, errors.StreamNotFound):
            return errors.ConsumerDeleted(404, "", f"{self} does not exist any more")
        except errors.PermissionViolation:
            return None  # no permission for the question: the alarm will report it
        except errors.JsClientError as error:
            return errors.NoHeartbeat(f"no heartbeat and no message of {self}, and no answer: {errors.brief(error)}")
        return None

    def delete(self) -> None:
        """Delete the consumer on a best-effort basis, without waiting."""
        name = self.state.name.decode()
        if self.info is None and not name:
            return
        self.info = None
        consumer_requests.delete_soon(self.js.api, self.stream_name, name)

    def __str__(self) -> str:
        return f"ordered consumer {self.state.name.decode()!r} of stream {self.stream_name!r}"


class OrderedMessages(MessageIterator[M]):
    """The iterator of an ordered consumer. Threads may share it: each message goes to one of them, in order.

    It checks many messages at a time, under one lock, and keeps them in `_ready`. A lock and a call per message would
    cost as much as everything else.
    """

    source: OrderedSource
    _skipped: int = 0

    def __init__(
        self,
        source: OrderedSource,
        options: PullOptions,
        on_close: Callable[[], None],
        timeout: float | None = CREATE_TIMEOUT,
        values: Values[Any] | None = None,
    ) -> None:
        if options.cancel is not None:
            options.cancel.check()
        source.create(timeout)
        # Asking costs less than waiting for the old consumer, so questions are unlimited.
        pump = WindowPump(source, options.terms(), options.state(PullInbox.numbers), questions=QuestionLimit(0.0))
        pump.inbox.one_server = True
        self._begin(source, options, pump, on_close, values)

    def _begin(
        self,
        source: OrderedSource,
        options: Any,
        intake: Intake,
        on_close: Callable[[], None],
        values: Values[Any] | None,
    ) -> None:
        self.resets: int = 0
        self.cancel: Cancel | None = None  # the token of the fetch under way
        self._on_close = on_close
        self._order = waiting.new_turn()  # held by the one thread that takes from the mailbox
        self._ready: deque[Msg] = deque()
        self._released = False
        self._recreator = ConsumerRecreator(source.state.options.max_reset_attempts)
        self._recreator.made()
        self._questions: deque[float] = deque()  # when to ask if the consumer still exists
        super().__init__(source, options, intake, getattr(options, "cancel", None), values)
        self._popleft = self._ready.popleft

    # --- taking -------------------------------------------------------------------------------------------

    def _get_slowly(self, item: Any, timeout: float | None) -> M | None:
        message = self._ready_one(item)
        if message is not None:
            return message
        deadline = Deadline(timeout)
        if not take_turn(self._order, timeout):
            return None
        self._user = threading.get_ident()
        try:
            while True:
                if not self._has_consumer(deadline):
                    return None
                message = self._ready_one(None)
                if message is not None:
                    return message
                if not self._take_some(deadline):
                    return None
        finally:
            self._order.release()

    def _ready_one(self, item: Any) -> M | None:
        """A message that was checked, beginning with `item`."""
        while True:
            if item is None:
                try:
                    item = self._popleft()
                except IndexError:
                    return None
            if self._stopped:
                self._ready.appendleft(item)  # not delivered: the next use begins with it
                return None
            message = self._deliver(item)
            if message is not None:
                return message
            item = None

    def _take_some(self, deadline: Deadline) -> bool:
        """Handle an item of the mailbox, or wait for one; False if time is up and none has come."""
        try:
            item = self._intake.take(deadline, self._questions[0] if self._questions else NEVER)
        except errors.SubscriptionClosed:
            self._finish()
        if item is None:
            self._look(deadline)
            return bool(self.source.lost or self._mailbox.items or not deadline.expired())
        self._handle(item)
        if not self.source.lost:
            self._check_more()
        return True

    def _look(self, deadline: Deadline) -> None:
        """Nothing came: find out what the silence means."""
        patience = deadline.at_most(QUESTION_TIMEOUT)
        if not self._questions or time.monotonic() < self._questions[0] or patience <= 0:
            self._on_notices(self._intake.look(deadline))
            return
        self._questions.popleft()
        if time.monotonic() - self._mailbox.last_frame > QUIET:
            found = self.source.examine(patience)
            # Silence proves nothing within less time than an answer may take.
            if found is not None and not (isinstance(found, errors.NoHeartbeat) and patience < QUESTION_TIMEOUT):
                self._on_notices(failed(found))

    def catch_up(self, deadline: Deadline) -> bool:
        """Handle everything that has come, and have a consumer; False if that did not succeed in time."""
        if not take_turn(self._order, deadline.remaining()):
            return False
        try:
            while True:
                if not self._has_consumer(deadline):
                    return False
                if not self._mailbox.items and self._mailbox.closed is None:
                    return True
                self._take_some(deadline)
        finally:
            self._order.release()

    def _handle(self, item: Any) -> M | None:
        if isinstance(item, Cancel):
            if item is self.cancel:  # else of an earlier fetch
                raise item.error()
            return None
        return super()._handle(item)

    def _came(self, item: Msg) -> None:
        self._checked(item, self.source.state.check(item.raw_reply))

    @property
    def delivered(self) -> int:
        return super().delivered - self._skipped

    def _checked(self, item: Msg, verdict: str) -> None:
        if verdict is DELIVER:
            self._ready.append(item)
        elif verdict is SKIP:
            self._take()  # delivered before; it counts as one of the requested messages
            self._skipped += 1
        elif verdict is GAP:
            self.source.lost = f"messages are missing before {item.reply}"

    def _check_more(self) -> None:
        """Check the messages that follow in the mailbox, up to an item that is not a plain one of this consumer.

        Such an item has to wait for the messages before it, because a push consumer's flow control counts them.
        """
        popleft, head = self._mailbox.popleft, self.source.state.head
        row: list[Msg] = []
        for _ in range(CHECKED_AT_ONCE):
            try:
                item = popleft()
            except IndexError:
                break
            try:
                headers = item.raw_headers
                if (headers is None or headers[8:9] != b" ") and item.raw_reply.startswith(head):
                    row.append(item)
                    continue
            except AttributeError:
                pass  # a link event
            self._mailbox.items.appendleft(item)
            break
        if not row:
            return
        state = self.source.state
        if state.advance(row[-1].raw_reply or b"", len(row)):
            self._ready.extend(row)
            return
        for item in row:
            if not self.source.lost:
                self._checked(item, state.check(item.raw_reply))

    # --- what makes a new consumer necessary ----------------------------------------------------------------

    def _link_event(self, event: LinkEvent) -> None:
        if event is LinkEvent.DISCONNECTED:
            self._intake.disconnected()
        elif event is LinkEvent.RECONNECTED:
            self._intake.connected = True
            self.source.lost = "reconnected"
        elif event is LinkEvent.SERVER_LEFT:
            now = time.monotonic()
            self._questions = deque(now + delay for delay in QUESTIONS)

    def _on_notices(self, told: Sequence[Notice]) -> None:
        """Report an error that a new consumer fixes, and make one necessary."""
        for one in told:
            if isinstance(one.what, MENDED):
                self.source.lost = str(one.what)
                self._report(one.what)
            else:
                super()._on_notices([one])

    def start_again(self, why: str) -> None:
        """Messages of the consumer were lost. The next call makes a new consumer and reads them again."""
        self.source.lost = why

    # --- the new consumer -------------------------------------------------------------------------------------

    def _has_consumer(self, deadline: Deadline) -> bool:
        """Make the next consumer if that is necessary; False if time is up.

        It repeats with back-off until it works, the iterator is stopped, or attempts are used up.
        """
        self._check_open()
        if not self.source.lost or self._draining:
            return True
        log.info("%s: %s; making a new one", self.source, self.source.lost)
        if not self._recreator.run(self, deadline):
            return False
        self._check_open()
        self._recreator.made()
        self.resets += 1
        self._intake.go_on(*self._waiting_size())
        return True

    def make_next(self, timeout: float) -> bool:
        """Make the next consumer, which sends the unread messages of the old one again. False if the link is down."""
        self._intake.forget(*self._waiting_size())
        self._check_cancelled()
        if not self._intake.connected:
            return False
        self.source.create(timeout)
        self._questions.clear()
        return True

    def give_up(self, error: Exception) -> None:
        """No attempt can succeed."""
        self._fail(error)

    def tell(self, error: Exception) -> None:
        """An attempt failed; another one follows."""
        self._report(error)

    def pause(self, delay: float) -> bool:
        """Wait before the next attempt; True if the link came back meanwhile."""
        try:
            item = self._intake.next(delay)
        except errors.SubscriptionClosed:
            return False  # closed meanwhile by another thread: a regular end
        self._check_cancelled()
        if isinstance(item, LinkEvent):
            self._intake.connected = item is LinkEvent.RECONNECTED
        return item is LinkEvent.RECONNECTED

    def _check_cancelled(self) -> None:
        """The token of a fetch may have been discarded together with messages of the old consumer."""
        if self.cancel is not None:
            self.cancel.check()

    def _waiting_size(self) -> tuple[int, int]:
        """(messages, bytes) checked and not taken."""
        ready = waiting.copy_of(self._ready)
        return len(ready), sum(map(message_size, ready))

    # --- how it is with it, and the end -------------------------------------------------------------------------

    @property
    def _wants_acks(self) -> bool:
        return False

    @property
    def available(self) -> int:
        """Messages checked and not taken."""
        return len(self._ready)

    @property
    def buffered(self) -> int:
        """Messages received and not taken."""
        return len(self._mailbox) + len(self._ready)

    def close(self, timeout: float | dt.timedelta = FLUSH_TIMEOUT) -> None:
        """Stop and remove the consumer from the server. The next use reads unread messages again."""
        with self._lock:  # the connection may close it at the same time
            first, self._released = not self._released, True
        super().close(timeout)
        if first:
            if self._ready:
                self.source.state.rewind(self._ready[0].raw_reply)
                self._ready.clear()
            self.source.delete()
            self._on_close()


class ConsumerRecreator:
    """Re-creates the consumer of an ordered read, over any number of calls.

    It pauses after consumers that ended before they delivered a message, because the next one may end like them.
    """

    def __init__(self, max_attempts: int | None) -> None:
        self._max_attempts = max_attempts
        self._made = False
        self._in_vain = 0  # consumers in a row that delivered nothing
        self._not_before = 0.0
        self._begin()

    def made(self) -> None:
        """A new consumer exists."""
        self._made = True

    def _begin(self) -> None:
        self._attempts = self._gone = 0
        self._delay = FIRST_DELAY

    def run(self, reading: OrderedMessages[Any], deadline: Deadline) -> bool:
        """Try until it works, or must be given up. False if time is up: call it again."""
        if not self._rested(reading, deadline):
            return False
        while not reading.ending:
            patience = PATIENCE if self._attempts < IMPATIENT else CREATE_TIMEOUT
            timeout = max(deadline.at_most(patience), SHORTEST_CREATE)
            try:
                if reading.make_next(timeout):
                    break
                reading.pause(deadline.at_most(OFFLINE_DELAY))
            except (errors.ConnectionClosed, errors.ForkedConnection, errors.Cancelled):
                raise
            except errors.JsClientError as error:
                if self._is_over(reading, error):
                    break
                reading.tell(error)
                back = reading.pause(deadline.at_most(self._delay))
                self._delay = FIRST_DELAY if back else min(self._delay * 2, LONGEST_DELAY)
            if deadline.expired():
                return False
        self._begin()
        return True

    def _rested(self, reading: OrderedMessages[Any], deadline: Deadline) -> bool:
        """Wait for the end of the pause, as the old consumer may still send; False if time is up before."""
        if self._made:
            self._made = False
            self._in_vain = 0 if reading.source.state.expected > 1 else self._in_vain + 1
            if self._in_vain >= 2:
                pause = min(FIRST_DELAY * 2 ** (self._in_vain - 2), LONGEST_DELAY)
                self._not_before = time.monotonic() + pause
        while not reading.ending and (left := self._not_before - time.monotonic()) > 0:
            if deadline.expired():
                return False
            if reading.pause(deadline.at_most(left)):
                self._not_before = 0.0  # the link came back: the trouble may be over
        return True

    def _is_over(self, reading: OrderedMessages[Any], error: errors.JsClientError) -> bool:
        if isinstance(error, errors.StreamNotFound):
            self._gone += 1
            if self._gone >= GONE_ATTEMPTS:
                reading.give_up(error)
                return True
        elif isinstance(error, HOPELESS):
            reading.give_up(error)
            return True
        self._attempts += 1
        if self._max_attempts is not None and self._attempts >= self._max_attempts:
            lost = errors.OrderedConsumerReset(f"{reading.source} could not be made again in {self._attempts} attempts")
            lost.__cause__ = error
            reading.give_up(lost)
            return True
        return False
