"""The results of `Connection.stats` and `Connection.health`."""

from __future__ import annotations

import msgspec

from jsclient._transport import TlsState
from jsclient.states import ConnectionState


class Statistics(msgspec.Struct, frozen=True):
    """Counters since the connection was made. Byte counters refer to the wire.

    Attributes:
        messages_in: Messages received, replies included.
        bytes_in: Bytes received.
        messages_out: Publishes and requests, without the ones that never left.
        bytes_out: Bytes that the kernel has accepted.
        reconnects: The number of links made after the first one, also to leave a lame duck server.
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


class LinkInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The current link. The next one may go to another server, and has another `client_id`.

    Attributes:
        url: The server, without user information.
        local_address: The client's end, as host:port; "" if the transport has none.
        peer_address: The other end, as host:port: the server, or a proxy before it.
        tls: The negotiated TLS parameters; None on an unencrypted link.
        client_id: The number by which the server knows the link.
        round_trip: The shortest measured time to the server and back, in seconds.
    """

    url: str
    local_address: str
    peer_address: str
    tls: TlsState | None
    client_id: int
    round_trip: float


class Health(msgspec.Struct, frozen=True):
    """The data for a probe. It is cheap to get, and safe from any thread. Ages are in seconds.

    Attributes:
        state: The state of the connection.
        server: URL of the server that it is connected to; "" while there is none.
        last_frame_age: Seconds since something came from the server; None without a link.
        pings_outstanding: Pings that the server has not answered yet.
        buffered_bytes: Bytes that wait to be sent.
        slow_consumers: The number of times that a subscription began to drop messages because its buffer was full.
        reconnects: The number of links made after the first one, also to leave a lame duck server.
        last_error: The last error of the connection; "" if there was none.
        outage: Seconds without a link so far, also before the first one; None while a link is up.
        failed_attempts: Attempts to connect that have failed since the link was lost; 0 while a link is up.
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
        """True while a link is up. Use it in a readiness probe."""
        return self.outage is None
