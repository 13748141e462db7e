"""The options of a connection: one frozen, picklable object, and every default with its reason.

A pickled ConnectOptions carries its secrets by design, because Spark executors get them this way. `env:NAME` values and
callables keep them out of the pickle.
"""

from __future__ import annotations

import datetime as dt
import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypedDict

import attrs
import msgspec

from jsclient import checks, errors, handlers, kinds, protocol
from jsclient.auth.secret import IS_SECRET, SecretSource, as_secret
from jsclient.durations import check_timeout, plain, plain_or_none
from jsclient.instruments import Instrumentation
from jsclient.urls import masked, split_urls

if TYPE_CHECKING:
    from jsclient.auth.credentials import Authenticator

CONNECT_TIMEOUT: Final = 5.0
"""Seconds to connect to one server, including TLS and handshake (ADR-40; Go's 2 s fails over slow links)."""

REQUEST_TIMEOUT: Final = 5.0
"""Seconds that a request, flush or rtt waits by default."""

PING_INTERVAL: Final = 8.0
"""Seconds between pings of the client. With two outstanding pings it notices a dead link in 24 s (Go: 4-6 min). So it
can resend messages over the next link before their callers give up (30 s)."""

MAX_PINGS_OUT: Final = 2
"""Pings without an answer after which the link is stale (every NATS client); ten times this number while data comes
in."""

PENDING_BUFFER: Final = 8 * 1024 * 1024
"""Bytes (frame + 64 each) of publishes to buffer while disconnected (nats.go: 8 MiB)."""

DRAIN_TIMEOUT: Final = 30.0
"""Seconds that drain may take (nats.go: 30 s)."""

WRITE_TIMEOUT: Final = 10.0
"""Seconds that the server may accept no data before a publish fails."""

AUTH_ERROR_LIMIT: Final = 2
"""Refusals of the same credentials, at least 2 s apart, after which reconnecting ends (nats.go: twice)."""

DEFAULT_URL: Final = "nats://127.0.0.1:4222"

Callback = Callable[..., Any]


def _servers(value: str | Sequence[str]) -> tuple[str, ...]:
    try:
        if isinstance(value, (bytes, Mapping)):
            raise TypeError
        return tuple(url for item in ([value] if isinstance(value, str) else value) for url in split_urls(item))
    except TypeError:
        raise errors.ConfigError(f"servers must be a str or a sequence of them, not {type(value).__name__}") from None


def _positive(instance: Any, attribute: Any, value: object) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:
        raise errors.ConfigError(f"{attribute.name} must be a positive number, got {value!r}")


def _duration(instance: Any, attribute: Any, value: float | None) -> None:
    check_timeout(value, attribute.name)


@attrs.frozen(kw_only=True)
class TLSOptions:
    """Files for TLS, for the option `tls` of `connect`.

        tls = TLSOptions(ca_file="ca.pem", cert_file="me.pem", key_file="me.key")
        options = ConnectOptions(servers="tls://nats.example.com:4222", tls=tls)

    Verification is always on. To change anything else, use your own `ssl.SSLContext`.

    With `handshake_first` TLS starts before INFO (server option `handshake_first`, server 2.10.4). `server_name` is the
    name that the certificate must carry, if it is not the host of the URL.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        ca_file: File with the certificates of the authorities to trust (PEM). None trusts the system's authorities.
        cert_file: File with the client's own certificate (PEM), for a server that requests one.
        key_file: File with the key of `cert_file`; None when the certificate's file contains it.
        key_password: Password of the key file. It is a string, `env:NAME`, or a callable.
        server_name: The name that the certificate must carry, if it is not the host of the URL.
        handshake_first: TLS before INFO; the server needs its option of the same name (server 2.10.4).
    """

    ca_file: str | os.PathLike[str] | None = attrs.field(default=None, validator=kinds.field(str, os.PathLike, None))
    cert_file: str | os.PathLike[str] | None = attrs.field(default=None, validator=kinds.field(str, os.PathLike, None))
    key_file: str | os.PathLike[str] | None = attrs.field(default=None, validator=kinds.field(str, os.PathLike, None))
    key_password: SecretSource | None = attrs.field(default=None, converter=as_secret, repr=False, validator=IS_SECRET)
    server_name: str | None = attrs.field(default=None, validator=kinds.field(str, None))
    handshake_first: bool = attrs.field(default=False, validator=kinds.field(bool))


class PoolServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server that the client may connect to next; `ReconnectPolicy.choose` gets a list of them.

    Attributes:
        url: Its URL, without user information.
        attempts: Failures in a row since it was last reached.
        discovered: True when the cluster named it, False when the application did.
        lame_duck: True when it has announced that it is about to stop.
    """

    url: str
    attempts: int = 0
    discovered: bool = False
    lame_duck: bool = False


Choose = Callable[[list[PoolServer], protocol.ServerInfo], "str | tuple[str, float | None] | None"]
"""See `ReconnectPolicy.choose`."""


@attrs.frozen(kw_only=True)
class ReconnectPolicy:
    """The rules for reconnecting. By default there is no limit on attempts.

        patient = ReconnectPolicy(delay=lambda number: min(number, 30))  # seconds
        nc = jsclient.connect("nats://127.0.0.1:4222", reconnect=patient)

    The client waits a random part of 0.1 s before the first attempt. It waits a random part of 0.05 s before the next
    round, and doubles this maximum up to 4 s. If a server drops the client before serving it, the client connects to
    that server every 2 s.

    A server leaves the pool after `max_attempts` failures in a row (None: never), and an empty pool closes the
    connection. `delay` is called with the number of the round (1, 2, ...) and returns seconds. It replaces all of these
    waits but the first one. `enabled=False` also keeps the connection at a server in lame duck mode until that server
    ends it. `choose` picks the server for an attempt.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        enabled: With False a lost link ends the connection.
        max_attempts: Failures in a row after which a server leaves the pool; None means never.
        delay: Called with the number of the round (1, 2, ...); returns the seconds to wait before it.
        choose: Called before every attempt except during the first connect, with the servers of the pool and the last
            INFO. It returns the URL of one of them, or (URL, seconds to wait before connecting), or None for the usual
            choice (ADR-40). If it returns another URL or raises, the client reports that to `on_error` and the log, and
            makes the usual choice.
    """

    enabled: bool = attrs.field(default=True, validator=kinds.field(bool))
    max_attempts: int | None = attrs.field(default=None, validator=kinds.field(int, None))
    delay: Callable[[int], float] | None = attrs.field(default=None, validator=kinds.field(Callable, None))
    choose: Choose | None = attrs.field(default=None, validator=kinds.field(Callable, None))

    def __attrs_post_init__(self) -> None:
        if self.max_attempts is not None and self.max_attempts < 0:
            raise errors.ConfigError(
                f"max_attempts must be 0 or more, or None (never give up); got {self.max_attempts}"
            )


@attrs.frozen(kw_only=True)
class ConnectOptions:
    """All options of `connect`. Frozen, comparable, and picklable as long as its callables are.

        options = ConnectOptions(servers="nats://127.0.0.1:4222", name="billing")
        with jsclient.connect(options) as nc:
            print(nc.rtt())

    Times are seconds. Callbacks run one at a time on the events thread, with the arguments in parentheses.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        servers: URLs (nats, tls, ws or wss), as a sequence or one comma-separated string.
        name: Client name that the server shows; `<application>-<host>-<pid>` is a good one.
        connect_timeout: Seconds to connect to one server, including TLS and handshake.
        request_timeout: Seconds that a request, flush or rtt waits if the call gives no timeout. None waits
            indefinitely.
        ping_interval: Seconds between two pings on a link.
        max_pings_out: Pings without an answer after which the link counts as dead.
        drain_timeout: Seconds that `drain()` may take if the call gives no timeout.
        write_timeout: Seconds that the server may accept no data before a publish fails.
        pending_buffer: Bytes of publishes that the client buffers without a link. With 0 such publishes fail
            immediately.
        pending_block: Seconds that a publish may wait for room in a full pending buffer. With None it raises BufferFull
            immediately.
        reconnect: Rules for reconnecting after a link is lost.
        retry_on_failed_connect: If no server answers, return immediately in state CONNECTING, and keep trying.
        randomize: Connect to the servers in random order; False uses the given order.
        ignore_discovered: Use only the servers named here, without the servers that the cluster names.
        local_address: Address of this machine to connect from.
        socket_factory: A function `(host, port, timeout)` that returns a connected socket, instead of the client's own
            connecting. For proxies and tunnels.
        no_echo: Do not deliver this connection's own publishes to its own subscriptions.
        verbose: The server answers every command with +OK. It costs time, so use it for debugging.
        pedantic: The server checks subjects strictly.
        inbox_prefix: The beginning of reply subjects, for users who may subscribe to one prefix only.
        tls: True, TLSOptions or an SSLContext. The client never sends unencrypted data then, regardless of INFO.
        ws_headers: Headers of the websocket upgrade request. The client calls a callable at every connect.
        ws_compression: Compress websocket frames if the server agrees.
        user: User name. Like the other secrets it is a string, `env:NAME`, or a callable.
        password: Password of `user`.
        token: Token, for servers that are configured with one.
        nkey_seed: Seed of a user nkey (SU...). It signs the server's challenge and is never sent.
        nkey_seed_file: File with the seed, read at every connect.
        nkey: Public user nkey (U...), with `signature_callback`.
        jwt: User JWT, with `nkey_seed` or `signature_callback`.
        credentials: A .creds file (read at every connect), its bytes, or a callable that returns either.
        signature_callback: Signs the server's challenge if the seed must not be in this process.
        auth_callback: Called at every connect with the server's nonce; returns `auth.credentials.AuthFields` or a
            mapping of them.
        auth_error_limit: Refusals of the same credentials after which reconnecting ends; None means never.
        instrumentation: An object that traces and counts this connection's operations; see `jsclient.instruments`.
        on_connected: Called (connection) when the first link is up, even long after `retry_on_failed_connect` has
            returned.
        on_disconnected: Called (connection, error or None) when the link was lost.
        on_reconnected: Called (connection) when a new link is up and subscriptions are renewed.
        on_closed: Called (connection) when the connection has ended for good.
        on_discovered_servers: Called (connection, new URLs) when the cluster named servers.
        on_lame_duck: Called (connection) when the server is about to stop. The client looks for another server.
        on_error: Called (connection, error, subscription or None) for errors that no call raises. These are permission
            errors, slow consumers, callbacks that raise, failed attempts to reconnect (ConnectFailed, TlsError,
            AuthError...), and the error that ended the connection.
    """

    servers: tuple[str, ...] = attrs.field(default=(DEFAULT_URL,), converter=_servers, repr=False)
    name: str | None = attrs.field(default=None, validator=kinds.field(str, None))

    # --- time and pressure
    connect_timeout: float = attrs.field(default=CONNECT_TIMEOUT, converter=plain, validator=_positive)
    request_timeout: float | None = attrs.field(default=REQUEST_TIMEOUT, converter=plain_or_none, validator=_duration)
    ping_interval: float = attrs.field(default=PING_INTERVAL, converter=plain, validator=_positive)
    max_pings_out: int = attrs.field(default=MAX_PINGS_OUT, validator=[kinds.field(int), _positive])
    drain_timeout: float = attrs.field(default=DRAIN_TIMEOUT, converter=plain, validator=_positive)
    write_timeout: float = attrs.field(default=WRITE_TIMEOUT, converter=plain, validator=_positive)
    pending_buffer: int = attrs.field(default=PENDING_BUFFER, validator=kinds.field(int))
    pending_block: float | None = attrs.field(default=None, converter=plain_or_none, validator=_duration)

    # --- servers
    reconnect: ReconnectPolicy = attrs.field(default=ReconnectPolicy(), validator=kinds.field(ReconnectPolicy))
    retry_on_failed_connect: bool = attrs.field(default=False, validator=kinds.field(bool))
    randomize: bool = attrs.field(default=True, validator=kinds.field(bool))
    ignore_discovered: bool = attrs.field(default=False, validator=kinds.field(bool))
    local_address: str | None = attrs.field(default=None, validator=kinds.field(str, None))
    socket_factory: Callable[..., Any] | None = attrs.field(default=None, validator=kinds.field(Callable, None))

    # --- protocol
    no_echo: bool = attrs.field(default=False, validator=kinds.field(bool))
    verbose: bool = attrs.field(default=False, validator=kinds.field(bool))
    pedantic: bool = attrs.field(default=False, validator=kinds.field(bool))
    inbox_prefix: str = attrs.field(default="_INBOX", validator=kinds.field(str))

    # --- TLS and websocket
    tls: TLSOptions | ssl.SSLContext | bool | None = attrs.field(
        default=None, repr=False, validator=kinds.field(TLSOptions, ssl.SSLContext, bool, None)
    )
    ws_headers: Mapping[str, str] | Callable[[], Mapping[str, str]] | None = attrs.field(
        default=None, repr=False, validator=kinds.field(kinds.TEXT_MAP, Callable, None)
    )
    ws_compression: bool = attrs.field(default=False, validator=kinds.field(bool))

    # --- authentication (callables are called at every connect)
    user: SecretSource | None = attrs.field(default=None, converter=as_secret, repr=False, validator=IS_SECRET)
    password: SecretSource | None = attrs.field(default=None, converter=as_secret, repr=False, validator=IS_SECRET)
    token: SecretSource | None = attrs.field(default=None, converter=as_secret, repr=False, validator=IS_SECRET)
    nkey_seed: SecretSource | None = attrs.field(default=None, converter=as_secret, repr=False, validator=IS_SECRET)
    nkey_seed_file: str | os.PathLike[str] | None = attrs.field(
        default=None, validator=kinds.field(str, os.PathLike, None)
    )
    nkey: str | None = attrs.field(default=None, validator=kinds.field(str, None))
    jwt: SecretSource | None = attrs.field(default=None, converter=as_secret, repr=False, validator=IS_SECRET)
    credentials: str | os.PathLike[str] | bytes | Callable[[], Any] | None = attrs.field(
        default=None, repr=False, validator=kinds.field(str, os.PathLike, bytes, Callable, None)
    )
    signature_callback: Callable[[bytes], bytes | str] | None = attrs.field(
        default=None, repr=False, validator=kinds.field(Callable, None)
    )
    auth_callback: Callable[..., Any] | None = attrs.field(
        default=None, repr=False, validator=kinds.field(Callable, None)
    )
    auth_error_limit: int | None = attrs.field(default=AUTH_ERROR_LIMIT, validator=kinds.field(int, None))

    instrumentation: Instrumentation | None = attrs.field(
        default=None, repr=False, validator=kinds.field(Instrumentation, None)
    )

    # --- callbacks
    on_connected: Callback | None = attrs.field(default=None, repr=False, validator=kinds.field(Callable, None))
    on_disconnected: Callback | None = attrs.field(default=None, repr=False, validator=kinds.field(Callable, None))
    on_reconnected: Callback | None = attrs.field(default=None, repr=False, validator=kinds.field(Callable, None))
    on_closed: Callback | None = attrs.field(default=None, repr=False, validator=kinds.field(Callable, None))
    on_discovered_servers: Callback | None = attrs.field(
        default=None, repr=False, validator=kinds.field(Callable, None)
    )
    on_lame_duck: Callback | None = attrs.field(default=None, repr=False, validator=kinds.field(Callable, None))
    on_error: Callback | None = attrs.field(default=None, repr=False, validator=kinds.field(Callable, None))

    def __attrs_post_init__(self) -> None:
        self.authenticator()
        if self.instrumentation is not None:
            handlers.check(self.instrumentation.begin, "begin of the instrumentation")
        checks.inbox_prefix(self.inbox_prefix)
        if self.name is not None:
            checks.client_name(self.name)
        if self.local_address is not None:
            checks.host_name(self.local_address, "local_address")
        if not self.servers:
            raise errors.ConfigError("servers must name at least one URL")
        if self.auth_error_limit is not None and self.auth_error_limit < 0:
            raise errors.ConfigError(f"auth_error_limit must be 0 or more, or None: never; got {self.auth_error_limit}")
        if self.pending_buffer < 0:
            raise errors.ConfigError("pending_buffer must be 0 (fail at once while disconnected) or more bytes")

    def authenticator(self) -> Authenticator:
        """The authentication of these options. Raises ConfigError for conflicting credentials. Reads no files."""
        from jsclient.auth.credentials import Authenticator  # not before there are options: it costs 3 ms

        return Authenticator(
            user=self.user,
            password=self.password,
            token=self.token,
            nkey_seed=self.nkey_seed,
            nkey_seed_file=self.nkey_seed_file,
            nkey=self.nkey,
            jwt=self.jwt,
            credentials=self.credentials,
            signature_callback=self.signature_callback,
            auth_callback=self.auth_callback,
        )

    @property
    def wants_tls(self) -> bool:
        """True when any TLS option is set: then the client never sends unencrypted data."""
        return self.tls is not None and self.tls is not False

    def __repr__(self) -> str:
        # Show only fields without secrets. URLs may carry passwords, so they appear without user information.
        urls = ", ".join(masked(url) if isinstance(url, str) else "?" for url in self.servers)
        shown = [f"servers={urls!r}"]
        for field in attrs.fields(ConnectOptions):
            value = getattr(self, field.name)
            if field.name != "servers" and value != field.default:
                shown.append(f"{field.name}={value!r}" if field.repr else f"{field.name}=<set>")
        return f"ConnectOptions({', '.join(shown)})"


class CallbacksDict(TypedDict, total=False):
    """The callbacks of ConnectOptions: the keyword arguments of `Connection.set_callbacks`.

    A value of another type or out of range raises ConfigError before anything is sent.

    The fields are described in `ConnectOptions`.
    """

    on_connected: Callback | None
    on_disconnected: Callback | None
    on_reconnected: Callback | None
    on_closed: Callback | None
    on_discovered_servers: Callback | None
    on_lame_duck: Callback | None
    on_error: Callback | None


class ConnectOptionsDict(CallbacksDict, total=False):
    """The keyword arguments of `connect`, for type checkers; the fields of ConnectOptions, except servers.

    A value of another type or out of range raises ConfigError before anything is sent.

    The fields are described in `ConnectOptions`.
    """

    name: str | None
    connect_timeout: float | dt.timedelta
    request_timeout: float | dt.timedelta | None
    ping_interval: float | dt.timedelta
    max_pings_out: int
    drain_timeout: float | dt.timedelta
    write_timeout: float | dt.timedelta
    pending_buffer: int
    pending_block: float | dt.timedelta | None
    reconnect: ReconnectPolicy
    retry_on_failed_connect: bool
    randomize: bool
    ignore_discovered: bool
    local_address: str | None
    socket_factory: Callable[..., Any] | None
    no_echo: bool
    verbose: bool
    pedantic: bool
    inbox_prefix: str
    tls: TLSOptions | ssl.SSLContext | bool | None
    ws_headers: Mapping[str, str] | Callable[[], Mapping[str, str]] | None
    ws_compression: bool
    user: SecretSource | None
    password: SecretSource | None
    token: SecretSource | None
    nkey_seed: SecretSource | None
    nkey_seed_file: str | os.PathLike[str] | None
    nkey: str | None
    jwt: SecretSource | None
    credentials: str | os.PathLike[str] | bytes | Callable[[], Any] | None
    signature_callback: Callable[[bytes], bytes | str] | None
    auth_callback: Callable[..., Any] | None
    auth_error_limit: int | None
    instrumentation: Instrumentation | None
