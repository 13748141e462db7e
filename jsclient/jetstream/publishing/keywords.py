"""Keyword arguments that are handed on, for type checkers; each is described where it arrives."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, Literal, TypedDict

from jsclient import hints
from jsclient.durations import Timeout
from jsclient.jetstream.publishing.future import PublishFuture
from jsclient.jetstream.publishing.options import PublishOptions


class PublishAsyncDict(PublishOptions, total=False):
    """Those of `publish_msg_async`; see `publish_async`."""

    msg_id: str | None


class PublishDict(PublishOptions, total=False):
    """Those of `publish_msg`; see `publish`."""

    msg_id: str | None
    timeout: Timeout
    retry_attempts: int | None
    retry_wait: float | dt.timedelta


class PublishWindowDict(TypedDict, total=False):
    """Those of JetStream about `publish_async`; each is described at AsyncPublisher, without its prefix."""

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
    """Those of `Connection.jetstream`; see JetStream."""

    domain: str | None
    api_prefix: str | None
    timeout: float | dt.timedelta | None
    publish_timeout: float | dt.timedelta | None
    api_calls_at_once: int | None
    direct_get: bool | None
    on_request: Callable[[str, bytes], None] | None
    on_response: Callable[[str, bytes, Any], None] | None


class AtomicBatchDict(TypedDict, total=False):
    """Those of `atomic_batch`; see AtomicBatch."""

    timeout: Timeout
    ack_every: int
    max_messages: int


class FastBatchDict(TypedDict, total=False):
    """Those of `fast_batch`; see FastBatch."""

    gap: Literal["fail", "ok"]
    flow: int
    max_outstanding: int
    timeout: Timeout


hints.given(JetStreamDict)
