"""jsclient.urls and the pool of servers: parsing, back-off, discovery. No clock, no network."""

from __future__ import annotations

import itertools
import pickle
import random
import traceback
from typing import Any

import pytest

from jsclient._connection.servers import BACKOFF_MAX, FIRST_JITTER, FLAP_SPACING, MAX_DISCOVERED, ServerPool
from jsclient.auth.secret import Secret
from jsclient.errors import ConfigError
from jsclient.options import ConnectOptions
from jsclient.spark.secret import ServerUrl
from jsclient.urls import Server, masked, parse_url, parse_urls

# --- URLs


@pytest.mark.parametrize(
    ("url", "scheme", "host", "port"),
    [
        ("nats://host:4333", "nats", "host", 4333),
        ("nats://host", "nats", "host", 4222),
        ("host:4333", "nats", "host", 4333),
        ("host", "nats", "host", 4222),
        ("127.0.0.1:1", "nats", "127.0.0.1", 1),
        ("NATS://Host", "nats", "host", 4222),
        ("tls://host", "tls", "host", 4222),
        ("ws://host", "ws", "host", 80),
        ("wss://host", "wss", "host", 443),
        ("nats://[::1]:4333", "nats", "::1", 4333),
        ("[::1]", "nats", "::1", 4222),
        ("nats://host:4222/", "nats", "host", 4222),
        ("host_with_underscore:4222", "nats", "host_with_underscore", 4222),
    ],
)
def test_urls(url: str, scheme: str, host: str, port: int) -> None:
    server = parse_url(url)
    assert (server.scheme, server.host, server.port) == (scheme, host, port)
    assert server.wants_tls == (scheme in ("tls", "wss"))
    assert server.websocket == (scheme in ("ws", "wss"))
    assert not server.has_credentials


def test_user_information() -> None:
    server = parse_url("nats://us%40er:p%3Aw@host")
    assert (server.user, server.password, server.token) == ("us@er", Secret("p:w"), None)
    token = parse_url("nats://marker@host")
    assert (token.user, token.password, token.token) == ("", None, Secret("marker"))
    assert parse_url("u:p@host:1").user == "u"


def test_nothing_secret_shows() -> None:
    server = parse_url("nats://user:marker@host:1")
    pool = ServerPool("nats://user:marker@host:1")
    for text in (repr(server), str(server), server.url, server.address, repr(pool), repr(pool.servers())):
        assert "marker" not in text
    assert pickle.loads(pickle.dumps(server)) == server


URLS_WITH_SECRETS = [
    "wss://host/nats?token=marker",
    "wss://user:marker@host/nats?token=marker",
    "wss://marker@host?marker",
    "wss://host/nats?token=a@marker",
    "nats://user:mar?marker@host",
    "wss://host:99999/nats?token=marker",
    "wss://host:port/nats?token=marker",
    "wss://ho st/nats?token=marker",
    "wss://host/nats?token=marker#x",
    "wss://host/nats#marker",
    "http://host/nats?token=marker",
    "host/nats?token=marker",
    "nats://host?token=marker",
    "wss://[::1/nats?token=marker",
    "wss://[zz::1]/nats?token=marker",
    "wss://h\u2100st/nats?token=marker",
    "nats://marker:@host",
    "nats://marker:@host/path",
    "nats://joe:marker",
    "joe:marker",
    "nats://joe:marker/x",
    "nats://joe:1,marker@host",
    "nats://joe:marker,1@host",
    "nats://tok,marker@host",
    "nats://marker,tok@host",
    "marker,tok@host",
    "nats://a,joe:mar,marker@host,b",
    "nats://joe:p,http://marker@host",
    "ws://host/nats?token=a,marker",
    "ws://host/nats?token=marker,a",
    "ws://joe:marker,x@host/nats?token=marker,a",
]


@pytest.mark.parametrize("url", URLS_WITH_SECRETS)
def test_user_information_and_queries_never_show(url: str) -> None:
    texts = [masked(url), repr(ServerUrl(url)), f"{ServerUrl(url)}"]
    try:
        texts += [repr(ConnectOptions(servers=url)), repr(ConnectOptions(servers=[url]))]
        server = parse_url(url)
    except ConfigError as error:
        texts += [str(error), repr(error), "".join(traceback.format_exception(error))]
    else:
        pool = ServerPool(url)
        pool.connected(server, 0)
        found = pool.update(["other:1"], ["other:1"])
        texts += [
            repr(server),
            str(server),
            server.url,
            f"{server!r:>20}",
            repr(pool),
            repr(pool.servers()),
            repr(found),
        ]
    for text in texts:
        assert "marker" not in text


def test_websocket_paths() -> None:
    assert parse_url("ws://host/nats/in?x=1").path == "/nats/in?x=1"
    assert parse_url("ws://host").path == "/"
    assert parse_url("ws://host/nats").url == "ws://host:80/nats"
    assert parse_url("nats://[::1]:4").url == "nats://[::1]:4"


@pytest.mark.parametrize(
    "url",
    [
        "",
        " ",
        "nats://",
        "nats://:4222",
        "http://host",
        "nats://host:99999",
        "nats://host:0",
        "nats://host:port",
        "nats://ho st",
        "nats://host\r\n",
        "nats://host\x00",
        "nats://host/path",
        "nats://host?x=1",
        "nats://host#fragment",
        "nats://[::1",
        "nats://[zz::1]",
        "nats://user:mar#ker@host",
        "nats://user:mar/ker@host",
        "nats://user:mar[ker@host",
        "nats://user:marker@host:x",
        "nats://user:marker@",
        "a" * 5000,
        "host<script>",
        3,
        None,
    ],
)
def test_wrong_urls_are_refused_and_secrets_masked(url: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_url(url)
    text = str(caught.value)
    assert len(text) < 500
    assert "mar" not in text
    assert "ker@" not in text


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("nats://[fe80::1%25eth0]:1", "fe80::1%eth0"),
        ("nats://[fe80::1%eth0]:1", "fe80::1%eth0"),
        ("nats://[fe80::1%252]:1", "fe80::1%2"),
        ("nats://[fe80::1%2]:1", "fe80::1%2"),
        ("nats://[fe80::1%25]:1", "fe80::1%25"),
    ],
)
def test_the_zone_of_an_ipv6_address(url: str, host: str) -> None:
    server = parse_url(url)
    assert server.host == host
    assert parse_url(server.url).host == host or host.endswith("%25")


def password(server: Server) -> str | None:
    return None if server.password is None else server.password.reveal()


def test_several_urls() -> None:
    assert [s.host for s in parse_urls("a, b,c:1")] == ["a", "b", "c"]
    assert [s.host for s in parse_urls(["a", "tls://b"])] == ["a", "b"]
    mixed = "nats://joe:p%2Cw@a:1,b,TLS://tok@c:3, nats://joe:x@[::1]:4,d:5"
    assert [(s.host, s.port) for s in parse_urls(mixed)] == [("a", 1), ("b", 4222), ("c", 3), ("::1", 4), ("d", 5)]
    assert [password(server) for server in parse_urls(mixed)] == ["p,w", None, None, "x", None]
    assert ConnectOptions(servers=["a,b", "c"]).servers == ("a", "b", "c")
    for wrong in ([], "a,,b", ["ws://a", "nats://b"], "nats://joe:a,b@c", ["nats://a,b@c"], "a,joe:b@c", "ws://a?b,c"):
        with pytest.raises(ConfigError):
            parse_urls(wrong)


# --- picking and back-off


def make(urls: Any = "a,b,c", **options: Any) -> ServerPool:
    return ServerPool(urls, **{"randomize": False, "rng": random.Random(1), **options})


def hosts(pool: ServerPool) -> list[str]:
    return [server.host for server in pool.servers()]


def attempt(pool: ServerPool) -> tuple[float, str]:
    delay, server = pool.delay(), pool.next()
    assert server is not None
    pool.failed(server)
    return delay, server.host


def test_the_order_goes_round_and_the_first_round_waits_for_nothing() -> None:
    pool = make()
    seen = [attempt(pool) for _ in range(7)]
    assert [host for _, host in seen] == ["a", "b", "c", "a", "b", "c", "a"]
    delays = [delay for delay, _ in seen]
    assert delays[:3] == [0, 0, 0]
    assert delays[4:6] == [0, 0]
    assert 0 < delays[3] <= 0.05
    assert 0 < delays[6] <= 0.1


def test_back_off_doubles_to_four_seconds_with_full_jitter() -> None:
    seen: list[list[float]] = []
    for seed in range(200):
        pool = make("a", rng=random.Random(seed))
        seen.append([attempt(pool)[0] for _ in range(12)])
    assert all(delays[0] == 0 for delays in seen)
    for number in range(11):
        full = min(BACKOFF_MAX, 0.05 * 2**number)
        delays = [one[number + 1] for one in seen]
        assert 0 <= min(delays) < 0.05 * full
        assert 0.95 * full < max(delays) <= full
        assert 0.4 * full < sum(delays) / len(delays) < 0.6 * full


def test_a_herd_does_not_come_back_as_one() -> None:
    """The first attempt after a loss is spread over a tenth of a second; the first one of all is not."""
    delays = []
    for seed in range(200):
        pool = make("a", rng=random.Random(seed))
        assert (pool.delay(0.0), pool.next(0.0)) == (0.0, pool.servers()[0])
        pool.connected(pool.servers()[0], now=100.0)
        pool.disconnected(now=110.0)
        delays.append(pool.delay(110.0))
    assert min(delays) < 0.05 * FIRST_JITTER < 0.95 * FIRST_JITTER < max(delays) <= FIRST_JITTER


def test_back_off_starts_anew_after_a_healthy_second() -> None:
    pool = make("a")
    for _ in range(10):
        attempt(pool)
    server = pool.servers()[0]
    pool.connected(server, now=100.0)
    assert pool.current == server
    pool.disconnected(now=103.0)
    assert pool.current is None
    assert pool.delay(103.0) <= FIRST_JITTER


@pytest.mark.parametrize("lived", [0.0, 0.3, 0.9, 1.5, 1.99])
@pytest.mark.parametrize("urls", ["a", "a,b,c"])
def test_a_server_that_flaps_is_dialled_every_two_seconds_at_most(urls: str, lived: float) -> None:
    pool = make(urls)
    now = 1000.0
    dialled: dict[str, list[float]] = {}
    for _ in range(60):
        server = pool.next(now)
        assert server is not None
        wait = pool.delay(now)
        assert wait <= FLAP_SPACING + 0.2
        now += wait
        dialled.setdefault(server.host, []).append(now)
        pool.connected(server, now)
        now += lived
        pool.disconnected(now, served=False)
    assert len(dialled) == len(pool)
    for times in dialled.values():
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert min(gaps) >= FLAP_SPACING
        assert len({round(gap, 3) for gap in gaps}) > 3, "all clients of a flapping server would come in one wave"


def test_a_server_that_served_and_was_cut_off_is_dialled_at_once() -> None:
    pool = make("a")
    now, waits = 1000.0, []
    for _ in range(60):
        assert pool.next(now) is not None
        waits.append(pool.delay(now))
        now += waits[-1]
        pool.connected(pool.servers()[0], now)
        now += 0.3
        pool.disconnected(now, served=True)
    assert max(waits) <= 0.2
    assert sum(waits) / len(waits) > 0.05


def test_a_delay_hook_decides_about_flapping_too() -> None:
    pool = make("a", delay_hook=lambda number: 0.01)
    server = pool.next(5.0)
    assert server is not None
    pool.connected(server, 5.0)
    pool.disconnected(5.1)
    assert pool.next(5.1) == server
    assert pool.delay(5.1) == 0.01


def test_randomised_unless_told_otherwise() -> None:
    urls = [f"h{i}" for i in range(50)]
    assert hosts(ServerPool(urls, randomize=False)) == urls
    assert hosts(ServerPool(urls, rng=random.Random(1))) != urls
    assert sorted(hosts(ServerPool(urls))) == sorted(urls)


def test_attempts_per_server_are_limited() -> None:
    pool = make("a,b", max_attempts=2)
    assert [attempt(pool)[1] for _ in range(4)] == ["a", "b", "a", "b"]
    assert pool.next() is None
    assert len(pool) == 0


def test_success_resets_the_attempts() -> None:
    pool = make("a", max_attempts=2)
    server = pool.servers()[0]
    for _ in range(5):
        pool.failed(server)
        pool.connected(server, 0)
        pool.disconnected(10)
    assert len(pool) == 1


def test_delay_hook() -> None:
    asked = []

    def hook(number: int) -> float:
        asked.append(number)
        return number * 10.0

    pool = make("a", delay_hook=hook)
    assert [attempt(pool)[0] for _ in range(4)] == [0, 10, 20, 30]
    assert asked == [1, 2, 3]
    assert make("a", delay_hook=lambda number: -5).delay() == 0


def test_lame_duck_is_the_last_choice() -> None:
    pool = make("a,b")
    lame = pool.next()
    assert lame is not None
    pool.connected(lame, 0)
    assert pool.has_alternative()
    pool.lame_duck(lame)
    assert [attempt(pool)[1] for _ in range(3)] == ["b", "b", "b"]
    alone = make("a")
    alone.connected(alone.servers()[0], 0)
    assert not alone.has_alternative()
    alone.lame_duck(alone.servers()[0])
    assert attempt(alone)[1] == "a"


def test_replace() -> None:
    pool = make()
    pool.replace("x,y")
    assert hosts(pool) == ["x", "y"]
    with pytest.raises(ConfigError):
        pool.replace(["ws://x", "nats://y"])
    with pytest.raises(ConfigError):
        pool.replace([])
    assert hosts(pool) == ["x", "y"]


def test_duplicates_count_once() -> None:
    assert hosts(make("a,a:4222,nats://a")) == ["a"]


# --- discovery


def connected(urls: Any, **options: Any) -> tuple[ServerPool, Server]:
    pool = make(urls, **options)
    server = pool.next()
    assert server is not None
    pool.connected(server, 0)
    return pool, server


def test_discovered_servers_come_and_go_and_named_ones_stay() -> None:
    pool, _ = connected("a,b")
    new = pool.update(["b:4222", "c:4222", "10.0.0.1:4223"])
    assert [server.host for server in new] == ["c", "10.0.0.1"]
    assert not any(server.explicit for server in new)
    assert sorted(hosts(pool)) == ["10.0.0.1", "a", "b", "c"]
    assert pool.update(["c:4222"]) == []
    assert sorted(hosts(pool)) == ["a", "b", "c"]
    assert pool.update([]) == []
    assert sorted(hosts(pool)) == ["a", "b", "c"]


def test_the_current_server_stays_though_not_named() -> None:
    pool, _ = connected("a")
    [c] = pool.update(["c:4222"])
    pool.connected(c, 1)
    pool.update(["d:4222"])
    assert sorted(hosts(pool)) == ["a", "c", "d"]


def test_discovered_servers_inherit_scheme_credentials_and_tls_name() -> None:
    pool, _ = connected("tls://u:p@nats.example.com:4222")
    ip, v6, name = pool.update(["10.0.0.1:4222", "[fe80::1]:4222", "other.example.com:4222"])
    assert ip.wants_tls
    assert (ip.user, ip.password) == ("u", Secret("p"))
    assert (ip.tls_name, v6.tls_name, name.tls_name) == ("nats.example.com", "nats.example.com", "")
    pool.connected(ip, 1)
    [second] = pool.update(["10.0.0.2:4222", "10.0.0.1:4222"])
    assert second.tls_name == "nats.example.com"


@pytest.mark.parametrize(
    ("url", "named", "tls_name"),
    [
        ("n1.example.com", "evil.attacker.net:4222", "n1.example.com"),
        ("n1.example.com", "n1.example.com.attacker.net:4222", "n1.example.com"),
        ("n1.example.com", "badexample.com:4222", "n1.example.com"),
        ("n1.example.com", "n2.example.com:4222", "n1.example.com"),
        ("n1.example.com", "example.com:4222", "n1.example.com"),
        ("example.com", "n2.example.com:4222", "example.com"),
        ("shop.co.uk", "evil.co.uk:4222", "shop.co.uk"),
        ("me.github.io", "evil.github.io:4222", "me.github.io"),
        ("example.com", "other.com:4222", "example.com"),
        ("nats", "evil:4222", "nats"),
        ("10.0.0.1", "n1.example.com:4222", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.2:4222", "10.0.0.1"),
    ],
)
def test_names_told_in_clear_get_no_certificate_of_their_own_choice(url: str, named: str, tls_name: str) -> None:
    pool, _ = connected(f"tls://{url}")
    [new] = pool.update([named], doubtful=True)
    assert new.tls_name == tls_name
    # Not from one to the next either: what that server is said to name is held against the user's URL, too.
    pool.connected(new, 1)
    [further] = pool.update(["further.attacker.net:4222"], doubtful=True)
    assert further.tls_name == tls_name


def test_what_was_told_in_clear_is_confirmed_inside_tls() -> None:
    pool, _ = connected("tls://n1.example.com")
    pool.update(["n2.other.net:4222", "evil.attacker.net:4222"], doubtful=True)
    assert pool.update(["n1.example.com:4222", "n2.other.net:4222"]) == []
    assert {s.host: s.tls_name for s in pool.servers()} == {"n1.example.com": "", "n2.other.net": ""}
    # The next INFO in clear takes nothing back, and adds only what has to prove itself.
    pool.update(["evil.attacker.net:4222"], doubtful=True)
    assert {s.host: s.tls_name for s in pool.servers()} == {
        "n1.example.com": "",
        "n2.other.net": "",
        "evil.attacker.net": "n1.example.com",
    }
    confirmed = next(s for s in pool.servers() if s.host == "n2.other.net")
    pool.connected(confirmed, 1)
    [new] = pool.update(["evil2.attacker.net:4222"], doubtful=True)
    assert new.tls_name == "n1.example.com"


def test_a_discovered_server_never_loses_tls() -> None:
    pool, _ = connected("tls://a")
    assert [server.scheme for server in pool.update(["nats://b:4222", "ws://c:80", "d:4222"])] == ["tls"] * 3


def test_websocket_pools_take_the_websocket_list() -> None:
    pool, _ = connected("wss://a/path")
    [new] = pool.update(["plain:4222"], ["b:443"])
    assert (new.scheme, new.host, new.port, new.path) == ("wss", "b", 443, "/path")
    [second] = pool.update(["c:443"])
    assert (second.scheme, second.host) == ("wss", "c")
    plain, _ = connected("a")
    assert [server.host for server in plain.update(["plain:4222"], ["b:443"])] == ["plain"]


@pytest.mark.parametrize(
    "junk", ["", " ", "a b:1", "x:99999", "\r\n", "u:p@host:1", "x" * 400, None, 3, [], {}, "http://x", "[::1", "x:-1"]
)
def test_junk_is_ignored(junk: Any) -> None:
    pool, _ = connected("a")
    assert [server.host for server in pool.update([junk, "good:1"])] == ["good"]


def test_the_pool_is_capped() -> None:
    pool, _ = connected("a,b")
    for start in (0, 50, 10_000):
        pool.update([f"h{i}:4222" for i in range(start, start + 20_000)])
        assert len(pool) <= MAX_DISCOVERED + 2
        assert {"a", "b"} <= set(hosts(pool))


@pytest.mark.parametrize("costs", [5.0, 0.001])
def test_the_users_server_is_tried_soon_among_a_thousand_dead_ones(costs: float) -> None:
    """83 minutes it took, at 5 s for each. It waits two seconds between two attempts; then it is the next."""
    pool, own = connected("own")
    pool.update([f"10.0.{i >> 8}.{i & 255}:4222" for i in range(1000)])
    now = 100.0
    pool.disconnected(now)
    own_tried: list[float] = []
    for _ in range(300):
        server = pool.next(now)
        assert server is not None
        now += pool.delay(now)
        if server == own:
            own_tried.append(now)
        now += costs
        pool.failed(server)
    assert own_tried[0] <= 100 + 2 * 5.0 + 2
    gaps = [later - earlier for earlier, later in itertools.pairwise(own_tried)]
    assert max(gaps) <= 2 * 5.0 + 2 + BACKOFF_MAX


def test_discovery_can_be_ignored() -> None:
    pool, _ = connected("a", ignore_discovered=True)
    assert pool.update(["b:1"]) == []
    assert hosts(pool) == ["a"]


def test_a_lame_server_that_is_named_again_is_usable() -> None:
    pool, first = connected("a,b")
    pool.lame_duck(first)
    pool.disconnected(10)
    other = pool.next()
    assert other is not None
    pool.connected(other, 11)
    pool.update(["b:4222"])
    assert not pool.has_alternative()
    pool.update(["a:4222", "b:4222"])
    assert pool.has_alternative()


def test_servers_of_a_doubtful_info_do_not_come_on_top_of_confirmed_ones() -> None:
    pool, _ = connected("a")
    pool.update([f"h{number}:4222" for number in range(MAX_DISCOVERED)])
    assert pool.update([f"other{number}:4222" for number in range(MAX_DISCOVERED)], doubtful=True) == []
    assert len(pool) == MAX_DISCOVERED + 1


def test_a_server_of_the_user_comes_two_seconds_after_its_last_attempt() -> None:
    pool, own = connected("own")
    pool.update([f"h{number}:4222" for number in range(5)])
    pool.disconnected(90.0, served=True)
    assert pool.next(100.0) == own
    pool.failed(own)
    for now in (100.1, 101.9):
        server = pool.next(now)
        assert server is not None
        assert server != own
        pool.failed(server)
    assert pool.next(102.0) == own
