"""`make bench ARGS=--readme`: the tables of README.md and of the page on performance, and the picture, from one run."""

from __future__ import annotations

import datetime as dt
import os
import platform
import re
from pathlib import Path
from typing import Any

from tools.bench import report
from tools.bench.runner import BASELINE

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PERFORMANCE = ROOT / "tools" / "docs" / "pages" / "performance.md"
PICTURE = Path(__file__).with_name("ratios.svg")

TITLES = {
    "core-publish": "core publish",
    "core-subscribe": "core subscribe",
    "request": "request, reply",
    "publish-sync": "publish, one by one",
    "publish-async": "publish, window of 1,000, memory",
    "publish-async-file": "the same, file",
    "fetch-100": "fetch 100, ack each",
    "fetch-1000": "fetch 1,000, ack each",
    "messages-ack": "messages(), ack each",
    "consume-ack": "consume(), ack each",
    "messages-none": "messages(), no acks",
    "consume-none": "consume(), no acks",
    "ordered": "ordered consumer",
    "kv-get": "key-value get",
    "kv-put": "key-value put",
    "object-put": "object put, 64 MiB",
    "object-get": "object get, 64 MiB",
}

#: What the README shows; the page on performance shows all of TITLES.
SHORT = ["core-publish", "request", "publish-sync", "fetch-100", "messages-ack"]

#: A cell holds two figures, and the text above the table says which. One column each would be ten columns.
HEAD = "| 128 bytes | jsclient | nats-py | nats-py needs | nats.go | nats.c |\n|---|---|---|---|---|---|\n"
_TABLE = re.compile(r"^\| 128 bytes \|.*?\n(?!\|)", re.M | re.S)
_MEASURED = re.compile(r"^Measured on .*?\n", re.M)


def refresh(results: dict[str, list[report.Result]], rows: list[dict[str, Any]]) -> None:
    """Replace the table and the line below it, and draw the picture. Every case must have been measured."""
    missing = [name for name in TITLES if name not in results]
    failed = [
        name for name in TITLES if any(r.errors for r in results.get(name, ()) if r.client in ("jsclient", BASELINE))
    ]
    if missing or failed:
        raise SystemExit(f"nothing is changed: not measured {missing}, failed {failed}")
    changed = {page: refreshed(page, results, names, rows) for page, names in pages().items()}
    for page, text in changed.items():
        page.write_text(text, encoding="utf-8")
    report.plot({name: results[name] for name in TITLES}, PICTURE)


def pages() -> dict[Path, list[str]]:
    """The pages with a table, and the cases that stand in it."""
    return {README: SHORT, PERFORMANCE: list(TITLES)}


def refreshed(page: Path, results: dict[str, list[report.Result]], names: list[str], rows: list[dict[str, Any]]) -> str:
    text = page.read_text(encoding="utf-8")
    for pattern, new in ((_TABLE, table(results, names)), (_MEASURED, measured(rows))):
        if not pattern.search(text):
            raise SystemExit(f"nothing in {page.name} looks like {pattern.pattern!r}")
        text = pattern.sub(lambda _, new=new: new, text, count=1)  # type: ignore[misc]
    return text


def table(results: dict[str, list[report.Result]], names: list[str]) -> str:
    return HEAD + "".join(row(TITLES[name], name, results[name]) for name in names)


def row(title: str, name: str, found: list[report.Result]) -> str:
    by_name = {result.client: result for result in found}
    ours = by_name["jsclient"]
    needs = f"{ours.cpu_ratio or 0:.1f}x CPU, {ours.wall_ratio or 0:.1f}x time"
    shown = [cell(name, by_name.get(client)) for client in ("jsclient", BASELINE, "nats.go", "nats.c")]
    return f"| {' | '.join([title, *shown[:2], needs, *shown[2:]])} |\n"


def cell(name: str, result: report.Result | None) -> str:
    """Messages per second and CPU per message. One object is shown as seconds and CPU seconds."""
    if result is None or not result.rate:
        return "-"
    if name.startswith("object"):
        return f"{1 / result.rate:.2f} s, {result.cpu / 1e6:.2f} s"
    return f"{result.rate:,.0f}/s, {result.cpu:.2f} µs"


def measured(rows: list[dict[str, Any]]) -> str:
    today, loads, last = dt.date.today(), [row["load"] for row in rows], rows[-1]
    return (
        f"Measured on {today.day} {today:%B %Y}: Python {platform.python_version()}, nats-server {last['server']}, "
        f"{os.cpu_count()} cores, load average {min(loads):.0f} to {max(loads):.0f}, medians of "
        f"{max(row['round'] for row in rows) + 1} interleaved rounds.\n"
    )
