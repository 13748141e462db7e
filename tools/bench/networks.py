"""Bad networks: what stands between the clients and the server in the cases `net-*`, and the table of `make networks`.

One proxy per run, in the bench's own process, which has nothing to do meanwhile. It delays, slows and stalls bytes of a
TCP stream, so a lost packet is what it is for a program: nothing for as long as the system waits before it sends again,
then everything at once. Both clients use their defaults. `python -m tools.bench.networks` runs all of it and prints one
row per path; nats-py is the peer.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import attrs

from jsclient.testing import Proxy

if TYPE_CHECKING:
    from jsclient.testing import NatsServer
    from tools.bench.cases import Case
    from tools.bench.report import Result

SLOW: Final = 64 * 1024
"""Bytes per second of a slow line, in each direction."""

RETRANSMISSION: Final = (0.2, 0.4)
"""Seconds after which a lost packet is sent again, the first time and the second (Linux)."""

BETWEEN_LOSSES: Final = 0.7
"""Seconds between two losses, in the mean."""

DIES_AFTER: Final = 1.5
"""Seconds after its first connection at which a half-open line goes dead."""


@attrs.frozen(kw_only=True)
class Network:
    """What is done to every byte, and when."""

    about: str
    round_trip: float = 0.0
    """Seconds that are added to each."""
    rate: float = 0.0
    """Bytes per second in each direction; 0: no limit."""
    loses: bool = False
    """Stalls at random moments, as long as lost packets take."""
    dies: bool = False
    """The first connection goes dead without a word."""


NETWORKS: Final = {
    "100ms": Network(about="a round trip of 100 ms", round_trip=0.1),
    "300ms": Network(about="a round trip of 300 ms", round_trip=0.3),
    "loss": Network(about="40 ms, and a loss that stalls it 0.2 or 0.4 s every 0.7 s", round_trip=0.04, loses=True),
    "64k": Network(about="40 ms, and 64 KiB/s in each direction", round_trip=0.04, rate=SLOW),
    "dead": Network(about="64 KiB/s, dead without a word after 1.5 s; new links work", rate=SLOW, dies=True),
}


@contextlib.contextmanager
def line(case: Case, server: NatsServer, seed: int) -> Iterator[str]:
    """The URL under which the clients of a case reach the server. A seed repeats the moments of the losses."""
    network = NETWORKS[case.network] if case.network else Network(about="", round_trip=case.rtt)
    if network == Network(about=""):
        yield server.url
        return
    with Proxy(server.port) as proxy:
        proxy.delay(network.round_trip / 2)
        proxy.throttle(network.rate)
        over = threading.Event()
        trouble = threading.Thread(target=_trouble, args=(proxy, network, over, random.Random(seed)))
        trouble.start()
        try:
            yield proxy.url
        finally:
            over.set()
            trouble.join()


def _trouble(proxy: Proxy, network: Network, over: threading.Event, chance: random.Random) -> None:
    while network.loses and not over.wait(chance.expovariate(1 / BETWEEN_LOSSES)):
        direction: Any = chance.choice(("up", "down"))
        proxy.stall(direction)
        over.wait(chance.choice(RETRANSMISSION))
        proxy.resume(direction)
    while network.dies and not over.wait(0.05):
        if proxy.accepted:
            over.wait(DIES_AFTER)
            proxy.half_open()
            return


# --- the table ----------------------------------------------------------------------------------------------------


def main() -> int:
    from tools.bench import report
    from tools.bench.cases import NET
    from tools.bench.runner import BASELINE, Bench

    parser = argparse.ArgumentParser(prog="make networks", description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default="", help="parts of names, by comma: 300ms,fetch")
    parser.add_argument("--share", type=float, default=1.0, help="of the messages of every case")
    options = parser.parse_args()
    parts = [part for part in options.cases.split(",") if part]
    cases = [case for case in NET if not parts or any(part in case.name for part in parts)]
    found: dict[str, list[Result]] = {}
    missed: list[str] = []
    started = time.monotonic()
    with Bench(options.rounds, [BASELINE], options.share) as bench:
        for case in cases:
            bench.rounds = 1 if case.network == "dead" else options.rounds  # the peer needs minutes there
            rows = list(bench.run(case))
            found[case.name] = results = report.summarize(case, rows)
            missed += report.verdict(case, results, loaded=False)
            print(report.table(case, results), flush=True)
    print(f"\n{len(cases)} cases in {time.monotonic() - started:.0f} s\n")
    print(table(found, cases))
    print("\n".join(["", *missed]) if missed else "\nat least nats-py everywhere")
    return 1 if missed else 0


def table(found: dict[str, list[Result]], cases: list[Case]) -> str:
    """A row per path, a column per network: how many times faster than nats-py, and the seconds of both."""
    columns = [name for name in NETWORKS if any(case.network == name for case in cases)]
    paths = list(dict.fromkeys(case.name.partition(f"{case.network}-")[2] for case in cases))
    lines = [
        "| path | " + " | ".join(NETWORKS[name].about for name in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    counts = {case.name: case.count for case in cases}
    for path in paths:
        cells = [_cell(found.get(f"net-{name}-{path}", []), counts.get(f"net-{name}-{path}", 0)) for name in columns]
        lines.append(f"| {path} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(results: list[Result], count: int) -> str:
    if not results:
        return ""
    ours = results[0]
    theirs = results[1] if len(results) > 1 else None
    if not ours.rate:
        return "failed"
    own = f"{count / ours.rate:.1f} s"
    if theirs is None or not theirs.rate or ours.wall_ratio is None:
        return f"{own}; nats-py: {theirs.errors[0] if theirs and theirs.errors else 'not run'}"
    return f"**{ours.wall_ratio:.2f}x** ({own}; {count / theirs.rate:.1f} s)"


if __name__ == "__main__":
    from tools.bench.processes import end_on_signals

    end_on_signals()
    sys.exit(main())
