"""`python -m tools.bench`: run cases, print a table, write JSON lines, compare with what must be reached."""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from pathlib import Path
from typing import Any

from tools.bench import processes, readme, report, revision
from tools.bench.cases import ALL, Case, chosen
from tools.bench.runner import BASELINE, CLIENTS, Bench

CHECK_ROUNDS = 3
CHECK_SHARE = 0.4
"""Of the messages of a case: `--check` is to take about a minute."""

MAX_CHECK_LOAD = 2.0
"""Load average per core above which `--check` says nothing: even CPU per message moves by 1.7x then."""


def main() -> int:
    options = arguments()
    if options.spark:
        from tools.bench import spark

        return int(spark.main())
    cases = chosen(options.cases, options.check)
    if options.list:
        print("\n".join(case.name for case in ALL.values()))
        return 0
    if options.check and overloaded():
        print(f"bench-check skipped: load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores says nothing")
        return 0
    if options.rows:
        kept = report.read_rows(Path(options.rows))
        rows = {case.name: kept[case.name] for case in cases if case.name in kept}
        for name, found in rows.items():
            print(report.table(ALL[name], report.summarize(ALL[name], found)))
    else:
        rows = measure(cases, options)
    results = {name: report.summarize(ALL[name], lines) for name, lines in rows.items()}
    missed = failed = [line for name in rows for line in report.failures(ALL[name], rows[name])]
    for name, summary in results.items():
        if any(line.startswith(f"{name}: ") for line in failed):
            continue
        missed = missed + judge(ALL[name], summary, report.loaded(rows[name]), options.check)
    if options.readme:
        readme.refresh(results, [row for found in rows.values() for row in found])
    if options.plot:
        report.plot(results, Path(options.plot))
    print()
    print("\n".join(missed) if missed else "every gate holds")
    return 1 if failed or (missed and (options.check or options.gate)) else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--cases", default=os.environ.get("CASES"), help='beginnings of names, by comma; or "all"')
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", default=",".join(client.name for client in CLIENTS[1:]))
    parser.add_argument("--before", default="", help="an earlier revision of the library, in the same rounds")
    parser.add_argument("--json", help="append a JSON line per run to this file")
    parser.add_argument("--rows", help="measure nothing: take what --json has written (the last run of each case)")
    parser.add_argument("--plot", help="write a picture of the ratios (.svg or .png)")
    parser.add_argument("--readme", action="store_true", help="write table and picture into the README")
    parser.add_argument("--check", action="store_true", help="few rounds, stored limits, exit 1 when one is missed")
    parser.add_argument("--gate", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--list", action="store_true", help="the names of the cases")
    parser.add_argument("--spark", action="store_true", help="the Spark cases")
    return parser.parse_args()


def overloaded() -> bool:
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > MAX_CHECK_LOAD * (os.cpu_count() or 1)


def measure(cases: list[Case], options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """The rows of every case; table and chart of each are printed when it is done."""
    peers = [BASELINE] if options.check else options.peers.split(",")
    rounds, share = (CHECK_ROUNDS, CHECK_SHARE) if options.check else (options.rounds, 1.0)
    measured: dict[str, list[dict[str, Any]]] = {}
    started = time.monotonic()
    earlier = revision.unpacked(options.before) if options.before else contextlib.nullcontext("")
    with earlier as before, Bench(rounds, peers, share, before) as bench:
        for case in cases:
            rows = measured[case.name] = list(bench.run(case))
            if options.json:
                report.write_rows(Path(options.json), rows)
            found = report.summarize(case, rows)
            print(report.table(case, found), flush=True)
            if len(found) > 1 and not options.check:
                print(report.chart(case, found), flush=True)
    print(f"{len(cases)} cases in {time.monotonic() - started:.0f} s")
    return measured


def judge(case: Case, found: list[report.Result], loaded: bool, check: bool) -> list[str]:
    if check:
        ratio = found[0].cpu_ratio
        if found[0].errors or ratio is None:
            return [f"{case.name}: failed: {found[0].errors}"]
        if case.check is not None and ratio < case.check:
            return [f"{case.name}: CPU {ratio:.2f}x of {BASELINE}, the limit is {case.check:g}x"]
        return []
    if case.versus:
        return report.verdict_versus(case, found[0])
    return report.verdict(case, found, loaded)


if __name__ == "__main__":
    processes.end_on_signals()  # not in `main`: tests call it in their own process
    raise SystemExit(main())
