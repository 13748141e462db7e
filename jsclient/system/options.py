"""What the endpoints of the system account may be asked for: keyword arguments by their names on the wire."""

from __future__ import annotations

from typing import Literal, TypedDict

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


class ServersDict(TypedDict, total=False):
    """Which servers answer: all endpoints take these.

    What is of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        server_name: Only the server of this name.
        cluster: Only servers of this cluster.
        host: Only servers that listen on this host.
        tags: Only servers with all of these tags.
        domain: Only servers of this JetStream domain.
        exact_match: True: names are whole; otherwise a part of a name is enough.
    """

    server_name: str
    cluster: str
    host: str
    tags: list[str]
    domain: str
    exact_match: bool


class ConnectionsDict(ServersDict, total=False):
    """Those of CONNZ: `SystemClient.connections`. `state`: 0 open, 1 closed, 2 all.

    What is of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        sort: The order; by default that of the numbers.
        auth: With the users.
        subscriptions: With the subjects of the subscriptions.
        subscriptions_detail: With what is known of each subscription.
        offset: How many to pass over.
        limit: At most so many in an answer.
        cid: Only the connection of this number.
        mqtt_client: Only that of this MQTT client.
        state: 0: open ones (default), 1: closed ones, 2: all.
        user: Only those of this user.
        acc: Only those of this account.
        filter_subject: Only those with a subscription on this subject.

    It also has the fields of `ServersDict`.
    """

    sort: ConnectionOrder
    auth: bool
    subscriptions: bool
    subscriptions_detail: bool
    offset: int
    limit: int
    cid: int
    mqtt_client: str
    state: Literal[0, 1, 2]
    user: str
    acc: str
    filter_subject: str


class JetStreamUseDict(ServersDict, total=False):
    """Those of JSZ: `SystemClient.jetstream`.

    What is of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        account: Only this account.
        accounts: With all accounts.
        streams: With the streams.
        consumer: With the consumers.
        direct_consumer: With the direct consumers, too.
        config: With the configurations.
        leader_only: Only the leader of the meta group answers.
        stream_leader_only: Only streams that the server leads.
        raft: With the state of their Raft groups.
        offset: How many to pass over.
        limit: At most so many in an answer.

    It also has the fields of `ServersDict`.
    """

    account: str
    accounts: bool
    streams: bool
    consumer: bool
    direct_consumer: bool
    config: bool
    leader_only: bool
    stream_leader_only: bool
    raft: bool
    offset: int
    limit: int


class AskDict(ConnectionsDict, JetStreamUseDict, total=False):
    """Those of all endpoints: `SystemClient.ask`.

    What is of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        details: With details, where an endpoint has more.
        test: A subject: whether anything is subscribed that would get it.
        name: The name that an endpoint asks for, such as that of a gateway.
        account_name: The account of an outgoing gateway.
        include_unused: With what nobody uses.
        all: With all of what is otherwise left out.
        threshold: Only what lies above it.
        group: Only this Raft group.

    It also has the fields of `ConnectionsDict`, `JetStreamUseDict`.
    """

    details: bool
    test: str
    name: str
    account_name: str
    include_unused: bool
    all: bool
    threshold: int
    group: str
