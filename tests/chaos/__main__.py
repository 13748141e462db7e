"""Histories under faults: `python -m tests.chaos --seed 1 --seconds 120 --out build/chaos`.

Threads use a cluster of three servers (keys with compare and set, appends with expected sequences, publishes with and
without ids, consumers with confirmed acks, an ordered reader, a watcher) while servers are killed, paused and parted
and links are cut and slowed. Every operation is recorded; in the end the histories are judged. Exit status 1 when the
client said something wrong, or something is not explained. What a server does wrong is listed and is no failure.

A seed repeats the faults and the choices of every client; when threads run is up to the machine.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.chaos.picture import svg_of
from tests.chaos.report import text_of
from tests.chaos.rig import Rig
from tests.chaos.run import Run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    parser.add_argument("--runs", type=int, default=1, help="one after another, each with the next seed")
    parser.add_argument("--seconds", type=float, default=120.0, help="of faults in each run")
    parser.add_argument("--sync", default="always", help="sync_interval of the servers; their own default is 2m")
    parser.add_argument("--out", type=Path, default=Path("build/chaos"), help="folder of the reports")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    bad = 0
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        with Rig(sync=arguments.sync) as rig:
            result = Run(rig, seed, arguments.seconds)()
        text = text_of(result, rig.wire)
        name = f"{result.version}-seed{seed}"
        (arguments.out / f"{name}.txt").write_text(text + "\n", encoding="utf-8")
        (arguments.out / f"{name}.svg").write_text(svg_of(result), encoding="utf-8")
        print(text, flush=True)
        bad += len(result.of("client")) + len(result.of("undecided"))
    print(f"reports and pictures: {arguments.out}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
