"""A rolling upgrade and downgrade under load: `python -m tests.chaos.upgrade --old /path/to/old/nats-server`.

A cluster of three servers of the old version; every kind of user at work; one server after the other is ended (SIGTERM)
and started with the new binary on the same store, and in the end each goes back. Printed: the longest time in which
each kind of user did not get on, the errors that reached it, what was lost or doubled, and what a server says that
does not take the store of a newer one. Exit status 1 when something was lost, doubled, or stuck. A seed repeats what
the users choose; when threads run is up to the machine.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
from tests.chaos import checkers, clients, users
from tests.chaos.history import OK, History
from tests.chaos.nemesis import Event
from tests.chaos.picture import svg_of
from tests.chaos.register import Finding
from tests.chaos.rig import not_current, wait_current
from tests.chaos.run import KV_STREAM, SETTLE, Result, dump, logs, make_streams

import jsclient
from jsclient import errors, objectstore
from jsclient.jetstream import ConsumerConfig, JetStream
from jsclient.objectstore import ObjectStoreConfig
from jsclient.testing import Cluster, NatsServer, find_server, wait_until
from jsclient.testing.find import server_version

DURABLES = ("fetch", "messages", "consume", "pool")
PUSHED = "push"
STREAMS = [KV_STREAM, clients.QUEUE, f"OBJ_{users.OBJECTS}"]
#: Atomic batches need nats-server 2.12, fast ones 2.14.
BATCHES_SINCE, FAST_SINCE = (2, 12, 0), (2, 14, 0)


@attrs.define
class Report:
    steps: list[str] = attrs.field(factory=list)
    findings: list[Finding] = attrs.field(factory=list)
    rows: list[str] = attrs.field(factory=list)
    errors: list[str] = attrs.field(factory=list)  #: of calls that may simply be made again
    events: list[Event] = attrs.field(factory=list)  #: for the picture
    seconds: float = 0.0

    def __str__(self) -> str:
        found = [f"- {finding.blame}: {finding.what} {' / '.join(map(str, finding.ops))}" for finding in self.findings]
        return "\n".join(
            [*self.steps, *self.rows, *self.errors, f"lost, doubled or stuck: {len(found) or 'nothing'}", *found]
        )


def text(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


class Upgrade:
    """`between` seconds of load lie before, between and after the steps."""

    def __init__(
        self,
        old: str,
        new: str,
        between: float,
        back: bool = True,
        keep: bool = False,
        spark: bool = False,
        seed: int = 1,
    ) -> None:
        """`keep`: the stream that only the new servers could make stays for the downgrade. `spark`: a streaming query
        copies the queue meanwhile."""
        self.old, self.new, self.between, self.back, self.keep = old, new, between, back, keep
        self.with_spark, self.seed = spark, seed
        self.spark: Any = None
        self.history = History()
        self.report = Report()
        self.taken = {name: clients.Deliveries() for name in (*DURABLES, PUSHED)}
        self.workers: list[clients.Worker] = []

    def __call__(self) -> Report:
        with Cluster(3, binary=self.old, name="upgrade") as self.cluster:
            self.connections = [self._connect(f"upgrade-{number}") for number in range(4)]
            with self._connect("admin") as nc:
                try:
                    self.js = JetStream(nc, timeout=20)
                    self._make()
                    self._start()
                    self._roll()
                    self._finish()
                finally:
                    clients.settle(self.history, self.workers, 5)
                    if self.spark is not None:
                        self.spark.close()
                    for connection in self.connections:
                        connection.close()
        return self.report

    def _connect(self, name: str) -> jsclient.Connection:
        return jsclient.connect(self.cluster.urls, name=name, retry_on_failed_connect=True)

    def _make(self) -> None:
        make_streams(self.js)
        for name in DURABLES:
            config = ConsumerConfig(durable_name=name, ack_wait=5.0)
            self.js.get_or_create_consumer(clients.QUEUE, config, timeout=20)
        pushed = ConsumerConfig(
            durable_name=PUSHED, deliver_subject="pushed", ack_wait=5.0, flow_control=True, idle_heartbeat=1.0
        )
        self.js.create_or_update_push_consumer(clients.QUEUE, pushed, timeout=20)
        objectstore.create_object_store(self.js, ObjectStoreConfig(bucket=users.OBJECTS, replicas=3), timeout=20)

    def _start(self) -> None:
        def add(kind: Any, name: str, number: int, **more: Any) -> None:
            self.workers.append(kind(name, self.connections[number], self.history, str(self.seed), **more))

        add(clients.Publisher, "publish", 0)
        add(clients.AsyncPublisher, "publish_async", 0)
        add(clients.Keys, "keys", 1)
        add(users.ObjectUser, "objects", 1)
        add(users.ServiceUser, "service", 0, other=self.connections[2])
        self.writers = list(self.workers)
        kinds = (clients.Consumer, clients.MessagesConsumer, users.ConsumeUser, users.PoolUser)
        for name, kind in zip(DURABLES, kinds, strict=True):
            add(kind, name, 3, deliveries=self.taken[name], durable=name)
        add(users.PushUser, PUSHED, 3, deliveries=self.taken[PUSHED], durable=PUSHED)
        add(clients.Reader, "ordered", 2)
        add(clients.Watcher, "watch", 2)
        self.reader, self.watcher = self.workers[-2:]
        self.batches = users.BatchUser("batches", self.connections[1], self.history, str(self.seed))
        self.fast = users.FastUser("fast batches", self.connections[1], self.history, str(self.seed))
        if self.with_spark:
            from tests.chaos.spark_user import SparkUser

            self.spark = SparkUser("spark", self.connections[2], self.history, str(self.seed))
            self.spark.prepare(self.cluster.urls)
            self.workers.append(self.spark)
        for worker in self.workers:
            worker.hurried = False
            worker.thread.start()

    # --- the steps ----------------------------------------------------------------------------------------

    def _roll(self) -> None:
        self._load("all users at work")
        for server in self.cluster.servers:
            self._swap(server, self.new)
        version = server_version(self.new)
        with_batches = version >= BATCHES_SINCE
        if with_batches:
            self._roll_with_batches([self.batches, self.fast] if version >= FAST_SINCE else [self.batches])
        if self.back:
            for server in self.cluster.servers:
                if not self._swap(server, self.old):
                    break
                if self.keep and with_batches:
                    self._say(f"the stream of the batches: {self._state_of_batches()}")

    def _roll_with_batches(self, batchers: list[Any]) -> None:
        """Every server is started once more, while batches are written."""
        for user in batchers:
            user.make()
            user.thread.start()
        self._load("batches as well")
        for server in self.cluster.servers:
            self._swap(server, self.new)
        for name in clients.settle(self.history, batchers, SETTLE):
            self.history.surprises.append(f"{name} did not end within {SETTLE:g} s")
        wrong = [self.batches.check()]
        if self.fast in batchers:
            wrong.append(self.fast.check([data for _, _, data, _ in dump(self.js, users.FAST)]))
        self.report.findings += [Finding("undecided", text) for text in wrong if text]
        if not self.keep:
            self.js.delete_stream(users.BATCHES)
            if self.fast in batchers:
                self.js.delete_stream(users.FAST)

    def _load(self, what: str) -> None:
        """Some time of load, in which everyone got on."""
        began = self.history.now()
        at_work = [worker for worker in [*self.workers, self.batches, self.fast] if worker.thread.is_alive()]

        def over() -> bool:
            done = self.history.now() >= began + self.between
            return done and all(worker.times and worker.times[-1] > began for worker in at_work)

        try:
            wait_until(over, 120 + self.between)
        except TimeoutError:
            stuck = [worker.name for worker in at_work if not worker.times or worker.times[-1] <= began]
            self.report.findings.append(Finding("undecided", f"{what}: no progress within 120 s of {stuck}"))
        self._say(what)

    def _say(self, what: str) -> None:
        line = f"{self.history.now():6.1f} s  {what}"
        self.report.steps.append(line)
        print(line, flush=True)

    def _swap(self, server: NatsServer, binary: str) -> bool:
        """End it and start it with that binary; False when it did not come back as a member (it is set back then)."""
        before, server.binary = server.binary, binary
        what = f"{server.name}: {text(server_version(before))} -> {text(server_version(binary))}"
        event = Event(server.name, what, self.history.now())
        self.report.events.append(event)
        server.stop()
        place = len(server.log_text())
        try:
            server.start()
            wait_current(self.cluster, self.js, STREAMS, 90)
            event.ended = self.history.now()
        except (RuntimeError, TimeoutError) as error:
            said = [line for line in server.log_text()[place:].splitlines() if "[ERR]" in line or "[FTL]" in line]
            self._say(f"{what}: {str(error).splitlines()[0]}; the server said: {said[:5]}")
            for line in not_current(self.cluster, self.js, STREAMS):
                self._say(line)
            server.stop()
            server.binary = before
            server.start()
            wait_current(self.cluster, self.js, STREAMS, 120)
            event.ended = self.history.now()
            self._load(f"{server.name} is {text(server_version(before))} again")
            return False
        self._load(what)
        return True

    def _state_of_batches(self) -> str:
        try:
            state = self.js.stream(users.BATCHES, fetch_info=False).info(timeout=10).state
        except errors.JsClientError as error:
            return repr(error)
        return f"{state.messages} messages of {self.batches.stored}"

    # --- the end ------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        ended = self.report.seconds = self.history.now()
        for name in clients.settle(self.history, self.writers, SETTLE):
            self.history.surprises.append(f"{name} did not end within {SETTLE:g} s")
        dumps = {name: dump(self.js, name) for name in (KV_STREAM, clients.QUEUE)}
        keys, queue = logs(dumps[KV_STREAM], f"$KV.{clients.BUCKET}."), logs(dumps[clients.QUEUE])
        self.stored = len(dumps[clients.QUEUE])
        self._drain(max(seq for seq, *_ in dumps[clients.QUEUE]), max(seq for seq, *_ in dumps[KV_STREAM]))
        for name in clients.settle(self.history, self.workers, SETTLE):
            self.history.surprises.append(f"{name} did not end within {SETTLE:g} s")
        found = self.report.findings
        found += checkers.check_writes(self.history.ops, {**keys, **queue}, lambda value: [])
        found += checkers.check_deletes(self.history.ops, keys)
        found += checkers.check_registers(self.history.ops, keys)
        found += checkers.check_order(self.history.ops, queue)
        for name, taken in self.taken.items():
            given = [(delivery.seq, delivery.value, delivery.at) for delivery in taken.given]
            found += [
                attrs.evolve(finding, what=f"{name}: {finding.what}")
                for finding in checkers.check_deliveries(checkers.Deliveries(given, taken.confirmed), queue)
            ]
        reader, watcher = self.reader, self.watcher
        assert isinstance(reader, clients.Reader)
        assert isinstance(watcher, clients.Watcher)
        found += checkers.check_reading("ordered", list(reader.seen), queue)
        if self.spark is not None:
            copied = Counter(data for _, _, data, _ in dump(self.js, "COPIES"))
            if copied != Counter(data for _, _, data, _ in dumps[clients.QUEUE]):
                found.append(Finding("undecided", f"the query copied {sum(copied.values())} rows of {self.stored}"))
        entries = [(entry.revision, entry.value if entry.is_put else None) for entry in watcher.seen]
        found += checkers.check_reading("watch", entries, keys)
        found += [Finding("undecided", surprise) for surprise in self.history.surprises]
        self._table(ended)

    def _drain(self, last: int, revision: int) -> None:
        def done() -> bool:
            try:
                infos = [self.js.consumer_info(clients.QUEUE, name, timeout=5) for name in self.taken]
            except errors.JsClientError:
                return False
            read = all(info.num_pending == 0 and info.num_ack_pending == 0 for info in infos)
            if self.spark is not None and self.js.stream("COPIES").info().state.messages < self.stored:
                return False
            return read and self.reader.after >= last and self.watcher.after >= revision  # type: ignore[attr-defined]

        try:
            wait_until(done, 120)
        except TimeoutError:
            self.report.findings.append(Finding("undecided", "not all was delivered within 120 s of the end"))

    def _table(self, ended: float) -> None:
        rows = self.report.rows
        rows.append(f"{'user':16}{'done':>8}{'longest gap':>14}{'at':>10}  errors")
        failed = Counter((op.process, op.error) for op in self.history.ops if op.outcome != OK and op.error)
        repeated = {name: len(taken.given) - len({d.seq for d in taken.given}) for name, taken in self.taken.items()}
        for worker in [*self.workers, self.batches, self.fast]:
            self.report.errors += [f"{worker.name}: {text}" for text in worker.failures]
            if not worker.times:
                continue
            end = ended if worker in self.workers else worker.times[-1]
            times = [time for time in worker.times if time <= end] + [end]
            gap, at = max((after - before, before) for before, after in itertools.pairwise(times))
            told = {error: count for (process, error), count in failed.items() if process == worker.name}
            told.update(Counter(text.split("(")[0] for text in worker.failures))
            more = f"; {repeated[worker.name]} came again" if repeated.get(worker.name) else ""
            said = ", ".join(f"{count} {name}" for name, count in told.items()) or "none"
            rows.append(f"{worker.name:16}{len(worker.times):>8}{gap:>12.1f} s{at:>8.0f} s  {said}{more}")


def picture(upgrade: Upgrade) -> str:
    """Every write and read of a key as a dot, and when each server was away."""
    report = upgrade.report
    versions = f"{text(server_version(upgrade.old))} and {text(server_version(upgrade.new))}"
    return svg_of(Result(upgrade.seed, versions, report.seconds, upgrade.history, report.events, report.findings))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", required=True, help="binary of the old version")
    parser.add_argument("--new", default="", help="binary of the new version; the one of the tests unless given")
    parser.add_argument("--between", type=float, default=5.0, help="seconds of load after every step")
    parser.add_argument("--keep", action="store_true", help="keep the stream with atomic batches for the downgrade")
    parser.add_argument("--spark", action="store_true", help="a streaming query as well; needs PySpark and Java")
    parser.add_argument("--no-back", action="store_true", help="no downgrade")
    parser.add_argument("--seed", type=int, default=1, help="of what the users choose")
    parser.add_argument("--out", type=Path, default=Path("build/upgrade"), help="folder of the report and the picture")
    arguments = parser.parse_args()
    began = time.monotonic()
    new = arguments.new or find_server()
    back = not arguments.no_back
    upgrade = Upgrade(arguments.old, new, arguments.between, back, arguments.keep, arguments.spark, arguments.seed)
    report = upgrade()
    print("\n".join(str(report).splitlines()[len(report.steps) :]))
    arguments.out.mkdir(parents=True, exist_ok=True)
    name = f"{text(server_version(arguments.old))}-{text(server_version(new))}-seed{arguments.seed}"
    (arguments.out / f"{name}.txt").write_text(f"{report}\n", encoding="utf-8")
    (arguments.out / f"{name}.svg").write_text(picture(upgrade), encoding="utf-8")
    print(f"{time.monotonic() - began:.0f} s; report and picture: {arguments.out}")
    return 1 if any(finding.blame != "server" for finding in report.findings) else 0


if __name__ == "__main__":
    sys.exit(main())
