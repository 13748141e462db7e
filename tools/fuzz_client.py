"""Fuzz the whole client against a server that answers anything: `python tools/fuzz_client.py --seconds 60 --seed 1`.

Every round starts a scripted server and a connection, and makes some calls of every kind. The server knows how a real
one answers (INFO, API answers, acks, messages of consumers, statuses, direct gets) and says nearly that: fields of
other types, missing, huge or doubled, other statuses and headers, ack subjects that are none, answers that come twice,
late or never, bytes that are no protocol, and links that end.

Must hold, whatever it says:
- every call returns within its timeout and some patience, and so does close();
- nothing but the errors of jsclient is raised (and StopIteration where a loop ends), on no thread;
- afterwards no thread of the library is left, and memory does not grow from round to round.

Prints the seed and the round of every finding and exits 1. A round is repeated by `--seed` and `--round`; when threads
run is up to the machine.
"""

from __future__ import annotations

import argparse
import faulthandler
import functools
import gc
import itertools
import logging
import random
import resource
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import jsclient
from jsclient import backup, coordination, groups, keyvalue, objectstore, services
from jsclient.errors import JsClientError
from jsclient.jetstream import Consumer, ConsumerConfig, ConsumerInfo, JetStream, StreamConfig
from jsclient.jetstream.consuming.double_ack import double_ack_many
from jsclient.protocol import ProtocolError
from jsclient.system import SystemClient
from jsclient.testing.fake import FakeServer
from jsclient.workers import WorkerPool
from tools.fuzz_server import Server

#: Seconds that a call is given, and what it may take beyond that on a busy machine before it counts as stuck.
TIMEOUT, PATIENCE = 0.15, 20.0
#: Calls of one round, and rounds after which memory is compared.
CALLS, WARM = 8, 100
GROWTH = 150 * 1024 * 1024


class Finding(Exception):
    """Something that must hold does not."""


# --- the client ---------------------------------------------------------------------------------------------


class Calls:
    """The calls of one round on one connection; each is `name(self)`."""

    def __init__(self, nc: jsclient.Connection, rng: random.Random) -> None:
        self.nc = nc
        self.rng = rng
        self.js = JetStream(nc, timeout=TIMEOUT)
        self.stream = self.js.stream("S", fetch_info=False)
        self.consumer = self.js.consumer("S", "C", fetch_info=False)
        self.kv = keyvalue.key_value(self.js, "b", fetch_info=False)
        self.store = objectstore.object_store(self.js, "b", fetch_info=False)

    def publish(self) -> None:
        options: dict[str, Any] = self.rng.choice(
            ({}, {"msg_id": "1"}, {"expected_last_subject_seq": 3}, {"expected_stream": "S"})
        )
        self.js.publish("s.a", b"hello", timeout=TIMEOUT, **options)

    def publish_async(self) -> None:
        futures = [
            self.js.publish_async("s.a", b"hello", msg_id=str(number) if number % 2 else None) for number in range(5)
        ]
        self.js.publish_async_complete(timeout=TIMEOUT)
        for future in futures:
            future.result(0)

    def atomic_batch(self) -> None:
        with self.js.atomic_batch(timeout=TIMEOUT) as batch:
            for _ in range(3):
                batch.add("s.a", b"x")

    def fast_batch(self) -> None:
        with self.js.fast_batch(timeout=TIMEOUT) as batch:
            for _ in range(3):
                batch.add("s.a", b"x")

    def request(self) -> None:
        self.nc.request("any.thing", b"x", timeout=TIMEOUT)

    def request_many(self) -> None:
        list(self.nc.request_many("any.thing", b"x", timeout=TIMEOUT))

    def subscribe(self) -> None:
        with self.nc.subscribe("s.>") as subscription:
            self.nc.flush(timeout=TIMEOUT)
            look(subscription.next(timeout=TIMEOUT))

    def services(self) -> None:
        calls: list[Callable[[], Any]] = [
            lambda: list(services.info(self.nc, timeout=TIMEOUT)),
            lambda: list(services.ping(self.nc, timeout=TIMEOUT)),
            lambda: list(services.stats(self.nc, timeout=TIMEOUT)),
            lambda: services.check_response(self.nc.request("any.thing", b"x", timeout=TIMEOUT)),
        ]
        repr(self.rng.choice(calls)())

    def manage(self) -> None:
        config = StreamConfig(name="S", subjects=["s.>"])
        calls: list[Callable[[], Any]] = [
            self.js.account_info,
            lambda: self.js.create_stream(config),
            lambda: self.js.create_or_update_stream(config),
            lambda: list(self.js.streams()),
            lambda: list(self.js.stream_names()),
            lambda: list(self.js.consumers("S")),
            lambda: list(self.js.consumer_names("S")),
            lambda: self.js.create_or_update_consumer("S", ConsumerConfig(durable_name="C")),
            lambda: self.js.stream_name_by_subject("s.a"),
            lambda: list(self.stream.subjects()),
            self.stream.info,
            self.stream.purge,
            self.consumer.info,
            self.consumer.delete,
            lambda: self.consumer.pause(60),
            lambda: list(services.info(self.nc, timeout=TIMEOUT)),
        ]
        repr(self.rng.choice(calls)())

    def read(self) -> None:
        calls: list[Callable[[], Any]] = [
            lambda: self.stream.get_msg(3, timeout=TIMEOUT),
            lambda: self.stream.get_last_msg("s.a", timeout=TIMEOUT, direct=self.rng.random() < 0.5),
            lambda: list(itertools.islice(self.stream.get_batch(5, timeout=TIMEOUT), 50)),
            lambda: list(itertools.islice(self.stream.get_last_msgs(["s.>"], timeout=TIMEOUT), 50)),
        ]
        repr(self.rng.choice(calls)())

    def fetch(self) -> None:
        batch = self.consumer.fetch(5, timeout=TIMEOUT, heartbeat=0.1)
        for message in batch:
            look(message)
            ways: list[Callable[[], Any]] = [
                message.ack,
                message.nak,
                message.in_progress,
                functools.partial(message.double_ack, timeout=TIMEOUT),
            ]
            self.rng.choice(ways)()

    def pulls(self) -> None:
        consumer = self.consumer
        calls: list[Callable[[], Any]] = [
            lambda: look(consumer.next(timeout=TIMEOUT)),
            lambda: list(consumer.fetch_no_wait(5, timeout=TIMEOUT)),
            lambda: list(consumer.fetch_bytes(1000, timeout=TIMEOUT)),
            lambda: list(consumer.fetch(5, timeout=TIMEOUT, group="g")),
            lambda: double_ack_many(list(consumer.fetch(3, timeout=TIMEOUT)), timeout=TIMEOUT),
            lambda: list(self.stream.ordered_consumer().fetch(3, timeout=TIMEOUT)),
        ]
        self.rng.choice(calls)()

    def messages(self) -> None:
        with self.consumer.messages(heartbeat=0.1, expires=1) as messages:
            for _ in range(5):
                look(messages.next(timeout=TIMEOUT))

    def batches(self) -> None:
        info = ConsumerInfo(stream_name="S", name="C", config=ConsumerConfig(ack_policy="explicit"))
        consumer = Consumer(self.js, "S", "C", info)
        with closing(consumer.batches(self.rng.randint(1, 3), timeout=TIMEOUT, heartbeat=0.0)) as batches:
            for batch in itertools.islice(batches, self.rng.randint(1, 10)):
                for message in batch:
                    look(message)

    def ordered(self) -> None:
        with self.stream.ordered_consumer().messages(heartbeat=0.1, expires=1) as messages:
            for _ in range(5):
                look(messages.next(timeout=TIMEOUT))

    def consume(self) -> None:
        with self.consumer.consume(lambda message: message.ack(), heartbeat=0.1, expires=1) as running:
            running.wait(timeout=TIMEOUT)

    def pool(self) -> None:
        with WorkerPool(self.consumer, look, threads=2, attempts=2, stop_timeout=1.0) as pool:
            pool.wait(timeout=TIMEOUT)

    def push(self) -> None:
        consumer = self.stream.ordered_push_consumer()
        with consumer.messages() as messages:
            look(messages.next(timeout=TIMEOUT))

    def keys(self) -> None:
        kv = self.kv
        calls: list[Callable[[], Any]] = [
            lambda: kv.get("k", timeout=TIMEOUT),
            lambda: kv.get("k", timeout=TIMEOUT, direct=False),
            lambda: kv.get_revision("k", 3, timeout=TIMEOUT),
            lambda: kv.put("k", b"x", timeout=TIMEOUT),
            lambda: kv.create("k", b"x", timeout=TIMEOUT),
            lambda: kv.update("k", b"x", 3, timeout=TIMEOUT),
            lambda: kv.delete("k", timeout=TIMEOUT),
            lambda: list(itertools.islice(kv.keys(timeout=TIMEOUT), 50)),
            lambda: kv.history("k", timeout=TIMEOUT),
            lambda: kv.status(timeout=TIMEOUT),
            lambda: kv.purge_deletes(timeout=TIMEOUT),
        ]
        repr(self.rng.choice(calls)())

    def watch(self) -> None:
        with self.kv.watch(timeout=TIMEOUT) as watcher:
            for _ in range(5):
                repr(watcher.next(TIMEOUT))

    def objects(self) -> None:
        store = self.store
        calls: list[Callable[[], Any]] = [
            lambda: store.put("o", b"hello", timeout=TIMEOUT),
            lambda: store.get_bytes("o", timeout=TIMEOUT),
            lambda: store.info("o", timeout=TIMEOUT),
            lambda: store.delete("o", timeout=TIMEOUT),
            lambda: list(itertools.islice(store.list(timeout=TIMEOUT), 50)),
            lambda: store.status(timeout=TIMEOUT),
        ]
        repr(self.rng.choice(calls)())

    def leases(self) -> None:
        kv = self.kv
        calls: list[Callable[[], Any]] = [
            lambda: coordination.Lock(kv, "k", ttl=3).acquire(TIMEOUT).release(TIMEOUT),
            lambda: coordination.Semaphore(kv, "k", 2, ttl=3).acquire(TIMEOUT).release(TIMEOUT),
            lambda: coordination.holders(kv, timeout=TIMEOUT),
            lambda: coordination.once_per(kv, "k", 60, timeout=TIMEOUT),
            lambda: coordination.lease_bucket(self.js, timeout=TIMEOUT),
            lambda: coordination.Election(kv, "k", ttl=3).close(TIMEOUT),
        ]
        repr(self.rng.choice(calls)())

    def groups(self) -> None:
        group = groups.PartitionedGroup(self.js, "S", "g", elastic=self.rng.random() < 0.5)
        calls: list[Callable[[], Any]] = [
            lambda: groups.open_group(self.js, "S", "g", timeout=TIMEOUT),
            lambda: groups.create_elastic(self.js, "S", "g", partitions=2, timeout=TIMEOUT),
            lambda: groups.create_static(self.js, "S", "g", partitions=2, members=["m"], timeout=TIMEOUT),
            lambda: list(itertools.islice(groups.partitioned_groups(self.js, "S", timeout=TIMEOUT), 50)),
            lambda: group.config(timeout=TIMEOUT),
            lambda: group.members(timeout=TIMEOUT),
            lambda: group.lag(timeout=TIMEOUT),
            lambda: group.add("m", timeout=TIMEOUT),
            lambda: group.delete(timeout=TIMEOUT),
        ]
        repr(self.rng.choice(calls)())

    def system(self) -> None:
        client = SystemClient(self.nc, timeout=TIMEOUT)

        def events() -> None:
            with client.events("s.>", timeout=TIMEOUT) as found:
                repr(list(itertools.islice(found, 5)))

        calls: list[Callable[[], Any]] = [
            client.servers,
            client.variables,
            client.connections,
            client.jetstream,
            client.health,
            lambda: client.kick(5, "N"),
            events,
        ]
        repr(self.rng.choice(calls)())

    def serve(self) -> None:
        service = services.add_service(self.nc, services.ServiceConfig(name="s", version="1.0.0"))
        try:
            service.add_endpoint("e", lambda request: request.respond(request.data), subject="s.>")
            self.nc.request("any.thing", b"x", timeout=TIMEOUT)
        finally:
            service.stop()

    def backup(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            backup.backup_stream(self.js, "S", Path(folder) / "b", timeout=TIMEOUT)


NAMES = [name for name in vars(Calls) if not name.startswith("_")]


def look(message: Any) -> None:
    """Everything that an application looks at."""
    repr(message)
    for name in ("subject", "reply", "data", "headers", "status", "metadata", "stream_seq", "num_delivered"):
        try:
            repr(getattr(message, name, None))
        except (JsClientError, ProtocolError):  # of headers, as a publisher sent them
            pass


def call(name: str, calls: Calls) -> None:
    began = time.monotonic()
    faulthandler.dump_traceback_later(4 * PATIENCE, exit=True)
    try:
        getattr(calls, name)()
    except (JsClientError, StopIteration):
        pass
    except Exception as error:
        raise Finding(f"{name} raised {type(error).__name__}: {error}\n{traceback.format_exc()}") from None
    finally:
        faulthandler.cancel_dump_traceback_later()
    # Each makes up to ten waits of TIMEOUT.
    if time.monotonic() - began > PATIENCE:
        raise Finding(f"{name} took {time.monotonic() - began:.1f} s")


def one_round(seed: int, number: int) -> None:
    rng = random.Random(f"{seed}/{number}")
    crashed: list[str] = []

    def hook(given: threading.ExceptHookArgs) -> None:
        text = "".join(traceback.format_exception(given.exc_type, given.exc_value, given.exc_traceback))
        crashed.append(f"thread {given.thread and given.thread.name}: {text}")

    before, threading.excepthook = threading.excepthook, hook
    try:
        server = FakeServer(Server(rng))
        with server:
            try:
                nc = jsclient.connect(server.url, connect_timeout=2, ping_interval=5, drain_timeout=1, name="fuzz")
            except JsClientError:
                return
            calls = Calls(nc, rng)
            try:
                for name in rng.choices(NAMES, k=CALLS):
                    call(name, calls)
            finally:
                began = time.monotonic()
                nc.close()
            if time.monotonic() - began > PATIENCE:
                raise Finding(f"close() took {time.monotonic() - began:.1f} s")
    finally:
        threading.excepthook = before
    if crashed:
        raise Finding("\n".join(crashed))
    end = time.monotonic() + PATIENCE
    while left := [t for t in threading.enumerate() if t.name.startswith("jsclient-")]:
        if time.monotonic() > end:
            raise Finding(f"threads are left: {[thread.name for thread in left]}")
        left[0].join(0.05)


def memory() -> int:
    """Resident bytes; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * resource.getpagesize()


def run(seconds: float, seed: int, first: int = 0, rounds: int | None = None) -> int:
    """Exit status; every finding is printed, and the next round follows."""
    logging.getLogger("jsclient").setLevel(logging.CRITICAL + 1)  # a server that is always wrong is worth many lines
    end = time.monotonic() + seconds
    number, found, base = first, 0, 0
    while time.monotonic() < end and (rounds is None or number < first + rounds):
        try:
            one_round(seed, number)
        except Finding as finding:
            found += 1
            print(f"FINDING at seed {seed} round {number}: {finding}", flush=True)
        number += 1
        if number == first + WARM:
            gc.collect()
            base = memory()
    gc.collect()
    grown = memory() - base if base else 0
    if grown > GROWTH:
        found += 1
        print(f"FINDING: memory grew by {grown >> 20} MiB in {number - first - WARM} rounds")
    print(f"{number - first} rounds, {found} findings (seed {seed}), memory grew by {grown >> 20} MiB")
    return 1 if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--round", type=int, default=None, help="only this one")
    arguments = parser.parse_args()
    if arguments.round is not None:
        return run(arguments.seconds, arguments.seed, arguments.round, 1)
    return run(arguments.seconds, arguments.seed)


if __name__ == "__main__":
    sys.exit(main())
