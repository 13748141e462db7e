"""The pool of servers that a connection picks from. No I/O; the clock is an argument."""

from __future__ import annotations

import importlib.util
import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import attrs

from jsclient import handlers, waiting
from jsclient.errors import ConfigError
from jsclient.options import PoolServer
from jsclient.urls import Server, is_ip, parse_url, parse_urls

FIRST_JITTER: Final = 0.1  # seconds within which the first attempt after a loss begins: a herd does not start as one
BACKOFF_FIRST: Final = 0.05  # most seconds before the second round through the pool; doubles from there
BACKOFF_MAX: Final = 4.0  # as async-nats does; Go's fixed 2 s is slow at first and hard on a herd
HEALTHY_AFTER: Final = 1.0  # seconds a link must have lived for the back-off to start anew
FLAP_ROUND: Final = 3  # a link that died young goes on from here: 0.2 s, not 4 s
FLAP_SPACING: Final = 2.0  # seconds between two links to a server that drops us before it has served us


def before_first(rng: random.Random) -> float:
    """Seconds before the first attempt after a link was lost."""
    return rng.uniform(0.0, FIRST_JITTER)


def before_round(number: int, rng: random.Random) -> float:
    """Seconds before round `number` (1, 2, ...) through the servers: any part of what doubles with each round."""
    return rng.uniform(0.0, min(BACKOFF_MAX, BACKOFF_FIRST * 2.0 ** min(number - 1, 16)))


MAX_SERVERS: Final = 1000  # of the user's
MAX_DISCOVERED: Final = 100  # a hostile INFO may name any number (reliability X10); real clusters are smaller
OWN_AGAIN: Final = 2.0  # seconds after which a server of the user is tried before the next discovered one
DelayHook = Callable[[int], float]


@attrs.define(eq=False)
class _Entry:
    server: Server
    failures: int = 0  # in a row; limited by max_attempts
    lame: bool = False
    confirmed: bool = True  # False: named only by an INFO that anybody between may have written
    tried: float = -math.inf  # when it was picked, or lost
    not_before: float = -math.inf  # a server that flaps is left alone until then


class ServerPool:
    """Which server to try next, and after what delay. Safe to use from several threads; `now` is a monotonic clock.

    A round is one pass over the pool. The first attempt after a loss waits up to 0.1 s, inside the first round nothing
    else is waited for; after each full round without success the delay doubles from 0.05 s to 4 s, and any part of
    it is waited (full jitter). It starts anew once a link has lived for a second. `delay_hook(round)` (1, 2, ...)
    replaces these delays and returns seconds. A server that takes us and drops us at once is dialled every 2 s.
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
        """The server of the present link, None while there is none."""
        return self._current

    def replace(self, urls: str | Iterable[str] | Sequence[Server]) -> None:
        """Use these servers from now on; forgets all others, discovered ones too."""
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

        The server just tried goes to the end; one in lame duck mode is taken only when no other is left. A server of
        the user that was not tried for two seconds comes before the next discovered one: of these a liar may have
        named a hundred, and each may cost the whole `connect_timeout`.
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
        """All servers, in the order in which they would be tried; with `others` without the one in use, and without
        those that are about to stop."""
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
        """The server of that URL, to be tried now; None when it is not in the pool."""
        with self._lock:
            entry = next((entry for entry in self._entries if entry.server.url == url), None)
            return None if entry is None else self._pick(entry, now)

    def delay(self, now: float = 0.0) -> float:
        """Seconds to wait before dialling what `next` has returned; 0 inside the first round."""
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
        """A link to `server` stands."""
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
        """The link is gone. If it lived for a second the back-off starts anew, else it goes on.

        `served`: something came over it, a message or a PONG. A server that greets and drops us flaps: it is left alone
        for a while, so that its clients do not keep it from coming up. One that served us was cut off, and is dialled
        at once.
        """
        with self._lock:
            lived = self._up_since is not None and now - self._up_since >= HEALTHY_AFTER
            entry = None if self._current is None else self._find(self._current.host, self._current.port)
            if entry is not None:
                entry.tried = now  # others come first: this one is perhaps no more
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
        """True when a server other than the current one is there that is not shutting down."""
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
        """Take over the servers that an INFO of the current server names; returns the new ones.

        Discovered servers that are no longer named are removed, named ones of the user never. What is
        not an address is ignored, and so is everything beyond the cap. They inherit scheme and user
        information, and as bare IP addresses also the name that the certificate must carry (never taken
        from INFO: an attacker could write anything there).

        `doubtful`: this INFO came in clear, so anybody between may have written it: a host with a good certificate
        for its own name, to be told our credentials there once the link is cut. What only such an INFO names needs a
        certificate for the host of the user's URL, until an INFO inside TLS names it, too.
        """
        # nats-server 2.9 to 2.15 put the websocket addresses into connect_urls when they talk to a websocket client.
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
                if again is None:
                    continue
                entry.lame = False  # named by a live server: a restarted one is no lame duck any more
                if not doubtful and not entry.confirmed:
                    entry.server, entry.confirmed = again, True
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
    return attrs.evolve(
        server,
        scheme=source.scheme,
        path=source.path,
        user=source.user,
        password=source.password,
        token=source.token,
        tls_name=origin if keeps_name else "",
        origin=origin,
    )
