"""Acks of messages whose delivery the server has forgotten.

A server that crashes may come back with the state of a consumer from some seconds before (2.15 writes it with a delay).
It redelivers the messages that it has forgotten, and does not answer acks of the earlier copies. So a caller without a
confirmation asks once how far the consumer has delivered, and stops waiting for any copy beyond that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Deadline, Timeout, resolve
from jsclient.jetstream.api import model_base
from jsclient.jetstream.api.models import ConsumerInfo
from jsclient.jetstream.api.requests import check_error
from jsclient.jetstream.consuming.pull_inboxes import pool_if_any, pool_of
from jsclient.protocol.frames import pub_start

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.jetstream.message import JetStreamMsg

ASK_AFTER: Final = 0.5
"""Seconds without a confirmation, which takes milliseconds, after which to ask."""

ASK_TIMEOUT: Final = 1.0


def confirmed_ack(message: JetStreamMsg, ack: bytes, timeout: Timeout) -> None:
    """Send `ack` and wait for the confirmation. Raises StaleDelivery, and what a request raises."""
    connection = message.connection
    request = engine_of(connection).request
    subject, start = message.msg.reply, pub_start(message.msg.raw_reply or b"")
    seconds = connection.options.request_timeout if timeout is DEFAULT else resolve(timeout, None)
    pool = pool_if_any(connection)
    if pool is None:  # nothing was pulled, so the API to ask is unknown
        request(subject, ack, timeout=Deadline(seconds), start=start)
        return
    if pool.forgetful and consumer_of(message) in pool.forgetful:
        whole = Deadline(seconds)
        _refuse_forgotten(message, whole)
        seconds = whole.remaining()
    asks = seconds is None or seconds > ASK_AFTER
    deadline = Deadline(ASK_AFTER if asks else seconds)
    try:
        request(subject, ack, timeout=deadline, start=start)
    except errors.RequestTimeout:
        if not asks:
            raise
        deadline = deadline.prolonged(seconds)
        _refuse_forgotten(message, deadline)
        request(subject, ack, timeout=deadline, start=start)  # acked twice is acked


def _refuse_forgotten(message: JetStreamMsg, deadline: Deadline) -> None:
    if forgotten([message], deadline):
        raise stale_delivery(message)


def stale_delivery(message: JetStreamMsg) -> errors.StaleDelivery:
    metadata = message.metadata
    return errors.StaleDelivery(
        f"the server does not know that it delivered message {metadata.stream_seq} of {metadata.stream!r} to "
        f"{metadata.consumer!r}: its state is older than this copy"
    )


def forgotten(messages: Iterable[JetStreamMsg], deadline: Deadline) -> list[JetStreamMsg]:
    """The messages that their server does not know to have delivered, by one CONSUMER.INFO per consumer."""
    found: list[JetStreamMsg] = []
    infos: dict[str, ConsumerInfo | None] = {}
    for message in messages:
        key = consumer_of(message)
        if not key:
            continue  # an import has rewritten its ack subject
        if key not in infos:
            infos[key] = _ask(message.connection, key, deadline)
        info, metadata = infos[key], message.metadata
        if info is not None and (
            info.delivered.consumer_seq < metadata.consumer_seq or info.delivered.stream_seq < metadata.stream_seq
        ):
            found.append(message)
    for key, info in infos.items():
        forgetful: Any = pool_of(message.connection).forgetful
        if info is not None and any(consumer_of(one) == key for one in found):
            forgetful.add(key)
        elif info is not None:
            forgetful.discard(key)
    return found


def consumer_of(message: JetStreamMsg) -> str:
    try:
        metadata = message.metadata
    except errors.NotJetStreamMessage:
        return ""
    return f"{metadata.stream}.{metadata.consumer}"


def _ask(connection: Connection, key: str, deadline: Deadline) -> ConsumerInfo | None:
    """The consumer's information; None without an answer, or if the API to ask is unknown."""
    end = f"CONSUMER.MSG.NEXT.{key}"
    heads = {subject[: -len(end)] for subject in list(pool_of(connection).pulled) if subject.endswith(end)}
    if len(heads) != 1:
        return None
    try:
        answer = engine_of(connection).request(
            f"{heads.pop()}CONSUMER.INFO.{key}", timeout=deadline.at_most(ASK_TIMEOUT)
        )
        return model_base.from_wire(check_error(answer.data), ConsumerInfo)
    except errors.JsClientError:
        return None
