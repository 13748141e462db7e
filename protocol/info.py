"""The JSON of INFO and CONNECT, in which server and client describe themselves."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec

from .errors import InvalidInfo, shorten

_SECRETS = frozenset(("user", "password", "auth_token", "jwt", "sig", "nkey"))
_VERSION = re.compile(r"v?(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?")


# msgspec would read an integer of any length, but the code behind this model does not expect one.
Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class ServerInfo(msgspec.Struct, frozen=True):
    """The server's INFO. Unknown keys are ignored, absent keys have the default given here.

    Do not trust anything in it before TLS is up. Of the URL lists `decode_info` keeps the first MAX_URLS.

    Attributes:
        server_id: Id of the server, new at every start.
        server_name: Its name.
        version: Its version.
        proto: Version of the protocol.
        git_commit: The commit it was built from.
        go: The version of Go it was built with.
        host: The host it listens on.
        port: The port it listens on.
        headers: It accepts headers.
        auth_required: It wants credentials.
        tls_required: It wants TLS.
        tls_verify: It wants a client certificate.
        tls_available: It offers TLS.
        max_payload: Most bytes of a message, headers included. 0 or less means that the server did not state it.
        jetstream: JetStream is enabled on it.
        ip: Its address, if it states it.
        client_id: Its number for this connection.
        client_ip: The client's address, as the server sees it.
        nonce: The challenge that nkeys sign.
        cluster: Name of its cluster; "" when it has none.
        cluster_dynamic: The cluster's name was generated at start.
        domain: Its JetStream domain; "" when it has none.
        connect_urls: Addresses of the servers of its cluster.
        ws_connect_urls: The same for websockets.
        ldm: Lame duck mode. This server is about to stop.
        compression: Compression on a leaf link; of no use to clients.
        connect_info: This INFO is the answer to the client's CONNECT (server 2.15).
        remote_account: Account of a leaf link.
        acc_is_sys: This user is in the system account.
        api_lvl: JetStream API level (server 2.11 and later).
        xkey: The server's public curve key.
    """

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    proto: Integer = 0
    git_commit: str = ""
    go: str = ""
    host: str = ""
    port: Integer = 0
    headers: bool = False
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    tls_available: bool = False
    max_payload: Integer = 0
    jetstream: bool = False
    ip: str = ""
    client_id: Integer = 0
    client_ip: str = ""
    nonce: str = ""
    cluster: str = ""
    cluster_dynamic: bool = False
    domain: str = ""
    connect_urls: list[str] = msgspec.field(default_factory=list)
    ws_connect_urls: list[str] = msgspec.field(default_factory=list)
    ldm: bool = False
    compression: Any = None
    connect_info: bool = False
    remote_account: str = ""
    acc_is_sys: bool = False
    api_lvl: Integer = 0
    xkey: str = ""

    @property
    def version_tuple(self) -> tuple[int, int, int]:
        """The version as numbers: (2, 11, 0); zeros when it cannot be read."""
        return parse_version(self.version)

    def at_least(self, major: int, minor: int = 0, patch: int = 0) -> bool:
        """True when the server's release is that one or later; a pre-release counts as its release.

        Without `minor` and `patch`: any release of that major version.
        """
        return self.version_tuple >= (major, minor, patch)


MAX_URLS = 2000
"""Most URLs to keep from a list in INFO: a hostile one may have any number, and the last INFO stays in memory."""

MAX_DEPTH = 100
"""Most levels of nested arrays and objects; real servers need two or three."""

_BRACKETS = re.compile(rb'"[^"]*"?|[\[{\]}]')

_decoder = msgspec.json.Decoder(ServerInfo)


def decode_info(raw: bytes) -> ServerInfo:
    """Decode INFO. Raises InvalidInfo for any error in the JSON."""
    if _too_deep(raw):
        raise InvalidInfo(f"INFO is not understood (nested more than {MAX_DEPTH} deep): {shorten(raw)}")
    try:
        info = _decoder.decode(raw)
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise InvalidInfo(f"INFO is not understood ({type(error).__name__}: {error}): {shorten(raw)}") from None
    if len(info.connect_urls) > MAX_URLS or len(info.ws_connect_urls) > MAX_URLS:
        return msgspec.structs.replace(
            info, connect_urls=info.connect_urls[:MAX_URLS], ws_connect_urls=info.ws_connect_urls[:MAX_URLS]
        )
    return info


def _too_deep(raw: bytes) -> bool:
    """msgspec leaves the depth to the interpreter's stack. Some Python versions raise RecursionError, but 3.14 first
    uses up all 8 MB."""
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return False
    depth = 0
    for match in _BRACKETS.finditer(raw.replace(b"\\\\", b"").replace(b'\\"', b"")):
        first = match[0][0]
        if first in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif first in b"]}":
            depth -= 1
    return False


def parse_version(text: str) -> tuple[int, int, int]:
    """`"v2.11.0-RC.1"` -> (2, 11, 0); anything unreadable -> (0, 0, 0)."""
    match = _VERSION.match(text)
    if match is None:
        return (0, 0, 0)
    major, minor, patch = match.groups("0")
    return (int(major), int(minor), int(patch))


class ConnectInfo(msgspec.Struct, kw_only=True, rename={"password": "pass"}):
    """The CONNECT options. Values of None are left out. The three booleans that a server defaults to true are always
    sent.

    Attributes:
        verbose: Ask for +OK after every command.
        pedantic: Ask the server to check subjects strictly.
        echo: Get back what this connection publishes.
        tls_required: The client wants TLS.
        name: Name of the connection, shown by the server's monitoring.
        lang: The name of this client library.
        version: Its version.
        protocol: 1 means that the server may send INFO at any time.
        headers: It understands headers.
        no_responders: It wants a 503 if there is no subscriber; needs `headers`.
        user: User name.
        password: Password.
        auth_token: Token.
        jwt: User JWT.
        nkey: Public nkey.
        sig: Signature of the nonce, base64url.
    """

    verbose: bool = False
    pedantic: bool = False
    echo: bool = True
    tls_required: bool = False
    name: str | None = None
    lang: str = "python-jsclient"
    version: str = "0"
    protocol: int = 1
    headers: bool = True
    no_responders: bool = True
    user: str | None = None
    password: str | None = None
    auth_token: str | None = None
    jwt: str | None = None
    nkey: str | None = None
    sig: str | None = None

    def encode(self) -> bytes:
        """The JSON; it escapes CR and LF, so no value can break out of the line."""
        wire = msgspec.to_builtins(self)
        return msgspec.json.encode({key: value for key, value in wire.items() if value is not None})

    def __repr__(self) -> str:
        shown = []
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None:
                shown.append(f"{name}=***" if name in _SECRETS else f"{name}={value!r}")
        return f"ConnectInfo({', '.join(shown)})"
