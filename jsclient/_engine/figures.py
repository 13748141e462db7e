"""What `Connection.stats` and `Connection.health` return."""

from __future__ import annotations

import attrs

from jsclient._transport import TlsState
from jsclient.states import ConnectionState
from protocol.described import described


@described
@attrs.frozen
class Statistics:
    """Counters since the connection was made. Bytes are those of the wire."""

    messages_in: int
    """Messages received, replies included."""
    bytes_in: int
    """Bytes received."""
    messages_out: int
    """Publishes and requests, without the ones that never left."""
    bytes_out: int
    """Bytes that the kernel has taken."""
    reconnects: int
    """How often the link was lost and made again."""
    subscriptions: int
    """Subscriptions and inboxes that are open at this moment."""
    callbacks_dropped: int
    """Events of the connection that were dropped because its callbacks were too slow."""


@described
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


@described
@attrs.frozen
class Health:
    """What a probe wants to know; cheap, and safe from any thread. Ages are seconds."""

    state: ConnectionState
    """Where the connection is in its life."""
    server: str
    """URL of the server that it is connected to; "" while there is none."""
    last_frame_age: float | None
    """Seconds since something came from the server; None without a link."""
    pings_outstanding: int
    """Pings that the server has not answered yet."""
    buffered_bytes: int
    """Bytes that wait to be sent."""
    slow_consumers: int
    """How often a subscription began to drop messages because they were not taken."""
    reconnects: int
    """How often the link was lost and made again."""
    last_error: str
    """What happened last to the connection; "" when nothing did."""
    outage: float | None
    """Seconds without a link so far, also before the first one; None while a link stands."""
    failed_attempts: int
    """Attempts to connect that have failed since the link was lost; 0 while a link stands."""

    @property
    def connected(self) -> bool:
        """True while a link stands. A readiness probe asks for it."""
        return self.outage is None
