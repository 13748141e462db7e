"""The one exception of the data source, and its tokens.

Spark carries only the text of a Python exception from a worker to the driver; class and cause are lost. So every
message starts with a stable `[TOKEN]`, and `from_spark` finds it again in the exception that Spark raised.
"""

from __future__ import annotations

import re
from typing import Final

from jsclient.arrow.settings import Refused

TOKENS: Final = {
    # a required option is absent
    "JETSTREAM_MISSING_OPTION": "Nothing was read or written.",
    # an unknown option; the text names the nearest one
    "JETSTREAM_UNKNOWN_OPTION": "Nothing was read or written.",
    # an option with an invalid value
    "JETSTREAM_BAD_OPTION": "Nothing was read or written.",
    # two options that exclude each other
    "JETSTREAM_CONFLICTING_OPTIONS": "Nothing was read or written.",
    # a column that the source lacks or the sink rejects
    "JETSTREAM_SCHEMA_MISMATCH": "What was written before stays written.",
    # no server could be reached, or it refused the connection
    "JETSTREAM_CONNECT_FAILED": "Nothing was read or written over it.",
    # the option needs a newer nats-server
    "JETSTREAM_SERVER_TOO_OLD": "Nothing was read or written.",
    # this PySpark lacks what the call needs
    "JETSTREAM_SPARK_TOO_OLD": "Nothing was read or written.",
    "JETSTREAM_STREAM_NOT_FOUND": "Nothing was read or written there.",
    # the checkpoint belongs to another stream of the same name
    "JETSTREAM_STREAM_RECREATED": "Nothing of this batch counts as read.",
    # messages of the range to read are gone from the stream
    "JETSTREAM_DATA_LOSS": "Nothing of this batch counts as read.",
    # startingTimestamp is in the future
    "JETSTREAM_TIMESTAMP_BEYOND_END": "Nothing was read.",
    # direct get is off in the stream, or the server cannot do it in batches
    "JETSTREAM_DIRECT_UNAVAILABLE": "Nothing of this batch counts as read.",
    # a checkpoint of a newer jsclient
    "JETSTREAM_OFFSET_VERSION": "Nothing was read, and the checkpoint is unchanged.",
    # a stream that is consumed by reading, read without ackMode
    "JETSTREAM_WORKQUEUE_NEEDS_ACKMODE": "Nothing was read or purged.",
    # another client consumes the work queue, too
    "JETSTREAM_WORKQUEUE_SHARED": "Nothing of this batch was read or purged.",
    "JETSTREAM_READ_FAILED": "Nothing of this batch counts as read.",
    "JETSTREAM_TASK_TIMEOUT": "What the task wrote may be stored; what it read does not count.",
    "JETSTREAM_PUBLISH_FAILED": "What the task has sent may have arrived.",
    # the target stream does not deduplicate
    "JETSTREAM_DEDUP_WINDOW": "Nothing was written.",
    # deliverySemantics=exactly-once, and this user cannot have a journal
    "JETSTREAM_JOURNAL_UNAVAILABLE": "Nothing was written.",
    # rows of the first attempt may be stored, but can no longer be found
    "JETSTREAM_UNSURE_REPLAY": "Rows of the first attempt may be stored.",
    # the records in NATS about the query are ahead of its checkpoint
    "JETSTREAM_JOURNAL_AHEAD": "Nothing was written.",
    # another driver has taken over the query
    "JETSTREAM_FENCED": "The other driver or attempt goes on; this one gives no receipt.",
    "JETSTREAM_OVERWRITE_UNSUPPORTED": "Nothing was written.",
    # outputMode("update") of a format; Spark itself refuses it, and `from_spark` adds what to write
    "JETSTREAM_UPDATE_UNSUPPORTED": "Nothing was written.",
    "JETSTREAM_NULL_VALUE": "What was written before stays written.",
    # a key is not at the revision that a row expects
    "JETSTREAM_REVISION_MISMATCH": "This row was not written; others may be.",
    # a value that does not fit the schema (valueFormat)
    "JETSTREAM_BAD_RECORD": "The stream is unchanged.",
}
"""Token -> what it means for the rows."""

_UPDATE = re.compile(r"(jetstream(?:-kv)?) does not support Update mode")
_FOUND = re.compile(r"\[(JETSTREAM_[A-Z_]+)\] ?([^\n]*)")


class JetStreamSparkError(Refused):
    """Raised by the data source; `token` is stable and meant for programs, the text for people.

    The text names stream, partition and range, tells you what to do, and ends with what the error means for the rows.
    Spark retries a failed task (4 times by default) after any error. If a retry cannot help, the text of the error
    tells you.

    Attributes:
        token: Stable, for programs.
        message: The text without the token.
    """

    def __init__(self, token: str, message: str) -> None:
        meaning = TOKENS[token]
        if meaning not in message:  # an error that `from_spark` has found already has it
            message = f"{message.removesuffix('.')}. {meaning}"
        super().__init__(token, message, f"[{token}] {message}")
        self.token = token
        self.message = message


def from_spark(error: BaseException) -> JetStreamSparkError | None:
    """The JetStreamSparkError inside an exception of Spark (AnalysisException, PythonException,
    StreamingQueryException).

    None when there is none. If the text quotes several, the last one is the one that was raised. If Spark refused the
    update mode of a sink, the error says what to write instead.
    """
    found = [match for match in _FOUND.finditer(str(error)) if match[1] in TOKENS]
    if not found and (refused := _UPDATE.search(str(error))):
        return JetStreamSparkError(
            "JETSTREAM_UPDATE_UNSUPPORTED",
            f"{refused[1]}: Spark has no update mode for sinks in Python; write with "
            "writeStream.foreachBatch(jsclient.spark.batch_writer(options))",
        )
    if not found:
        return None
    return JetStreamSparkError(found[-1][1], found[-1][2].rstrip())
