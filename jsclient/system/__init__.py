"""The system account's view of the servers: their settings and health, and a few commands for them.

from jsclient.system import SystemClient

with jsclient.connect(url, user="sys", password="env:SYS_PASSWORD") as nc:      # a user of the system account
    system = SystemClient(nc)
    for answer in system.servers():                # one answer per server, complete or with `missing` names
        print(answer.name, answer.version, answer.value.mem, answer.value.cpu)
    system.health(stream="ORDERS", account="APP").raise_unless_complete()
"""

from __future__ import annotations

from jsclient.system.client import SystemClient
from jsclient.system.gathering import Answer, Gathered, Refusal
from jsclient.system.models import (
    ApiCounts,
    ClientConnection,
    Connections,
    Health,
    JetStreamLimits,
    JetStreamPart,
    JetStreamState,
    JetStreamUse,
    MetaGroup,
    MetaSnapshot,
    PeerCertificate,
    SubscriptionDetail,
)
from jsclient.system.models_server import DiskWaits, Gateway, LinkCounts, Route, ServerStats, Traffic, Variables
from jsclient.system.options import AskDict, ConnectionsDict, JetStreamUseDict

__all__ = [
    "Answer",
    "ApiCounts",
    "AskDict",
    "ClientConnection",
    "Connections",
    "ConnectionsDict",
    "DiskWaits",
    "Gateway",
    "Gathered",
    "Health",
    "JetStreamLimits",
    "JetStreamPart",
    "JetStreamState",
    "JetStreamUse",
    "JetStreamUseDict",
    "LinkCounts",
    "MetaGroup",
    "MetaSnapshot",
    "PeerCertificate",
    "Refusal",
    "Route",
    "ServerStats",
    "SubscriptionDetail",
    "SystemClient",
    "Traffic",
    "Variables",
]
