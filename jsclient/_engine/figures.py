"""What `Connection.stats` and `Connection.health` return."""

from __future__ import annotations

import attrs

from jsclient._transport import TlsState
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


@attrs.frozen(kw_only=True)
class LinkInfo:
    """The link that stands at this moment; the next one may go to another server, and has another `client_id`."""

    url: str
    """The server, without user information."""
    local_address: str
    """Our end, as host:port; "" where the transport has none."""
    peer_address: str
    """The other end, as host:port: the server, or a proxy before it."""
    tls: TlsState | None
    """What was agreed on; None on a link in clear."""
    client_id: int
    """The number by which the server knows the link."""
    round_trip: float
    """Seconds to the server and back, the shortest seen."""


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
