"""One live session with one server: the handshake and the facts about it. It never reconnects.

The handshake is INFO, with TLS before it, after it, or not at all, and CONNECT.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from jsclient import _transport as transport
from jsclient import errors, handlers, protocol
from jsclient._connection import server_errors
from jsclient._connection.reading import Reading
from jsclient._connection.server_errors import Verdict
from jsclient._transport import Transport
from jsclient.auth.secret import read_secret
from jsclient.durations import Deadline
from jsclient.message import Msg
from jsclient.options import ConnectOptions, TLSOptions
from jsclient.protocol.frames import PING, encode_connect
from jsclient.protocol.parser import payload_limit
from jsclient.urls import Server

if TYPE_CHECKING:
    from jsclient.auth.credentials import Authenticator

VERSION: Final = "0.1.0"

TICKS_PER_PING: Final = 8
"""Looks of the reader at the clock per ping interval; a silent socket returns this often."""

MAX_TICK: Final = 1.0


class Link:
    """A session that is up: the server accepted CONNECT. The reader thread owns `recv`; the outbox owns `send`."""

    def __init__(
        self, stream: Transport, parser: protocol.Parser[Msg], info: protocol.ServerInfo, server: Server
    ) -> None:
        self.stream = stream
        self.info = info
        self.server = server
        self.info_in_clear = True  # The last INFO came outside TLS, so anyone in between may have written it.
        self.events: list[Any] = []  # Events that came together with the PONG of the handshake.
        self.lame = False  # The server has announced that it is about to stop.
        self.leaving = False  # The client is about to leave it.
        self.pings_out = 0
        self.unsent: int
        self.taken: int
        self.taken, self.unsent = 0, 0  # Bytes that the kernel had accepted at the last ping, or not.
        self.round_trip: float = 0.0  # The shortest time to the server and back, in seconds.
        self.answered = False  # The server has answered a ping after the handshake.
        self.messages_before = 0  # Messages that all links had delivered when this one began to.
        self.reading: Reading = Reading(stream, parser)
        parser.restrict(payload_limit(info.max_payload))
        self.next_ping: float
        self.last_lent: float
        self.next_ping = self.last_lent = time.monotonic()  # the reader's
        self.error: BaseException | None = None  # why it went down; the first reason counts
        self.last_words: tuple[float, BaseException | None] = (0.0, None)  # an -ERR, and when it came
        self.reader: threading.Thread | None = None  # noqa: TID251
        self.announced = False  # the application knows of it

    def line_moves(self, taken: int, unsent: int) -> bool:
        """Called once per ping. True if the server has read since the last one: the kernel was full then, and has
        accepted more.

        A PING queues behind the data that the client sends: a message of 8 MiB takes half a minute on a slow line.
        """
        moves = self.unsent > 0 and taken > self.taken
        self.taken, self.unsent = taken, unsent
        return moves

    def shutdown(self) -> None:
        """Wakes the reader, which then reports the end of the link."""
        self.stream.shutdown()
        self.reading.recall()


def open_link(
    server: Server,
    options: ConnectOptions,
    authenticator: Authenticator,
    *,
    abandoned: threading.Event,  # noqa: TID251
    must_encrypt: bool = False,
    on_stream: Callable[[Transport], None],
    on_digest: Callable[[Any], None],
) -> Link:
    """Connect, upgrade, authenticate. Raises ConnectFailed and its subclasses, TlsError, AuthError, NotANatsServer.

    `must_encrypt`: an earlier link of this session used TLS. If this server does not, it is an impostor, or someone
    removed TLS.
    """
    deadline = Deadline(options.connect_timeout)
    stream = _dial(server, options, deadline, abandoned)
    on_stream(stream)  # shutting it down ends the handshake at any step
    try:
        must_encrypt = must_encrypt or server.wants_tls or options.wants_tls
        stream, parser, info = greet(stream, server, options, must_encrypt, deadline)
        fields = authenticator.fields(
            info.nonce or None, url_user=server.user, url_password=server.password, url_token=server.token
        )
        on_digest(fields.digest)
        connect = _connect_info(options, info, fields, stream.secure)
        sent = time.monotonic()
        try:
            if not stream.send(encode_connect(connect) + PING, deadline.remaining()):
                raise errors.ConnectFailed(f"{server.url} does not take our CONNECT")
        except OSError as error:
            if isinstance(error, errors.TlsError):
                raise
            # The server has hung up. Its reason (an -ERR, a TLS alert) may still be readable below.
        link = Link(stream, parser, info, server)
        handshake_first = isinstance(options.tls, TLSOptions) and options.tls.handshake_first
        link.info_in_clear = not (stream.secure and (server.websocket or handshake_first))
        _await_pong(link, deadline)
        link.round_trip = time.monotonic() - sent
        stream.set_tick(tick(options.ping_interval))
        return link
    except protocol.ProtocolError as error:
        discard(stream)
        raise errors.NotANatsServer(f"{server.url} does not speak the NATS protocol: {error.what}") from error
    except BaseException:
        discard(stream)
        raise


def tick(ping_interval: float) -> float:
    """Seconds after which the reader of a silent link looks at the clock."""
    return min(MAX_TICK, ping_interval / TICKS_PER_PING)


def discard(stream: Transport) -> None:
    """Close an unused link."""
    stream.shutdown()
    with contextlib.suppress(OSError):
        stream.close()


def _dial(server: Server, options: ConnectOptions, deadline: Deadline, abandoned: threading.Event) -> Transport:  # noqa: TID251
    try:
        return transport.connect_tcp(
            server.host,
            server.port,
            timeout=deadline.remaining(),
            local_address=options.local_address,
            socket_factory=options.socket_factory,
            abandoned=abandoned,
            randomize=options.randomize,
        )
    except (OSError, UnicodeError) as error:  # UnicodeError: a host name that IDNA cannot encode
        raise errors.ConnectFailed(f"cannot reach {server.url}: {error}") from error


def _connect_info(
    options: ConnectOptions, info: protocol.ServerInfo, fields: Any, secure: bool
) -> protocol.ConnectInfo:
    return protocol.ConnectInfo(
        verbose=options.verbose,
        pedantic=options.pedantic,
        echo=not options.no_echo,
        tls_required=secure,
        name=options.name,
        version=VERSION,
        headers=info.headers,
        no_responders=info.headers,
        user=fields.user,
        password=fields.password,
        auth_token=fields.auth_token,
        jwt=fields.jwt,
        nkey=fields.nkey,
        sig=fields.sig,
    )


def _await_pong(link: Link, deadline: Deadline) -> None:
    notice: BaseException | None = None
    while True:
        try:
            data = receive(link.stream, link.server, deadline, "PONG after CONNECT")
        except errors.ConnectFailed as closed:
            if notice is None:
                raise
            raise notice from closed
        events = link.reading.parser.feed(data)
        for index, event in enumerate(events):
            if isinstance(event, protocol.Err):
                err = server_errors.classify(event.text)
                if err.verdict is not Verdict.STAYS:
                    raise err.error
                if notice is None:
                    notice = err.error
                    link.events.append(event)  # reported later
            if isinstance(event, protocol.Pong):
                link.events += events[index + 1 :]
                return
            if isinstance(event, protocol.Info):
                link.info = event.decode()  # server 2.15 sends a second INFO before the first PONG
                link.info_in_clear = not link.stream.secure
            elif isinstance(event, protocol.Ping):
                link.events.append(event)


def greet(
    stream: Transport, server: Server, options: ConnectOptions, must_encrypt: bool, deadline: Deadline
) -> tuple[Transport, protocol.Parser[Msg], protocol.ServerInfo]:
    """Start TLS and websocket as the URL, the options and INFO require. Returns the stream that CONNECT goes over.

    `ws://` states explicitly that it is unencrypted. `nats://` leaves the choice to the server, and the client accepts
    that choice only without `must_encrypt`.
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
    """The user's own context, or one that verifies. Files are read again at every connect, to allow rotation."""
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
        if isinstance(event, protocol.Err):  # the server greets us only to report why it rejects us
            raise _refusal(event, stream, must_encrypt or first.decode().tls_required)
    return parser, first.decode(), alone


def _refusal(event: protocol.Err, stream: Transport, must_encrypt: bool) -> errors.JsClientError:
    """The error of an -ERR behind the first INFO.

    If it arrives unencrypted although TLS is to follow, anyone may have sent it. It must not count against our
    credentials then.
    """
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
