"""Ordered consumers: every message once and in order, without acks, whatever happens to the consumer.

The consumer on the server is disposable: in memory, one replica, acks off. Each message must have the next consumer
sequence. If it has another one, heartbeats stop, the consumer is gone or the link was lost, the client makes a new
consumer. It begins right after the last message delivered (ADR-17).
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from jsclient import checks, errors, handlers, waiting
from jsclient.cancel import Cancel, check_cancel
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Deadline, Timeout, resolve
from jsclient.jetstream.api import names
from jsclient.jetstream.api.models import ConsumerInfo
from jsclient.jetstream.consuming.consume import ConsumeContext
from jsclient.jetstream.consuming.fetch import NO_WAIT_TIMEOUT, Batch, BatchEnd
from jsclient.jetstream.consuming.messages import Messages
from jsclient.jetstream.consuming.ordered_messages import (
    CREATE_TIMEOUT,
    OrderedMessages,
    OrderedSource,
)
from jsclient.jetstream.consuming.ordered_sequence import (
    LAST_PER_SUBJECT,
    OrderedOptions,
    OrderedOptionsDict,
    OrderedState,
)
from jsclient.jetstream.consuming.pull_options import (
    FETCH_TIMEOUT,
    MOST_MESSAGES,
    MOST_UNMEASURED,
    PullOptions,
    PullOptionsDict,
)
from jsclient.jetstream.consuming.typed import OnBadOrdered, Values, ordered_values, with_values
from jsclient.jetstream.consuming.typed_message import TypedMsg
from jsclient.jetstream.message import JetStreamMsg, M
from jsclient.jetstream.without_payload import refuse_headers_only

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from jsclient.jetstream.consuming.finite import OrderedRead
    from jsclient.jetstream.context import JetStream


FIRST_MESSAGES: Final = 5_000
"""Messages buffered and requested together at first. No other client can want them, so more than for work queues:
replaying 1M cost 2.4 µs of CPU each, where 500 cost 3.3. About 3 MB of small messages; max_bytes holds as well.
"""

AGAIN: Final = 0.1
"""Seconds before the client re-creates a consumer that vanished as soon as it was created."""

T = TypeVar("T")


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
            if cancel is None:
                batch = _gather(stream, want, deadline)
            else:
                with cancel.ends(partial(stream._mailbox.put, cancel)):
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
        from jsclient.jetstream.consuming.finite import OrderedRead

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


def available(stream: OrderedMessages, deadline: Deadline | None = None) -> int:
    """Number of matching messages that the application has still to receive, by one CONSUMER.INFO."""
    source = stream.source
    info = source.ask(DEFAULT if deadline is None else deadline.remaining())
    sent = max(info.delivered.consumer_seq - (source.state.expected - 1), 0)
    return info.num_pending + sent + stream.available


def _available_now(stream: OrderedMessages, deadline: Deadline) -> int:
    """The same from an existing consumer, after dealing with everything that happened since the last call."""
    while True:
        if not stream.catch_up(deadline):
            raise errors.ReadStalled(
                f"{stream.source} could not be made again in time. What was taken is good. The next call goes "
                "on with it."
            )
        try:
            return available(stream, deadline)
        except errors.ConsumerNotFound:
            if deadline.expired():
                raise
            waiting.Gate().wait(deadline.at_most(AGAIN))  # it may vanish as soon as it is created


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
