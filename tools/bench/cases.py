"""What is measured: a name, a workload, how many messages, and what jsclient must reach against nats-py."""

from __future__ import annotations

from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Case:
    """One workload. `cpu` and `wall` are the least ratios to nats-py that it must reach (None: shown, not gated);
    `stretch_cpu` and `stretch_wall` are what a prototype without validation and reconnect reached."""

    name: str
    work: str
    count: int
    size: int = 128
    cpu: float | None = None
    wall: float | None = None
    stretch_cpu: float | None = None
    stretch_wall: float | None = None
    main: bool = False
    """Part of `make bench` without CASES."""
    check: float | None = None
    """CPU ratio below which `make bench-check` fails: about two thirds of what is reached, as it runs few rounds,
    beside other work."""
    seeded: bool = False
    """Needs a stream that holds `count` messages."""
    tls: bool = False
    rtt: float = 0.0
    """Seconds of round trip that are added."""
    network: str = ""
    """What is between the client and the server: see `networks`. Its wall ratio counts on a loaded machine, too."""
    params: dict[str, Any] = attrs.field(factory=dict)
    versus: str = ""
    """Compare with this case of jsclient itself, in the same rounds, instead of a peer; `cpu` is then the most that
    it may cost more, `wall` the least rate."""
    solo: bool = False
    """Run by jsclient only."""
    limits: dict[str, float] = attrs.field(factory=dict)
    """For `solo`: the most seconds (`wall`), share of a core (`busy`), megabytes (`rss`, `rss_grown`)."""
    least: dict[str, float] = attrs.field(factory=dict)
    """For `solo`: what a figure of its own must reach."""


def _sizes(name: str, work: str, counts: dict[int, int], **rest: Any) -> list[Case]:
    """The same workload at other payload sizes; shown, not gated."""
    return [Case(name=f"{name}-{size}", work=work, count=count, size=size, **rest) for size, count in counts.items()]


MAIN = [
    Case(name="core-publish", work="core_publish", count=200_000, cpu=1.4, wall=1.3, stretch_cpu=2.5, stretch_wall=2.0,
         check=1.5, main=True),
    Case(name="core-subscribe", work="core_subscribe", count=200_000, cpu=3.5, wall=3.0, stretch_cpu=5.0,
         stretch_wall=4.5, check=3.0, main=True),
    Case(name="request", work="request", count=5_000, cpu=1.4, wall=1.05, stretch_cpu=2.0, stretch_wall=1.4, check=1.4,
         main=True),
    Case(name="publish-sync", work="publish_sync", count=5_000, cpu=1.5, wall=1.25, stretch_cpu=2.4, stretch_wall=1.9,
         check=1.6, main=True),
    Case(name="publish-async", work="publish_async", count=60_000, cpu=4.5, wall=2.5, stretch_cpu=8.0,
         stretch_wall=4.0, check=3.6, main=True, params={"window": 1000}),
    Case(name="publish-async-file", work="publish_async", count=60_000, cpu=4.5, wall=2.5, stretch_cpu=8.0,
         stretch_wall=4.0, main=True, params={"window": 1000, "storage": "file"}),
    Case(name="fetch-100", work="fetch", count=40_000, cpu=5.0, wall=3.0, stretch_cpu=9.0, stretch_wall=4.0, check=6.0,
         main=True, seeded=True, params={"batch": 100}),
    Case(name="fetch-1000", work="fetch", count=40_000, cpu=7.0, wall=3.0, stretch_cpu=12.0, stretch_wall=5.0,
         check=8.5, main=True, seeded=True, params={"batch": 1000}),
    Case(name="messages-ack", work="messages", count=60_000, cpu=2.0, wall=1.2, stretch_cpu=3.2, stretch_wall=1.5,
         check=1.8, main=True, seeded=True, params={"ack": "explicit"}),
    Case(name="consume-ack", work="consume", count=60_000, cpu=2.0, wall=1.2, stretch_cpu=3.2, stretch_wall=1.5,
         main=True, seeded=True, params={"ack": "explicit"}),
    Case(name="messages-none", work="messages", count=60_000, cpu=2.5, wall=1.5, stretch_cpu=3.5, stretch_wall=2.0,
         check=2.2, main=True, seeded=True, params={"ack": "none"}),
    Case(name="consume-none", work="consume", count=60_000, cpu=2.5, wall=1.5, stretch_cpu=3.5, stretch_wall=2.0,
         main=True, seeded=True, params={"ack": "none"}),
    Case(name="ordered", work="ordered", count=60_000, cpu=2.5, wall=1.5, stretch_cpu=3.5, stretch_wall=2.0, main=True,
         seeded=True),
    Case(name="kv-get", work="kv_get", count=5_000, cpu=2.0, wall=2.0, stretch_cpu=3.0, stretch_wall=3.0, check=1.8,
         main=True),
    Case(name="kv-put", work="kv_put", count=5_000, cpu=1.6, wall=1.3, stretch_cpu=2.2, stretch_wall=1.8, check=1.6,
         main=True),
    Case(name="object-put", work="object_put", count=1, size=64 << 20, cpu=1.3, wall=1.2, stretch_cpu=1.7,
         stretch_wall=1.7, main=True),
    Case(name="object-get", work="object_get", count=1, size=64 << 20, cpu=1.5, wall=1.5, stretch_cpu=2.5,
         stretch_wall=3.0, main=True),
]  # fmt: skip

SIZES = [
    *_sizes("core-publish", "core_publish", {16: 200_000, 1024: 100_000, 16384: 20_000}),
    *_sizes("core-subscribe", "core_subscribe", {16: 200_000, 1024: 100_000, 16384: 20_000}),
    *_sizes("publish-async", "publish_async", {16: 60_000, 1024: 40_000, 16384: 8_000}, params={"window": 1000}),
    *_sizes("fetch-1000", "fetch", {16: 40_000, 1024: 30_000, 16384: 6_000}, seeded=True, params={"batch": 1000}),
    *_sizes("messages-none", "messages", {16: 60_000, 1024: 40_000, 16384: 8_000}, seeded=True, params={"ack": "none"}),
]

OTHERS = [
    Case(name="core-publish-headers", work="core_publish", count=150_000, versus="core-publish", cpu=1.5,
         params={"headers": True}),
    Case(name="core-subscribe-headers", work="core_subscribe", count=150_000, versus="core-subscribe", cpu=1.5,
         params={"headers": True}),
    Case(name="messages-none-headers", work="messages", count=60_000, versus="messages-none", cpu=1.5, seeded=True,
         params={"ack": "none", "headers": True}),
    Case(name="core-publish-tls", work="core_publish", count=100_000, size=1024, versus="core-publish-1024", cpu=1.4,
         tls=True),
    Case(name="core-subscribe-tls", work="core_subscribe", count=100_000, size=1024, versus="core-subscribe-1024",
         cpu=1.4, tls=True),
    Case(name="core-publish-4-threads", work="core_publish", count=200_000, versus="core-publish", cpu=2.5,
         params={"threads": 4}),
    Case(name="core-publish-8-threads", work="core_publish", count=200_000, versus="core-publish", cpu=2.5,
         params={"threads": 8}),
    Case(name="core-publish-64-threads", work="core_publish", count=200_000, versus="core-publish", cpu=2.5, wall=0.4,
         params={"threads": 64}),
    Case(name="core-subscribe-100-open", work="core_subscribe", count=200_000, versus="core-subscribe", cpu=1.3,
         params={"open": 100}),
    Case(name="core-subscribe-10000-open", work="core_subscribe", count=200_000, versus="core-subscribe", cpu=1.3,
         params={"open": 10_000}),
    Case(name="core-subscribe-10000-spread", work="core_spread", count=200_000, versus="core-subscribe", cpu=3.0,
         params={"subjects": 10_000}),
    Case(name="replay-1m", work="replay", count=1_000_000, seeded=True, solo=True,
         limits={"rss": 40.0, "rss_grown": 3.0}),
    Case(name="pool-1", work="worker_pool", count=60_000, versus="consume-ack", cpu=1.3, seeded=True,
         params={"threads": 1}),
    Case(name="pool-8", work="worker_pool", count=60_000, versus="consume-ack", cpu=2.0, seeded=True,
         params={"threads": 8}),
    # At most 1.2 times what msgspec takes for the same payloads in the same loop.
    Case(name="decode", work="decode", count=40_000, solo=True, least={"of msgspec's speed": 0.83}),
    # Megabytes. What our own program adds to the paths of the server and the disk, which take turns to be the slower.
    Case(name="backup-1g", work="saving", count=1024, solo=True, limits={"rss": 120.0},
         least={"x of the slower of server and disk": 0.9, "x of the server's restore": 0.9}),
    Case(name="idle", work="idle", count=1, solo=True, limits={"busy": 0.01}),
    Case(name="import", work="import_time", count=1, solo=True, limits={"wall": 0.15}),
]  # fmt: skip

THREADS = [
    # Threads that wait for their answers: one connection, as many tasks for the peer. Stretch is the goal.
    *(
        Case(name=f"threads-{name}-{threads}", work=f"threads_{work}", count=count, size=128, cpu=cpu.get(threads),
             wall=wall.get(threads), seeded=work == "double_ack", params={"threads": threads})
        for name, work, count, cpu, wall in (
            ("publish", "publish", 30_000, {4: 1.33, 16: 1.1, 64: 0.77}, {4: 1.15, 16: 1.0, 64: 0.6}),
            ("request", "request", 30_000, {4: 1.1, 16: 0.87, 64: 0.77}, {4: 0.95, 16: 0.85, 64: 0.6}),
            ("double-ack", "double_ack", 20_000, {16: 0.87, 64: 0.77}, {16: 0.85, 64: 0.6}),
        )
        for threads in (1, 4, 16, 64)
    ),
    Case(name="callback-responder", work="callback_responder", count=3_000, wall=1.1, stretch_wall=1.4),
    Case(name="publish-after-quiet", work="first_publish", count=2_000, cpu=1.0, wall=1.0, stretch_wall=1.4),
    *(
        Case(name=f"callbacks-{subjects}", work="many_callbacks", count=200_000, cpu=cpu, wall=wall, size=128,
             params={"subjects": subjects})
        for subjects, cpu, wall in ((1, 3.0, 3.0), (100, 2.2, 2.2), (1_000, 1.7, 1.5), (10_000, 1.6, 1.6))
    ),
    # Each process has a connection, as the workers of a web server have: CPU is that of all of them.
    *(
        Case(name=f"processes-{name}-{processes}", work=f"processes_{name}", count=count, cpu=cpu,
             seeded=name == "fetch", params={"processes": processes, "batch": 100})
        for name, count, cpu in (("publish", 20_000, 1.4), ("fetch", 40_000, 4.0))
        for processes in (4, 16)
    ),
    # 1.8 times one process where two bare loops reach twice: nine tenths of what the machine gives.
    Case(name="processes-worker-2", work="processes_worker", count=3_000, solo=True, params={"processes": 2},
         least={"of what the machine gives": 0.9}),
    Case(name="messages-read", work="messages_read", count=60_000, seeded=True, cpu=2.5, wall=1.5),
    Case(name="double-ack-many-10", work="confirmed_acks", count=20_000, seeded=True, cpu=2.0, wall=1.5,
         params={"batch": 10}),
    Case(name="double-ack-many-100", work="confirmed_acks", count=20_000, seeded=True, cpu=4.0, wall=3.0,
         params={"batch": 100}),
]  # fmt: skip


def _far(milliseconds: int) -> list[Case]:
    """The same over a long line; with the windows that both clients have by default."""

    def case(name: str, work: str, count: int, **rest: Any) -> Case:
        return Case(
            name=f"far-{milliseconds}-{name}", work=work, count=count, rtt=milliseconds / 1000, wall=1.0, **rest
        )

    return [
        case("publish-async", "publish_async", 60_000, params={"window": None}),
        case("fetch-100", "fetch", 3_000, seeded=True, params={"batch": 100}),
        case("batches-100", "batches", 3_000, seeded=True, params={"batch": 100}),
        case("messages-none", "messages", 60_000, seeded=True, params={"ack": "none"}),
        case("messages-ack", "messages", 60_000, seeded=True, params={"ack": "explicit"}),
        case("consume-none", "consume", 60_000, seeded=True, params={"ack": "none"}),
        case("ordered", "ordered", 60_000, seeded=True),
        case("kv-get", "kv_get", 20),
        case("object-put", "object_put", 1, size=16 << 20),
        case("object-get", "object_get", 1, size=16 << 20),
        case("threads-publish-16", "threads_publish", 640, params={"threads": 16}),
    ]


# Over round trips as within a country, between continents, around the world. The proxy is in the bench's own process:
# it delays every chunk and passes as many as come.
FAR = [case for milliseconds in (30, 60, 100, 200) for case in _far(milliseconds)]

EQUAL = 0.95
"""Of the time of nats-py, which moves by some hundredths where both wait for the same line."""


def _net(network: str, paths: str) -> list[Case]:
    """Every path over a bad network, with the defaults of both clients. On a slow or dying line there is less to do."""
    few = network in ("64k", "dead")  # and no core-publish: the flush of nats-py does not wait for a slow line
    stored, big = (3_000, 512 << 10) if few else (20_000, 8 << 20)
    made = [
        Case(name="core-publish", work="core_publish", count=3_000 if few else 100_000),
        Case(name="publish-sync", work="publish_sync", count=20 if network == "300ms" else 50),
        Case(name="publish-async", work="publish_async", count=stored, params={"window": None}),
        Case(name="fetch-100", work="fetch", count=1_500, seeded=True, params={"batch": 100}),
        Case(name="messages-none", work="messages", count=stored, seeded=True, params={"ack": "none"}),
        Case(name="messages-ack", work="messages", count=stored, seeded=True, params={"ack": "explicit"}),
        Case(name="consume-ack", work="consume", count=stored, seeded=True, params={"ack": "explicit"}),
        Case(name="ordered", work="ordered", count=stored, seeded=True),
        Case(name="kv-get", work="kv_get", count=20 if network == "300ms" else 50),
        Case(name="object-put", work="object_put", count=1, size=big),
        Case(name="object-get", work="object_get", count=1, size=big),
    ]
    return [
        attrs.evolve(case, name=f"net-{network}-{case.name}", network=network, wall=case.wall or EQUAL)
        for case in made
        if (not paths or case.name in paths.split()) and (network, case.name) != ("64k", "core-publish")
    ]


# On the line that dies only what is long enough to meet its end, and cannot lose anything by it: what is published
# without an id, or read without acks, may.
NET = [
    *(case for network in ("100ms", "300ms", "loss", "64k") for case in _net(network, "")),
    *_net("dead", "messages-ack ordered object-put"),
]

ALL = {case.name: case for case in [*MAIN, *SIZES, *OTHERS, *THREADS, *FAR, *NET]}


def chosen(names: str | None, check: bool) -> list[Case]:
    """The cases for a run: by name, or else by the beginning of names, comma-separated; "all" is everything."""
    if names == "all":
        return list(ALL.values())
    if not names:
        return [case for case in MAIN if (case.check is not None if check else case.main)]
    parts = [part.strip() for part in names.split(",")]
    found = [
        case
        for part in parts
        for case in ([ALL[part]] if part in ALL else [case for case in ALL.values() if case.name.startswith(part)])
    ]
    if not found:
        raise SystemExit(f"no case begins with {names!r}; there are: {', '.join(ALL)}")
    return found
