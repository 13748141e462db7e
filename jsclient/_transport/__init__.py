"""Byte streams for a link: TCP, TLS and websocket behind one interface (`Transport`).

Import its modules through this package. `stream` has the interface, `tcp` has sockets, `dialling` connects them, and
`tls` encrypts any stream. `ws` frames any stream; it needs the extra `websocket`, so the connection imports it only for
ws:// and wss:// URLs.
"""

from jsclient._transport.dialling import SocketFactory, connect_tcp
from jsclient._transport.stream import TlsState, Transport
from jsclient._transport.tcp import TcpTransport, format_address, wrap_socket
from jsclient._transport.tls import TlsTransport, default_tls_context, start_tls

__all__ = [
    "SocketFactory",
    "TcpTransport",
    "TlsState",
    "TlsTransport",
    "Transport",
    "connect_tcp",
    "default_tls_context",
    "format_address",
    "start_tls",
    "wrap_socket",
]
