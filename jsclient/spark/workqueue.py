"""Streams that are consumed by reading (retention workqueue or interest): their other readers, and our claim.

Spark reads such a stream by direct get and purges committed messages, so the server does not see a consumer. Therefore
each query with ackMode=purge claims its subjects with a durable consumer that it never pulls from. A work queue allows
one consumer per subject, so the server itself refuses a second query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from jsclient import errors
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.options import SparkOptions, overlap

if TYPE_CHECKING:
    from jsclient.arrow.access import StreamAccess
    from jsclient.jetstream.api.models import StreamInfo

CLAIM: Final = "spark_"  # the claim of a query is the durable consumer with this name and its id


def check_retention(access: StreamAccess, options: SparkOptions, info: StreamInfo) -> None:
    """Check the options for the stream: one that is consumed by reading needs direct get, and we must purge it."""
    retention = info.config.retention or "limits"
    if retention == "limits":
        return
    if options.ack_mode == "none":
        raise JetStreamSparkError(
            "JETSTREAM_WORKQUEUE_NEEDS_ACKMODE",
            f"stream {access.stream!r} has retention {retention}: messages go away when they are consumed. Set "
            "ackMode=purge to read it by direct get and purge what Spark has committed",
        )
    if retention != "workqueue" or not info.state.consumer_count:
        return
    for name, filters in _overlapping(access):
        if not name.startswith(CLAIM):  # the server decides if a claim is ours
            raise _shared(
                access,
                name,
                filters,
                "what it takes would be missing here, and a purge would take from it; give Spark a stream or subjects "
                "of its own",
            )


def claim(access: StreamAccess, options: SparkOptions, retention: str, query: str) -> None:
    """Claim the subjects of the query on a work queue; does nothing if they are claimed already."""
    if options.ack_mode != "purge" or retention != "workqueue":
        return
    name = f"{CLAIM}{query}"
    config: dict[str, Any] = {
        "durable_name": name,
        "name": name,
        "description": "claim of a Spark query that reads by direct get and purges; nothing is pulled from it",
        "ack_policy": "explicit",
        "deliver_policy": "all",
    }
    subjects = access.options.subjects
    if len(subjects) == 1:
        config["filter_subject"] = subjects[0]
    elif subjects:
        config["filter_subjects"] = list(subjects)
    body = {"stream_name": access.stream, "config": config}
    operation = f"CONSUMER.CREATE.{access.stream}.{name}"
    try:
        access.retrying("claiming the work queue", lambda: access.api.request(operation, body))
    except JetStreamSparkError as error:
        if not isinstance(error.__cause__, errors.WorkQueueConsumerError):
            raise
        found = [item for item in _overlapping(access) if item[0] != name] or [("?", [])]
        raise _shared(
            access,
            *found[0],
            "another query with ackMode=purge reads these messages. If it is gone for good, delete the consumer",
        ) from error


def _overlapping(access: StreamAccess) -> list[tuple[str, list[str]]]:
    """(name, filters) of the consumers that want messages of the query."""
    found = []
    for other in access.api.items(f"CONSUMER.LIST.{access.stream}", "consumers"):
        config = other.get("config") or {}
        filters = config.get("filter_subjects") or [config.get("filter_subject") or ">"]
        if any(overlap(a, b) for a in filters for b in access.options.subjects or (">",)):
            found.append((str(other.get("name")), [str(each) for each in filters]))
    return found


def _shared(access: StreamAccess, name: str, filters: list[str], text: str) -> JetStreamSparkError:
    return JetStreamSparkError(
        "JETSTREAM_WORKQUEUE_SHARED",
        f"stream {access.stream!r} has a consumer {name!r} on {', '.join(filters) or '?'}: {text}",
    )
