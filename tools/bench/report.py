"""From rows to medians, ratios, verdicts, a table and charts."""

from __future__ import annotations

import json
import os
import statistics
from pathlib import Path
from typing import Any

import attrs

from tools.bench.cases import Case
from tools.bench.runner import BASELINE, BEFORE

BAR = 40
LATENCIES = ("request", "callback_responder", "first_publish")
"""Workloads with the median of one message as their time."""


@attrs.frozen
class Result:
    """Medians of one client in one case; the ratios are medians of the ratios to the baseline of the same round."""

    client: str
    rate: float
    cpu: float  # seconds per million messages
    rss: float
    rss_grown: float  # megabytes between the first tenth and the end, where that is measured
    p50: float | None
    p99: float | None
    cpu_ratio: float | None  # baseline / client: 2.0 means half its CPU
    wall_ratio: float | None
    switches: float | None  # voluntary context switches per message
    errors: tuple[str, ...]
    figures: dict[str, float] = attrs.field(factory=dict)
    """Of the case alone, by name."""
    before_cpu: float | None = None  # BEFORE / client: 2.0 means half the CPU of the earlier revision
    before_wall: float | None = None


def summarize(case: Case, rows: list[dict[str, Any]]) -> list[Result]:
    names = list(dict.fromkeys(row["client"] for row in rows))
    return [_summarize_client(case, name, rows) for name in names]


def _summarize_client(case: Case, name: str, rows: list[dict[str, Any]]) -> Result:
    mine = {row["round"]: row for row in rows if row["client"] == name}
    good = [row for row in mine.values() if "error" not in row]
    wall_key = "p50" if case.work in LATENCIES else "wall"

    def median(key: str) -> float | None:
        values = [row[key] for row in good if key in row]
        return statistics.median(values) if values else None

    def ratio(key: str, to: str = case.versus or BASELINE) -> float | None:
        base = {row["round"]: row[key] for row in rows if row["client"] == to and "error" not in row}
        values = [base[row["round"]] / max(row[key], 1e-9) for row in good if row["round"] in base]
        return statistics.median(values) if values and name != to else None

    wall, cpu = median("wall"), median("cpu")
    return Result(
        client=name,
        rate=case.count / wall if wall else 0.0,
        cpu=cpu / case.count * 1e6 if cpu is not None else 0.0,
        rss=median("rss") or 0.0,
        rss_grown=(median("rss") or 0.0) - first_tenth if (first_tenth := median("rss_first_tenth")) else 0.0,
        p50=median("p50"),
        p99=median("p99"),
        cpu_ratio=ratio("cpu"),
        wall_ratio=ratio(wall_key),
        before_cpu=ratio("cpu", BEFORE) if name == "jsclient" else None,
        before_wall=ratio(wall_key, BEFORE) if name == "jsclient" else None,
        switches=switches / case.count if (switches := median("switches")) is not None else None,
        errors=tuple(row["error"] for row in mine.values() if "error" in row),
        figures={
            key: statistics.median(row["figures"][key] for row in good)
            for key in (good[0].get("figures") or {} if good else {})
        },
    )


def verdict(case: Case, results: list[Result], loaded: bool) -> list[str]:
    """What was missed, in words; empty when every gate holds. Wall is gated only on a machine that is not loaded."""
    ours = next((result for result in results if result.client == "jsclient"), None)
    if ours is None or ours.errors:
        return [f"{case.name}: failed: {ours.errors[0] if ours else 'not run'}"]
    if case.solo:
        return verdict_solo(case, ours, loaded)
    missed: list[str] = []
    if case.versus or (case.cpu is None and not case.network):
        return missed
    if case.network and all(result.errors for result in results if result.client == BASELINE):
        return missed  # the baseline does not come through at all
    if ours.cpu_ratio is None:
        return [f"{case.name}: no baseline"]
    if case.cpu is not None and ours.cpu_ratio < case.cpu:
        missed.append(f"{case.name}: CPU {ours.cpu_ratio:.2f}x of {BASELINE}, must be {case.cpu:g}x")
    if case.wall and not loaded and ours.wall_ratio is not None and ours.wall_ratio < case.wall:
        missed.append(f"{case.name}: wall {ours.wall_ratio:.2f}x of {BASELINE}, must be {case.wall:g}x")
    return missed


def failures(case: Case, rows: list[dict[str, Any]]) -> list[str]:
    """The clients on whose runs a comparison depends, and that failed. On a bad network the peer may."""
    needed = {"jsclient", BEFORE, case.versus} | (set() if case.network else {BASELINE})
    errors: dict[str, list[str]] = {}
    for row in rows:
        if "error" in row and row["client"] in needed:
            errors.setdefault(row["client"], []).append(row["error"])
    return [f"{case.name}: {name} failed in {len(texts)} rounds: {texts[0]}" for name, texts in errors.items()]


def verdict_solo(case: Case, ours: Result, loaded: bool) -> list[str]:
    """What jsclient alone must keep: `limits` by name; wall only on a machine that is not loaded."""
    seconds = ours.cpu * case.count / 1e6
    wall = case.count / ours.rate if ours.rate else 0.0
    found = {"wall": wall, "busy": seconds / wall if wall else 0.0, "rss": ours.rss, "rss_grown": ours.rss_grown}
    too_much = [
        f"{case.name}: {name} {found[name]:.3g}, may be {limit:g}"
        for name, limit in case.limits.items()
        if found[name] > limit and not (loaded and name == "wall")
    ]
    too_little = [
        f"{case.name}: {ours.figures.get(name, 0.0):.2f} {name}, must be {least:g}"
        for name, least in case.least.items()
        if ours.figures.get(name, 0.0) < least and not loaded
    ]
    return too_much + too_little


def verdict_versus(case: Case, ours: Result) -> list[str]:
    """A case that is compared with another case of ours: it may cost `cpu` times as much, and not more."""
    if ours.errors or not ours.cpu_ratio or not ours.wall_ratio:
        return [f"{case.name}: failed: {ours.errors[0] if ours.errors else 'nothing to compare with'}"]
    missed = []
    if case.cpu is not None and 1 / ours.cpu_ratio > case.cpu:
        missed.append(f"{case.name}: {1 / ours.cpu_ratio:.2f}x the CPU of {case.versus}, may be {case.cpu:g}x")
    if case.wall is not None and ours.wall_ratio < case.wall:
        missed.append(f"{case.name}: {ours.wall_ratio:.2f}x the rate of {case.versus}, must be {case.wall:g}x")
    return missed


def table(case: Case, results: list[Result]) -> str:
    lines = []
    for result in results:
        ratios = ""
        if result.cpu_ratio is not None and result.wall_ratio is not None:
            ratios = f"  CPU {result.cpu_ratio:5.2f}x  wall {result.wall_ratio:5.2f}x"
        if result.before_cpu is not None and result.before_wall is not None:
            ratios += f"  to {BEFORE}: CPU {result.before_cpu:5.2f}x  wall {result.before_wall:5.2f}x"
        latency = f"  p50 {result.p50:6.0f} us  p99 {result.p99:6.0f} us" if result.p50 and result.p99 else ""
        if case.params.get("threads") and result.switches is not None:
            latency += f"  {result.switches:.1f} switches"
        latency += "".join(f"  {value:.2f} {name}" for name, value in result.figures.items())
        failed = f"  {len(result.errors)} failed: {result.errors[0]}" if result.errors else ""
        if case.count == 1:  # one object, one import: not a rate
            figures = f"{1 / result.rate if result.rate else 0.0:10.3f} s   {result.cpu / 1e6:8.3f} s CPU "
        else:
            figures = f"{result.rate:11,.0f}/s  {result.cpu:8.2f} s/1M"
        lines.append(f"{case.name:28} {result.client:19} {figures}  {result.rss:6.1f} MB{ratios}{latency}{failed}")
    return "\n".join(lines)


def chart(case: Case, results: list[Result]) -> str:
    """A bar per client, CPU per million messages (or of the one object): shorter is better, cut ones end in ">"."""
    scale, unit = (1e-6, "s") if case.count == 1 else (1.0, "s/1M")
    base = next((result.cpu for result in results if result.client == BASELINE), 0.0)
    most = max((result.cpu for result in results if not base or result.cpu <= 3 * base), default=0.0) or 1.0
    lines = []
    for result in results:
        length = max(1, round(result.cpu / most * BAR))
        bar = "#" * length if length <= BAR else "#" * (BAR - 1) + ">"
        lines.append(f"    {result.client:19} {bar:{BAR}} {result.cpu * scale:.2f} {unit}")
    return "\n".join(lines)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")


def read_rows(path: Path) -> dict[str, list[dict[str, Any]]]:
    """What `write_rows` has written, by case; of a round measured more than once the last one counts."""
    found: dict[str, dict[tuple[str, int], dict[str, Any]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        found.setdefault(row["case"], {})[row["client"], row["round"]] = row
    return {name: list(rows.values()) for name, rows in found.items()}


def loaded(rows: list[dict[str, Any]]) -> bool:
    """True when the load average was above the number of cores: then wall figures say nothing."""
    load: float = statistics.median(row["load"] for row in rows)
    return load > (os.cpu_count() or 1)


def plot(results: dict[str, list[Result]], path: Path) -> None:
    """CPU advantage over the baseline per case, as a picture (SVG or PNG by the name)."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text: a tenth of the size
    matplotlib.rcParams["svg.hashsalt"] = "jsclient"
    from matplotlib import pyplot

    names = [name for name, found in results.items() if {"jsclient", BASELINE} <= {r.client for r in found}]
    figure, axis = pyplot.subplots(figsize=(9, 0.35 * len(names) + 1.2))
    for offset, (key, colour) in enumerate((("cpu_ratio", "#2a6f97"), ("wall_ratio", "#a9d6e5"))):
        values = [
            next(getattr(r, key) or 0.0 for r in results[name] if r.client == "jsclient") for name in reversed(names)
        ]
        positions = [index + 0.2 - 0.4 * offset for index in range(len(names))]
        axis.barh(positions, values, height=0.38, color=colour, label="CPU per message" if not offset else "wall")
    axis.set_yticks(range(len(names)), list(reversed(names)))
    axis.axvline(1.0, color="black", linewidth=0.8)
    axis.set_xlabel(f"times better than {BASELINE} (same interleaved run)")
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)  # above: no bar lies below it
    figure.tight_layout()
    figure.savefig(path)
