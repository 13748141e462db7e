"""Locks, elections, semaphores: never two valid holders, tokens that rise, a successor when the holder is gone."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jsclient
from jsclient import coordination, errors, keyvalue
from jsclient.coordination import Election, Lease, LeaseLost, Lock, Semaphore
from jsclient.jetstream import JetStream
from jsclient.keyvalue import KeyValue
from jsclient.testing import NatsServer, Proxy, wait_until

Count = Callable[[int, int], int]


@pytest.fixture
def ttl(server: NatsServer) -> float:
    """The shortest that the server can give."""
    return 2.0 if server.version >= (2, 11, 0) else 5.0


@pytest.fixture
def context(server: NatsServer) -> Iterator[JetStream]:
    with jsclient.connect(server.url) as nc:
        yield JetStream(nc)


@pytest.fixture
def kv(context: JetStream, ttl: float) -> Iterator[KeyValue]:
    yield coordination.lease_bucket(context, ttl=ttl)
    keyvalue.delete_key_value(context, "leases")


def test_one_holder_at_a_time_and_the_next_at_once(context: JetStream) -> None:
    # Without its marker a release would be seen half a lease after the wait began: a long one leaves the machine time.
    ttl = 40.0
    kv = coordination.lease_bucket(context, "handed", ttl=ttl)
    first = Lock(kv, "work", ttl=ttl)
    second = Lock(kv, "work", ttl=ttl)
    with first as lease:
        assert lease.valid
        assert 0 < lease.remaining <= ttl
        with pytest.raises(errors.TimedOut, match="is taken"):
            second.acquire(0)
        with pytest.raises(errors.TimedOut, match="was not free within"):
            second.acquire(0.2)
        taken: list[tuple[Lease, float]] = []
        waiting = threading.Thread(target=lambda: taken.append((second.acquire(60), time.monotonic())))
        waiting.start()
        wait_until(lambda: waiting.is_alive())
        released = time.monotonic()
    waiting.join(60)
    other, when = taken[0]
    assert when - released < ttl / 4, "the marker of the release woke it"
    assert other.token > lease.token
    assert not lease.valid
    with pytest.raises(LeaseLost, match="is over"):
        lease.check()
    other.release()
    other.release()
    second.acquire(5).release()


def test_a_release_just_before_the_watch_is_not_missed(context: JetStream, monkeypatch: pytest.MonkeyPatch) -> None:
    kv = coordination.lease_bucket(context, "missed", ttl=40.0)
    first, second, watch = Lock(kv, "work", ttl=40.0).acquire(), Lock(kv, "work", ttl=40.0), KeyValue.watch

    def released_first(self: KeyValue, *keys: str, **options: Any) -> Any:
        first.release()
        return watch(self, *keys, **options)

    monkeypatch.setattr(KeyValue, "watch", released_first)
    second.acquire(5).release()


@pytest.mark.slow
def test_a_lease_is_renewed_as_long_as_it_is_held(kv: KeyValue, ttl: float) -> None:
    lease = Lock(kv, "work", ttl=ttl).acquire(5)
    with pytest.raises(errors.TimedOut):
        Lock(kv, "work", ttl=ttl).acquire(1.5 * ttl)
    assert lease.valid
    lease.release()


@pytest.mark.slow
def test_whoever_is_stopped_has_no_lease_any_more(kv: KeyValue, ttl: float, server: NatsServer) -> None:
    program = str(Path(__file__).with_name("coordination_holder.py"))
    with subprocess.Popen(
        [sys.executable, program, server.url, str(ttl)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        token = int(process.stdout.readline())
        process.send_signal(signal.SIGSTOP)
        try:
            with Lock(kv, "work", ttl=ttl).acquire(3 * ttl) as lease:
                assert lease.token > token
                process.send_signal(signal.SIGCONT)
                process.stdin.write("\n")
                process.stdin.close()
                assert process.stdout.readline() == "False\n", "it notices without asking anybody"
                assert lease.valid
        finally:
            process.kill()


@pytest.mark.slow
def test_a_lease_is_lost_when_the_server_is_out_of_reach(kv: KeyValue, ttl: float, server: NatsServer) -> None:
    lost: list[Lease] = []
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        far = keyvalue.key_value(JetStream(nc), "leases")
        lease = Lock(far, "work", ttl=ttl, on_lost=lost.append).acquire(5)
        proxy.stall()
        begin = time.monotonic()
        wait_until(lambda: not lease.valid, 2 * ttl)
        assert time.monotonic() - begin < ttl
        with Lock(kv, "work", ttl=ttl) as other:  # the server has let it expire by itself
            assert other.token > lease.token
        wait_until(lambda: lost == [lease])
        proxy.resume()


def test_turns_of_many_never_overlap(kv: KeyValue, ttl: float, server: NatsServer, count: Count) -> None:
    turns: list[tuple[float, float, int]] = []

    def work(times: int) -> None:
        with jsclient.connect(server.url) as nc:
            lock = Lock(keyvalue.key_value(JetStream(nc), "leases"), "turns", ttl=ttl)
            for _ in range(times):
                lease = lock.acquire(60)
                begin = time.monotonic()
                assert lease.valid
                turns.append((begin, time.monotonic(), lease.token))
                lease.release()

    threads = [threading.Thread(target=work, args=(count(250, 25),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(turns) == 4 * count(250, 25)
    turns.sort()
    tokens = [token for _, _, token in turns]
    assert tokens == sorted(set(tokens)), "tokens rise with every turn"
    assert all(one[1] <= two[0] for one, two in itertools.pairwise(turns)), "no two had it at once"


def test_a_semaphore_has_seats(kv: KeyValue, ttl: float) -> None:
    semaphore = Semaphore(kv, "seats", 3, ttl=ttl)
    leases = [semaphore.acquire(5) for _ in range(3)]
    assert len({lease.key for lease in leases}) == 3
    with pytest.raises(errors.TimedOut):
        semaphore.acquire(0)
    leases.pop().release()
    with semaphore as lease:
        assert lease.valid
    for lease in leases:
        lease.release()
    with pytest.raises(errors.ConfigError, match="seats must be"):
        Semaphore(kv, "x", 0)


def test_each_thread_gives_back_its_own_seat(kv: KeyValue, ttl: float) -> None:
    semaphore = Semaphore(kv, "threads", 3, ttl=ttl)
    entered, leave = threading.Event(), threading.Event()
    found: list[bool] = []

    def hold() -> None:
        with semaphore as lease:
            entered.set()
            leave.wait(60)
            found.append(lease.valid)

    thread = threading.Thread(target=hold)
    with semaphore as mine:
        thread.start()
        assert entered.wait(30)
        with semaphore as newest:
            pass
        assert not newest.valid
        assert mine.valid
    assert not mine.valid
    leave.set()
    thread.join(30)
    assert found == [True]
    semaphore.__enter__()
    elsewhere: list[BaseException] = []

    def leave_elsewhere() -> None:
        with pytest.raises(errors.ConfigError, match="another thread") as caught:
            semaphore.__exit__(None, None, None)
        elsewhere.append(caught.value)

    other = threading.Thread(target=leave_elsewhere)
    other.start()
    other.join(30)
    assert elsewhere
    semaphore.__exit__(None, None, None)


def test_a_job_runs_once_per_interval(server: NatsServer, context: JetStream, kv: KeyValue) -> None:
    interval = 3600.0
    bucket = kv
    if server.version < (2, 11, 0):
        with pytest.raises(errors.ConfigError, match="must keep two intervals"):
            coordination.once_per(kv, "job", interval)
        bucket = coordination.lease_bucket(context, "jobs", ttl=2 * interval)
    tokens = [coordination.once_per(bucket, "job", interval) for _ in range(5)]
    ran = [token for token in tokens if token is not None]
    assert 1 <= len(ran) <= 2, "twice if an hour has just begun"


@pytest.mark.slow
def test_a_leader_is_replaced(server: NatsServer, kv: KeyValue, ttl: float) -> None:
    told: list[tuple[str, int, int]] = []

    def hooks(name: str) -> dict[str, Any]:
        return {
            "on_gain": lambda lease: told.append((name, lease.token, 1)),
            "on_loss": lambda lease: told.append((name, lease.token, 0)),
        }

    with jsclient.connect(server.url) as nc, Election(kv, "chief", ttl=ttl, **hooks("a")) as first:
        wait_until(lambda: first.leading)
        far = keyvalue.key_value(JetStream(nc), "leases")
        with Election(far, "chief", ttl=ttl, **hooks("b")) as second:
            assert not second.leading
            first.close()
            wait_until(lambda: second.leading)
            assert not first.leading
            with Election(kv, "chief", ttl=ttl, **hooks("c")) as third:
                nc.close()  # it dies without giving the lease back
                wait_until(lambda: third.leading, 3 * ttl)
                assert not second.leading
                assert isinstance(second.error, errors.ConnectionClosed) or not second.leading
    gained = [token for _, token, gain in told if gain]
    assert len(gained) == 3
    assert gained == sorted(gained)


def test_times_that_the_server_cannot_give_are_refused(server: NatsServer, context: JetStream, kv: KeyValue) -> None:
    if server.version >= (2, 11, 0):
        with pytest.raises(errors.ConfigError, match="at least 2 s"):
            Lock(kv, "work", ttl=1).acquire(0)
        plain = keyvalue.create_key_value(context, keyvalue.KeyValueConfig(bucket="plain"))
        with pytest.raises(errors.ConfigError, match="no times per key"):
            Lock(plain, "work").acquire(0)
    else:
        with pytest.raises(errors.ConfigError, match="no time per key"):
            coordination.lease_bucket(context, "other")
        with pytest.raises(errors.ConfigError, match="all leases in bucket"):
            Lock(kv, "work", ttl=10).acquire(0)


@pytest.mark.slow
def test_a_renewed_value_expires_all_the_same(server: NatsServer, kv: KeyValue) -> None:
    if server.version < (2, 11, 0):
        return  # there the age of the bucket decides
    revision = kv.create("key", b"1", ttl=60)
    revision = kv.update("key", b"2", revision, ttl=1)
    wait_until(lambda: "key" not in kv, 5)
    revision = kv.create("key", b"3", ttl=1)
    kv.update("key", b"4", revision)
    with kv.watch("key", updates_only=True) as changes, pytest.raises(errors.TimedOut):
        changes.next(1.5)
    assert kv["key"] == b"4"
