"""The publishing methods of JetStream; the other modules of this package do the work."""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jsclient import kinds
from jsclient.codecs import payload_of
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Deadline, Timeout, elapsed, resolve
from jsclient.errors import ConfigError, NotStored
from jsclient.instruments import sending, sending_later
from jsclient.jetstream.api.models import PubAck
from jsclient.jetstream.api.requests import API_TIMEOUT
from jsclient.jetstream.publishing.asynchronous import AsyncPublisher
from jsclient.jetstream.publishing.base import PublishingBase
from jsclient.jetstream.publishing.future import PublishFuture, PubMsg
from jsclient.jetstream.publishing.options import (
    OPTION_PREFIX,
    AtomicBatchDict,
    FastBatchDict,
    HeaderCheck,
    HeadersLike,
    PublishAsyncDict,
    PublishDict,
    PublishOptions,
    V,
)
from jsclient.jetstream.publishing.outcome import (
    ATTEMPT_TIMEOUT,
    FAILURES,
    PUBLISH_TIMEOUT,
    RETRY_WAIT,
    decode_ack,
    has_id,
    may_go_on,
    retry_rules,
)
from jsclient.jetstream.publishing.streams import Streams, check_window
from jsclient.jetstream.publishing.synchronous import PublishAttempts
from jsclient.message import Msg, Payload

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from jsclient.jetstream.publishing.atomic_batch import AtomicBatch
    from jsclient.jetstream.publishing.fast_batch import FastBatch


class Publishing(PublishingBase[V]):
    """Base of JetStream for everything about publishing."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        check = HeaderCheck(self.capabilities.publish_level)
        self.header_check = check
        """For layers."""
        instrument = self.nc.options.instrumentation
        # An instrument sees a publish as one operation, regardless of its attempts.
        request = engine_of(self.nc).request
        self._request = inspect.unwrap(request) if instrument else request
        self.publish_streams: Streams = Streams(check_window(options.get(f"{OPTION_PREFIX}duplicate_window")))
        """For layers."""
        try:
            self.async_publisher: AsyncPublisher = AsyncPublisher(self, check, **_without_prefix(options))
        except TypeError as error:
            raise ConfigError(f"JetStream: {error}") from None
        # One call less for every message saves 0.25 of 4.2 µs; a subclass may still override the method.
        if type(self).publish_async is Publishing.publish_async:
            self.publish_async = self.async_publisher.publish  # type: ignore[method-assign, assignment]
        if instrument is not None:
            self.publish = sending(instrument, "publish", self.publish)  # type: ignore[method-assign]
            self.publish_async = sending_later(instrument, self.publish_async)  # type: ignore[method-assign]

    def publish(
        self,
        subject: str,
        payload: Payload | V = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        timeout: Timeout = DEFAULT,
        retry_attempts: int | None = None,
        retry_wait: float | dt.timedelta = RETRY_WAIT,
        **options: Unpack[PublishOptions],
    ) -> PubAck:
        """Store one message; returns the stream's ack.

        `options` are the fields of `PublishOptions`: expected_stream, expected_last_seq, expected_last_subject_seq,
        expected_last_subject, expected_last_msg_id, ttl, rollup, incr, schedule.

        `timeout` is the total in seconds (15 by default, or the context's `publish_timeout`). If no stream answers,
        the client retries every `retry_wait` seconds until then, or `retry_attempts` times if given. With `msg_id`
        it also sends the message again after an overdue ack or a lost connection.

        Raises ApiError (the stream refused it), NotStored (certainly not stored: NoStreamForSubject,
        NoStreamResponse), PublishUnknown (may be stored), NotSupported, InvalidSubject, PayloadTooLarge, EncodeFailed.
        """
        data: Any = payload if payload.__class__ is bytes else payload_of(self.codec, payload)
        seconds = self.publish_timeout if timeout is DEFAULT else resolve(timeout, PUBLISH_TIMEOUT)
        deadline = Deadline(seconds)
        if retry_attempts is not None or retry_wait is not RETRY_WAIT:
            retry_rules(retry_attempts, retry_wait)  # a wrong value raises before anything is sent
        began = 0.0  # counts only for an id
        if not headers and msg_id is None and not options:
            block = None
        else:
            block = self.header_check.block(headers, msg_id, options, deadline.at_most(API_TIMEOUT))
            began = elapsed()
        nc = self.nc
        if not nc.is_connected and not engine_of(nc).wait_connected(deadline.remaining()):
            raise NotStored(f"the message on {subject!r} was not sent: the connection did not come back in time")
        reply = None
        try:
            wait = deadline if block is None or not has_id(block) else Deadline(deadline.at_most(ATTEMPT_TIMEOUT))
            reply = self._request(subject, data, timeout=wait, headers=block, may_go_on=may_go_on)
            return decode_ack(reply.data)
        except FAILURES as error:
            rules = retry_rules(retry_attempts, retry_wait)
            return PublishAttempts(self, subject, data, block, deadline, rules, began).persist(error, reply)

    def publish_msg(self, msg: PubMsg | Msg, **options: Unpack[PublishDict]) -> PubAck:
        """Publish a message object: its subject, headers and data. You can pass on a received message like this."""
        kinds.check(PubMsg, Msg, msg=msg)
        kinds.check(str, None, reply=msg.reply)
        return self.publish(msg.subject, msg.data, headers=msg.headers, **options)

    def publish_async(
        self,
        subject: str,
        payload: Payload | V = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        **options: Unpack[PublishOptions],
    ) -> PublishFuture:
        """Send a message and return the future of its ack; waits only while the window is full: 4,000 messages, more
        over a long line.

        A message with an id survives a reconnect. The client sends it again as long as the stream remembers the id, and
        asks the stream for its duplicate window. Without an id, a lost link resolves the future as PublishUnknown.
        Raises TooManyStalledMessages, ConnectionClosed, NotSupported, InvalidSubject, PayloadTooLarge.
        """
        data: Any = payload
        return self.async_publisher.publish(subject, data, headers=headers, msg_id=msg_id, **options)

    def publish_msg_async(self, msg: PubMsg | Msg, **options: Unpack[PublishAsyncDict]) -> PublishFuture:
        """`publish_async` for a message object; its reply must be empty (AsyncPublishReplySet)."""
        kinds.check(PubMsg, Msg, msg=msg)
        return self.async_publisher.publish_msg(msg, **options)

    def publish_async_pending(self) -> int:
        """The number of asynchronous publishes that are not resolved yet."""
        return self.async_publisher.pending()

    def publish_async_complete(self, timeout: Timeout = DEFAULT) -> None:
        """Wait until every message published so far is resolved. Errors are raised by `future.result()`, not here.

        By default it waits as long as necessary; the ack timeout bounds it. Raises TimedOut after `timeout` seconds.
        """
        self.async_publisher.complete(timeout)

    def atomic_batch(self, **options: Unpack[AtomicBatchDict]) -> AtomicBatch[V]:
        """A batch that is stored completely or not at all (server 2.12, allow_atomic); see AtomicBatch."""
        from jsclient.jetstream.publishing.atomic_batch import AtomicBatch

        return AtomicBatch(self, **options)

    def fast_batch(self, **options: Unpack[FastBatchDict]) -> FastBatch[V]:
        """Many messages with few acks, each stored as it comes (server 2.14, allow_batched); see FastBatch."""
        from jsclient.jetstream.publishing.fast_batch import FastBatch

        return FastBatch(self, **options)


def _without_prefix(options: Mapping[str, Any]) -> dict[str, Any]:
    wrong = sorted(name for name in options if not name.startswith(OPTION_PREFIX))
    if wrong:
        raise ConfigError(f"JetStream has no option {', '.join(wrong)}")
    return {name[len(OPTION_PREFIX) :]: value for name, value in options.items()}
