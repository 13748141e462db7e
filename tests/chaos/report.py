"""What a run found, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.chaos.history import OK
from tests.chaos.run import Result
from tests.chaos.wire import Wire

WRITES = ("put", "update", "create", "delete", "append")
#: Findings of each kind that are told with their operations, operations of each, and characters of its text.
MOST_FINDINGS, MOST_OPS, MOST_TEXT = 20, 12, 2000
GROUPS = {
    "writes of keys and expected sequences": WRITES,
    "reads from the leader": ("get",),
    "publish": ("publish", "publish with id"),
    "publish_async": ("publish_async", "publish_async with id"),
}


def text_of(result: Result, wire: Wire | None = None) -> str:
    return "\n".join([*_head(result), *_counts(result), *_gaps(result), *_faults(result), *_findings(result, wire)])


def _head(result: Result) -> Iterator[str]:
    notes = ", ".join(f"{value} {name}" for name, value in result.notes.items())
    count = len(result.history.ops)
    yield f"nats-server {result.version}, seed {result.seed}, {result.seconds:.0f} s: {count} operations"
    yield f"  {notes}"


def _counts(result: Result) -> Iterator[str]:
    counts = result.history.counts()
    outcomes = sorted({outcome for counter in counts.values() for outcome in counter})
    yield f"{'':24}" + "".join(f"{outcome:>12}" for outcome in outcomes)
    for kind, counter in sorted(counts.items()):
        yield f"{kind:24}" + "".join(f"{counter[outcome]:>12}" for outcome in outcomes)


def _gaps(result: Result) -> Iterator[str]:
    for name, kinds in GROUPS.items():
        taken = sorted(op.ended - op.invoked for op in result.history.ops if op.kind in kinds and op.outcome == OK)
        if taken:
            middle, late = taken[len(taken) // 2], taken[int(len(taken) * 0.99)]
            gap = result.history.longest_gap(kinds, result.seconds)
            yield f"{name}: median {middle * 1000:.0f} ms, 99 % {late * 1000:.0f} ms, longest gap {gap:.1f} s"


def _faults(result: Result) -> Iterator[str]:
    kinds = Counter(event.kind for event in result.events)
    yield "faults: " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    for event in sorted(result.events, key=lambda event: event.began):
        yield f"  {event.began:6.1f} .. {event.ended:6.1f}  {event.text}"


def _findings(result: Result, wire: Wire | None) -> Iterator[str]:
    for blame, title in (
        ("client", "said wrong by the client"),
        ("undecided", "not explained"),
        ("server", f"done wrong by nats-server {result.version}"),
    ):
        found = result.of(blame)
        yield f"{title}: {len(found) or 'nothing'}"
        for number, finding in enumerate(found):
            yield f"  - {finding.what[:MOST_TEXT]}"
            # The wire is searched for each operation: an old server would fill minutes, and pages.
            for op in finding.ops[:MOST_OPS] if number < MOST_FINDINGS else ():
                yield f"      {op}"
                if wire is not None and op.value is not None and op.writes:
                    yield f"        {wire.tell(op.value)[:600]}"
            if len(finding.ops) > MOST_OPS and number < MOST_FINDINGS:
                yield f"      and {len(finding.ops) - MOST_OPS} more operations"
