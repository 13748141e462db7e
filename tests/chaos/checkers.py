"""What was said, against what is there: the final logs of the streams judge the histories."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import attrs
from tests.chaos.history import NOT_STORED, OK, OPEN, REFUSED, UNKNOWN, Op
from tests.chaos.register import NONE, Entry, Finding, heedless, judge

from jsclient.jetstream import ConsumerInfo

#: subject or key -> its messages, in the order of the stream
Log = Mapping[str, Sequence[Entry]]
#: For a value: for every copy of it that was sent, what came back. None where the wire was not recorded.
Answers = Callable[[bytes], Sequence[Sequence[bytes]]]

PUBLISHES = ("publish", "publish with id", "publish_async", "publish_async with id")
REGISTERS = ("get", "put", "create", "update", "delete", "append")


def check_writes(ops: Iterable[Op], log: Log, answers: Answers) -> list[Finding]:
    """Ok is there, where it was said to be, once; refused and not stored are not there; unknown once at most."""
    places: dict[bytes, list[tuple[str, int]]] = defaultdict(list)
    for key, entries in log.items():
        for entry in entries:
            if entry.value is not None:
                places[entry.value].append((key, entry.seq))
    found = []
    for op in ops:
        if op.value is None or not op.writes:
            continue
        found += _check_write(op, places.get(op.value, []), answers)
    return found


def _check_write(op: Op, places: list[tuple[str, int]], answers: Answers) -> list[Finding]:
    assert op.value is not None
    if op.outcome == OPEN:
        return [Finding("client", "a call never returned", (op,))]
    if len(places) > 1:
        copies = answers(op.value)
        open_ones = [copy for copy in copies if not _refused(copy)]
        ours = len(open_ones) > 1 and "id" not in op.kind and op.kind in PUBLISHES
        text = f"stored {len(places)} times ({places}; {len(copies)} copies were sent)"
        return [Finding("client" if ours else "server", text, (op,))]
    if op.outcome == OK and places != [(op.key, op.revision)]:
        told = re.compile(rb'"seq": *%d\b' % (op.revision or 0))
        acked = any(told.search(answer) for copy in answers(op.value) for answer in copy)
        return [Finding("server" if acked else "client", f"acknowledged, but found at {places}", (op,))]
    if op.outcome in (REFUSED, NOT_STORED) and places:
        return [Finding(_who_denied(answers(op.value)), f"said not to be stored, but found at {places}", (op,))]
    return []


def _who_denied(copies: Sequence[Sequence[bytes]]) -> str:
    """Which side said "not stored" of what is stored: the server if it refused every copy that was sent to it."""
    return "server" if copies and all(map(_refused, copies)) else "client"


def _refused(answers: Sequence[bytes]) -> bool:
    return any(b'"error"' in answer or b" 503" in answer for answer in answers)


def check_deletes(ops: Iterable[Op], log: Log) -> list[Finding]:
    """A delete that was acknowledged follows the revision it was bound to; one that was refused does not. A marker has
    nothing of its own by which it could be found on the wire, so this is for others to explain.

    Others may have deleted the same revision: only as many are ok as markers are there."""
    found = []
    for (key, expected), group in _grouped(ops).items():
        pairs = itertools.pairwise([NONE, *log.get(key, ())])
        marked = any(before.seq == expected and after.value is None for before, after in pairs)
        done = [op for op in group if op.outcome == OK]
        unsure = [op for op in group if op.outcome == UNKNOWN]
        if len(done) > marked:
            found.append(Finding("undecided", f"{key} at {expected}: {len(done)} deletes done", tuple(done)))
        if marked and not done and not unsure:
            found.append(Finding("undecided", f"{key} at {expected}: deleted, and everyone was refused", tuple(group)))
    return found


def _grouped(ops: Iterable[Op]) -> dict[tuple[str, int], list[Op]]:
    groups: dict[tuple[str, int], list[Op]] = defaultdict(list)
    for op in ops:
        if op.kind == "delete" and op.expected is not None:
            groups[op.key, op.expected].append(op)
    return groups


def check_registers(ops: Iterable[Op], log: Log) -> list[Finding]:
    """Every key by itself: is its history linearizable?"""
    keys: dict[str, list[Op]] = defaultdict(list)
    for op in ops:
        if op.kind in REGISTERS:
            keys[op.key].append(op)
    return [finding for key, history in keys.items() for finding in judge(key, history, log.get(key, ()))]


def check_conditions(
    findings: Iterable[Finding], ops: Iterable[Op], log: Log, asked: Callable[[Op], bool]
) -> list[Finding]:
    """What is explained by writes that the server has stored although their condition did not hold is the server's, if
    the wire shows that the condition was sent (`asked`). The rest of such a key must have an order all the same."""
    keys: dict[str, list[Op]] = defaultdict(list)
    for op in ops:
        if op.kind in REGISTERS:
            keys[op.key].append(op)
    return [_excused(finding, keys, log, asked) for finding in findings]


def _excused(finding: Finding, keys: Mapping[str, list[Op]], log: Log, asked: Callable[[Op], bool]) -> Finding:
    if finding.blame != "undecided" or not finding.ops or finding.ops[0].kind not in REGISTERS:
        return finding
    key = finding.ops[0].key
    history = keys[key]
    freed = heedless(history, log.get(key, ()))
    if not freed or not all(asked(op) for op in history if op.number in freed):
        return finding
    rest = [freed.get(op.number, op) for op in history]
    if any(one.blame != "server" for one in judge(key, rest, log.get(key, ()))):
        return finding
    text = f"{len(freed)} writes of {key} were stored although what they asked for did not hold, so: {finding.what}"
    return attrs.evolve(finding, blame="server", what=text)


def check_order(ops: Iterable[Op], log: Log) -> list[Finding]:
    """What one thread published with `publish`, one after another, lies in that order in the stream."""
    seqs = {entry.value: entry.seq for entries in log.values() for entry in entries}
    found = []
    subjects: dict[str, list[Op]] = defaultdict(list)
    for op in ops:
        if op.kind in ("publish", "publish with id") and op.value in seqs:
            subjects[op.key].append(op)
    for history in subjects.values():
        for before, after in itertools.pairwise(sorted(history, key=lambda op: op.invoked)):
            # What is not known to be stored may still be under way when the next one is published.
            if before.outcome == OK and seqs[before.value] > seqs[after.value]:
                found.append(Finding("undecided", "stored in another order than published", (before, after)))
    return found


@attrs.frozen
class Deliveries:
    given: Sequence[tuple[int, bytes, float]]  #: (sequence, payload, when)
    confirmed: Mapping[int, float]  #: sequence -> when its ack was confirmed


def check_deliveries(taken: Deliveries, log: Log) -> list[Finding]:
    """Everything stored was delivered; nothing was delivered that is not stored; a confirmed ack ends it."""
    stored = {entry.seq: entry.value for entries in log.values() for entry in entries}
    given = Counter(seq for seq, _, _ in taken.given)
    found = []
    missed = sorted(stored.keys() - given.keys())
    if missed:
        found.append(Finding("undecided", f"{len(missed)} messages were never delivered, first {missed[:5]}"))
    strange = [(seq, value) for seq, value, _ in taken.given if stored.get(seq) != value]
    if strange:
        found.append(Finding("server", f"{len(strange)} deliveries of what is not stored: {strange[:3]}"))
    again = {seq for seq, _, at in taken.given if at > taken.confirmed.get(seq, at)}
    if again:
        found.append(Finding("server", f"{len(again)} messages came again after their ack was confirmed"))
    return found


def check_reading(name: str, seen: Sequence[tuple[int, bytes | None]], log: Log) -> list[Finding]:
    """An ordered read gave every message once, in the order of the stream."""
    stored = sorted((entry.seq, entry.value) for entries in log.values() for entry in entries)
    if list(seen) == stored:
        return []
    doubled = [seq for seq, times in Counter(seq for seq, _ in seen).items() if times > 1]
    backwards = sum(before[0] >= after[0] for before, after in itertools.pairwise(seen))
    missed = sorted(set(stored) - set(seen))
    strange = sorted(set(seen) - set(stored))
    if strange and not doubled and not backwards and not missed:
        return [Finding("server", f"{name}: read what is no longer stored: {strange[:3]}")]
    text = f"{name}: missed {missed[:3]}, doubled {doubled[:3]}, {backwards} times back, strange {strange[:3]}"
    return [Finding("undecided", text)]


def silence(stream: str, info: ConsumerInfo, after: int, more: int) -> Finding:
    """An ordered read ends with message `after`, and the leader of the stream has `more` messages behind it: `info` is
    what the read's consumer says of itself. It owes them to a pull that waits, unless it has sent them."""
    where = (info.cluster and info.cluster.leader) or "the only server"
    owes = info.num_waiting > 0 and info.delivered.stream_seq <= after
    said = (
        f"{info.num_pending} pending, {info.num_waiting} pulls waiting, the last one sent {info.delivered.stream_seq}"
    )
    text = f"an ordered read of {stream} gets nothing behind {after}, the leader has {more} more"
    return Finding("server" if owes else "undecided", f"{text}; its consumer on {where} says: {said}", stream=stream)


def not_judged(findings: Iterable[Finding], differ: Collection[str], stream_of: Callable[[str], str]) -> list[Finding]:
    """Where the copies of a stream differ no log says what happened: what is not explained there is not judged, and put
    down to that. What the wire proves of the client stays with the client."""
    found = []
    for finding in findings:
        stream = finding.stream or (stream_of(finding.ops[0].key) if finding.ops else "")
        if finding.blame == "undecided" and stream in differ:
            text = f"not judged, because the copies of {stream} differ: {finding.what}"
            finding = attrs.evolve(finding, blame="server", what=text)
        found.append(finding)
    return found


def check_replicas(dumps: Mapping[str, Sequence[tuple[int, bytes]]]) -> list[Finding]:
    """Every leader tells the same log."""
    if len({tuple(dump) for dump in dumps.values()}) <= 1:
        return []
    sizes = {name: len(dump) for name, dump in dumps.items()}
    copies = [set(dump) for dump in dumps.values()]
    odd = copies[0].union(*copies) - copies[0].intersection(*copies)
    return [Finding("server", f"replicas differ: {sizes}, for example {sorted(odd)[:3]}")]
