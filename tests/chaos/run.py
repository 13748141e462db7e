"""One run: a cluster, its clients, what goes wrong, and the judgement in the end."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

import attrs
from tests.chaos import checkers, clients
from tests.chaos.history import History
from tests.chaos.nemesis import Event, Nemesis, schedule
from tests.chaos.register import Entry, Finding
from tests.chaos.rig import Rig, wait_current

from jsclient import errors, keyvalue
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.keyvalue import KeyValueConfig
from jsclient.testing import wait_until

KV_STREAM = f"KV_{clients.BUCKET}"
STREAMS = [KV_STREAM, clients.APPENDS, clients.SEQUENCE, clients.QUEUE]
#: Every call ends by its own timeout, publish after 15 s, what is asynchronous after 60: later a thread is stuck.
SETTLE = 150.0

#: Seconds without a message: fewer than a pull lives, so that one waits when its consumer is asked.
SILENT = 20.0

Dump = list[tuple[int, str, bytes, bool]]  #: (sequence, subject, payload, whether it is a delete marker)


@attrs.define
class Result:
    seed: int
    version: str
    seconds: float
    history: History
    events: list[Event]
    findings: list[Finding] = attrs.field(factory=list)
    notes: dict[str, object] = attrs.field(factory=dict)

    def of(self, blame: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.blame == blame]


def make_streams(js: JetStream) -> None:
    def made() -> bool:
        try:
            _make(js)
        except errors.JsClientError:  # servers that have just met may still count each other as offline
            return False
        return True

    wait_until(made, 60, "the streams could not be made")


def _make(js: JetStream) -> None:
    config = KeyValueConfig(bucket=clients.BUCKET, replicas=3, history=64)
    keyvalue.create_or_update_key_value(js, config, timeout=10)
    kept = js.stream(KV_STREAM).info().config
    js.update_stream(kept.replace(max_msgs_per_subject=1_000_000), timeout=10)  # the log of every key, whole
    for name, subjects in ((clients.APPENDS, "appends.>"), (clients.SEQUENCE, "sequence"), (clients.QUEUE, "queue.>")):
        js.get_or_create_stream(StreamConfig(name=name, subjects=[subjects], num_replicas=3), timeout=10)
    consumer = ConsumerConfig(durable_name=clients.CONSUMER, ack_wait=3.0, max_ack_pending=500)
    js.get_or_create_consumer(clients.QUEUE, consumer, timeout=10)


class Run:
    """`clients` start, the nemesis does its work for `seconds`, everything is healed and counted."""

    def __init__(self, rig: Rig, seed: int, seconds: float) -> None:
        self.rig = rig
        self.seed = seed
        self.seconds = seconds
        self.history = History()
        self.deliveries = clients.Deliveries()
        self.workers: list[clients.Worker] = []
        self.connections = [rig.connect(f"chaos-{number}") for number in range(5)]

    def __call__(self) -> Result:
        with self.rig.admin() as nc:
            js = JetStream(nc, timeout=20)
            try:
                make_streams(js)
                self._start()
                faults = schedule(self.seed, self.seconds, STREAMS)
                nemesis = Nemesis(self.rig, js, faults, {clients.QUEUE: clients.CONSUMER})
                nemesis.start()
                self._watch(nemesis)
                nemesis.stop()
                return self._judge(js, nemesis)
            finally:
                clients.settle(self.history, self.workers, 5)
                self.rig.heal()
                for connection in self.connections:
                    connection.close()

    def _start(self) -> None:
        kinds: list[type[clients.Worker]] = [clients.Keys] * 3 + [clients.Appends] * 3
        kinds += [clients.Publisher, clients.PlainPublisher, clients.AsyncPublisher, clients.PlainAsyncPublisher]
        for number, kind in enumerate(kinds):
            nc = self.connections[number % 4]
            self.workers.append(kind(f"{kind.__name__.lower()}{number}", nc, self.history, str(self.seed)))
        self.writers = list(self.workers)
        nc = self.connections[4]
        for taker in (clients.Consumer, clients.MessagesConsumer):
            name = taker.__name__.lower()
            self.workers.append(taker(name, nc, self.history, str(self.seed), deliveries=self.deliveries))
        self.reader = clients.Reader("reader", nc, self.history, str(self.seed))
        self.watcher = clients.Watcher("watcher", nc, self.history, str(self.seed))
        self.workers += [self.reader, self.watcher]
        for worker in self.workers:
            worker.thread.start()

    def _watch(self, nemesis: Nemesis) -> None:
        end = time.monotonic() + self.seconds

        def over() -> bool:
            return time.monotonic() >= end or bool(nemesis.errors)

        wait_until(over, self.seconds + 30)
        if nemesis.errors:
            raise nemesis.errors[0]

    def _judge(self, js: JetStream, nemesis: Nemesis) -> Result:
        ended = self.history.now()
        self._end(self.writers)
        wait_current(self.rig, js, STREAMS)
        version = ".".join(map(str, self.rig.servers[0].version))
        result = Result(self.seed, version, ended, self.history, nemesis.events)
        dumps = {name: dump(js, name, result.findings) for name in STREAMS}
        self._drain(js, dumps, result)
        self._end(self.workers)
        self._check(dumps, result)
        differ = {name: found for name in STREAMS if (found := checkers.check_replicas(self._from_each(js, name)))}
        result.findings = checkers.not_judged(result.findings, differ, stream_of)
        for name, found in differ.items():
            result.findings += [attrs.evolve(one, what=f"{name}: {one.what}") for one in found]
        return result

    def _end(self, workers: list[clients.Worker]) -> None:
        for name in clients.settle(self.history, workers, SETTLE):
            self.history.surprises.append(f"{name} did not end within {SETTLE:g} s")

    def _drain(self, js: JetStream, dumps: dict[str, Dump], result: Result) -> None:
        """Until the readers have seen all that is there."""
        last = max((seq for seq, *_ in dumps[clients.QUEUE]), default=0)
        revision = max((seq for seq, *_ in dumps[KV_STREAM]), default=0)
        behind: list[tuple[str, str]] = []

        def done() -> bool:
            try:
                info = js.consumer_info(clients.QUEUE, clients.CONSUMER, timeout=5)
            except errors.JsClientError:
                return False
            behind.clear()
            if info.num_pending or info.num_ack_pending:
                text = f"the consumer has {info.num_pending} pending, {info.num_ack_pending} unacknowledged"
                behind.append((clients.QUEUE, text))
            if self.reader.after < last:
                behind.append((clients.QUEUE, f"the ordered consumer is at {self.reader.after} of {last}"))
            if self.watcher.after < revision:
                behind.append((KV_STREAM, f"the watcher is at {self.watcher.after} of {revision}"))
            return not behind

        try:
            wait_until(done, 90)
        except TimeoutError:
            for stream, text in behind or [(clients.QUEUE, "the consumer does not answer")]:
                text = f"after 90 s without faults not all was delivered: {text}"
                result.findings.append(Finding("undecided", text, stream=stream))

    def _check(self, dumps: dict[str, Dump], result: Result) -> None:
        keys = logs(dumps[KV_STREAM], f"$KV.{clients.BUCKET}.")
        appends = {**logs(dumps[clients.APPENDS]), **logs(dumps[clients.SEQUENCE])}
        queue = logs(dumps[clients.QUEUE])
        everything = {**keys, **appends, **queue}
        found = result.findings
        ops = self.history.ops
        found += checkers.check_writes(ops, everything, self.rig.wire.answers)
        registers = checkers.check_deletes(ops, keys) + checkers.check_registers(ops, everything)
        found += checkers.check_conditions(
            registers, ops, everything, lambda op: self.rig.wire.asked(op.key, op.expected)
        )
        found += checkers.check_order(ops, queue)
        given = [(delivery.seq, delivery.value, delivery.at) for delivery in self.deliveries.given]
        taken = checkers.check_deliveries(checkers.Deliveries(given, self.deliveries.confirmed), queue)
        taken += checkers.check_reading("the ordered consumer", list(self.reader.seen), queue)
        found += [attrs.evolve(finding, stream=clients.QUEUE) for finding in taken]
        entries = [(entry.revision, entry.value if entry.is_put else None) for entry in self.watcher.seen]
        watched = checkers.check_reading("the watcher", entries, keys)
        found += [attrs.evolve(finding, stream=KV_STREAM) for finding in watched]
        found += [Finding("client", text) for text in self.history.surprises]
        result.notes = {
            "messages stored": sum(len(entries) for entries in everything.values()),
            "deliveries": len(given),
            "confirmed acks": len(self.deliveries.confirmed),
            "keys": len(keys) + len(appends),
        }

    def _from_each(self, js: JetStream, name: str) -> dict[str, list[tuple[int, bytes]]]:
        """The log as each server tells it when it leads. The leader is asked for every message: an ordered read may
        come from any copy."""
        found: dict[str, list[tuple[int, bytes]]] = {}
        last = 0
        for _ in range(12):
            leader = self.rig.stream_leader(name).name
            last = max(last, js.stream(name).info().state.last_seq)
            copy = [(seq, data) for seq, _, data, _ in from_leader(js, name, 1, last)]
            if leader not in found and self.rig.stream_leader(name).name == leader:
                found[leader] = copy
            if len(found) == 3:
                break
            self.rig.step_down(js, name)
            wait_current(self.rig, js, [name])
        return found


def stream_of(key: str) -> str:
    """The stream of a key or subject of the clients."""
    subjects = {"appends.": clients.APPENDS, "sequence": clients.SEQUENCE, "queue.": clients.QUEUE}
    return next((stream for start, stream in subjects.items() if key.startswith(start)), KV_STREAM)


def dump(js: JetStream, name: str, findings: list[Finding] | None = None) -> Dump:
    """Every message of a stream, by an ordered read. Where that gets no further the leader is asked for each message;
    if it has more, this is one of the findings, or raises NoMessages where none are collected."""
    found: Dump = []
    info = js.stream(name).info()
    if not info.state.messages:
        return []
    last = info.state.last_seq
    with js.stream(name).ordered_consumer() as ordered, ordered.messages() as messages:
        while not found or found[-1][0] < last:
            try:
                message = messages.next(timeout=SILENT)
            except errors.NoMessages:
                after = found[-1][0] if found else info.state.first_seq - 1
                told = ordered.info()
                more = from_leader(js, name, after + 1, last)  # none: it counts what it has not, seen with 2.9.10
                if more and findings is None:
                    raise
                if more and findings is not None:
                    findings.append(checkers.silence(name, told, after, len(more)))
                return found + more
            found.append(_row(message.stream_seq, message))
    return found


def from_leader(js: JetStream, name: str, first: int, last: int) -> Dump:
    """What the leader of the stream has, message by message."""
    stream = js.stream(name, fetch_info=False)
    found: Dump = []
    todo = iter(range(first, last + 1))
    seq = next(todo, None)

    def answered() -> bool:
        nonlocal seq
        while seq is not None:
            try:
                found.append(_row(seq, stream.get_msg(seq, direct=False, timeout=5)))
            except errors.MessageNotFound:
                pass
            except errors.JsClientError:
                return False  # a leader is elected
            seq = next(todo, None)
        return True

    wait_until(answered, 120, f"the leader of {name} does not tell what it has")
    return found


def _row(seq: int, message: Any) -> tuple[int, str, bytes, bool]:
    marker = message.headers.get("KV-Operation") in ("DEL", "PURGE")
    return seq, message.subject, message.data, marker


def logs(found: Dump, prefix: str = "") -> dict[str, list[Entry]]:
    """By subject."""
    result: dict[str, list[Entry]] = defaultdict(list)
    for seq, subject, data, marker in found:
        result[subject.removeprefix(prefix)].append(Entry(seq, None if marker else data))
    return result
