"""Push consumers, plain and ordered: the server sends messages to a subject without a request.

Pull consumers do the same with less to go wrong. Push remains for queue groups of mixed clients, for old designs, and
for accounts without permission to pull. The client answers flow control in order with the messages: after the
application took everything before it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypedDict, TypeVar

import attrs

from jsclient import checks, errors, handlers, kinds, waiting
from jsclient._connection import Mailbox, MessageSink
from jsclient.codecs import OnBad
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Deadline, Timeout, plain, seconds_of
from jsclient.jetstream.api import headers as header_names
from jsclient.jetstream.api import names
from jsclient.jetstream.api.models import ConsumerConfig, ConsumerInfo
from jsclient.jetstream.consuming.consume import ConsumeContext
from jsclient.jetstream.consuming.hooks import ErrorHook
from jsclient.jetstream.consuming.iterator import MessageIterator
from jsclient.jetstream.consuming.messages import Messages
from jsclient.jetstream.consuming.ordered_messages import OrderedMessages, OrderedSource
from jsclient.jetstream.consuming.ordered_sequence import OrderedOptions, OrderedOptionsDict, OrderedState
from jsclient.jetstream.consuming.pull_inboxes import FLUSH_TIMEOUT, pool_of
from jsclient.jetstream.consuming.pull_statuses import row_of
from jsclient.jetstream.consuming.pump import NOTHING, Intake, Notice, failed, reported
from jsclient.jetstream.consuming.sources import ASK_TIMEOUT, ConsumerSource
from jsclient.jetstream.consuming.typed import OnBadOrdered, Values, ordered_values, values_of, with_policy, with_values
from jsclient.jetstream.consuming.typed_message import TypedMsg
from jsclient.jetstream.consuming.watchdog import NEVER, Watchdog
from jsclient.jetstream.message import M
from jsclient.jetstream.without_payload import refuse_headers_only
from jsclient.states import LinkEvent

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from jsclient.connection import Connection
    from jsclient.jetstream.context import JetStream
    from jsclient.message import Msg

PENDING_MESSAGES: Final = 65_536
PENDING_BYTES: Final = 64 * 1024 * 1024
"""The limits of waiting messages without flow control; the client drops and reports messages beyond them."""

UNBIND_TIMEOUT: Final = 1.0

HEARTBEAT: Final = 5.0
SHORTEST_HEARTBEAT: Final = 0.1  # what the server accepts (10083)
ACK_WAIT: Final = 22 * 3600.0  # as in nats.go and nats.py: nothing is redelivered, gaps are read again

T = TypeVar("T")


class PushOptionsDict(TypedDict, total=False):
    """Keyword arguments of `messages()` and `consume()` of push consumers.

    A value of another type or out of range raises ConfigError before anything is sent.

    The fields are described in `PushOptions`.
    """

    on_error: ErrorHook | None
    pending_messages: int
    pending_bytes: int
    leave_buffered: bool


@attrs.frozen(kw_only=True)
class PushOptions:
    """`on_error(error)` gets NoHeartbeat, SlowConsumer and exceptions of the handler; without it they are logged. For
    `consume` a function of two arguments gets `(error, message)`, as in PullOptions.

    Without flow control at most `pending_messages` and `pending_bytes` wait for the application. The client drops more
    and reports SlowConsumer (with acks the server redelivers them after ack_wait). `leave_buffered` leaves unread
    messages to ack_wait at the end, instead of returning them.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        on_error: Called with errors that the reading survives; with None they are logged.
        pending_messages: Messages that may wait for the application without flow control; more are dropped.
        pending_bytes: Bytes that may wait for the application without flow control; more are dropped.
        leave_buffered: At the end leave unread messages to `ack_wait`, instead of returning them immediately.
    """

    on_error: ErrorHook | None = attrs.field(default=None, validator=kinds.field(Callable, None))
    pending_messages: int = attrs.field(default=PENDING_MESSAGES, validator=kinds.field(int))
    pending_bytes: int = attrs.field(default=PENDING_BYTES, validator=kinds.field(int))
    leave_buffered: bool = attrs.field(default=False, validator=kinds.field(bool))

    def __attrs_post_init__(self) -> None:
        for name in ("pending_messages", "pending_bytes"):
            if getattr(self, name) < 1:
                raise errors.ConfigError(f"{name} must be 1 or more, got {getattr(self, name)}")


class PushCount:
    """The substitute of a credit, for the loop of an iterator: the server decides what it sends."""

    check_at: float = NEVER
    max_bytes: int = 0
    taken_bytes: int = 0

    def __init__(self) -> None:
        self.due: bool = False
        """Messages were dropped, which is still to be reported."""
        self.take: Callable[[], int] = waiting.numbers()
        self._reads = 0

    def taken(self) -> int:
        self._reads += 1  # reading the count adds one to it
        return self.take()

    def delivered(self, count: int) -> int:
        """The number of messages taken when `take()` returned `count`, without reads of the count."""
        return count - self._reads


class PushSink(MessageSink):
    """The reader's side: a mailbox, bounded unless flow control bounds it."""

    def __init__(self, mailbox: Mailbox, state: PushCount) -> None:
        self.mailbox = mailbox
        self._state = state

    def deliver(self, messages: list[Msg], nbytes: int) -> None:
        self.mailbox.last_frame = time.monotonic()
        if not self.mailbox.put_many(messages, nbytes):
            self._state.due = True

    def link_event(self, event: LinkEvent) -> None:
        self.mailbox.last_frame = time.monotonic()
        if event is LinkEvent.CLOSED:
            if self.mailbox.closed is None:  # the reader's `end` has given the reason already
                self.mailbox.close(errors.ConnectionClosed("the connection is closed"))
        else:
            self.mailbox.put(event)

    def server_left(self, event: LinkEvent) -> None:
        """A listener for links: passes on the event that a server of the cluster has left."""
        if event is LinkEvent.SERVER_LEFT:
            self.mailbox.put(event)

    def failed(self, error: BaseException) -> None:
        self.mailbox.close(error)


class PushIntake(Intake):
    """The subscription of a push consumer: the mailbox, control frames, and the meaning of silence."""

    def __init__(self, source: PushSource | OrderedPushSource, options: PushOptions) -> None:
        self.source = source
        self.connection: Connection = source.nc
        self._engine = engine_of(self.connection)
        config = source.config
        assert config is not None
        bounded = not config.flow_control
        self.mailbox: Mailbox = Mailbox(
            options.pending_messages if bounded else None, options.pending_bytes if bounded else None
        )
        self.state: PushCount = PushCount()
        self._sink = PushSink(self.mailbox, self.state)
        self.lock: Any = waiting.new_lock()
        self.last_sent: int = 0
        """The number of the consumer's last message, as the latest heartbeat names it."""
        self._beat = seconds_of(config.idle_heartbeat or 0.0)
        self._watchdog = Watchdog.of_heartbeats(self._beat, time.monotonic())
        self._subscribe(config.deliver_subject or "", config.deliver_group or "")

    def _subscribe(self, subject: str, group: str = "") -> None:
        self._subject, self._raw_subject = subject, subject.encode()
        self._subscription = self._engine.open_sink(subject, self._sink, group)

    # --- taking -------------------------------------------------------------------------------------------

    def watch_servers(self) -> None:
        """From now on `take` returns LinkEvent.SERVER_LEFT, too."""
        self._engine.add_link_listener(self._sink.server_left)

    def wait(self, deadline: Deadline, until: float = NEVER) -> Any:
        self._engine.flush_outbox()
        left = deadline.remaining()
        due = min(self._watchdog.due(self.mailbox.last_frame) if self._owed() else NEVER, until)
        if due < NEVER:
            soon = due - time.monotonic()
            if soon <= 0:
                return None
            left = soon if left is None else min(left, soon)
        return self.mailbox.get(left)

    def next(self, seconds: float | None) -> Any:
        return self.mailbox.get(seconds)

    def _owed(self) -> bool:
        return bool(self._beat) and self.connected and not self.halted

    def dropped(self) -> Sequence[Notice]:
        """A report if the mailbox was full since the last call."""
        if not self.state.due:
            return NOTHING
        self.state.due = False
        dropped = self.mailbox.dropped
        text = f"the client dropped {errors.counted(dropped, 'message')} of {self.source}"
        return reported(errors.SlowConsumer(text, self._subject, dropped))

    # --- what comes beside messages -------------------------------------------------------------------------

    def is_control(self, item: Msg) -> bool:
        # A frame without a reply to another subject of ours is of an earlier ordered consumer.
        return (
            item.raw_headers is not None
            and (item.raw_subject == self._raw_subject or not item.raw_reply)
            and item.status is not None
        )

    def link_event(self, event: LinkEvent) -> None:
        self.connected: bool = event is LinkEvent.RECONNECTED
        self._watchdog.restart(time.monotonic())

    def status(self, message: Msg) -> Sequence[Notice]:
        status = message.status
        assert status is not None
        if message.raw_subject != self._raw_subject:
            return NOTHING
        if status.code == 100:
            headers = header_names.readable(message)
            last = headers.get(header_names.LAST_CONSUMER) or ""
            self.last_sent = int(last) if last.isdigit() else 0
            # The reply of flow control: the application took everything before it.
            reply = message.reply or headers.get(header_names.CONSUMER_STALLED)
            if reply:
                self._engine.enqueue_at_once(self._engine.encode(reply))
            return NOTHING
        if row_of(status.code, status.description).error is errors.ConsumerDeleted:
            deleted = errors.ConsumerDeleted(409, status.description, f"{self.source} was deleted")
            return failed(self.source.why_deleted(deleted, ASK_TIMEOUT))
        return reported(errors.PullStatusError(status.code, status.description))

    def look(self, deadline: Deadline) -> Sequence[Notice]:
        told = self.dropped()
        return told if told or not self._owed() else self._silent(deadline)

    def diagnose(self, timeout: float) -> Sequence[Notice]:
        found = self.source.examine(min(timeout, ASK_TIMEOUT))
        return failed(found) if isinstance(found, Exception) else NOTHING

    # --- a new consumer takes the place of the old one: for ordered reads -----------------------------------------

    def forget(self, ready: int, ready_bytes: int) -> None:
        """Subscribe to the subject of the next consumer, and leave the old consumer's subject.

        Each consumer has its own subject, or the client would mistake the "Consumer Deleted" of the old one for the new
        one's. A wildcard subject would not work: the server ignores it as interest.
        """
        self.connected = self.connection.is_connected
        if self.connected and isinstance(self.source, OrderedPushSource):
            old = self._subscription
            self.last_sent = 0
            self._subscribe(self.source.next_subject())
            self._engine.remove_subscription(old, tell_server=True)
        self.leftovers()

    def go_on(self, ready: int, ready_bytes: int) -> None:
        self._watchdog.restart(time.monotonic())

    # --- the end --------------------------------------------------------------------------------------------

    def withdraw(self) -> None:
        self.halted = True
        if self.mailbox.closed is None:
            self._engine.remove_subscription(self._subscription, tell_server=True, keep_sink=True)

    def complete(self) -> None:
        self._engine.remove_subscription(self._subscription)
        self.mailbox.close(errors.SubscriptionClosed(f"{self.source} was drained"))

    def leftovers(self) -> list[Msg]:
        left: list[Msg] = []
        items = self.mailbox.items
        with contextlib.suppress(IndexError):  # until it is empty: another thread may take from it, too
            while True:
                item = items.popleft()
                if not isinstance(item, LinkEvent) and item.status is None:
                    left.append(item)
        return left

    def settle(self, give_back: bool, timeout: float = FLUSH_TIMEOUT, more: bool = False) -> list[Msg]:
        self._engine.remove_link_listener(self._sink.server_left)
        if self.mailbox.closed is None:
            self.withdraw()
            with contextlib.suppress(errors.JsClientError):  # a lost link delivers nothing more
                if self.connection.is_connected:
                    self.connection.flush(timeout)
            self._engine.remove_subscription(self._subscription)
        left = self.leftovers()
        self.mailbox.close(errors.SubscriptionClosed(f"{self.source} was closed"), discard=True)
        return left


class PushSource(ConsumerSource):
    """The consumer as iterators see it; a PushConsumer and the handles that `typed` makes of it share it."""

    def __init__(
        self, js: JetStream, stream_name: str, name: str, config: ConsumerConfig, info: ConsumerInfo | None
    ) -> None:
        super().__init__(js, names.check_stream(stream_name), names.check_consumer(name), info)
        self._first_config = config

    @property
    def config(self) -> ConsumerConfig:
        """The configuration, as last received from the server."""
        return self._first_config if self.info is None else self.info.config

    def examine(self, timeout: float) -> Exception | None:
        found = self.look_up(timeout)
        return found if isinstance(found, Exception) else None

    def check_bound(self) -> None:
        """Raises ConsumerAlreadyBound if another subscriber has a consumer that allows only one."""
        if self.config.deliver_group or self.info is None:
            return  # a handle that never asked the server does not ask now
        deadline = Deadline(UNBIND_TIMEOUT)
        while self.ask(DEFAULT).push_bound:
            # The server notices the end of our earlier subscription with a delay.
            if not deadline.expired():
                time.sleep(UNBIND_TIMEOUT / 10)
                continue
            raise errors.ConsumerAlreadyBound(f"somebody else is subscribed to {self}")

    def __str__(self) -> str:
        return f"push consumer {self.name!r} of stream {self.stream_name!r}"


class PushMessages(MessageIterator[M]):
    """The iterator of a push consumer. Threads may share it; its end unsubscribes."""

    _intake: PushIntake

    def __init__(self, source: PushSource, options: PushOptions, values: Values[Any] | None = None) -> None:
        # If the server does not confirm an ack, the client asks it how far it has delivered: see stale_acks.py.
        pool_of(source.nc).remember(source.pull_subject)
        super().__init__(source, options, PushIntake(source, options), values=values)

    def _pull(self) -> None:
        self._on_notices(self._intake.dropped())

    @property
    def _wants_acks(self) -> bool:
        return bool(self.source.config.ack_policy == "explicit")


class PushConsumer(Generic[M]):
    """A push consumer. You get one from `create_push_consumer`, `push_consumer` and similar methods.

    The server delivers only while there is a subscriber, that is while an iterator or consume is open. With a
    `deliver_group` there can be many, in one process or several. Without one, only one is allowed
    (ConsumerAlreadyBound).

    Attributes:
        js: The JetStream object that it was made with.
        nc: Its connection.
        stream_name: The stream that it reads.
        name: Its name.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
        config: The configuration as one object. Without it, pass its fields as keywords.
        on_bad: The action for a message that cannot be decoded. Default "raise": reading its `value` raises
            DecodeFailed. `Consumer.typed` describes the others.

    Further options:
        messages, consume: see `PushOptionsDict`.
    """

    def __init__(
        self, js: JetStream, stream_name: str, name: str, config: ConsumerConfig, info: ConsumerInfo | None = None
    ) -> None:
        if not config.is_push:
            raise errors.NotPushConsumer(f"consumer {name!r} of stream {stream_name!r} is a pull consumer")
        self._source = PushSource(js, stream_name, name, config, info)
        self.js = js
        self.nc: Connection = js.nc
        self.stream_name = stream_name
        self.name = name
        self._values: Values[Any] | None = None

    def typed(
        self, type: type[T], *, on_bad: OnBad = "raise", dead_letter: str | None = None
    ) -> PushConsumer[TypedMsg[T]]:
        """The same consumer, of messages with a `value` of a type. See Consumer.typed."""
        refuse_headers_only(self.config.headers_only, self)
        values = values_of(self.js, type, on_bad, dead_letter)
        return with_values(self, with_policy(values, self.config.ack_policy))  # type: ignore[no-any-return]

    @property
    def config(self) -> ConsumerConfig:
        """Its configuration, as last received from the server."""
        return self._source.config

    @property
    def cached_info(self) -> ConsumerInfo | None:
        """The last information from the server, without a round trip; None for a handle that never asked."""
        return self._source.info

    def info(self, timeout: Timeout = DEFAULT) -> ConsumerInfo:
        """Request the current state. Raises ConsumerNotFound."""
        return self._source.ask(timeout)

    def messages(self, **options: Unpack[PushOptionsDict]) -> Messages[M]:
        """An endless iterator; options: see PushOptions. Raises ConsumerAlreadyBound."""
        return Messages(self._iterator(options))

    def _iterator(self, options: PushOptionsDict) -> PushMessages[M]:
        chosen = PushOptions(**options)
        self._source.check_bound()
        return PushMessages(self._source, chosen, self._values)

    def consume(
        self, handler: Callable[[M], Any], *, workers: int = 1, **options: Unpack[PushOptionsDict]
    ) -> ConsumeContext:
        """Call `handler(msg)` for every message; with one worker in order. See Consumer.consume.

        `workers`: threads that call the handler. Options: see PushOptions.
        """
        handlers.required(handler, "the handler")
        checks.threads(workers, "workers")
        return ConsumeContext(self._iterator(options), handler, workers)

    def __str__(self) -> str:
        return str(self._source)

    def __repr__(self) -> str:
        return f"<PushConsumer {self.name!r} of {self.stream_name!r}>"

    def __reduce__(self) -> Any:
        return engine_of(self.nc).refuse_pickle(self)


# --- ordered ------------------------------------------------------------------------------------------------------


class OrderedPushSource(OrderedSource):
    """The current consumer on the server; every new consumer delivers to a new subject."""

    def __init__(self, js: JetStream, stream_name: str, state: OrderedState, heartbeat: float) -> None:
        super().__init__(js, stream_name, state)
        self._pushed: dict[str, Any] = {
            "flow_control": True,
            "idle_heartbeat": heartbeat,
            "max_deliver": 1,
            "ack_wait": ACK_WAIT,
        }
        self.next_subject()

    def next_subject(self) -> str:
        subject = self._pushed["deliver_subject"] = self.nc.new_inbox()
        return subject

    @property
    def config(self) -> ConsumerConfig:
        """The common configuration of all its consumers, with the subject of the current one."""
        return ConsumerConfig(**self._pushed)

    def next_config(self) -> ConsumerConfig:
        return super().next_config().replace(**self._pushed)

    def __str__(self) -> str:
        return f"ordered push consumer {self.state.name.decode()!r} of stream {self.stream_name!r}"


class OrderedPushMessages(OrderedMessages[M]):
    """The iterator. Threads may share it: each message goes to one of them, in order."""

    _intake: PushIntake

    def __init__(self, source: OrderedPushSource, options: PushOptions, values: Values[Any] | None = None) -> None:
        intake = PushIntake(source, options)  # subscribe first, then create
        intake.watch_servers()
        self._begin(source, options, intake, lambda: None, values)
        try:
            intake.connected = self.connection.is_connected  # if not, the next link creates it
            if intake.connected:
                source.create()
        except BaseException:
            self.close()
            raise

    def _on_notices(self, told: Sequence[Notice]) -> None:
        if self.source.state.behind(self._intake.last_sent):
            self.source.lost = f"a heartbeat tells of message {self._intake.last_sent} that has not come"
        super()._on_notices(told)


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
