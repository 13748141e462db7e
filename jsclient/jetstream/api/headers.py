"""Names of the message headers that JetStream gives a meaning. Header names are case-sensitive on the server."""

from __future__ import annotations

from typing import Final, Protocol

from jsclient.protocol import Headers, MalformedHeaders

# --- publishing: set by the client --------------------------------------------------------------------------
MSG_ID: Final = "Nats-Msg-Id"
EXPECTED_STREAM: Final = "Nats-Expected-Stream"
EXPECTED_LAST_SEQ: Final = "Nats-Expected-Last-Sequence"
EXPECTED_LAST_SUBJECT_SEQ: Final = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_LAST_SUBJECT_SEQ_SUBJECT: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
EXPECTED_LAST_MSG_ID: Final = "Nats-Expected-Last-Msg-Id"
MSG_TTL: Final = "Nats-TTL"
ROLLUP: Final = "Nats-Rollup"
ROLLUP_SUBJECT: Final = "sub"
ROLLUP_ALL: Final = "all"
INCREMENT: Final = "Nats-Incr"
REQUIRED_API_LEVEL: Final = "Nats-Required-Api-Level"
STREAM_IDENTITY: Final = "Nats-Stream-Identity"

# --- schedules (server 2.12; source, time zone and rollup 2.14) ---------------------------------------------
SCHEDULE: Final = "Nats-Schedule"
SCHEDULE_TARGET: Final = "Nats-Schedule-Target"
SCHEDULE_SOURCE: Final = "Nats-Schedule-Source"
SCHEDULE_TTL: Final = "Nats-Schedule-TTL"
SCHEDULE_ROLLUP: Final = "Nats-Schedule-Rollup"
SCHEDULE_TIME_ZONE: Final = "Nats-Schedule-Time-Zone"
SCHEDULER: Final = "Nats-Scheduler"
SCHEDULE_NEXT: Final = "Nats-Schedule-Next"

# --- batches (atomic: server 2.12, fast: 2.14) ---------------------------------------------------------------
BATCH_ID: Final = "Nats-Batch-Id"
BATCH_SEQUENCE: Final = "Nats-Batch-Sequence"
BATCH_COMMIT: Final = "Nats-Batch-Commit"
BATCH_COMMIT_FINAL: Final = "1"
BATCH_COMMIT_END: Final = "eob"

# --- set by the server on what it delivers --------------------------------------------------------------------
STREAM: Final = "Nats-Stream"
SUBJECT: Final = "Nats-Subject"
SEQUENCE: Final = "Nats-Sequence"
LAST_SEQUENCE: Final = "Nats-Last-Sequence"
TIME_STAMP: Final = "Nats-Time-Stamp"
MSG_SIZE: Final = "Nats-Msg-Size"
NUM_PENDING: Final = "Nats-Num-Pending"
UP_TO_SEQUENCE: Final = "Nats-UpTo-Sequence"
STREAM_SOURCE: Final = "Nats-Stream-Source"
MARKER_REASON: Final = "Nats-Marker-Reason"
COUNTER_SOURCES: Final = "Nats-Counter-Sources"

# --- pulls and push delivery ----------------------------------------------------------------------------------
PIN_ID: Final = "Nats-Pin-Id"
PENDING_MESSAGES: Final = "Nats-Pending-Messages"
PENDING_BYTES: Final = "Nats-Pending-Bytes"
LAST_CONSUMER: Final = "Nats-Last-Consumer"
LAST_STREAM: Final = "Nats-Last-Stream"
CONSUMER_STALLED: Final = "Nats-Consumer-Stalled"

# --- tracing ----------------------------------------------------------------------------------------------------
TRACE_DEST: Final = "Nats-Trace-Dest"
TRACE_ONLY: Final = "Nats-Trace-Only"
TRACE_PARENT: Final = "traceparent"
TRACE_HOP: Final = "Nats-Trace-Hop"
TRACE_ORIGIN_ACCOUNT: Final = "Nats-Trace-Origin-Account"

# --- services and authentication --------------------------------------------------------------------------------
REQUEST_INFO: Final = "Nats-Request-Info"
RESPONSE_TYPE: Final = "Nats-Response-Type"
SERVER_XKEY: Final = "Nats-Server-Xkey"


class HasHeaders(Protocol):
    """A message of any layer."""

    @property
    def headers(self) -> Headers: ...


def readable(message: HasHeaders) -> Headers:
    """The headers as the library itself looks into them; empty if they cannot be read.

    The server passes on a publisher's headers unread. A broken block is an error for the caller that asks the message
    for its headers, but not a reason to stop reading a stream.
    """
    try:
        return message.headers
    except MalformedHeaders:
        return Headers()
