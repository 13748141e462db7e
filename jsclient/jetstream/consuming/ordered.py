"""Ordered consumers: every message once and in order, without acks, whatever happens to the consumer; and finite reads.

The consumer on the server is disposable: in memory, one replica, acks off. Each message must have the next consumer
sequence. If it has another one, heartbeats stop, the consumer is gone or the link was lost, the client makes a new
consumer. It begins right after the last message delivered (ADR-17).
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from jsclient import checks, errors, handlers, kinds, waiting
from jsclient.cancel import Cancel, check_cancel
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Deadline, Timeout, resolve
from jsclient.jetstream.api import names
from jsclient.jetstream.api.models import ConsumerInfo, StreamInfo
from jsclient.jetstream.consuming.consume import ConsumeContext
from jsclient.jetstream.consuming.fetch import NO_WAIT_TIMEOUT, Batch, BatchEnd
from jsclient.jetstream.consuming.listing import Reading
from jsclient.jetstream.consuming.messages import Messages
from jsclient.jetstream.consuming.ordered_messages import CREATE_TIMEOUT, OrderedMessages, OrderedSource, take_turn
from jsclient.jetstream.consuming.ordered_sequence import (
    LAST_PER_SUBJECT,
    OrderedOptions,
    OrderedOptionsDict,
    OrderedState,
)
from jsclient.jetstream.consuming.pull_inboxes import FLUSH_TIMEOUT
from jsclient.jetstream.consuming.pull_options import (
    FETCH_TIMEOUT,
    MOST_MESSAGES,
    MOST_UNMEASURED,
    PullOptions,
    PullOptionsDict,
)
from jsclient.jetstream.consuming.typed import OnBadOrdered, Values, ordered_values, tell, with_values
from jsclient.jetstream.consuming.typed_message import TypedMsg
from jsclient.jetstream.message import JetStreamMsg, M, timestamp_ns
from jsclient.jetstream.without_payload import refuse_headers_only

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from jsclient.jetstream.context import JetStream


FIRST_MESSAGES: Final = 5_000
"""Messages buffered and requested together at first. No other client can want them, so more than for work queues:
replaying 1M cost 2.4 µs of CPU each, where 500 cost 3.3. About 3 MB of small messages; max_bytes holds as well.
"""

AGAIN: Final = 0.1
"""Seconds before the client re-creates a consumer that vanished as soon as it was created."""

T = TypeVar("T")
R = TypeVar("R", bound="OrderedRead[Any]")


class OrderedConsumer(Generic[M]):
    """Reads a stream in order, each message once, without acks. You get one from `stream.ordered_consumer(...)`.

    It takes the options of OrderedOptions: filter_subjects, deliver_policy, opt_start_seq, opt_start_time,
    replay_policy, headers_only, inactive_threshold, max_reset_attempts, metadata, name_prefix. It has one cursor and
    serves one fetch, iteration or consume at a time (OrderedConsumerConcurrentRequests). Each continues where the last
    one ended. `close()` (or leaving `with`) removes its consumer from the server.

    Attributes:
        js: The JetStream object that it was made with.
        stream_name: The stream that it reads.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
        cancel: A Cancel. Its `cancel()`, called from another thread, ends the wait, and the call raises Cancelled.
        on_bad: The action for a message that cannot be decoded. Default "raise": reading its `value` raises
            DecodeFailed. `Consumer.typed` describes the others.

    Further options:
        OrderedConsumer: see `OrderedOptionsDict`.
        messages, open_messages, consume, read_until: see `PullOptionsDict`.
    """

    def __init__(self, js: JetStream, stream_name: str, **options: Unpack[OrderedOptionsDict]) -> None:
        self.js = js
        self.stream_name: str = names.check_stream(stream_name)
        self.state: OrderedState = OrderedState(OrderedOptions(**options))
        """For layers."""
        self.state.options.filters()
        self._source = OrderedSource(js, stream_name, self.state)
        self._free = deque([True])  # empty during a read; not a lock, because the read may end on another thread
        self._kept: list[OrderedMessages] = []  # at most one, which the last fetch leaves for the next
        self._values: Values[Any] | None = None

    def typed(self, type: type[T], *, on_bad: OnBadOrdered = "raise") -> OrderedConsumer[TypedMsg[T]]:
        """The same consumer with the same cursor, of messages with a `value` of a type. See Consumer.typed.

        A message that cannot be decoded raises DecodeFailed when its value is read. `on_bad="skip"` leaves it out; it
        is reported to `on_error`, or in `Batch.skipped`.
        """
        refuse_headers_only(self.state.options.headers_only, "an ordered consumer")
        return with_values(self, ordered_values(self.js, type, on_bad))  # type: ignore[no-any-return]

    # --- reading ------------------------------------------------------------------------------------------

    def messages(self, **options: Unpack[PullOptionsDict]) -> Messages[M]:
        """An endless, pre-buffered iterator; options as for Consumer.messages, with 5,000 messages to begin with."""
        return Messages(self.open_messages(Deadline(CREATE_TIMEOUT), self._values, **options))

    def open_messages(
        self,
        deadline: Deadline,
        values: Values[Any] | None = None,
        window: tuple[int, int] = (FIRST_MESSAGES, MOST_MESSAGES),
        **options: Unpack[PullOptionsDict],
    ) -> OrderedMessages[M]:
        """For layers: the iterator below `messages`, with a consumer created within the deadline.

        `window`: messages at the start, and at most.
        """
        self._occupy()
        try:
            self._drop_fetching()
            timeout = deadline.at_most(CREATE_TIMEOUT)
            chosen = _options(options, self.state, window)
            return OrderedMessages(self._source, chosen, self._release, timeout, values)
        except BaseException:
            self._release()
            raise

    def consume(self, handler: Callable[[M], Any], **options: Unpack[PullOptionsDict]) -> ConsumeContext:
        """Call `handler(msg)` for every message, in order, in one worker thread."""
        handlers.required(handler, "the handler")
        return ConsumeContext(self.open_messages(Deadline(CREATE_TIMEOUT), self._values, **options), handler, 1)

    def fetch(self, max_messages: int = 1, timeout: Timeout = DEFAULT, *, cancel: Cancel | None = None) -> Batch[M]:
        """Wait for `max_messages` or `timeout` seconds (30 by default; 0 takes only available messages)."""
        batch = self._fetch(max_messages, timeout, cancel)
        return cast("Batch[M]", batch if self._values is None else self._values.batch(batch))

    def _fetch(self, max_messages: int, timeout: Timeout, cancel: Cancel | None) -> Batch:
        seconds = resolve(timeout, FETCH_TIMEOUT)
        checks.positive(max_messages, "max_messages")
        deadline = Deadline(NO_WAIT_TIMEOUT if seconds == 0 else seconds)
        if cancel is not None:
            check_cancel(cancel)
            cancel.check()
        with self._fetch_stream(deadline) as stream:
            stream.cancel = cancel  # also None: the token of an earlier fetch has no meaning any more
            want = max_messages if seconds else min(max_messages, _available_now(stream, deadline))
            with nullcontext() if cancel is None else cancel.ends(partial(stream._mailbox.put, cancel)):
                batch = _gather(stream, want, deadline)
            if batch.ended is BatchEnd.COMPLETE and want < max_messages:
                batch.ended = BatchEnd.NO_MESSAGES
            return batch

    def fetch_no_wait(self, max_messages: int) -> Batch[M]:
        """The available messages, up to `max_messages`."""
        return self.fetch(max_messages, 0)

    def next(self, timeout: Timeout = DEFAULT, *, cancel: Cancel | None = None) -> M:
        """One message; raises NoMessages if none came in `timeout` seconds (30 by default)."""
        deadline = Deadline(resolve(timeout, FETCH_TIMEOUT))
        while True:
            batch = self.fetch(1, timeout, cancel=cancel)
            if batch:
                return batch[0]
            if not batch.skipped:
                raise errors.NoMessages(f"no message of {self._source} in time")
            # Take the message behind it, in the time that is left.
            timeout = 0 if deadline.expired() else deadline.remaining()

    def read_until(
        self,
        end_seq: int | None = None,
        *,
        time: dt.datetime | None = None,
        drained: bool = False,
        timeout: Timeout = DEFAULT,
        **options: Unpack[PullOptionsDict],
    ) -> OrderedRead[M]:
        """Iterate over stored messages and end exactly: see OrderedRead.

        Pass one of three ends. `end_seq` is the last stream sequence to read. `time` reads messages stored up to then.
        `drained=True` reads up to the stream's last message at the start. `timeout`: seconds for the next message (30).
        """
        return OrderedRead(self, end_seq, time=time, drained=drained, timeout=timeout, values=self._values, **options)

    def _occupy(self) -> None:
        try:
            self._free.pop()
        except IndexError:
            raise errors.OrderedConsumerConcurrentRequests("this ordered consumer is in use") from None

    def _release(self) -> None:
        self._free.append(True)

    @contextmanager
    def _fetch_stream(self, deadline: Deadline) -> Iterator[OrderedMessages]:
        self._occupy()
        try:
            if not self._kept or self._kept[0].closed:
                timeout = deadline.at_most(CREATE_TIMEOUT)
                self._kept[:] = [OrderedMessages(self._source, _options({}, self.state), lambda: None, timeout)]
            yield self._kept[0]
        finally:
            self._release()

    def _drop_fetching(self) -> None:
        while self._kept:
            self._kept.pop().close()

    # --- info and end -----------------------------------------------------------------------------------------

    @property
    def cached_info(self) -> ConsumerInfo | None:
        """The server's information from the creation of the present consumer; None before the first read."""
        return self._source.info

    def info(self, timeout: Timeout = DEFAULT) -> ConsumerInfo:
        """Request information about the current consumer; raises OrderedConsumerNotCreated before the first read."""
        if self._source.info is None:
            raise errors.OrderedConsumerNotCreated("nothing was read yet, and the consumer is made at first use")
        return self._source.ask(timeout)

    def close(self) -> None:
        """Remove the consumer kept between fetches. Iterators are closed by their own `with`. Idempotent."""
        self._drop_fetching()

    def __enter__(self) -> OrderedConsumer[M]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<OrderedConsumer of {self.stream_name!r} after sequence {self.state.last_seq}>"

    def __reduce__(self) -> Any:
        return engine_of(self.js.nc).refuse_pickle(self)


def _options(
    given: PullOptionsDict, state: OrderedState, window: tuple[int, int] = (FIRST_MESSAGES, MOST_MESSAGES)
) -> PullOptions:
    if state.options.deliver_policy == LAST_PER_SUBJECT:
        # Servers (2.9 to 2.15) forget a message of such a consumer when a pull has no bytes left for it.
        given.setdefault("max_bytes", 0)
        return PullOptions(**given, most_messages=MOST_MESSAGES if state.options.headers_only else MOST_UNMEASURED)
    return PullOptions(**given, first_messages=window[0], most_messages=window[1])


def _available_now(stream: OrderedMessages, deadline: Deadline) -> int:
    """Number of matching messages that the application has still to receive, by one CONSUMER.INFO.

    It needs an existing consumer, and deals first with everything that happened since the last call.
    """
    source = stream.source
    while True:
        if not stream.catch_up(deadline):
            raise errors.ReadStalled(
                f"{source} could not be made again in time. What was taken is good. The next call goes on with it."
            )
        try:
            info = source.ask(deadline.remaining())
        except errors.ConsumerNotFound:
            if deadline.expired():
                raise
            waiting.Gate().wait(deadline.at_most(AGAIN))  # it may vanish as soon as it is created
            continue
        sent = max(info.delivered.consumer_seq - (source.state.expected - 1), 0)
        return info.num_pending + sent + stream.available


def _gather(stream: OrderedMessages, want: int, deadline: Deadline) -> Batch:
    got: list[JetStreamMsg] = []
    try:
        while len(got) < want:
            message = stream._get(deadline.remaining())
            if message is None:
                return Batch(got, BatchEnd.TIMEOUT)
            got.append(message)
    except errors.JsClientError as error:
        if not got:
            raise
        return Batch(got, BatchEnd.ERROR, error)
    return Batch(got, BatchEnd.COMPLETE)


# --- finite reads -------------------------------------------------------------------------------------------------
# The end is fixed before the first message, so the last messages may be deleted or filtered out. The server's "no
# messages" counts, but only if every message that the server has sent has arrived (see `Reading.caught_up`).


class OrderedRead(Generic[M]):
    """Iterates over the messages of an ordered consumer and ends exactly at the end: each once, in order, without acks.

    `end_seq` is the last stream sequence to read. If the stream is shorter, the read waits for it. `time` reads
    messages stored up to then. `drained=True` reads up to the last message of the stream at the start. The read waits
    at most `timeout` seconds (30 by default) for the next message, then raises ReadStalled. Threads may share it.
    """

    def __init__(
        self,
        consumer: OrderedConsumer,
        end_seq: int | None = None,
        *,
        time: dt.datetime | None = None,
        drained: bool = False,
        timeout: Timeout = DEFAULT,
        values: Values[Any] | None = None,
        **options: Unpack[PullOptionsDict],
    ) -> None:
        kinds.check(int, None, end_seq=end_seq)
        kinds.check(dt.datetime, None, time=time)
        kinds.check(bool, drained=drained)
        if (end_seq is not None) + (time is not None) + drained != 1:
            raise errors.ConfigError("read_until needs exactly one of end_seq, time and drained=True")
        if end_seq is not None and end_seq < 0:
            raise errors.ConfigError(f"end_seq must not be negative, got {end_seq}")
        self._values, self._on_error = values, options.get("on_error")
        self._timeout = resolve(timeout, FETCH_TIMEOUT)
        deadline = Deadline(Deadline(self._timeout).at_most(consumer.js.api.timeout or FETCH_TIMEOUT))
        self._js, self._stream_name = consumer.js, consumer.stream_name
        self._one_copy = True
        self._end_ns = None if time is None else timestamp_ns(time)
        self._end_seq = self._last_seq(deadline) if drained else end_seq
        self._turn = waiting.new_turn()
        self._pending: int | None = None  # the number of messages still to come, from the last message
        self._reading: Reading | None = None
        if self._end_seq != 0:
            messages = consumer.open_messages(deadline, **options)
            self._reading = Reading(messages, self._end_seq, self._one_copy)

    def __iter__(self: R) -> R:
        return self

    def __next__(self) -> M:
        values = self._values
        if values is None:
            return self._read()  # type: ignore[return-value]
        while True:
            message = values.of(self._read())
            if values.takes(message, partial(tell, self._on_error, "a finite read")):
                return message  # type: ignore[return-value]

    def _read(self) -> JetStreamMsg:
        waiting.check_turn(self._turn, "a finite read was used")
        with self._turn:
            try:
                message = self._next()
            except errors.IteratorClosed:
                message = None  # closed by another thread
            if message is None:
                self._close()
                raise StopIteration
            if self._end_seq is not None and message.stream_seq >= self._end_seq:
                self._close()
            return message

    def _next(self) -> JetStreamMsg | None:
        deadline = Deadline(self._timeout)
        while self._reading is not None:
            # A message with nothing behind it may be the end: look immediately, without a pause.
            wait = 0.0 if self._pending == 0 else deadline.at_most(self._reading.patience)
            message = self._reading.take(wait)
            if message is not None:
                self._pending = message.metadata.num_pending
                return None if self._is_beyond(message) else message
            if self._ended(self._reading, deadline):
                return None
            self._pending = None
            if deadline.expired():
                source = self._reading.source
                raise errors.ReadStalled(f"no message of {source} in time, and the end is not reached")
        return None

    def _is_beyond(self, message: JetStreamMsg) -> bool:
        if self._end_seq is not None:
            return message.stream_seq > self._end_seq
        return message.metadata.timestamp_ns > (self._end_ns or 0)

    def _last_seq(self, timeout: Timeout) -> int:
        """The stream's last sequence now."""
        info = self._js.api.request(f"STREAM.INFO.{self._stream_name}", None, StreamInfo, timeout=timeout, read=True)
        self._one_copy = (info.config.num_replicas or 1) == 1
        return info.state.last_seq

    def _passed(self, timeout: Timeout) -> int | None:
        """The sequence that the reading must have reached, or None while the stream has not passed the end."""
        if self._end_ns is not None:
            now = timestamp_ns(dt.datetime.now(dt.timezone.utc))
            return self._last_seq(timeout) if now > self._end_ns else None
        end = self._end_seq or 0
        return end if end <= self._last_seq(timeout) else None

    def _ended(self, reading: Reading, deadline: Deadline) -> bool:
        # First the end of the stream, then the messages still to come: the other order would miss messages.
        try:
            end = self._passed(deadline)
        except errors.JsClientError:
            end = None
        info = reading.look(deadline)
        if end is None or info is None:
            return False
        reading.end, reading.one_copy = end, self._one_copy
        return reading.caught_up(max(reading.source.state.last_seq, info.delivered.stream_seq), deadline)

    def _close(self) -> None:
        if self._reading is not None:
            self._reading.messages.close()
            self._reading = None

    def close(self) -> None:
        """End the read, even while another thread waits for the next message; idempotent."""
        waiting.check_turn(self._turn, "a finite read was used")
        reading = self._reading
        if reading is not None:
            reading.messages.stop()
        if take_turn(self._turn, FLUSH_TIMEOUT):
            try:
                self._close()
            finally:
                self._turn.release()
        elif reading is not None:
            reading.messages.close()  # the thread that waits for the server's answer then finds it closed

    def __enter__(self: R) -> R:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
