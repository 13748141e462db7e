"""The first words on a link: INFO, and TLS before it (`handshake_first`), after it, or never."""

from __future__ import annotations

import ssl

import protocol
from jsclient import _transport as transport
from jsclient import errors, handlers
from jsclient._engine import server_errors
from jsclient._transport import Transport
from jsclient.auth.secret import read_secret
from jsclient.durations import Deadline
from jsclient.message import Msg
from jsclient.options import ConnectOptions, TLSOptions
from jsclient.urls import Server


def greet(
    stream: Transport, server: Server, options: ConnectOptions, must_encrypt: bool, deadline: Deadline
) -> tuple[Transport, protocol.Parser[Msg], protocol.ServerInfo]:
    """TLS and websocket as the URL, the options and INFO say; returns the stream that CONNECT goes over.

    `ws://` says itself that it is in clear; `nats://` leaves that to the server, which is believed only as long as
    nothing says `must_encrypt`.
    """
    tls = options.tls if isinstance(options.tls, TLSOptions) else None
    first = tls is not None and tls.handshake_first
    if server.websocket:
        if server.wants_tls or options.wants_tls:
            stream = _start_tls(stream, server, options, deadline)
        from jsclient._transport.ws import start_websocket  # needs an extra

        headers = handlers.ran(options.ws_headers()) if callable(options.ws_headers) else options.ws_headers or {}
        stream = start_websocket(
            stream,
            server.host,
            server.port,
            server.path,
            headers,
            compression=options.ws_compression,
            timeout=deadline.remaining(),
        )
        parser, info, _ = _read_info(stream, server, deadline, must_encrypt)
        return stream, parser, info
    if first:
        stream = _start_tls(stream, server, options, deadline)
    parser, info, alone = _read_info(stream, server, deadline, must_encrypt)
    if first or not (must_encrypt or info.tls_required):
        return stream, parser, info
    if not (info.tls_required or info.tls_available):
        raise errors.TlsError(
            f"{server.url} offers no TLS, but a tls:// URL or a TLS option was given, or this connection was encrypted "
            "before. Nothing was said to it. Check the address and the server's tls block: somebody between may be "
            "removing TLS."
        )
    if not alone:
        raise errors.TlsError(f"{server.url} sent data in clear after INFO although TLS follows: refused")
    stream = _start_tls(stream, server, options, deadline)
    return stream, _new_parser(), info


def _new_parser() -> protocol.Parser[Msg]:
    return protocol.Parser(message=Msg)


def _start_tls(stream: Transport, server: Server, options: ConnectOptions, deadline: Deadline) -> Transport:
    name = server.tls_name or server.host
    if isinstance(options.tls, TLSOptions) and options.tls.server_name:
        name = options.tls.server_name
    return transport.start_tls(stream, tls_context(options), name, deadline.remaining())


def tls_context(options: ConnectOptions) -> ssl.SSLContext:
    """The user's own context, or one that verifies; files are read anew at every connect (rotation)."""
    if isinstance(options.tls, ssl.SSLContext):
        return options.tls
    tls = options.tls if isinstance(options.tls, TLSOptions) else TLSOptions()
    return transport.default_tls_context(
        tls.ca_file, tls.cert_file, tls.key_file, key_password=read_secret(tls.key_password, "key_password")
    )


def _read_info(
    stream: Transport, server: Server, deadline: Deadline, must_encrypt: bool
) -> tuple[protocol.Parser[Msg], protocol.ServerInfo, bool]:
    """(parser, INFO, True when nothing came with it): the server speaks first."""
    parser = _new_parser()
    received = 0
    while True:
        data = receive(stream, server, deadline, "INFO")
        received += len(data)
        events = parser.feed(data)
        if events:
            break
    first = events[0]
    if isinstance(first, protocol.Err):
        raise server_errors.classify(first.text).error
    if not isinstance(first, protocol.Info):
        raise errors.NotANatsServer(f"{server.url} began with {type(first).__name__} instead of INFO")
    alone = len(events) == 1 and data.endswith(b"\n") and data.count(b"\n") == 1
    for event in events[1:]:
        if isinstance(event, protocol.Err):  # it greets us only to say why it will not have us
            raise _refusal(event, stream, must_encrypt or first.decode().tls_required)
    return parser, first.decode(), alone


def _refusal(event: protocol.Err, stream: Transport, must_encrypt: bool) -> errors.JsClientError:
    """The error of an -ERR behind the first INFO. In clear, where TLS is to follow, anybody may have said it: then it
    must not count against our credentials."""
    error = server_errors.classify(event.text).error
    if isinstance(error, errors.AuthError) and must_encrypt and not stream.secure:
        return errors.ConnectFailed(f"refused in clear, before TLS: {error}")
    return error


def receive(stream: Transport, server: Server, deadline: Deadline, what: str) -> bytes:
    if deadline.expired():
        raise errors.ConnectFailed(
            f"{server.url} accepted the connection but sent no {what} in time: is it a NATS server, does it want TLS "
            "first, or is it overloaded?"
        )
    try:
        data = stream.recv_within(deadline.remaining())
    except OSError as error:
        if isinstance(error, errors.TlsError):
            raise  # with TLS 1.3 this is how a server refuses our certificate
        raise errors.ConnectFailed(f"{server.url} broke the connection before {what}: {error}") from error
    if data is None:
        return b""
    if not data:
        raise errors.ConnectFailed(f"{server.url} closed the connection before {what}")
    return data
