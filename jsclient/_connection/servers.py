"""The pool of servers that a connection picks from. No I/O; the clock is an argument."""

from __future__ import annotations

import importlib.util
import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from jsclient import handlers, waiting
from jsclient.errors import ConfigError
from jsclient.options import PoolServer
from jsclient.urls import Server, is_ip, parse_url, parse_urls

FIRST_JITTER: Final = 0.1  # The first attempt after a loss begins within these seconds, to spread a herd.
BACKOFF_FIRST: Final = 0.05  # Most seconds before the second round through the pool. It doubles from there.
BACKOFF_MAX: Final = 4.0  # As in async-nats. Go's fixed 2 s is slow at first and hard on a herd.
HEALTHY_AFTER: Final = 1.0  # Seconds a link must have lived for the back-off to start again.
FLAP_ROUND: Final = 3  # A link that died young continues from here: 0.2 s, not 4 s.
FLAP_SPACING: Final = 2.0  # Seconds between two links to a server that drops us before serving us.


def before_first(rng: random.Random) -> float:
    """Seconds before the first attempt after a link was lost."""
    return rng.uniform(0.0, FIRST_JITTER)


def before_round(number: int, rng: random.Random) -> float:
    """Seconds before round `number` (1, 2, ...) through the servers: a random part of a maximum that doubles."""
    return rng.uniform(0.0, min(BACKOFF_MAX, BACKOFF_FIRST * 2.0 ** min(number - 1, 16)))


MAX_SERVERS: Final = 1000  # The user's own servers.
MAX_DISCOVERED: Final = 100  # A hostile INFO may name any number (reliability X10). Real clusters are smaller.
OWN_AGAIN: Final = 2.0  # Seconds after which a server of the user is tried before the next discovered one.
DelayHook = Callable[[int], float]


class _Entry(msgspec.Struct, eq=False):
    server: Server
    failures: int = 0  # in a row; limited by max_attempts
    lame: bool = False
    confirmed: bool = True  # False: named only by an INFO that anyone in between may have written
    tried: float = -math.inf  # when it was picked, or lost
    not_before: float = -math.inf  # the client avoids a flapping server until then

    def named_again(self, server: Server | None, doubtful: bool) -> None:
        """A live server has named it in its INFO: a restarted one is no longer a lame duck."""
        if server is None:
            return
        self.lame = False
        if not doubtful and not self.confirmed:
            self.server, self.confirmed = server, True


class ServerPool:
    """Decides which server to try next, and after what delay. It is thread-safe; `now` is a monotonic clock.

    A round is one pass over the pool. The first attempt after a loss waits up to 0.1 s. There is no other wait inside
    the first round. After each full round without success the maximum delay doubles, from 0.05 s to 4 s, and the client
    waits a random part of it (full jitter). The back-off starts again once a link has lived for a second.

    `delay_hook(round)` (1, 2, ...) replaces these delays and returns seconds. If a server accepts the client and drops
    it immediately, the client connects to it every 2 s.
    """

    def __init__(
        self,
        urls: str | Iterable[str] | Sequence[Server],
        *,
        randomize: bool = True,
        max_attempts: int | None = None,
        ignore_discovered: bool = False,
        cap: int = MAX_SERVERS,
        delay_hook: DelayHook | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._lock = waiting.new_lock()
        self._rng = rng or random.Random()
        self._randomize = randomize
        self._max_attempts = max_attempts
        self._ignore_discovered = ignore_discovered
        self._cap = cap
        self._delay_hook = delay_hook
        self._entries: list[_Entry] = []
        self._current: Server | None = None
        self._tried = 0  # servers tried in this round
        self._round = 0
        self._up_since: float | None = None
        self._lost = False  # there was a link
        self._picked: _Entry | None = None
        self.websocket: bool = False
        self.replace(urls)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"ServerPool({[server.url for server in self.servers()[:10]]}, {len(self)} servers)"

    def servers(self) -> list[Server]:
        """All servers, in the order in which they will be tried."""
        with self._lock:
            return [entry.server for entry in self._entries]

    @property
    def current(self) -> Server | None:
        """The server of the current link, None while there is none."""
        return self._current

    def replace(self, urls: str | Iterable[str] | Sequence[Server]) -> None:
        """Use these servers from now on and forget all others, including discovered ones."""
        try:
            given: list[str | Server] = [urls] if isinstance(urls, str) else list(urls)
        except TypeError:
            raise ConfigError(f"servers must be a str or a sequence of them, not {type(urls).__name__}") from None
        servers = [item for item in given if isinstance(item, Server)]
        texts = [item for item in given if not isinstance(item, Server)]
        servers += parse_urls(texts) if texts or not servers else []
        if len({server.websocket for server in servers}) > 1:
            raise ConfigError("websocket URLs (ws, wss) and plain ones (nats, tls) cannot be mixed in one connection")
        if servers[0].websocket and importlib.util.find_spec("websockets") is None:
            raise ConfigError("ws:// and wss:// URLs need an extra: pip install 'jsclient[websocket]'")
        unique = list({(server.scheme, server.host, server.port): server for server in servers}.values())
        if self._randomize:
            self._rng.shuffle(unique)
        with self._lock:
            self._entries = [_Entry(server) for server in unique[: self._cap]]
            self.websocket = unique[0].websocket
            self._tried = self._round = 0

    # --- picking

    def next(self, now: float = 0.0) -> Server | None:
        """The server to try now (after waiting for `delay()`), None when all have used up their attempts.

        The server just tried goes to the end. A server in lame duck mode comes only when no other is left. A server of
        the user that was not tried for two seconds comes before the next discovered one. A hostile INFO may have named
        a hundred of these, and each may cost the full `connect_timeout`.
        """
        with self._lock:
            usable = [e for e in self._entries if not e.lame] or self._entries
            if not usable:
                return None
            ready = [e for e in usable if e.not_before <= now]
            own = (e for e in ready if e.server.explicit and now - e.tried >= OWN_AGAIN)
            entry = next(own, None) if self._tried or self._round else None
            if entry is None:
                entry = ready[0] if ready else min(usable, key=lambda e: e.not_before)
            return self._pick(entry, now)

    def _pick(self, entry: _Entry, now: float) -> Server:
        self._entries.remove(entry)
        self._entries.append(entry)
        entry.tried = now
        self._picked = entry
        return entry.server

    def choices(self, others: bool = False) -> list[PoolServer]:
        """All servers, in the order of the next attempts. `others` leaves out the server in use and servers that are
        about to stop."""
        with self._lock:
            return [
                PoolServer(
                    url=entry.server.url,
                    attempts=entry.failures,
                    discovered=not entry.server.explicit,
                    lame_duck=entry.lame,
                )
                for entry in self._entries
                if not others or not (entry.lame or self._is_current(entry))
            ]

    def _is_current(self, entry: _Entry) -> bool:
        current = self._current
        return current is not None and (entry.server.host, entry.server.port) == (current.host, current.port)

    def choose(self, url: str, now: float) -> Server | None:
        """The server with that URL, for the next attempt; None when it is not in the pool."""
        with self._lock:
            entry = next((entry for entry in self._entries if entry.server.url == url), None)
            return None if entry is None else self._pick(entry, now)

    def delay(self, now: float = 0.0) -> float:
        """Seconds to wait before connecting to the server that `next` returned; 0 inside the first round."""
        with self._lock:
            at_start, number, lost = self._tried == 0, self._round, self._lost
            picked = self._picked
        if at_start and number and self._delay_hook is not None:
            return max(0.0, float(handlers.ran(self._delay_hook(number))))
        rest = 0.0 if picked is None or self._delay_hook is not None else max(0.0, picked.not_before - now)
        if not at_start:
            return rest
        return rest + (before_round(number, self._rng) if number else before_first(self._rng) if lost else 0.0)

    # --- what happened

    def failed(self, server: Server) -> None:
        """An attempt at `server` failed. With max_attempts failures in a row the server leaves the pool."""
        with self._lock:
            entry = self._find(server.host, server.port)
            if entry is not None:
                entry.failures += 1
                if self._max_attempts is not None and 0 < self._max_attempts <= entry.failures:
                    self._entries.remove(entry)
                    self._tried -= 1
            self._tried += 1
            self._close_round()

    def _close_round(self) -> None:
        if self._tried >= len(self._entries):
            self._tried = 0
            self._round += 1

    def connected(self, server: Server, now: float) -> None:
        """A link to `server` is up."""
        with self._lock:
            self._current = server
            self._up_since = now
            self._tried = 0
            self._round = min(self._round, FLAP_ROUND - 1)
            entry = self._find(server.host, server.port)
            if entry is not None:
                entry.failures = 0
                entry.lame = False

    def disconnected(self, now: float, served: bool = False) -> None:
        """The link is gone. If it lived for a second the back-off starts again, else it continues.

        `served`: a message or a PONG came over it. A server that greets and drops us flaps, so the client avoids it for
        a while: many clients could keep it from coming up. A server that served us was cut off, and the client connects
        to it immediately.
        """
        with self._lock:
            lived = self._up_since is not None and now - self._up_since >= HEALTHY_AFTER
            entry = None if self._current is None else self._find(self._current.host, self._current.port)
            if entry is not None:
                entry.tried = now  # others come first: this one may no longer exist
                if not served and self._up_since is not None:
                    entry.not_before = self._up_since + FLAP_SPACING
            self._up_since = None
            self._current = None
            self._tried = 0
            self._lost = True
            self._round = 0 if lived else self._round + 1

    def lame_duck(self, server: Server) -> None:
        """`server` is shutting down: use others as long as there are any."""
        with self._lock:
            entry = self._find(server.host, server.port)
            if entry is not None:
                entry.lame = True

    def has_alternative(self) -> bool:
        """True when the pool has a server other than the current one that is not shutting down."""
        with self._lock:
            return any(not entry.lame and not self._is_current(entry) for entry in self._entries)

    # --- discovery

    def update(
        self,
        connect_urls: Sequence[str] | None,
        ws_connect_urls: Sequence[str] | None = None,
        *,
        doubtful: bool = False,
    ) -> list[Server]:
        """Adopt the servers that an INFO of the current server names; returns the new ones.

        Discovered servers that INFO no longer names leave the pool. The user's own servers always stay. The client
        ignores entries that are not addresses, and all entries beyond the cap. Discovered servers inherit scheme and
        user information. Bare IP addresses also inherit the name that the certificate must carry. This name never comes
        from INFO, because an attacker could write anything there.

        `doubtful`: this INFO came unencrypted, so anyone in between may have written it. It could name a host with a
        valid certificate for its own name, to collect our credentials there once the link is cut. A server that only
        such an INFO names needs a certificate for the host of the user's URL, until an INFO inside TLS names it, too.
        """
        # For a websocket client, nats-server 2.9 to 2.15 put the websocket addresses into connect_urls.
        named = (self.websocket and ws_connect_urls) or connect_urls
        source = self._current
        if not named or source is None or self._ignore_discovered:
            return []
        found: dict[tuple[str, int], Server] = {}
        for text in named[: MAX_DISCOVERED * 2]:
            server = _discovered(text, source, doubtful)
            if server is not None and len(found) < MAX_DISCOVERED:
                found[(server.host, server.port)] = server
        return self._merge(found, source, doubtful)

    def _merge(self, found: dict[tuple[str, int], Server], source: Server, doubtful: bool) -> list[Server]:
        with self._lock:
            keep = {(source.host, source.port), *found}
            self._entries = [
                e
                for e in self._entries
                if e.server.explicit or (e.server.host, e.server.port) in keep or (doubtful and e.confirmed)
            ]
            for entry in self._entries:
                again = found.pop((entry.server.host, entry.server.port), None)
                entry.named_again(again, doubtful)
            room = MAX_DISCOVERED - sum(not e.server.explicit for e in self._entries)
            new = list(found.values())[: max(0, room)]
            if self._randomize:
                self._rng.shuffle(new)
            self._entries.extend(_Entry(server, confirmed=not doubtful) for server in new)
            return new

    def _find(self, host: str, port: int) -> _Entry | None:
        return next((e for e in self._entries if e.server.host == host and e.server.port == port), None)


def _discovered(text: object, source: Server, doubtful: bool) -> Server | None:
    if not isinstance(text, str) or len(text) > 300 or "@" in text:
        return None
    try:
        server = parse_url(text if "://" in text else f"{source.scheme}://{text}", explicit=False)
    except ConfigError:
        return None
    origin = source.origin or source.host
    keeps_name = doubtful or (is_ip(server.host) and not is_ip(origin))
    return msgspec.structs.replace(
        server,
        scheme=source.scheme,
        path=source.path,
        user=source.user,
        password=source.password,
        token=source.token,
        tls_name=origin if keeps_name else "",
        origin=origin,
    )
