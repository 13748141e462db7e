"""A synchronous NATS and JetStream client for Python: threads, no event loop.

    with jsclient.connect("nats://127.0.0.1:4222") as nc:
        nc.publish("greet.joe", b"hello")
        reply = nc.request("help", b"please", timeout=1)

JetStream is in `jsclient.jetstream`, buckets in `jsclient.keyvalue` and `jsclient.objectstore`, services in
`jsclient.services`, worker pools in `jsclient.workers`, Spark in `jsclient.spark`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jsclient import codecs, errors, kinds
from jsclient._connection.events import ConnectionEvent, ConnectionEvents
from jsclient._connection.figures import Health, LinkInfo, Statistics
from jsclient._connection.link import VERSION
from jsclient._transport import TlsState
from jsclient.auth.secret import Secret
from jsclient.cancel import Cancel
from jsclient.connection import Connection, live_connections
from jsclient.message import Msg
from jsclient.options import CallbacksDict, ConnectOptions, ConnectOptionsDict, PoolServer, ReconnectPolicy, TLSOptions
from jsclient.process import open_connection, shared
from jsclient.process import warn_about_no_gil as _warn_about_no_gil
from jsclient.protocol import Headers, Status
from jsclient.states import ConnectionState, LinkEvent
from jsclient.subscription import Subscription

if TYPE_CHECKING:
    from typing_extensions import Unpack


__version__ = VERSION

_warn_about_no_gil()  # after all imports, because an extension module may have switched it on again

__all__ = [
    "CallbacksDict",
    "Cancel",
    "ConnectOptions",
    "ConnectOptionsDict",
    "Connection",
    "ConnectionEvent",
    "ConnectionEvents",
    "ConnectionState",
    "Headers",
    "Health",
    "LinkEvent",
    "LinkInfo",
    "Msg",
    "PoolServer",
    "ReconnectPolicy",
    "Secret",
    "Statistics",
    "Status",
    "Subscription",
    "TLSOptions",
    "TlsState",
    "codecs",
    "connect",
    "empty_payload",
    "errors",
    "live_connections",
    "shared",
]


def connect(
    servers: str | Sequence[str] | ConnectOptions | None = None, **options: Unpack[ConnectOptionsDict]
) -> Connection:
    """Connect and return the Connection; use it in a `with` block.

    `servers` is a URL, several URLs (a sequence or a comma-separated string), or ConnectOptions. `options` are the
    fields of ConnectOptions. Raises ConnectFailed, NotANatsServer, TlsError, AuthError or ConfigError. Ctrl-C aborts
    the attempt.
    """
    if isinstance(servers, ConnectOptions):
        if options:
            raise errors.ConfigError("give ConnectOptions or single options, not both (attrs.evolve changes options)")
        return open_connection(servers)
    try:
        made = ConnectOptions(**options) if servers is None else ConnectOptions(servers=servers, **options)
    except TypeError as error:
        raise errors.ConfigError(f"{error}; the options are the fields of jsclient.ConnectOptions") from None
    return open_connection(made)


def empty_payload(message: Msg) -> bool:
    """The usual sentinel of `request_many`, for replies that end with an empty message."""
    kinds.check(Msg, message=message)
    return not message.data
