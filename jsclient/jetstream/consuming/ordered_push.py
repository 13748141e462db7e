"""Ordered reading by a push consumer: the older form, with flow control and heartbeats (features 1.10).

OrderedConsumer, which pulls, does the same with bounded memory and less to go wrong. This one is for accounts without
permission to pull, and for servers' push paths.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from jsclient import errors, handlers, kinds, waiting
from jsclient.connection import engine_of
from jsclient.durations import Deadline, plain
from jsclient.jetstream.api import consumer_requests, names
from jsclient.jetstream.api import headers as header_names
from jsclient.jetstream.api.models import ConsumerConfig, ConsumerInfo
from jsclient.jetstream.consuming.consume import ConsumeContext
from jsclient.jetstream.consuming.iterator import MessageIterator
from jsclient.jetstream.consuming.messages import Messages
from jsclient.jetstream.consuming.ordered_reset import (
    CREATE_AGAIN,
    CREATE_TIMEOUT,
    MENDED,
    QUESTION_TIMEOUT,
    QUESTIONS,
    QUIET,
    ConsumerRecreator,
    SameStream,
    proves_nothing,
    take_turn,
    why_silent,
)
from jsclient.jetstream.consuming.ordered_sequence import DELIVER, GAP, OrderedOptions, OrderedOptionsDict, OrderedState
from jsclient.jetstream.consuming.pull_inboxes import FLUSH_TIMEOUT
from jsclient.jetstream.consuming.pump import Notice, failed
from jsclient.jetstream.consuming.push_intake import PushIntake, PushOptions, PushOptionsDict
from jsclient.jetstream.consuming.typed import OnBadOrdered, Values, ordered_values, with_values
from jsclient.jetstream.consuming.typed_message import TypedMsg
from jsclient.jetstream.consuming.watchdog import NEVER
from jsclient.jetstream.message import M
from jsclient.jetstream.without_payload import refuse_headers_only
from jsclient.message import Msg
from jsclient.states import LinkEvent

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from jsclient.connection import Connection
    from jsclient.jetstream.context import JetStream


log: logging.Logger = logging.getLogger("jsclient.jetstream.ordered")

T = TypeVar("T")

HEARTBEAT: Final = 5.0
SHORTEST_HEARTBEAT: Final = 0.1  # what the server accepts (10083)
ACK_WAIT: Final = 22 * 3600.0  # as in nats.go and nats.py: nothing is redelivered, gaps are read again


class OrderedPushSource:
    """The current consumer on the server; every new consumer delivers to a new subject."""

    def __init__(self, js: JetStream, stream_name: str, state: OrderedState, heartbeat: float) -> None:
        self.js = js
        self.nc: Connection = js.nc
        self._engine = engine_of(self.nc)
        self.stream_name = stream_name
        self.state = state
        self.heartbeat = heartbeat
        self.info: ConsumerInfo | None = None
        self.same_stream: SameStream = SameStream()
        self.config: ConsumerConfig = ConsumerConfig(
            deliver_subject=js.nc.new_inbox(), flow_control=True, idle_heartbeat=heartbeat
        )

    def _config(self, config: ConsumerConfig, subject: str) -> ConsumerConfig:
        return config.replace(
            deliver_subject=subject,
            flow_control=True,
            idle_heartbeat=self.heartbeat,
            max_deliver=1,
            ack_wait=ACK_WAIT,
        )

    def create(self, subject: str, timeout: float = CREATE_TIMEOUT) -> None:
        self.delete()
        self.config = self._config(self.state.next_config(), subject)
        deadline = Deadline(timeout)
        # In a variable, because another thread may close it meanwhile, which removes `self.info`.
        self.info = info = consumer_requests.put(
            self.js, self.stream_name, self.config, "", timeout=deadline.remaining(), every=CREATE_AGAIN
        )
        self.same_stream.check(self.js, self.stream_name, info, deadline)
        # A repeated create may find that the consumer delivers already.
        self.state.created(info.num_pending + info.delivered.consumer_seq)

    def delete(self) -> None:
        """Delete the consumer on a best-effort basis, without waiting."""
        if not self.state.name:
            return
        self.info = None
        consumer_requests.delete_soon(self.js.api, self.stream_name, self.state.name.decode())

    def examine(self, timeout: float) -> Exception | None:
        name = self.state.name.decode()
        return why_silent(self.js, self.stream_name, name, str(self), timeout)

    def why_deleted(self, deleted: errors.ConsumerDeleted, timeout: float) -> Exception:
        return deleted

    def __str__(self) -> str:
        return f"ordered push consumer {self.state.name.decode()!r} of stream {self.stream_name!r}"


class OrderedPushMessages(MessageIterator[M]):
    """The iterator. Threads may share it: each message goes to one of them, in order."""

    source: OrderedPushSource

    def __init__(self, source: OrderedPushSource, options: PushOptions, values: Values[Any] | None = None) -> None:
        self.resets: int = 0
        self._order = waiting.new_turn()
        self._because = ""  # why a new consumer is needed
        self._questions: deque[float] = deque()  # when to ask if the consumer still exists
        self._recreator = ConsumerRecreator(source.state.options.max_reset_attempts)
        self._push = PushIntake(source, options)
        self._push.watch_servers()
        super().__init__(source, options, self._push, values=values)
        try:
            self.make_next()
        except BaseException:
            self.close()
            raise

    def make_next(self, timeout: float = CREATE_TIMEOUT) -> bool:
        """Subscribe first, then create.

        Each consumer has its own subject, or the client would mistake the "Consumer Deleted" of the old one for the new
        one's. A wildcard subject would not work: the server ignores it as interest.
        """
        self._push.connected = self.connection.is_connected
        if not self._push.connected:
            return False
        subject = self.connection.new_inbox()
        self._push.move_to(subject)
        self.source.create(subject, timeout)
        self._push.moved_to(subject)
        self._because = ""
        self._questions.clear()
        return True

    def _get(self, timeout: float | None) -> M | None:
        deadline = Deadline(timeout)
        if not take_turn(self._order, timeout):
            return None
        self._user = get_ident()
        try:
            while True:
                self._check_open()
                if self._because and not self._draining:
                    self._reset(deadline)
                try:
                    item = self._push.take(deadline, self._questions[0] if self._questions else NEVER)
                except errors.SubscriptionClosed:
                    self._finish()
                if item is None:
                    self._look(deadline)
                    if deadline.expired() and not self._mailbox.items:
                        return None
                elif self._push.is_control(item):
                    self._control(item)
                elif self._stopped:
                    self._return(item)
                elif self._is_next(item):
                    self._push.delivered += 1
                    message = self._make(item, self.connection)
                    if message is not None:
                        return message
        finally:
            self._order.release()

    def _look(self, deadline: Deadline) -> None:
        """Nothing came: find out what the silence means."""
        patience = deadline.at_most(QUESTION_TIMEOUT)
        if not self._questions or time.monotonic() < self._questions[0] or patience <= 0:
            self._on_notices(self._push.look(deadline))
            return
        self._questions.popleft()
        if time.monotonic() - self._mailbox.last_frame > QUIET:
            found = self.source.examine(patience)
            if found is not None and not proves_nothing(found, patience):
                self._on_notices(failed(found))

    def _is_next(self, item: Msg) -> bool:
        """True if the message follows the last one; a gap makes a new consumer necessary."""
        if item.raw_headers is not None and item.status is not None and not item.raw_reply:
            return False  # a control frame of an earlier consumer
        verdict = self.source.state.check(item.raw_reply)
        if verdict is GAP:
            self._because = f"messages are missing before {item.reply}"
        return verdict is DELIVER

    def _control(self, item: Any) -> None:
        if item is LinkEvent.SERVER_LEFT:
            now = time.monotonic()
            self._questions = deque(now + delay for delay in QUESTIONS)
            return
        if item is LinkEvent.RECONNECTED:
            self._because = "reconnected"
        elif isinstance(item, Msg) and item.raw_headers is not None:
            last = header_names.readable(item).get(header_names.LAST_CONSUMER)
            if last is not None and last.isdigit() and self.source.state.behind(int(last)):
                self._because = f"a heartbeat tells of message {last} that has not come"
        self._on_notices(self._push.control(item))

    def _on_notices(self, told: Sequence[Notice]) -> None:
        """Report an error that a new consumer fixes, and make one."""
        for one in told:
            if isinstance(one.what, MENDED):
                self._because = str(one.what)
                self._report(one.what)
            else:
                super()._on_notices([one])

    def _reset(self, deadline: Deadline) -> None:
        log.info("%s: %s; making a new one", self.source, self._because)
        if self._recreator.run(self, deadline):
            self.resets += 1
            self._check_open()

    def give_up(self, error: Exception) -> None:
        self._fail(error)

    def tell(self, error: Exception) -> None:
        self._report(error)

    def pause(self, delay: float) -> bool:
        try:
            item = self._mailbox.get(delay)
        except errors.SubscriptionClosed:
            return False  # closed meanwhile by another thread: a regular end
        return item is LinkEvent.RECONNECTED

    @property
    def _wants_acks(self) -> bool:
        return False

    def close(self, timeout: float | dt.timedelta = FLUSH_TIMEOUT) -> None:
        """Stop, and remove the consumer from the server. Idempotent."""
        first = not self._closed
        super().close(timeout)
        if first:
            self.source.delete()


class OrderedPushConsumer(Generic[M]):
    """Reads a stream in order, each message once, pushed by the server; see `stream.ordered_push_consumer(...)`.

    It takes the options of OrderedOptions and `heartbeat`, the seconds between the server's heartbeats (5). Twice this
    time without one is an alarm. Each `messages()` or `consume()` begins at the options' start, with a separate
    consumer.

    Attributes:
        js: The JetStream object that it was made with.
        stream_name: The stream that it reads.
        heartbeat: Seconds between the server's heartbeats.

    Options of several methods:
        on_bad: The action for a message that cannot be decoded. Default "raise": reading its `value` raises
            DecodeFailed. `Consumer.typed` describes the others.

    Further options:
        OrderedPushConsumer: see `OrderedOptionsDict`.
        messages, consume: see `PushOptionsDict`.
    """

    def __init__(
        self,
        js: JetStream,
        stream_name: str,
        *,
        heartbeat: float | dt.timedelta = HEARTBEAT,
        **options: Unpack[OrderedOptionsDict],
    ) -> None:
        kinds.check(float, dt.timedelta, heartbeat=heartbeat)
        heartbeat = plain(heartbeat)
        if not heartbeat >= SHORTEST_HEARTBEAT:
            raise errors.ConfigError(f"heartbeat must be at least {SHORTEST_HEARTBEAT} s, got {heartbeat!r}")
        self.js = js
        self.stream_name: str = names.check_stream(stream_name)
        self.options: OrderedOptions = OrderedOptions(**options)
        """For layers."""
        self.heartbeat = heartbeat
        self._values: Values[Any] | None = None

    def typed(self, type: type[T], *, on_bad: OnBadOrdered = "raise") -> OrderedPushConsumer[TypedMsg[T]]:
        """The same consumer, of messages with a `value` of a type. See OrderedConsumer.typed."""
        refuse_headers_only(self.options.headers_only, "an ordered consumer")
        return with_values(self, ordered_values(self.js, type, on_bad))  # type: ignore[no-any-return]

    def messages(self, **options: Unpack[PushOptionsDict]) -> Messages[M]:
        """An endless iterator; memory is bounded by the server's flow control (32 MiB)."""
        return Messages(self._iterator(options))

    def _iterator(self, options: PushOptionsDict) -> OrderedPushMessages[M]:
        source = OrderedPushSource(self.js, self.stream_name, OrderedState(self.options), self.heartbeat)
        return OrderedPushMessages(source, PushOptions(**options), self._values)

    def consume(self, handler: Callable[[M], Any], **options: Unpack[PushOptionsDict]) -> ConsumeContext:
        """Call `handler(msg)` for every message, in order, in one worker thread."""
        handlers.required(handler, "the handler")
        return ConsumeContext(self._iterator(options), handler, 1)

    def __repr__(self) -> str:
        return f"<OrderedPushConsumer of {self.stream_name!r}>"

    def __reduce__(self) -> Any:
        return engine_of(self.js.nc).refuse_pickle(self)
