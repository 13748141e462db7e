"""What `Connection.stats` and `Connection.health` return."""

from __future__ import annotations

import attrs

from jsclient.states import ConnectionState


@attrs.frozen
class Statistics:
    """Counters since the connection was made. Bytes are those of the wire."""

    messages_in: int
    bytes_in: int
    messages_out: int
    bytes_out: int
    reconnects: int
    subscriptions: int
    callbacks_dropped: int


@attrs.frozen
class Health:
    """What a probe wants to know; cheap, and safe from any thread. Ages are seconds."""

    state: ConnectionState
    server: str
    last_frame_age: float | None
    pings_outstanding: int
    buffered_bytes: int
    slow_consumers: int
    reconnects: int
    last_error: str
