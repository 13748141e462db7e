"""Typed dictionaries for keyword arguments that a call passes on. The call that receives them describes each one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, Final, Literal, TypedDict

from jsclient.durations import Timeout
from jsclient.jetstream.publishing.future import PublishFuture
from jsclient.jetstream.publishing.options import PublishOptions

OPTION_PREFIX: Final = "publish_async_"
"""The prefix of AsyncPublisher's options where a JetStream object takes them."""


class PublishAsyncDict(PublishOptions, total=False):
    """The options of `publish_msg_async`; see `publish_async`.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        msg_id: The message id. With None (default) the header of the message counts, if it has one.

    It also has the fields of `PublishOptions`.
    """

    msg_id: str | None


class PublishDict(PublishOptions, total=False):
    """The options of `publish_msg`; see `publish`.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        msg_id: The message id. With None (default) the header of the message counts, if it has one.
        timeout: Seconds for the whole call (15 by default, or the context's `publish_timeout`).
        retry_attempts: Number of retries while no stream answers. None (default) retries until the timeout is over.
        retry_wait: Seconds between these attempts (0.25 by default).

    It also has the fields of `PublishOptions`.
    """

    msg_id: str | None
    timeout: Timeout
    retry_attempts: int | None
    retry_wait: float | dt.timedelta


class PublishWindowDict(TypedDict, total=False):
    """The options of JetStream about `publish_async`; AsyncPublisher describes each one, without its prefix.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        publish_async_max_pending: Messages that may wait for their acks. The default is 4,000, and over a long line up
            to 32,000.
        publish_async_max_pending_bytes: Bytes that may wait for their acks (64 MiB by default).
        publish_async_ack_timeout: Seconds until a message without an ack resolves as PublishUnknown (30 by default).
        publish_async_stall_wait: Seconds that `publish_async` waits for room in a full window before it raises
            TooManyStalledMessages. None (default) waits as long as necessary.
        publish_async_retry_attempts: Number of retries of a message while no stream answers. None (default) retries
            until the ack timeout of the message is over.
        publish_async_retry_wait: Seconds between these attempts (0.25 by default).
        publish_async_duplicate_window: Seconds for which the stream remembers message ids. With None (default) the
            client asks the stream when it needs to know.
        publish_async_on_ack: The client calls it with the future of every stored message, on the events thread of the
            connection.
        publish_async_on_error: The client calls it on the same thread, with the future and the error of every message
            that was not stored or has an unknown outcome.
    """

    publish_async_max_pending: int
    publish_async_max_pending_bytes: int
    publish_async_ack_timeout: float | dt.timedelta
    publish_async_stall_wait: float | dt.timedelta | None
    publish_async_retry_attempts: int | None
    publish_async_retry_wait: float | dt.timedelta
    publish_async_duplicate_window: float | dt.timedelta | None
    publish_async_on_ack: Callable[[PublishFuture], Any] | None
    publish_async_on_error: Callable[[PublishFuture, BaseException], Any] | None


class JetStreamDict(PublishWindowDict, total=False):
    """The options of `Connection.jetstream`; see JetStream.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        domain: The JetStream domain. None (default) means the domain of the connected server.
        api_prefix: The prefix of an imported API, instead of `domain`.
        timeout: Seconds for an API call that has no timeout argument (5 by default).
        publish_timeout: Seconds for `publish`, batches, and the writes of buckets and stores (15 by default).
        direct_get: True reads stored messages from any replica, False from the leader. None (default) follows the
            setting of each stream.
        on_request: Called with subject and payload of every API request, on the calling thread.
        on_response: Called with subject, payload and headers of every answer, on the calling thread.

    It also has the fields of `PublishWindowDict`.
    """

    domain: str | None
    api_prefix: str | None
    timeout: float | dt.timedelta | None
    publish_timeout: float | dt.timedelta | None
    direct_get: bool | None
    on_request: Callable[[str, bytes], None] | None
    on_response: Callable[[str, bytes, Any], None] | None


class AtomicBatchDict(TypedDict, total=False):
    """The options of `atomic_batch`; see AtomicBatch.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        timeout: Seconds for each call of the batch that has no timeout argument (15 by default).
        ack_every: `add` waits for the server after this number of messages (100 by default). With 0 only the first
            message and the commit wait.
        max_messages: A larger number of messages raises BatchTooLarge. The default of 1,000 is the server's limit
            unless the server is configured otherwise.
    """

    timeout: Timeout
    ack_every: int
    max_messages: int


class FastBatchDict(TypedDict, total=False):
    """The options of `fast_batch`; see FastBatch.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        gap: When messages are lost or refused, "fail" (default) ends the batch, and "ok" continues and collects them.
        flow: Number of messages per answer of the server (100 by default, 1 to 65,535). The server may lower it.
        max_outstanding: Number of these answers that may be missing before `add` waits (2 by default).
        timeout: Seconds for each call of the batch that has no timeout argument (15 by default).
    """

    gap: Literal["fail", "ok"]
    flow: int
    max_outstanding: int
    timeout: Timeout
