"""Options of the endpoints of the system account: keyword arguments by their names on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypedDict

from jsclient import kinds

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
"""The orders of CONNZ. All but "cid" have the largest first."""


class ServersDict(TypedDict, total=False):
    """Options of all endpoints that select the servers that answer.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        server_name: Only the server of this name.
        cluster: Only servers of this cluster.
        host: Only servers that listen on this host.
        tags: Only servers with all of these tags.
        domain: Only servers of this JetStream domain.
        exact_match: True means that names must match completely; otherwise a part of a name is enough.
    """

    server_name: str
    cluster: str
    host: str
    tags: list[str]
    domain: str
    exact_match: bool


class ConnectionsDict(ServersDict, total=False):
    """The options of CONNZ: `SystemClient.connections`. For `state`, 0 means open, 1 closed, 2 all.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        sort: The order; by default by number.
        auth: With the users.
        subscriptions: With the subjects of the subscriptions.
        subscriptions_detail: With details of each subscription.
        offset: Number of entries to skip.
        limit: Largest number of entries in an answer.
        cid: Only the connection of this number.
        mqtt_client: Only the connection of this MQTT client.
        state: 0 means open connections (default), 1 closed ones, and 2 all.
        user: Only connections of this user.
        acc: Only connections of this account.
        filter_subject: Only connections with a subscription on this subject.

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
    """The options of JSZ: `SystemClient.jetstream`.

    A value of another type or out of range raises ConfigError before anything is sent.

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
        offset: Number of entries to skip.
        limit: Largest number of entries in an answer.

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
    """The options of all endpoints: `SystemClient.ask`.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        details: With details, if an endpoint has more.
        test: A subject to test: the answer tells if a subscription would get it.
        name: The name that an endpoint needs, such as a gateway's name.
        account_name: The account of an outgoing gateway.
        include_unused: With unused entries.
        all: With everything that is left out otherwise.
        threshold: Only values above it.
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


_KINDS: Final[dict[str, Any]] = {
    "tags": kinds.TEXTS,
    **dict.fromkeys(("offset", "limit", "cid", "state", "threshold"), int),
    **dict.fromkeys(("exact_match", "auth", "subscriptions", "subscriptions_detail", "accounts", "streams"), bool),
    **dict.fromkeys(("consumer", "direct_consumer", "config", "leader_only", "stream_leader_only", "raft"), bool),
    **dict.fromkeys(("details", "include_unused", "all"), bool),
    **dict.fromkeys(("server_name", "cluster", "host", "domain", "sort", "mqtt_client", "user", "acc"), str),
    **dict.fromkeys(("filter_subject", "account", "test", "name", "account_name", "group"), str),
}


def check_options(options: Mapping[str, Any]) -> None:
    """Raises ConfigError for a value of another type. Options of newer servers pass unchecked."""
    for name, value in options.items():
        if name in _KINDS:
            kinds.check(_KINDS[name], **{name: value})
