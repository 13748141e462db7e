"""The parts of a JetStream object that requests need."""

from __future__ import annotations

from typing import Protocol

from jsclient.connection import Connection
from jsclient.jetstream.api.capabilities import Capabilities
from jsclient.jetstream.api.requests import Api


class Access(Protocol):
    """The JetStream API of one account or domain, through one connection."""

    nc: Connection
    api: Api
    capabilities: Capabilities
