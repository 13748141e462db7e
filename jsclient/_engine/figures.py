"""What `Connection.stats` and `Connection.health` return."""

from __future__ import annotations

import attrs

from jsclient._transport import TlsState
from jsclient.states import ConnectionState


@attrs.frozen
class Statistics:
    """Counters since the connection was made. Bytes are those of the wire.

    Attributes:
        messages_in: Messages received, replies included.
        bytes_in: Bytes received.
        messages_out: Publishes and requests, without the ones that never left.
        bytes_out: Bytes that the kernel has taken.
        reconnects: How often the link was lost and made again.
        subscriptions: Subscriptions and inboxes that are open at this moment.
        callbacks_dropped: Events of the connection that were dropped because its callbacks were too slow.
    """

    messages_in: int
    bytes_in: int
    messages_out: int
    bytes_out: int
    reconnects: int
    subscriptions: int
    callbacks_dropped: int


@attrs.frozen(kw_only=True)
class LinkInfo:
    """The link that stands at this moment; the next one may go to another server, and has another `client_id`.

    Attributes:
        url: The server, without user information.
        local_address: Our end, as host:port; "" where the transport has none.
        peer_address: The other end, as host:port: the server, or a proxy before it.
        tls: What was agreed on; None on a link in clear.
        client_id: The number by which the server knows the link.
        round_trip: Seconds to the server and back, the shortest seen.
    """

    url: str
    local_address: str
    peer_address: str
    tls: TlsState | None
    client_id: int
    round_trip: float


@attrs.frozen
class Health:
    """What a probe wants to know; cheap, and safe from any thread. Ages are seconds.

    Attributes:
        state: Where the connection is in its life.
        server: URL of the server that it is connected to; "" while there is none.
        last_frame_age: Seconds since something came from the server; None without a link.
        pings_outstanding: Pings that the server has not answered yet.
        buffered_bytes: Bytes that wait to be sent.
        slow_consumers: How often a subscription began to drop messages because they were not taken.
        reconnects: How often the link was lost and made again.
        last_error: What happened last to the connection; "" when nothing did.
        outage: Seconds without a link so far, also before the first one; None while a link stands.
        failed_attempts: Attempts to connect that have failed since the link was lost; 0 while a link stands.
    """

    state: ConnectionState
    server: str
    last_frame_age: float | None
    pings_outstanding: int
    buffered_bytes: int
    slow_consumers: int
    reconnects: int
    last_error: str
    outage: float | None
    failed_attempts: int

    @property
    def connected(self) -> bool:
        """True while a link stands. A readiness probe asks for it."""
        return self.outage is None
