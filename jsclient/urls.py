"""Addresses of servers: URLs, their meaning, and their printable form."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from jsclient.auth.secret import Literal, Secret
from jsclient.errors import ConfigError

DEFAULT_PORTS: Final = {"nats": 4222, "tls": 4222, "ws": 80, "wss": 443}
MAX_URL_LENGTH: Final = 4096
_QUERY: Final = re.compile("[?#]")
_NEXT_SERVER: Final = re.compile(rf",(?=\s*(?:{'|'.join(DEFAULT_PORTS)})://)", re.IGNORECASE)
_NOT_A_PORT: Final = re.compile(r"(^[^\[/:]*:)(?![0-9]*(?:/|$))[^/]*")  # of a host that is not an IPv6 address


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """One address. `token` is a single word before the @. User information and query are never shown."""

    scheme: str
    host: str
    port: int
    user: str = ""
    password: Secret | None = None
    token: Secret | None = None
    path: str = "/"
    tls_name: str = ""
    """The name that a certificate must carry; differs from `host` if another server named this one."""
    origin: str = ""
    """The host of the user's URL through which this server was discovered, "" for that server itself."""
    explicit: bool = True
    """True if the user named it; False for servers from INFO."""

    @property
    def wants_tls(self) -> bool:
        return self.scheme in ("tls", "wss")

    @property
    def websocket(self) -> bool:
        return self.scheme in ("ws", "wss")

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL without user information and query: safe to log."""
        path = self.path.partition("?")[0]
        address = self.address.replace("%", "%25")  # before the zone of an IPv6 address
        return f"{self.scheme}://{address}" + (path if self.websocket and path != "/" else "")

    @property
    def has_credentials(self) -> bool:
        return bool(self.user or self.token)

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        named = f", tls_name={self.tls_name!r}" if self.tls_name else ""
        return f"Server({self.url!r}{named}, explicit={self.explicit})"


# --- URLs -----------------------------------------------------------------------------------------------


def parse_urls(urls: str | Iterable[str]) -> list[Server]:
    """Several URLs: one string with commas, or a sequence of such. Raises ConfigError."""
    texts = [urls] if isinstance(urls, str) else urls
    servers = [parse_url(text) for item in texts for text in split_urls(item)]
    if not servers:
        raise ConfigError("no server URL was given")
    if len({server.websocket for server in servers}) > 1:
        raise ConfigError("websocket URLs (ws, wss) and plain ones (nats, tls) cannot be mixed in one connection")
    return servers


def parse_url(url: str, *, explicit: bool = True) -> Server:
    """`nats://`, `tls://`, `ws://`, `wss://` with optional `user:password@` or `token@`, or bare `host:port`.

    Raises ConfigError with the reason, which never quotes the part before the @.
    """
    if not isinstance(url, str):
        raise ConfigError(f"a server URL must be text, not {type(url).__name__}")
    if not url or len(url) > MAX_URL_LENGTH:
        raise ConfigError("a server URL must have 1 to 4096 characters" if url else "a server URL must not be empty")
    shown = masked(url)
    if any(char <= " " or char == "\x7f" for char in url):
        raise ConfigError(f"the server URL {shown!r} contains blanks or control characters")
    scheme, found, rest = url.partition("://")
    scheme = scheme.lower() if found else "nats"
    if scheme not in DEFAULT_PORTS:
        raise ConfigError(f"the server URL {shown!r} must begin with nats://, tls://, ws:// or wss://")
    try:
        parts = urlsplit(f"{scheme}://{rest if found else url}")
        port = parts.port
    except ValueError:
        # Without the text of that error, which may quote a part of the password.
        raise ConfigError(
            f"the server URL {shown!r} cannot be read. A port is a number up to 65535, and an IPv6 address needs "
            "brackets. Percent-encode special characters in user, password and query"
        ) from None
    if port == 0:
        raise ConfigError(
            f"the server URL {shown!r} has port 0: give the port that the server listens on (4222 by default)"
        )
    _check_rest(parts, scheme, shown)
    user, password, token = _user_info(parts)
    return Server(
        scheme=scheme,
        host=_checked_host(parts, shown),
        port=port if port is not None else DEFAULT_PORTS[scheme],
        user=user,
        password=password,
        token=token,
        path=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        explicit=explicit,
    )


def masked(url: str) -> str:
    """A URL, even an invalid one, without the parts that may be secret: user information, query and fragment."""
    scheme, found, rest = url.partition("://")
    if not found:
        scheme, rest = "", url
    before, at, host = rest.rpartition("@")
    if at and ("?" in before or "#" in before):
        # An @ in the query, or a ? in the password: it is unclear which part is the host.
        return (f"{scheme}://" if found else "") + "***"
    shown = _QUERY.split(host, maxsplit=1)
    if not at:
        shown[0] = _NOT_A_PORT.sub(r"\1***", shown[0])  # user and password, and the host was forgotten
    return (f"{scheme}://" if found else "") + ("***@" if at else "") + shown[0] + ("?***" if len(shown) > 1 else "")


def _check_rest(parts: SplitResult, scheme: str, shown: str) -> None:
    if parts.fragment:
        raise ConfigError(f"the server URL {shown!r} has a part after #; percent-encode it if it is a password")
    if scheme in ("nats", "tls") and (parts.path not in ("", "/") or parts.query):
        raise ConfigError(f"the server URL {shown!r} has a path, which only ws:// and wss:// know")


def _checked_host(parts: SplitResult, shown: str) -> str:
    host = parts.hostname
    if not host:
        raise ConfigError(f"the server URL {shown!r} names no host")
    if ":" in host:
        address, percent, zone = host.partition("%")
        if len(zone) > 2 and zone.startswith("25"):  # RFC 6874: the % itself is percent-encoded
            zone = unquote(zone[2:])
        host = address + percent + zone
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ConfigError(f"the server URL {shown!r} has a wrong IPv6 address") from None
    elif len(host) > 255 or any(char in host for char in "[]<>\"'\\^`{|}*?,;"):
        raise ConfigError(f"the server URL {shown!r} has a wrong host name")
    return host


def _user_info(parts: SplitResult) -> tuple[str, Secret | None, Secret | None]:
    if parts.username is None:
        return "", None, None
    if parts.password is None:
        return "", None, Literal(unquote(parts.username))
    return unquote(parts.username), Literal(unquote(parts.password)), None


def is_ip(host: str) -> bool:
    """True for an IPv4 or IPv6 address, False for a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def split_urls(item: str) -> list[str]:
    """The URLs of one string, which may name several servers with commas.

    Raises ConfigError for a comma in front of an @ or in a query. It may belong to a password or token, whose rest
    would become a host.
    """
    if not isinstance(item, str):
        return [item]
    found: list[str] = []
    for part in _NEXT_SERVER.split(item):
        secrets = part.rpartition("@")[0] + "".join(_QUERY.split(part, maxsplit=1)[1:])
        if "," in secrets:
            raise ConfigError(
                "the server URLs have a comma before an @ or in a query. Write %2C for a comma in a user, password or "
                "token, and a scheme (nats://) before each server"
            )
        found += part.split(",")
    return [text.strip() for text in found]
