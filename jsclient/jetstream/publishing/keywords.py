"""Keyword arguments that are handed on, for type checkers; each is described where it arrives."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, Final, Literal, TypedDict

from jsclient import hints
from jsclient.durations import Timeout
from jsclient.jetstream.publishing.future import PublishFuture
from jsclient.jetstream.publishing.options import PublishOptions

OPTION_PREFIX: Final = "publish_async_"
"""What the options of AsyncPublisher begin with where a JetStream object takes them."""


class PublishAsyncDict(PublishOptions, total=False):
    """Those of `publish_msg_async`; see `publish_async`.

    What is of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        msg_id: The message id; default None: the header of the message, if it has one.

    It also has the fields of `PublishOptions`.
    """

    msg_id: str | None


class PublishDict(PublishOptions, total=False):
    """Those of `publish_msg`; see `publish`.

    What is of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        msg_id: The message id; default None: the header of the message, if it has one.
        timeout: Seconds for the whole call (15 by default, or the context's `publish_timeout`).
        retry_attempts: How often it is tried again while nobody listens; default None: until the timeout is over.
        retry_wait: Seconds between these attempts (0.25 by default).

    It also has the fields of `PublishOptions`.
    """

    msg_id: str | None
    timeout: Timeout
    retry_attempts: int | None
    retry_wait: float | dt.timedelta


class PublishWindowDict(TypedDict, total=False):
    """Those of JetStream about `publish_async`; each is described at AsyncPublisher, without its prefix.

    What is of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        publish_async_max_pending: Messages that may wait for their acks; default: 4,000, and over a long line up to
            32,000.
        publish_async_max_pending_bytes: Bytes that may wait for their acks (64 MiB by default).
        publish_async_ack_timeout: Seconds until a message without an ack resolves as PublishUnknown (30 by default).
        publish_async_stall_wait: Seconds that `publish_async` waits for room in a full window, then
            TooManyStalledMessages; default None: as long as it takes.
        publish_async_retry_attempts: How often a message is sent again while nobody listens; default None: until its
            ack timeout is over.
        publish_async_retry_wait: Seconds between these attempts (0.25 by default).
        publish_async_duplicate_window: Seconds for which the stream remembers message ids; default None: it is asked
            when that is needed.
        publish_async_on_ack: Called with the future of every message that was stored, on the events thread of the
            connection.
        publish_async_on_error: Called with the future and the error of every message that was not, or may not have
            been, on the same thread.
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
    """Those of `Connection.jetstream`; see JetStream.

    What is of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        domain: The JetStream domain; default None: that of the connected server.
        api_prefix: Instead of `domain`: the prefix of an imported API.
        timeout: Seconds of an API call that is given none of its own (5 by default).
        publish_timeout: Seconds for `publish`, batches, and what buckets and stores write (15 by default).
        direct_get: True reads stored messages from any replica, False from the leader; default None: as each stream
            allows.
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
    """Those of `atomic_batch`; see AtomicBatch.

    What is of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        timeout: Seconds of each call of the batch that is given none of its own (15 by default).
        ack_every: After so many messages `add` waits for the server (100 by default); 0: at the first one and the
            commit only.
        max_messages: More raise BatchTooLarge (1,000 by default, which is the server's limit unless it is configured
            otherwise).
    """

    timeout: Timeout
    ack_every: int
    max_messages: int


class FastBatchDict(TypedDict, total=False):
    """Those of `fast_batch`; see FastBatch.

    What is of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        gap: When messages are lost or refused: "fail" (default) ends the batch, "ok" goes on and collects them.
        flow: The server answers every so many messages (100 by default, 1 to 65,535); it may say less.
        max_outstanding: So many of these answers may be missing before `add` waits (2 by default).
        timeout: Seconds of each call of the batch that is given none of its own (15 by default).
    """

    gap: Literal["fail", "ok"]
    flow: int
    max_outstanding: int
    timeout: Timeout


hints.given(JetStreamDict)
