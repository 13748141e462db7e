"""The iterator of an ordered consumer: every message once and in order, and a new consumer if one is missing."""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors, waiting
from jsclient.cancel import Cancel
from jsclient.durations import Deadline, Timeout
from jsclient.jetstream.api import consumer_requests
from jsclient.jetstream.api.models import ConsumerInfo
from jsclient.jetstream.consuming.iterator import MessageIterator
from jsclient.jetstream.consuming.ordered_reset import (
    CREATE_AGAIN,
    CREATE_TIMEOUT,
    LONGEST_DELAY,
    MENDED,
    QUESTION_TIMEOUT,
    QUESTIONS,
    QUIET,
    ConsumerRecreator,
    SameStream,
    Vain,
    proves_nothing,
    take_turn,
    why_silent,
)
from jsclient.jetstream.consuming.ordered_sequence import (
    DELIVER,
    GAP,
    SKIP,
    OrderedState,
)
from jsclient.jetstream.consuming.pull_inboxes import FLUSH_TIMEOUT, PullInbox, message_size
from jsclient.jetstream.consuming.pull_options import PullOptions
from jsclient.jetstream.consuming.pump import Notice, WindowPump
from jsclient.jetstream.consuming.sources import PullSource, QuestionLimit
from jsclient.jetstream.consuming.typed import Values
from jsclient.jetstream.consuming.typed_message import TypedMsg, UnreadMsg
from jsclient.jetstream.consuming.watchdog import NEVER
from jsclient.jetstream.message import M
from jsclient.states import WAKE, LinkEvent

if TYPE_CHECKING:
    from jsclient.jetstream.context import JetStream
    from jsclient.message import Msg

log: logging.Logger = logging.getLogger("jsclient.jetstream.ordered")

CHECKED_AT_ONCE: Final = 200


class OrderedSource(PullSource):
    """The current consumer on the server: its name changes with every reset."""

    ack_none = True

    def __init__(self, js: JetStream, stream_name: str, state: OrderedState) -> None:
        super().__init__(js.nc, "")
        self.js = js
        self.stream_name = stream_name
        self.state = state
        self.info: ConsumerInfo | None = None
        self.same_stream: SameStream = SameStream()
        self.lost: str = ""
        """The reason why the consumer must be re-created, or empty."""

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
        config = state.next_config()
        # In a variable, because another thread may close it meanwhile, which removes `self.info`.
        self.info = info = consumer_requests.put(
            self.js, self.stream_name, config, "", timeout=deadline.remaining(), every=CREATE_AGAIN
        )
        try:
            self.same_stream.check(self.js, self.stream_name, info, deadline)
        except errors.StreamRecreated:
            self.delete()
            raise
        state.created(info.num_pending + info.delivered.consumer_seq)
        self.pull_subject: str = self.js.api.subject(f"CONSUMER.MSG.NEXT.{self.stream_name}.{config.name}")
        self.lost = ""

    def examine(self, timeout: float) -> Exception | None:
        """Ask if the consumer is alive, unless it must be re-created anyway."""
        if self.lost:
            return None
        return why_silent(self.js, self.stream_name, self.state.name.decode(), str(self), timeout)

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
        self.resets: int = 0
        self.cancel: Cancel | None = None  # the token of the fetch under way
        self._on_close = on_close
        self._order = waiting.new_turn()  # held by the one thread that takes from the mailbox
        self._ready: deque[Msg] = deque()
        self._popleft = self._ready.popleft
        self._released = False
        self._recreator = ConsumerRecreator(source.state.options.max_reset_attempts)
        self._vain = Vain()
        self._questions: deque[float] = deque()  # when to ask if the consumer still exists
        source.create(timeout)
        self._vain.made()
        # Asking costs less than waiting for the old consumer, so questions are unlimited.
        self._pump = WindowPump(source, options.terms(), options.state(PullInbox.numbers), questions=QuestionLimit(0.0))
        self._pump.inbox.one_server = True
        self._state = self._pump.state
        super().__init__(source, options, self._pump, options.cancel, values)

    # --- taking -------------------------------------------------------------------------------------------

    def __next__(self) -> M:
        # The same as _get, without its calls, which are a tenth of the cost of a message.
        state = self._state
        if state.due:
            self._pull()
        try:
            item = self._popleft()
            if not self._stopped:
                if state.take() >= state.check_at and self._pump.reached():
                    self.stop()
                if state.max_bytes:
                    # Summed up first: no other thread may run between reading and writing the count.
                    size = len(item.raw_subject) + len(item.data) + len(item.raw_reply or b"")
                    if item.raw_headers is not None:
                        size += len(item.raw_headers)
                    state.taken_bytes += size
                decode = self._decode
                if decode is None or not item.data:  # perhaps the server left it out
                    make = self._make
                    message = make(item, self.connection)
                    if message is not None:
                        return message
                else:
                    try:
                        return TypedMsg(item, self.connection, True, None, self._values, decode(item.data))  # type: ignore[return-value]
                    except Exception:  # reading its value raises
                        return UnreadMsg(item, self.connection, True, None, self._values)  # type: ignore[return-value]
            else:
                self._ready.appendleft(item)  # not delivered: the next use begins with it
        except IndexError:
            pass
        try:
            message = self._get_in_turn(None)
        except errors.IteratorClosed:
            raise StopIteration from None
        assert message is not None
        return message

    def _get(self, timeout: float | None) -> M | None:
        """The next message, or None after the timeout."""
        if self._state.due:
            self._pull()
        message = self._ready_one()
        return message if message is not None else self._get_in_turn(timeout)

    def _ready_one(self) -> M | None:
        while True:
            try:
                item = self._popleft()
            except IndexError:
                return None
            if self._stopped:
                self._ready.appendleft(item)  # not delivered: the next use begins with it
                return None
            if self._pump.count(item):
                self.stop()
            message = self._make(item, self.connection)
            if message is not None:
                return message

    def _pull(self) -> None:
        self._user = get_ident()
        self._pump.keep_pulling()

    def _get_in_turn(self, timeout: float | None) -> M | None:
        deadline = Deadline(timeout)
        if not take_turn(self._order, timeout):
            return None
        self._user = get_ident()
        try:
            while True:
                if not self._made_again(deadline):
                    return None
                message = self._ready_one()
                if message is not None:
                    return message
                if not self._take_some(deadline):
                    return None
        finally:
            self._order.release()

    def _take_some(self, deadline: Deadline) -> bool:
        """Handle an item of the mailbox, or wait for one; False if time is up and none has come."""
        try:
            item = self._mailbox.take()
            if item is None and not deadline.expired():
                item = self._pump.wait(deadline, self._questions[0] if self._questions else NEVER)
        except errors.SubscriptionClosed:
            self._finish()
        if item is None:
            self._look(deadline)
            return bool(self.source.lost or self._mailbox.items or not deadline.expired())
        self._handle(item)
        self._check_more()
        return True

    def _look(self, deadline: Deadline) -> None:
        """Nothing came: find out what the silence means."""
        patience = deadline.at_most(QUESTION_TIMEOUT)
        if not self._questions or time.monotonic() < self._questions[0] or patience <= 0:
            self._on_notices(self._pump.look(deadline))
            return
        self._questions.popleft()
        if time.monotonic() - self._mailbox.last_frame > QUIET:
            told = self._pump.diagnose(patience)
            self._on_notices([one for one in told if not proves_nothing(one.what, patience)])

    def catch_up(self, deadline: Deadline) -> bool:
        """Handle everything that has come, and have a consumer; False if that did not succeed in time."""
        if not take_turn(self._order, deadline.remaining()):
            return False
        try:
            while True:
                if not self._made_again(deadline):
                    return False
                if not self._mailbox.items and self._mailbox.closed is None:
                    return True
                self._take_some(deadline)
        finally:
            self._order.release()

    def _handle(self, item: Any) -> None:
        """Handle an item of the mailbox; messages are checked and added to `_ready`."""
        if item is WAKE:
            return
        if isinstance(item, LinkEvent):
            self._link_event(item)
        elif isinstance(item, Cancel):
            if item is self.cancel:  # else of an earlier fetch
                raise item.error()
        elif isinstance(item, Exception):
            self._fail(item)  # no permission to publish pulls
        elif self._pump.inbox.is_control(item):
            self._on_notices(self._pump.status(item))
        elif self._stopped:
            self._return(item)
        else:
            self._checked(item, self.source.state.check(item.raw_reply))

    def _checked(self, item: Msg, verdict: str) -> None:
        if verdict is DELIVER:
            self._ready.append(item)
        elif verdict is SKIP:
            self._state.take()  # delivered before; it counts as one of the requested messages
        elif verdict is GAP:
            self.source.lost = f"messages are missing before {item.reply}"

    def _check_more(self) -> None:
        """Check the other items, up to the next one that is not a message."""
        if self.source.lost:
            return
        popleft, head = self._mailbox.popleft, self.source.state.head
        row: list[Msg] = []  # plain messages of the present consumer
        for _ in range(CHECKED_AT_ONCE):
            try:
                item = popleft()
                headers = item.raw_headers
                if (headers is None or headers[8:9] != b" ") and item.raw_reply.startswith(head):
                    row.append(item)
                    continue
            except IndexError:
                break
            except AttributeError:
                pass  # a link event
            self._checked_row(row)
            row = []
            if not self.source.lost:
                self._handle(item)
            if self.source.lost:
                return
        self._checked_row(row)

    def _checked_row(self, row: list[Msg]) -> None:
        if not row:
            return
        state = self.source.state
        if state.advance(row[-1].raw_reply or b"", len(row)):
            self._ready.extend(row)
            return
        for item in row:
            if self.source.lost:
                return
            self._checked(item, state.check(item.raw_reply))

    # --- what makes a new consumer necessary ----------------------------------------------------------------

    def _link_event(self, event: LinkEvent) -> None:
        if event is LinkEvent.DISCONNECTED:
            self._pump.disconnected()
        elif event is LinkEvent.RECONNECTED:
            self._pump.connected = True
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

    def _made_again(self, deadline: Deadline) -> bool:
        """Make the next consumer if that is necessary; False if time is up.

        It repeats with back-off until it works, the iterator is stopped, or attempts are used up.
        """
        self._check_open()
        if not self.source.lost:
            return True
        log.info("%s: %s; making a new one", self.source, self.source.lost)
        if not self._paused(deadline):
            return False
        if not self._recreator.run(self, deadline):
            return False
        self._vain.made()
        self.resets += 1
        self._pump.go_on(*self._waiting_size())
        self._check_open()
        return True

    def _paused(self, deadline: Deadline) -> bool:
        """Wait for the pause that `_vain` wants, as the old consumer may still send; False if time is up before."""
        while not (self.ending or self._mailbox.closed):
            left = self._vain.pause(self.source.state.expected, time.monotonic())
            if left <= 0:
                break
            if deadline.expired():
                return False
            if self.pause(deadline.at_most(min(left, LONGEST_DELAY))):
                self._vain.over()
        return True

    def make_next(self, timeout: float) -> bool:
        """For `ConsumerRecreator`: the new consumer sends the old one's unread messages again."""
        self._pump.forget(*self._waiting_size())
        self._check_cancelled()
        if not self._pump.connected:
            return False
        self.source.create(timeout)
        self._questions.clear()
        return True

    def give_up(self, error: Exception) -> None:
        self._fail(error)

    def tell(self, error: Exception) -> None:
        self._report(error)

    def pause(self, delay: float) -> bool:
        """Wait before the next attempt; True if the link came back meanwhile."""
        try:
            item = self._pump.inbox.inbox.next(delay)
        except errors.SubscriptionClosed:
            return False  # closed meanwhile by another thread: a regular end
        self._check_cancelled()
        if isinstance(item, LinkEvent):
            self._pump.connected = item is LinkEvent.RECONNECTED
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
