"""What the endpoints of the system account may be asked for: keyword arguments by their names on the wire."""

from __future__ import annotations

from typing import Literal, TypedDict

from protocol.described import described, described_like

ConnectionOrder = Literal[
    "cid",
    "start",
    "subs",
    "pending",
    "msgs_to",
    "msgs_from",
    "bytes_to",
    "bytes_from",
    "last",
    "idle",
    "uptime",
    "stop",
    "reason",
    "rtt",
]
"""By what CONNZ sorts; all but "cid" have the largest first."""


@described
class ServersDict(TypedDict, total=False):
    """Which servers answer: all endpoints take these.

    What is of another type or out of range raises ConfigError before anything is sent.
    """

    server_name: str
    """Only the server of this name."""
    cluster: str
    """Only servers of this cluster."""
    host: str
    """Only servers that listen on this host."""
    tags: list[str]
    """Only servers with all of these tags."""
    domain: str
    """Only servers of this JetStream domain."""
    exact_match: bool
    """True: names are whole; otherwise a part of a name is enough."""


@described_like("ServersDict")
class ConnectionsDict(ServersDict, total=False):
    """Those of CONNZ: `SystemClient.connections`. `state`: 0 open, 1 closed, 2 all.

    What is of another type or out of range raises ConfigError before anything is sent.
    """

    sort: ConnectionOrder
    """The order; by default that of the numbers."""
    auth: bool
    """With the users."""
    subscriptions: bool
    """With the subjects of the subscriptions."""
    subscriptions_detail: bool
    """With what is known of each subscription."""
    offset: int
    """How many to pass over."""
    limit: int
    """At most so many in an answer."""
    cid: int
    """Only the connection of this number."""
    mqtt_client: str
    """Only that of this MQTT client."""
    state: Literal[0, 1, 2]
    """0: open ones (default), 1: closed ones, 2: all."""
    user: str
    """Only those of this user."""
    acc: str
    """Only those of this account."""
    filter_subject: str
    """Only those with a subscription on this subject."""


@described_like("ServersDict")
class JetStreamUseDict(ServersDict, total=False):
    """Those of JSZ: `SystemClient.jetstream`.

    What is of another type or out of range raises ConfigError before anything is sent.
    """

    account: str
    """Only this account."""
    accounts: bool
    """With all accounts."""
    streams: bool
    """With the streams."""
    consumer: bool
    """With the consumers."""
    direct_consumer: bool
    """With the direct consumers, too."""
    config: bool
    """With the configurations."""
    leader_only: bool
    """Only the leader of the meta group answers."""
    stream_leader_only: bool
    """Only streams that the server leads."""
    raft: bool
    """With the state of their Raft groups."""
    offset: int
    """How many to pass over."""
    limit: int
    """At most so many in an answer."""


@described_like("ConnectionsDict", "JetStreamUseDict")
class AskDict(ConnectionsDict, JetStreamUseDict, total=False):
    """Those of all endpoints: `SystemClient.ask`.

    What is of another type or out of range raises ConfigError before anything is sent.
    """

    details: bool
    """With details, where an endpoint has more."""
    test: str
    """A subject: whether anything is subscribed that would get it."""
    name: str
    """The name that an endpoint asks for, such as that of a gateway."""
    account_name: str
    """The account of an outgoing gateway."""
    include_unused: bool
    """With what nobody uses."""
    all: bool
    """With all of what is otherwise left out."""
    threshold: int
    """Only what lies above it."""
    group: str
    """Only this Raft group."""
