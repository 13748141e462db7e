"""Tools for tests of NATS programs, ours and yours: private servers, scripted ones, broken networks, certificates.

They need only the standard library, except `certificates` (extra `testing`). Every thread made here is called
jsclient-testing-*. Every class is a context manager that leaves no thread, socket or process behind.
"""

from jsclient.testing.certs import Certificates, Pair, certificates
from jsclient.testing.cluster import Cluster, LeafPair
from jsclient.testing.fake import FakeClient, FakeServer, ScriptFailed, info_line
from jsclient.testing.find import ServerNotFound, find_server, server_version
from jsclient.testing.proxy import Flow, Proxy
from jsclient.testing.server import NatsServer, running_servers
from jsclient.testing.wait import free_port, wait_until

__all__ = [
    "NatsServer",
    "Cluster",
    "LeafPair",
    "FakeServer",
    "FakeClient",
    "ScriptFailed",
    "info_line",
    "Proxy",
    "Flow",
    "Certificates",
    "Pair",
    "certificates",
    "ServerNotFound",
    "find_server",
    "server_version",
    "running_servers",
    "free_port",
    "wait_until",
]
