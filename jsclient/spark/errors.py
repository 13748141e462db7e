"""The one exception of the data source, and its tokens.

Spark carries only the text of a Python exception from a worker to the driver (class and cause are lost), so
every message starts with a stable `[TOKEN]`, and `from_spark` finds it again in whatever Spark raised.
"""

from __future__ import annotations

import re
from typing import Any, Final

TOKENS: Final = frozenset({
    "JETSTREAM_MISSING_OPTION",  # a required option is absent
    "JETSTREAM_UNKNOWN_OPTION",  # an option nobody knows; the text names the nearest one
    "JETSTREAM_BAD_OPTION",  # an option with a value that makes no sense
    "JETSTREAM_CONFLICTING_OPTIONS",  # two options that exclude each other
    "JETSTREAM_SCHEMA_MISMATCH",  # a column the source does not have, or the sink does not take
    "JETSTREAM_CONNECT_FAILED",  # no server could be reached, or it refused us
    "JETSTREAM_SERVER_TOO_OLD",  # the option needs a newer nats-server
    "JETSTREAM_STREAM_NOT_FOUND",
    "JETSTREAM_STREAM_RECREATED",  # the checkpoint belongs to another stream of the same name
    "JETSTREAM_DATA_LOSS",  # messages of the range to read are gone from the stream
    "JETSTREAM_TIMESTAMP_BEYOND_END",  # startingTimestamp is later than the newest message
    "JETSTREAM_DIRECT_UNAVAILABLE",  # direct get is off in the stream, or the server cannot do it in batches
    "JETSTREAM_OFFSET_VERSION",  # a checkpoint of a newer jsclient
    "JETSTREAM_WORKQUEUE_NEEDS_ACKMODE",  # a stream that is consumed by reading, read without ackMode
    "JETSTREAM_WORKQUEUE_SHARED",  # somebody else consumes the work queue, too
    "JETSTREAM_READ_FAILED",
    "JETSTREAM_TASK_TIMEOUT",
    "JETSTREAM_PUBLISH_FAILED",
    "JETSTREAM_DEDUP_WINDOW",  # the target stream does not deduplicate
    "JETSTREAM_JOURNAL_UNAVAILABLE",  # deliverySemantics=exactly-once, and this user cannot have a journal
    "JETSTREAM_UNSURE_REPLAY",  # rows of the first attempt may be stored, but are no longer there to be seen
    "JETSTREAM_JOURNAL_AHEAD",  # what NATS knows of the query is ahead of its checkpoint
    "JETSTREAM_FENCED",  # another driver has taken over the query
    "JETSTREAM_NONDETERMINISTIC_REPLAY",  # the replayed batch has other rows than the first attempt
    "JETSTREAM_OVERWRITE_UNSUPPORTED",
    "JETSTREAM_NULL_VALUE",
    "JETSTREAM_REVISION_MISMATCH",  # a key is not at the revision that a row expects
    "JETSTREAM_BAD_RECORD",  # a value that does not fit the schema (valueFormat)
})  # fmt: skip

_FOUND = re.compile(r"\[(JETSTREAM_[A-Z_]+)\] ?([^\n]*)")


class JetStreamSparkError(Exception):
    """Raised by the data source; `token` is stable and meant for programs, the text for people.

    The text names stream, partition and range, and ends with what to do about it. Spark retries a failed task
    (4 times by default) whatever was raised; errors that a retry cannot cure say so.
    """

    def __init__(self, token: str, message: str) -> None:
        assert token in TOKENS, token
        super().__init__(f"[{token}] {message}")
        self.token = token
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:
        return (JetStreamSparkError, (self.token, self.message))


def from_spark(error: BaseException) -> JetStreamSparkError | None:
    """The error of ours inside what Spark raised (AnalysisException, PythonException, StreamingQueryException).

    None when there is none. Where several are quoted, the last one is the one that was raised.
    """
    found = [match for match in _FOUND.finditer(str(error)) if match[1] in TOKENS]
    if not found:
        return None
    return JetStreamSparkError(found[-1][1], found[-1][2].rstrip())
