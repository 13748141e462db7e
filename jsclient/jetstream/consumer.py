"""The handle of a pull consumer: fetch, next, messages, consume, finite reads."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from jsclient import checks, errors, handlers, kinds
from jsclient.cancel import Cancel
from jsclient.codecs import OnBad
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Deadline, Timeout, check_timeout, plain_or_none, resolve, seconds_of
from jsclient.jetstream.api import consumer_requests, names
from jsclient.jetstream.api.models import ConsumerInfo, PauseState
from jsclient.jetstream.consuming.credit import UNLIMITED_BATCH
from jsclient.jetstream.consuming.fetch import NO_WAIT_TIMEOUT, Batch, Fetch
from jsclient.jetstream.consuming.hooks import ErrorHook
from jsclient.jetstream.consuming.messages import Messages
from jsclient.jetstream.consuming.pull_messages import PullMessages, each
from jsclient.jetstream.consuming.pull_options import (
    FETCH_TIMEOUT,
    FetchBatchesDict,
    FetchBytesDict,
    FetchDict,
    PullOptionsDict,
    PullTerms,
    check_number,
    terms_for,
)
from jsclient.jetstream.consuming.sources import ConsumerSource
from jsclient.jetstream.consuming.typed import Values, fetched, values_of, with_policy, with_values
from jsclient.jetstream.consuming.typed_message import TypedMsg
from jsclient.jetstream.message import JetStreamMsg, M
from jsclient.jetstream.without_payload import refuse_headers_only

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from jsclient.connection import Connection
    from jsclient.jetstream.consuming.consume import ConsumeContext
    from jsclient.jetstream.context import JetStream


T = TypeVar("T")


class Consumer(Generic[M]):
    """A pull consumer. Thread-safe. You get one from `create_consumer`, `consumer` and similar methods.

        consumer = js.consumer("ORDERS", "CONS")
        for msg in consumer.fetch(10, timeout=1):  # up to 10 messages, at most 1 s
            print(msg.subject, msg.data)
            msg.ack()

    `js.consumer(stream, name, fetch_info=False)` makes one without a round trip. It then only needs permission to
    publish to CONSUMER.MSG.NEXT and the ack subjects. `typed(Order)` is the same consumer with values in its messages.

    Attributes:
        nc: The connection.
        js: The JetStream object that it was made with.
        stream_name: The stream that it reads.
        name: Its name.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
        cancel: A Cancel. Its `cancel()`, called from another thread, ends the wait, and the call raises Cancelled.
        on_bad: The action for a message that cannot be decoded. Default "raise": reading its `value` raises
            DecodeFailed. `Consumer.typed` describes the others.

    Further options:
        fetch_bytes: see `FetchBytesDict`.
        next: see `FetchDict`.
        messages, consume: see `PullOptionsDict`.
        batches: see `FetchBatchesDict`.
    """

    _values: Values[Any] | None = None

    def __init__(self, js: JetStream, stream_name: str, name: str, info: ConsumerInfo | None = None) -> None:
        names.check_stream(stream_name)
        names.check_consumer(name)
        if info is not None and info.config.is_push:
            raise errors.NotPullConsumer(f"consumer {name!r} of {stream_name!r} is a push consumer")
        self._source = ConsumerSource(js, stream_name, name, info)
        self.nc: Connection = js.nc
        self.js = js
        self.stream_name = stream_name
        self.name = name

    # --- info ---------------------------------------------------------------------------------------------

    @property
    def cached_info(self) -> ConsumerInfo | None:
        """The last information from the server, without a round trip; None for a handle that never asked."""
        return self._source.info

    def info(self, timeout: Timeout = DEFAULT) -> ConsumerInfo:
        """Request the current state. Do not poll: this is expensive with many consumers. Raises ConsumerNotFound."""
        return self._source.ask(timeout)

    # --- values -------------------------------------------------------------------------------------------

    def typed(self, type: type[T], *, on_bad: OnBad = "raise", dead_letter: str | None = None) -> Consumer[TypedMsg[T]]:
        """The same consumer, of messages with a `value` of a type: `orders = consumer.typed(Order)`. Sends nothing.

        The codec of the JetStream object (JSON by default) decodes values. `on_bad` is the action for a message that
        cannot be decoded. "raise": you get it, and `msg.value` raises DecodeFailed. "skip": the client terminates it,
        and you do not get it. "reject": the client stores it under `dead_letter`, then terminates it, and you do not
        get it.

        "skip" and "reject" report the message to `on_error` of `messages`, `consume` and `fetch_each`; a fetch has it
        in `Batch.skipped`. A WorkerPool treats such a message as one that its handler has rejected.

        Raises ConfigError for a consumer with `headers_only`, and for "reject" if the ack policy is not explicit.
        """
        typed: Consumer[TypedMsg[T]] = with_values(self, values_of(self.js, type, on_bad, dead_letter))
        if self._source.config is not None:
            typed._checked_values()
        return typed

    def _checked_values(self) -> Values[Any] | None:
        """The way in which messages become values, checked against the last known configuration."""
        values, config = self._values, self._source.config
        if values is None:
            return None
        refuse_headers_only(config is not None and config.headers_only, self)
        if values.settles is None and not values.lazy:
            if config is None:
                raise errors.ConfigError(f'on_bad="skip" and "reject" need the ack policy of {self}: call info() first')
            self._values = values = with_policy(values, config.ack_policy)
        return values

    # --- finite pulls ---------------------------------------------------------------------------------------

    def fetch(
        self,
        max_messages: int = 1,
        timeout: Timeout = DEFAULT,
        *,
        no_wait_then: float | dt.timedelta | None = None,
        max_bytes: int = 0,
        heartbeat: Timeout = DEFAULT,
        group: str = "",
        min_pending: int = 0,
        min_ack_pending: int = 0,
        priority: int | None = None,
        cancel: Cancel | None = None,
    ) -> Batch[M]:
        """Wait for `max_messages`, or `timeout` seconds (30 by default), whichever comes first.

        timeout=0 takes only available messages; None waits for all of them. `no_wait_then=5` takes available messages,
        or waits up to 5 s for the first one. A `cancel` token ends the wait earlier (Cancelled). During a leader
        election it waits within its time. You always get received messages. If there are none and something is wrong,
        it raises the reason (ConsumerDeleted, PullNoResponders, NoHeartbeat, BadPullRequest ...). Each call is a round
        trip: over a long line use `messages`, which requests ahead.

        `max_bytes` bounds the batch in bytes, too (0: no limit). Many or large messages come in several pulls of 16
        MiB, because a server ends a connection for which 64 MiB wait. `heartbeat` is the interval of the server's
        heartbeats: by default 5 s for a timeout of 10 s or more, otherwise none. `group`, `min_pending`,
        `min_ack_pending` (server 2.11) and `priority` (2.12) are for priority groups: see PullOptions.
        """
        check_number(max_messages)
        if max_bytes.__class__ is not int or max_bytes >= 2**64 or no_wait_then is not None or cancel is not None:
            kinds.check(int, max_bytes=max_bytes)
            kinds.check(float, dt.timedelta, None, no_wait_then=no_wait_then)
            kinds.check(Cancel, None, cancel=cancel)
        if max_bytes < 0:
            raise errors.ConfigError(f"max_bytes must not be negative (0: no limit), got {max_bytes}")
        if no_wait_then is not None:
            if timeout is not DEFAULT:
                raise errors.ConfigError("timeout and no_wait_then exclude each other")
            check_timeout(plain_or_none(no_wait_then), "no_wait_then")
            timeout = no_wait_then
        seconds = resolve(timeout, FETCH_TIMEOUT)
        if seconds == 0:
            heartbeat = 0.0
        terms = terms_for(
            seconds,
            heartbeat,
            group=group,
            min_pending=min_pending,
            min_ack_pending=min_ack_pending,
            priority=priority,
            no_wait=seconds == 0 or no_wait_then is not None,
        )
        return self._run(max_messages, terms, seconds, max_bytes=max_bytes, cancel=cancel)

    def _run(self, want: int, terms: PullTerms, timeout: float | None, **options: Any) -> Batch[M]:
        values = self._checked_values()
        make = JetStreamMsg if values is None else values.maker()
        deadline = Deadline(options.get("answer_within", timeout))
        batch = Fetch(self._source, want, self._limited(terms), make, timeout=timeout, **options).run()
        return fetched(batch, deadline, values, self.js.nc.options.instrumentation)

    def fetch_no_wait(self, max_messages: int, timeout: Timeout = DEFAULT) -> Batch[M]:
        """The available messages, up to `max_messages`; an empty batch if there are none.

        `timeout`: seconds for the server's answer (5, but 1 if the server is silent). Then it raises ReadStalled.
        """
        within = resolve(timeout, NO_WAIT_TIMEOUT)
        if within is None or within >= NO_WAIT_TIMEOUT:
            return self.fetch(max_messages, 0)
        check_number(max_messages)
        return self._run(max_messages, terms_for(0, 0.0, no_wait=True), 0, answer_within=within)

    def fetch_bytes(
        self,
        max_bytes: int,
        timeout: Timeout = DEFAULT,
        *,
        max_messages: int | None = None,
        **options: Unpack[FetchBytesDict],
    ) -> Batch[M]:
        """As `fetch`, limited by the size of subjects, replies, headers and payloads, and by `max_messages` if given.

        Raises MaxBytesExceeded if the next message alone is larger than `max_bytes`.
        """
        checks.positive(max_bytes, "max_bytes")
        limit, config = UNLIMITED_BATCH, self._source.config
        if config is not None and config.max_batch:
            limit = min(limit, max(config.max_batch, 1))
        limit = limit if max_messages is None else max_messages
        return self.fetch(limit, timeout, max_bytes=max_bytes, **options)

    def next(self, timeout: Timeout = DEFAULT, **options: Unpack[FetchDict]) -> M:
        """One message. Waits at most `timeout` seconds (30 by default); with 0 it takes only an available message.

        Raises NoMessages if none came in time, which is not a failure. It takes the options of `fetch`.
        """
        deadline = None
        while True:
            batch = self.fetch(1, timeout, **options)
            if batch:
                return batch[0]
            if not batch.skipped:
                raise errors.NoMessages(f"no message of {self} in time")
            # There was a message that could not be decoded: take the next one, in the time that is left.
            deadline = deadline or self._deadline_of(timeout, options)
            timeout = 0 if deadline.expired() else deadline.remaining()
            options.pop("no_wait_then", None)

    @staticmethod
    def _deadline_of(timeout: Timeout, options: FetchDict) -> Deadline:
        within = options.get("no_wait_then")
        return Deadline(resolve(timeout if within is None else within, FETCH_TIMEOUT))

    def _limited(self, terms: PullTerms) -> PullTerms:
        """A pull may live at most max_expires of the consumer; a longer fetch then pulls again."""
        config = self._source.config
        most = None if config is None else config.max_expires
        if not most or terms.expires <= (limit := seconds_of(most)):
            return terms
        return terms.within(limit)

    # --- continuous pulls -------------------------------------------------------------------------------------

    def messages(self, **options: Unpack[PullOptionsDict]) -> Messages[M]:
        """An endless, pre-buffered iterator; several threads may share it. Options: see PullOptions."""
        return Messages(self._iterator(options))

    def _iterator(self, options: PullOptionsDict) -> PullMessages[M]:
        return PullMessages(self._source, self._source.pull_options(options), self._checked_values())

    def __iter__(self) -> Iterator[M]:
        """`for msg in consumer` is `messages()` with its defaults; leaving the loop returns unread messages."""
        with self.messages() as messages:
            yield from messages

    def fetch_each(
        self, max_messages: int, timeout: Timeout = DEFAULT, *, on_error: ErrorHook | None = None
    ) -> Iterator[M]:
        """`fetch` as a stream: each message as it arrives, until there were `max_messages` or the time is over.

        The `timeout` in seconds (30 by default) begins with the first step of the iteration; None waits for
        `max_messages`. If you leave the loop early, unread messages are returned to the server. It raises the same
        errors as `messages`. A message that is left out (`on_bad`) counts as one of `max_messages`, and is reported to
        `on_error`.
        """
        check_number(max_messages)
        handlers.check(on_error, "on_error")
        deadline = Deadline(resolve(timeout, FETCH_TIMEOUT))
        return each(self._iterator({"stop_after": max_messages, "on_error": on_error}), max_messages, deadline)

    def batches(
        self, max_messages: int, timeout: Timeout = DEFAULT, **options: Unpack[FetchBatchesDict]
    ) -> Generator[Batch[M], None, None]:
        """An endless series of fetches. Each waits at most `timeout` seconds; a batch may be empty. See `fetch`.

        The server sends a batch when you ask for it, and `ack_wait` begins then. Each batch costs a round trip. Over a
        long line `messages` is quicker, because it requests the next messages while you work.
        """
        check_number(max_messages)
        resolve(timeout, FETCH_TIMEOUT)

        def batches() -> Generator[Batch[M], None, None]:
            while True:
                yield self.fetch(max_messages, timeout, **options)

        return batches()

    def consume(
        self, handler: Callable[[M], Any], *, workers: int = 1, **options: Unpack[PullOptionsDict]
    ) -> ConsumeContext:
        """Call `handler(msg)` for every message, in `workers` threads (1: in order, one at a time).

        The handler must ack. Exceptions of the handler go to `on_error` (or the log), and the worker continues. It
        takes the options of `messages`.
        """
        from jsclient.jetstream.consuming.consume import ConsumeContext

        handlers.required(handler, "the handler")
        checks.threads(workers, "workers")
        return ConsumeContext(self._iterator(options), handler, workers)

    # --- the consumer itself ----------------------------------------------------------------------------------

    def delete(self, *, timeout: Timeout = DEFAULT) -> None:
        """Delete the consumer; readers that wait on it get ConsumerDeleted. Raises ConsumerNotFound."""
        consumer_requests.delete(self.js, self.stream_name, self.name, timeout=timeout)

    def pause(self, until: dt.datetime | float | dt.timedelta, *, timeout: Timeout = DEFAULT) -> PauseState:
        """Stop delivery until a point in time or for a number of seconds (server 2.11); pulls wait meanwhile."""
        return consumer_requests.pause(self.js, self.stream_name, self.name, until, timeout=timeout)

    def resume(self, *, timeout: Timeout = DEFAULT) -> PauseState:
        """End a pause, if there is one (server 2.11)."""
        return consumer_requests.resume(self.js, self.stream_name, self.name, timeout=timeout)

    def reset(self, seq: int | None = None, *, timeout: Timeout = DEFAULT) -> ConsumerInfo:
        """Deliver again from `seq`, or from the message after the ack floor (server 2.14)."""
        return consumer_requests.reset(self.js, self.stream_name, self.name, seq, timeout=timeout)

    def unpin(self, group: str, *, timeout: Timeout = DEFAULT) -> None:
        """Let another client of the priority group take over (server 2.11)."""
        consumer_requests.unpin(self.js, self.stream_name, self.name, group, timeout=timeout)

    def step_down(self, *, to: str | None = None, timeout: Timeout = DEFAULT) -> ConsumerInfo:
        """Make the server that leads the consumer stop leading; see Stream.step_down (`to`: server 2.11)."""
        return consumer_requests.step_down(self.js, self.stream_name, self.name, to, timeout=timeout)

    def __str__(self) -> str:
        return str(self._source)

    def __repr__(self) -> str:
        return f"<Consumer {self.name!r} of {self.stream_name!r}>"

    def __reduce__(self) -> Any:
        return engine_of(self.nc).refuse_pickle(self)
