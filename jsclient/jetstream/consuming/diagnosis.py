"""The questions behind an alarm: the fate of a consumer that does not answer or was deleted."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

from jsclient import errors, waiting
from jsclient.durations import Deadline
from jsclient.jetstream.api.models import ConsumerInfo, StreamInfo

if TYPE_CHECKING:
    from jsclient.jetstream.context import JetStream

ASK_TIMEOUT: Final = 1.0
"""The most seconds for these questions, because they delay the report of a server that does not answer at all."""

LOOK_AGAIN: Final = 0.25
"""Seconds after which the client looks once more for a missing stream, which may be in re-creation just now."""


def why_gone(
    js: JetStream, stream: str, made: dt.datetime | None, deleted: errors.JetStreamError, timeout: float
) -> Exception:
    """The error for a consumer that is gone: `deleted`, or the stream's own fate.

    `made` is the creation time of the consumer, by the server's clock. With None (a handle that never asked) the client
    sends no question.
    """
    if made is None:
        return deleted
    deadline = Deadline(timeout)
    error: Exception = deleted
    for wait in (LOOK_AGAIN, 0.0):
        try:
            return recreated(js, stream, made, deadline.remaining()) or deleted
        except errors.StreamNotFound as not_found:
            error = not_found
            waiting.Gate().wait(deadline.at_most(wait))
        except errors.JsClientError:
            return error  # no permission to ask, or no answer
    return error


def recreated(js: JetStream, stream: str, made: dt.datetime, timeout: float | None) -> errors.StreamRecreated | None:
    """The error for a stream that is younger than its consumer; raises StreamNotFound and errors of requests."""
    info = js.api.request(f"STREAM.INFO.{stream}", None, StreamInfo, timeout=timeout, every=ASK_TIMEOUT)
    if info.created is None or info.created <= made:
        return None
    return errors.StreamRecreated(404, "", f"stream {stream!r} was deleted and made again at {info.created}")


def examine(
    js: JetStream, stream: str, name: str, made: dt.datetime | None, timeout: float
) -> ConsumerInfo | Exception | None:
    """The consumer's information, the error if it is gone, or None without an answer."""
    deadline = Deadline(timeout)
    try:
        operation = f"CONSUMER.INFO.{stream}.{name}"
        info = js.api.request(operation, None, ConsumerInfo, timeout=timeout, read=True)
    except errors.ConsumerNotFound:
        text = f"consumer {name!r} of stream {stream!r} does not exist (any more)"
        return why_gone(js, stream, made, errors.ConsumerDeleted(404, "", text), deadline.at_most(timeout))
    except errors.StreamNotFound as error:
        return error
    except errors.JsClientError:
        return None  # no permission to ask, or no answer: only the missing heartbeat is certain
    if made is not None and info.created is not None and info.created > made:
        other = why_gone(js, stream, made, errors.ConsumerDeleted(404, ""), deadline.at_most(timeout))
        if isinstance(other, errors.StreamRecreated):
            return other
    return info


def why_nobody(
    js: JetStream, stream: str, name: str, made: dt.datetime | None, error: errors.PullNoResponders, timeout: float
) -> Exception | None:
    """No server takes pulls: the error if the consumer is gone or out of reach; None if it may only lack a leader.

    Raises PermissionViolation.
    """
    deadline = Deadline(timeout)
    try:
        js.api.request(f"CONSUMER.INFO.{stream}.{name}", None, ConsumerInfo, timeout=timeout)
    except errors.ConsumerNotFound:
        return why_gone(js, stream, made, error, deadline.at_most(timeout))
    except (errors.StreamNotFound, errors.JetStreamUnavailable):
        return error  # not even the API answers: a cut leaf link, or no JetStream
    except errors.PermissionViolation:
        raise
    except errors.JsClientError:
        return None
    return None
