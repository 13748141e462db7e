"""A watcher over server restarts: with history every change once and in order, else the last value of each key."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import jsclient
from jsclient import errors, keyvalue
from jsclient.jetstream import JetStream
from jsclient.keyvalue import KeyValue, KeyValueConfig
from jsclient.testing import NatsServer, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

Count = Callable[[int, int], int]
KEYS = 10


class Writer(threading.Thread):
    """Puts numbers in turn on all keys until told to stop; every number is stored once and in order."""

    def __init__(self, url: str, bucket: str) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.bucket = bucket
        self.written = 0
        self.stopping = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with jsclient.connect(self.url) as nc:
                kv = keyvalue.key_value(JetStream(nc), self.bucket)
                while not self.stopping.is_set():
                    self.store(kv, self.written)
                    self.written += 1
                    self.stopping.wait(0.002)
        except BaseException as error:
            self.failure = error

    def store(self, kv: KeyValue, number: int) -> None:
        key, value = f"k{number % KEYS}", b"%d" % number
        while True:
            try:
                kv.put(key, value, timeout=30)
                return
            except (errors.UnknownOutcome, errors.ConnectionLost):
                # It may be stored: look before storing it again, or it would be there twice.
                if self.stored(kv, key) == value:
                    return
            except errors.NotStored:
                continue

    def stored(self, kv: KeyValue, key: str) -> bytes | None:
        while True:
            try:
                return kv.get(key, direct=False).value
            except errors.KeyNotFound:
                return None
            except (errors.TimedOut, errors.ConnectionLost, errors.NoResponders, errors.ApiError):
                continue


@pytest.mark.parametrize("history", [64, 1])
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_watcher_goes_on_over_restarts(history: int, end: str, count: Count) -> None:
    restarts = count(20, 2)
    with NatsServer() as server, jsclient.connect(server.url) as nc:
        kv = keyvalue.create_key_value(JetStream(nc), KeyValueConfig(bucket="b", history=history))
        writer = Writer(server.url, "b")
        with kv.watch(include_history=history > 1, timeout=60) as watcher:
            assert watcher.next(5) is None
            seen: list[tuple[int, str, int]] = []

            def read() -> None:
                seen.extend((entry.revision, entry.key, int(entry.value)) for entry in watcher if entry is not None)

            reader = threading.Thread(target=read, daemon=True)
            reader.start()
            writer.start()
            for _ in range(restarts):
                before = writer.written
                wait_until(lambda before=before: writer.written > before + 20, 60, "the writer stands still")  # type: ignore[misc]
                getattr(server, end)()
                server.start()
            before = writer.written
            wait_until(lambda: writer.written > before + 20, 60, "the writer stands still")
            writer.stopping.set()
            writer.join(60)
            assert writer.failure is None
            # What is compared is what the server has: a kill may take back what it had not written to the disk.
            last = {key: kv.get(key, direct=False) for key in (f"k{number}" for number in range(KEYS))}
            end_revision = max(entry.revision for entry in last.values())
            wait_until(lambda: seen and seen[-1][0] >= end_revision, 60, "the watcher does not catch up")
            watcher.stop()
            reader.join(10)
    revisions = [revision for revision, _, _ in seen]
    assert revisions == sorted(set(revisions)), "out of order or repeated"
    newest = {key: number for _, key, number in seen}
    assert newest == {key: int(entry.value) for key, entry in last.items()}
    if history > 1 and end == "stop":
        assert [number for _, _, number in seen] == list(range(writer.written)), "a gap or a repeat"


def test_an_idle_watcher_wakes_up_after_a_restart() -> None:
    with NatsServer() as server, jsclient.connect(server.url) as nc:
        kv = keyvalue.create_key_value(JetStream(nc), KeyValueConfig(bucket="b"))
        with kv.watch() as watcher:
            assert watcher.next(5) is None
            for number in range(3):
                server.restart()
                wait_until(lambda: nc.is_connected, 20)
                kv.put("a", b"%d" % number, timeout=30)
                entry = watcher.next(30)
                assert entry is not None
                assert entry.value == b"%d" % number


def test_a_restart_in_the_middle_of_the_first_pass() -> None:
    with NatsServer() as server, jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        kv = keyvalue.create_key_value(js, KeyValueConfig(bucket="b"))
        for number in range(5000):
            js.publish_async(f"$KV.b.k{number}", b"x" * 100)
        js.publish_async_complete(timeout=60)
        with kv.watch(timeout=30) as watcher:
            keys = [watcher.next() for _ in range(700)]
            server.restart()
            wait_until(lambda: nc.is_connected, 20)
            kv.put("k4999", b"changed", timeout=30)
            kv.put("late", b"late", timeout=30)
            keys += watcher.initial()
            while len({entry.key for entry in keys if entry}) < 5001:
                keys.append(watcher.next())
            names = [entry.key for entry in keys if entry]
            assert len(names) - len(set(names)) <= 1  # k4999 may come with its old and its new value
            assert keys[-1] is not None
            assert watcher.initial_complete
