"""Streams with three replicas: leaders are killed, followers lag behind; exact sets all the same."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

import jsclient
from jsclient import errors
from jsclient.exactly import task
from jsclient.spark import close_idle
from jsclient.testing import Cluster, NatsServer, wait_until

from .conftest import Js, Pipeline, mode_works, refused_before
from .journal_rig import History, Sink, pass_the_window
from .test_faults import when_stored
from .test_many_streams import query_of, run
from .test_proofs import planned_end
from .test_without_jvm import at, batches, read, reader, writer

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

TOTAL = 40_000
T = TypeVar("T")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as running:
        yield running
        close_idle()


def create(cluster: Cluster, name: str, **config: Any) -> None:
    with jsclient.connect(cluster.url) as nc:
        Js(nc).create(name, num_replicas=3, allow_direct=True, **config)


def fill(cluster: Cluster, name: str, start: int, end: int) -> None:
    writer(cluster.url, subject=f"{name}.x", publishMode="async").write(batches(start, end))


def patiently(call: Callable[[], T]) -> T:
    """Do what may be done twice until somebody answers: without leaders a cluster is silent for a while."""

    def answer() -> list[T]:
        try:
            return [call()]
        except (errors.RequestTimeout, errors.ConnectionLost, errors.JetStreamUnavailable, errors.ApiError):
            return []

    return wait_until(answer, 120, "an answer of the cluster")[0]


def delete(js: Js, name: str) -> None:
    with contextlib.suppress(errors.StreamNotFound):  # deleted before, and the answer was lost
        js.api.request(f"STREAM.DELETE.{name}")


def bounce(server: NatsServer) -> None:
    server.kill()
    server.start()


@pytest.mark.parametrize("method", ["consumer", "direct"])
def test_reading_while_leaders_are_killed(cluster: Cluster, method: str, in_portions: Callable[..., None]) -> None:
    in_portions(1000, 1500, 2)
    with refused_before(cluster.servers[0], (2, 11) if method == "direct" else (2, 9), "DIRECT_UNAVAILABLE"):
        create(cluster, "S")
        fill(cluster, "S", 0, TOTAL)
        made = reader(cluster.url, "S", readMethod=method, minPartitions=3)

        def kill() -> None:
            bounce(cluster.stream_leader("S"))

        with at([TOTAL // 8, TOTAL // 2], [kill, kill]) as check:
            assert read(made, check) == list(range(TOTAL))


@pytest.mark.parametrize("method", ["consumer", "direct"])
def test_a_follower_that_lags_behind_loses_no_rows(cluster: Cluster, method: str) -> None:
    """A paused follower has missed everything; it answers as soon as it goes on."""
    with refused_before(cluster.servers[0], (2, 11) if method == "direct" else (2, 9), "DIRECT_UNAVAILABLE"):
        create(cluster, "S")
        fill(cluster, "S", 0, 1000)
        follower = next(s for s in cluster.servers if s is not cluster.stream_leader("S"))
        url = ",".join(server.url for server in cluster.servers if server is not follower)
        end = 1000
        for _ in range(3):
            follower.pause()
            try:
                writer(url, subject="S.x", publishMode="async").write(batches(end, end + 9000))
                end += 9000
            finally:
                follower.resume()
            # Direct gets are answered by the server one is connected to, if it has a replica: the one that lags.
            for _ in range(3):
                assert read(reader(follower.url, "S", readMethod=method, recordsPerPartition=end // 4)) == list(
                    range(end)
                )
                close_idle()


@pytest.mark.parametrize("mode", ["async", "fast"])
def test_writing_while_leaders_are_killed(cluster: Cluster, mode: str) -> None:
    create(cluster, "S", allow_batched=True)
    made = writer(cluster.url, subject="S.x", publishMode=mode)

    def rows() -> Iterator[Any]:
        yield from batches(0, TOTAL // 4)
        starters = []
        for part in (1, 2):
            leader = cluster.stream_leader("S")
            leader.kill()
            starters.append(threading.Timer(1.0, leader.start))
            starters[-1].start()
            yield from batches(part * TOTAL // 4, (part + 1) * TOTAL // 4)
            starters[-1].join()
        yield from batches(3 * TOTAL // 4, TOTAL)

    with mode_works(cluster.servers[0], mode):
        assert made.write(rows()).totals.rows == TOTAL
        found = read(reader(cluster.url, "S", subjects="S.x"))
        assert sorted(found) == list(range(TOTAL))


def test_a_pipeline_while_leaders_are_killed(
    spark: Any, cluster: Cluster, tmp_path: Path, count: Callable[[int, int], int]
) -> None:
    total = count(500_000, 50_000)
    for name in ("S", "S_out"):
        create(cluster, name)
    fill(cluster, "S", 0, total)
    victims = ["S", "S_out"]

    def kill() -> None:
        bounce(cluster.stream_leader(victims.pop()))

    pipeline = Pipeline(spark, cluster.url, "S", "S_out", tmp_path / "checkpoint")
    pipeline.sink = {"publishMode": "async"}
    with when_stored(cluster, "S_out", [total // 10, total // 2], kill):
        pipeline.run(minPartitions=2, maxOffsetsPerTrigger=total // 5)
    assert sorted(read(reader(cluster.url, "S_out"))) == list(range(total))
    with jsclient.connect(cluster.url) as nc:
        journal = Js(nc).api.request("STREAM.INFO.KV_spark_journal", read=True)
        assert journal["config"]["num_replicas"] == 3
        wait_until(lambda: Js(nc).consumers("S") == [], 90, "the consumers to vanish")


def test_many_streams_while_leaders_are_killed(cluster: Cluster) -> None:
    """A listing of which a part is missing while leaders are elected takes no stream away, and brings none twice."""
    names = [f"M_{number}" for number in range(9)]
    for name in names:
        create(cluster, name)
    query = query_of(cluster.url, "M_*", minPartitions=9)
    start = planned_end(query.initialOffset())
    found: dict[str, list[int]] = {name: [] for name in names}
    for turn in range(4):
        for name in names:
            fill(cluster, name, turn * 100, turn * 100 + 100)
        bounce(cluster.servers[turn % 3])
        end, rows = run(query, start)
        assert set(end["s"]) == set(names)
        for name, values in rows.items():
            found[name] += values
        start = end
    end, rows = run(query, start)
    for name, values in rows.items():
        found[name] += values
    assert found == {name: list(range(400)) for name in names}


@pytest.mark.timeout(900)
def test_random_histories_while_leaders_are_killed(
    cluster: Cluster, count: Callable[[int, int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly once by the journal, with three replicas of it and of the sinks."""
    monkeypatch.setattr(task, "SETTLED", 0.0)
    with jsclient.connect(cluster.url) as nc:
        js = Js(nc)
        for first in range(0, count(30, 6), 6):
            seeds = range(first, first + 6)
            made = partial(Sink, cluster, js, monkeypatch=monkeypatch, num_replicas=3)  # type: ignore[arg-type]
            histories = [History(patiently(partial(made, f"H{seed}")), seed) for seed in seeds]
            for number in range(5):
                for at_, history in enumerate(histories):
                    if at_ == number:
                        bounce(cluster.stream_leader(history.sink.name))
                    history.attempt(number)
                pass_the_window()
            for history in histories:
                assert history.sink.contents() == Counter(history.rows), history.sink.name
                patiently(partial(delete, js, history.sink.name))
