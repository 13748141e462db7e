"""The system account's view of the servers: what they are, how they are, and a few things to do to them.

from jsclient.system import SystemClient

with jsclient.connect(url, user="sys", password="env:SYS_PASSWORD") as nc:      # a user of the system account
    system = SystemClient(nc)
    for answer in system.servers():                # one answer per server, complete or with `missing` names
        print(answer.name, answer.version, answer.data["mem"])
    system.health(stream="ORDERS", account="APP").raise_unless_complete()
"""

from __future__ import annotations

from jsclient.system.client import SystemClient
from jsclient.system.gathering import Answer, Gathered, Refusal

__all__ = ["Answer", "Gathered", "Refusal", "SystemClient"]
