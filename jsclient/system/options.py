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
    """Which servers answer: all endpoints take these."""

    server_name: str
    cluster: str
    host: str
    tags: list[str]
    domain: str
    exact_match: bool


class ConnectionsDict(ServersDict, total=False):
    """Those of CONNZ: `SystemClient.connections`. `state`: 0 open, 1 closed, 2 all."""

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
    """Those of JSZ: `SystemClient.jetstream`."""

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
    """Those of all endpoints: `SystemClient.ask`."""

    details: bool
    test: str
    name: str
    account_name: str
    include_unused: bool
    all: bool
    threshold: int
    group: str
