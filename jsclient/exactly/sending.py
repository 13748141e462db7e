"""The use of the library's publishers by a writing task: limits, patience, and texts for failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from jsclient import errors
from jsclient.arrow.access import cached
from jsclient.arrow.settings import Refused
from jsclient.exactly.fast_rows import FastRowPublisher
from jsclient.exactly.row_publisher import RowPublisher
from jsclient.exactly.sink_streams import SHORT_WINDOW
from jsclient.jetstream.publishing.outcome import ASK_AFTER, Rules
from jsclient.jetstream.publishing.streams import Streams

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.exactly.settings import WriteSettings
    from jsclient.jetstream.context import JetStream

IN_FLIGHT: Final = 2_000
"""Rows without an ack."""

UNACKED_BYTES: Final = 16 << 20
"""With large rows this ends the window first."""

ACK_TIMEOUT: Final = 5.0
"""Seconds without an ack after which another copy of a row is sent."""

RETRIES: Final = 3
"""Retries of a row that no stream takes."""


def context(nc: Connection, options: WriteSettings) -> JetStream:
    """The JetStream context of the options, which tasks on one connection share.

    If this user has no permission to ask how long a stream remembers ids, the client assumes SHORT_WINDOW.
    """
    from jsclient.jetstream import JetStream

    def make() -> JetStream:
        js = JetStream(nc, domain=options.domain, api_prefix=options.api_prefix)
        js.publish_streams = Streams(believed=SHORT_WINDOW)
        return js

    return cached(nc, ("context", options.domain, options.api_prefix), make)


def rules_of(options: WriteSettings, patience: float | None = None) -> Rules:
    """After ACK_TIMEOUT of silence, or a refusal that passes, another copy follows. `patience` ends this, or by
    default `reconnectTimeout`."""
    patience = options.reconnect_timeout if patience is None else patience
    return Rules(
        ack_timeout=patience,
        hold_for=patience,
        resend_after=ACK_TIMEOUT,
        ask_after=min(ASK_AFTER, RETRIES + 1),
        tries=RETRIES + 1,
        unasked_attempts=RETRIES,
        copies_allowed=True,  # Only rows that may be stored twice have no id.
        looks_beyond_window=False,  # It would be done for thousands of rows together.
    )


def row_publisher(
    nc: Connection, options: WriteSettings, guard: Callable[[], None] | None = None, patience: float | None = None
) -> RowPublisher:
    """At most IN_FLIGHT rows without an ack."""
    return RowPublisher(
        context(nc, options),
        rules_of(options, patience),
        max_pending=IN_FLIGHT,
        max_pending_bytes=UNACKED_BYTES,
        guard=guard,
    )


def fast_publisher(
    nc: Connection, options: WriteSettings, guard: Callable[[], None] | None = None, patience: float | None = None
) -> FastRowPublisher:
    """Batch after batch to one stream."""
    return FastRowPublisher(context(nc, options), rules_of(options, patience), guard)


def publish_failed(options: WriteSettings, where: str, error: BaseException) -> Refused:
    """The error of a task; its text says whether a retry makes sense."""
    text = options.hide(f"{type(error).__name__}: {errors.brief(error)}")
    if isinstance(error, errors.StoreFailed):
        cure = "; a retry stores the rest as soon as the stream has room: remove messages, or raise its limits"
        return options.refuse("JETSTREAM_PUBLISH_FAILED", f"{where}: {text}{cure}")
    lasting = isinstance(error, (errors.ConfigError, errors.PermissionViolation, errors.ApiError))
    advice = "; a retry cannot cure it" if lasting else "; run it again when the cause is gone"
    return options.refuse("JETSTREAM_PUBLISH_FAILED", f"{where}: {text}{advice}")
