"""Retries by message schedules (nats-server 2.12): a message that has to wait long is stored again, for later.

A delayed nak keeps its message on the consumer's list of unacknowledged messages. Once `max_ack_pending` of them wait
there, the server delivers no others. A schedule frees that place immediately, and survives everything except the loss
of the stream. The message that arrives later is a new one, at the end of the queue. For this reason keyed pools do not
use schedules.
"""

from __future__ import annotations

import datetime as dt
import logging
from typing import TYPE_CHECKING, Final

from jsclient import errors
from jsclient.durations import Deadline
from jsclient.jetstream import Schedule
from jsclient.jetstream import dead_letters as origins
from jsclient.jetstream.missing_payloads import payload_of
from jsclient.protocol import Headers, matches
from jsclient.workers.history import Known

if TYPE_CHECKING:
    from jsclient.jetstream import Consumer, JetStreamMsg

log: logging.Logger = logging.getLogger("jsclient.workers")

ATTEMPT: Final = "Retry-Attempt"
ASKED: Final = "Retry-Count"
"""Number of times that handlers have raised Retry, which is not a failed attempt."""
FIRST_SEQUENCE: Final = "Retry-First-Sequence"
COUNTED: Final = (ATTEMPT, ASKED, FIRST_SEQUENCE)
"""Headers about earlier tries. A replay begins without them."""
RETRY: Final = "retry"
"""Stands for the consumer in the ids of messages that are stored for later."""
SINCE: Final = (2, 12)


def usable(consumer: Consumer, prefix: str) -> bool:
    """True if the stream keeps schedules under `prefix`; False if the pool must use delayed naks instead.

    Raises ConfigError if a retry would go wrong: to handlers immediately, or to handlers of other consumers.
    """
    js = consumer.js
    if js.capabilities.at_least(SINCE) is not True:
        return False
    info = js.stream(consumer.stream_name).cached_info
    if info is None or not info.config.allow_msg_schedules:
        log.warning("stream %s has no allow_msg_schedules: retries are delayed naks", consumer.stream_name)
        return False
    config, example = info.config, f"{prefix}.1"
    if config.retention != "workqueue":
        raise errors.ConfigError(
            f"later= needs a work queue: in stream {config.name!r} a message that is stored again would come to all "
            "consumers again"
        )
    if not any(matches(subject, example) for subject in config.subjects or ()):
        raise errors.ConfigError(f"later={prefix!r}: {prefix}.* must be among the subjects of stream {config.name!r}")
    mine = consumer.cached_info.config if consumer.cached_info is not None else None
    filters = [] if mine is None else [*(mine.filter_subjects or []), *filter(None, [mine.filter_subject])]
    if not filters or any(matches(subject, example) for subject in filters):
        raise errors.ConfigError(f"later={prefix!r}: {consumer} must have filters that leave {prefix}.* out")
    return True


def tries_before(message: JetStreamMsg) -> Known:
    """The tries of earlier copies of the message."""
    return Known(_number(message, ATTEMPT), _number(message, ASKED))


def _number(message: JetStreamMsg, name: str) -> int:
    text = _header(message, name)
    return int(text) if text.isdigit() and len(text) < 6 else 0


def store(consumer: Consumer, prefix: str, message: JetStreamMsg, delay: float, tries: Known) -> None:
    """Store the message for later and wait for the PubAck. Raises the errors of `publish`.

    Stored twice, because the ack of the original was lost, it is one (within the duplicate window of the stream): its
    id is made of this message. Raises PublishUnknown if the stream has seen the id and stored another message under it.
    """
    js, meta = consumer.js, message.metadata
    first = _header(message, FIRST_SEQUENCE)
    first = first if first.isdigit() else str(meta.stream_seq)
    headers = Headers(origins.headers_of(message))
    headers[ATTEMPT] = str(tries.failed)
    headers[ASKED] = str(tries.asked)
    headers[FIRST_SEQUENCE] = first
    when = dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=delay)
    domain = meta.domain or origins.domain_of(js)
    own = origins.origin_id(domain, meta.stream, RETRY, meta.stream_seq, meta.timestamp_ns // 1000)
    deadline = Deadline(origins.PATIENCE)
    data = payload_of(js, message, deadline)
    ack = js.publish(
        f"{prefix}.{meta.stream_seq}",
        data,
        headers=headers,
        msg_id=own,
        schedule=Schedule.at(when, target=message.subject),
        timeout=deadline,
    )
    if ack.duplicate and not origins.is_stored(js, ack, data, headers, own, (FIRST_SEQUENCE,), deadline):
        raise errors.PublishUnknown(
            f"stream {ack.stream!r} knows the id of the retry of message {meta.stream_seq}, and stored something else "
            "as it. The message stays where it is. It is delivered again."
        )


def _header(message: JetStreamMsg, name: str) -> str:
    try:
        return (message.headers.get(name) if message.headers else None) or ""
    except Exception:  # broken headers of a publisher
        return ""
