"""Byte streams for a link: TCP, TLS and websocket behind one interface (`Transport`).

This is the door to its modules: `stream` has the interface, `tcp` sockets, `dialling` connects them, `tls` encrypts
any stream. `ws` frames any stream; it needs the extra `websocket`, so the connection imports it only for ws:// URLs.
"""

from jsclient._transport.dialling import SocketFactory, connect_tcp
from jsclient._transport.stream import Transport
from jsclient._transport.tcp import TcpTransport, format_address, wrap_socket
from jsclient._transport.tls import TlsState, TlsTransport, default_tls_context, start_tls

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
