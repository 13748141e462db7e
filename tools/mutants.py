"""Do the tests notice small faults? Each fault of tools/mutants.ini breaks one sentence of the documentation.

    python tools/mutants.py                 today's part of the faults, in about five minutes
    python tools/mutants.py --part 1/1      all of them
    python tools/mutants.py --only NAME     one fault (repeatable)
    python tools/mutants.py --list          their names, files and sentences

The tool puts one fault at a time into a temporary copy of the tree and runs the tests that the entry names. If they
pass, the fault has survived: the exit status is 1. `survives` in an entry gives the reason why no test notices it.
With `--all-tests` the short tier decides on the survivors of the named tests.
"""

from __future__ import annotations

import argparse
import configparser
import contextlib
import datetime as dt
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FAULTS = ROOT / "tools" / "mutants.ini"
SHORT = "not slow and not faults and not scale and not spark_modes and not docker"
PART = 40
"""Faults of one day's part; most of them take 2 to 10 s."""
MINUTES = 20.0
"""After this time no other fault is started."""
NAMED_SECONDS, ALL_SECONDS = 120.0, 1200.0
"""Time limits of the named tests and of the short tier. A fault that makes tests hang has been noticed."""
LEFT_OUT = (".git", ".venv*", ".tools", "build", "dist", "__pycache__", ".*_cache", ".hypothesis", "spark-warehouse")


class Fault(NamedTuple):
    name: str
    file: str
    says: str
    old: str
    new: str
    tests: list[str]
    survives: str

    def applied(self, text: str) -> str:
        """The text of the file with the fault in it. Raises ValueError unless `old` occurs once."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.old!r} occurs {text.count(self.old)} times in {self.file}")
        return text.replace(self.old, self.new)


def lines(text: str) -> str:
    """A text of the list. Its second line begins with `|`, because configparser drops the blanks before a line."""
    return "\n".join(line.removeprefix("|") for line in text.split("\n"))


def faults(path: Path = FAULTS) -> list[Fault]:
    entries = configparser.RawConfigParser(delimiters=("=",), comment_prefixes=("#",))
    entries.read(path, encoding="utf-8")
    return [
        Fault(
            name=name,
            file=entry["file"],
            says=entry["says"],
            old=lines(entry["old"]),
            new=lines(entry["new"]),
            tests=entry["tests"].split(),
            survives=entry.get("survives", ""),
        )
        for name, entry in entries.items()
        if name != entries.default_section
    ]


def part_of(found: list[Fault], text: str | None) -> list[Fault]:
    """Part K of N, every Nth fault from the Kth on. Without a text: one part a day, in turn."""
    if text is None:
        number = -(-len(found) // PART)
        chosen = dt.date.today().toordinal() % number
    else:
        chosen, number = (int(each) for each in text.split("/"))
        chosen -= 1
    return found[chosen::number]


def pytest(tree: Path, tests: list[str], limit: float) -> int | None:
    """The exit status of pytest in a tree, or None if it took longer than `limit` seconds."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"}
    server = ROOT / ".tools" / "nats-server"
    if server.exists():
        environment.setdefault("NATS_SERVER", str(server))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", SHORT, *tests]
    with (tree / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            command, cwd=tree, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def tried(tree: Path, fault: Fault, all_tests: bool) -> str:
    """Put one fault into the tree and run its tests: `noticed`, `SURVIVED`, or why that is not known."""
    path = tree / fault.file
    right = path.read_text(encoding="utf-8")
    path.write_text(fault.applied(right), encoding="utf-8")
    cached = path.resolve().parent / "__pycache__"
    shutil.rmtree(cached, ignore_errors=True)  # two versions of a file may have the same time
    try:
        status = pytest(tree, fault.tests, NAMED_SECONDS)
        if status == 0 and all_tests:
            status = pytest(tree, ["tests", "-n", "2"], ALL_SECONDS)
        if status in (3, 4, 5):
            return f"pytest ended with status {status}: do its tests exist?"
        return "SURVIVED" if status == 0 else "noticed"
    finally:
        path.write_text(right, encoding="utf-8")
        shutil.rmtree(cached, ignore_errors=True)


def run(chosen: list[Fault], all_tests: bool, minutes: float) -> int:
    begun, bad, survived, done = time.monotonic(), 0, 0, 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder, "tree")
        shutil.copytree(ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        named = sorted({test for fault in chosen for test in fault.tests})
        if pytest(tree, named, ALL_SECONDS) != 0:
            print((tree / "output.txt").read_text(errors="replace")[-3000:])
            print("The named tests fail without a fault. Fix them first.")
            return 2
        for fault in chosen:
            if time.monotonic() - begun > minutes * 60:
                print(f"{len(chosen) - done} faults were not tried: {minutes:g} minutes are over")
                break
            since = time.monotonic()
            verdict = tried(tree, fault, all_tests)
            done += 1
            survived += verdict == "SURVIVED"
            bad += verdict != "noticed" and not fault.survives
            remark = " (known)" if fault.survives and verdict != "noticed" else ""
            print(f"{fault.name:32} {verdict}{remark}  {time.monotonic() - since:.1f} s", flush=True)
            if verdict != "noticed":
                print(f"    {fault.file}: {fault.says}\n    {fault.old}  ->  {fault.new}", flush=True)
    print(f"{done} faults tried, {survived} survived")
    return int(bad > 0)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print the faults, and run nothing")
    parser.add_argument("--only", action="append", metavar="NAME", help="try this fault (repeatable)")
    parser.add_argument("--part", metavar="K/N", help=f"try part K of N; by default {PART} faults, in turn by day")
    parser.add_argument("--all-tests", action="store_true", help="run the short tier on what the named tests miss")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="start no fault later than this (20)")
    options = parser.parse_args(arguments)
    found = faults()
    if unknown := set(options.only or ()) - {fault.name for fault in found}:
        parser.error(f"no such faults: {', '.join(sorted(unknown))}")
    chosen = [fault for fault in found if fault.name in options.only] if options.only else part_of(found, options.part)
    if options.list:
        for fault in found if options.part is None and not options.only else chosen:
            print(f"{fault.name:32} {fault.file}: {fault.says}")
        return 0
    return run(chosen, options.all_tests, options.minutes)


if __name__ == "__main__":
    sys.exit(main())
