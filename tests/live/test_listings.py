"""Listings are complete beyond one page of the server: 1,024 names, 256 infos, 100,000 subjects."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.jetstream.api import consumer_requests
from jsclient.testing import Cluster, NatsServer


@pytest.fixture
def own_server() -> Iterator[NatsServer]:
    with NatsServer() as server:
        yield server


@pytest.mark.timeout(180)
def test_1100_streams(own_server: NatsServer) -> None:
    """More than one page of names and more than four of infos, in both tiers."""
    wanted = [f"S{number:04}" for number in range(1_100)]
    with jsclient.connect(own_server.url) as nc:
        pages: list[str] = []
        js = JetStream(nc, on_request=lambda subject, payload: pages.append(subject))
        for name in wanted:
            js.create_stream(StreamConfig(name=name, subjects=[f"list.{name}"], storage="memory"))
        pages.clear()
        assert sorted(js.stream_names()) == wanted
        assert pages == ["$JS.API.STREAM.NAMES"] * 2
        pages.clear()
        assert sorted(info.config.name for info in js.streams()) == wanted
        assert len(pages) == 5
        pages.clear()
        assert len(list(js.stream_names(subject="list.>"))) == 1_100
        first = js.stream_names()
        assert len(pages) == 2  # lazy: a listing that nobody reads asks for nothing
        next(first)
        assert len(pages) == 3
        assert js.stream_name_by_subject("list.S1050") == "S1050"


@pytest.mark.timeout(120)
def test_300_consumers(own_server: NatsServer) -> None:
    wanted = [f"c{number:03}" for number in range(300)]
    with jsclient.connect(own_server.url) as nc:
        js = JetStream(nc)
        stream = js.create_stream(StreamConfig(name="S", subjects=["s"], storage="memory"))
        for name in wanted:
            consumer_requests.put(js, "S", ConsumerConfig(durable_name=name), "create")
        assert sorted(stream.consumer_names()) == wanted
        assert sorted(info.name for info in stream.consumers()) == wanted
        assert sorted(js.consumer_names("S")) == wanted
        assert len(list(js.consumers("S"))) == 300


@pytest.mark.timeout(180)
def test_120000_subjects(own_server: NatsServer, count: Callable[[int, int], int]) -> None:
    wanted = count(120_000, 12_000)
    with jsclient.connect(own_server.url) as nc:
        js = JetStream(nc)
        stream = js.create_stream(StreamConfig(name="S", subjects=["s.*"], storage="memory"))
        for number in range(wanted):
            js.publish_async(f"s.{number}")
        js.publish_async_complete(60)
        info = stream.info(subjects_filter="s.>", timeout=30)
        assert info.state.messages == wanted
        assert info.state.subjects is not None
        assert len(info.state.subjects) == wanted
        assert len(dict(stream.subjects(timeout=30))) == wanted
        assert set(info.state.subjects.values()) == {1}


def test_subjects_that_are_no_text(own_server: NatsServer) -> None:
    """Several to the server, and one in its answer: the listing does not go on for ever."""
    with jsclient.connect(own_server.url) as nc:
        js = JetStream(nc)
        stream = js.create_stream(StreamConfig(name="S", subjects=["s.*"], storage="memory"))
        for number in range(3):
            js.publish(f"s.{chr(0xDC80 + number)}")
        with pytest.raises(errors.ListingIncomplete, match="3 names .* no UTF-8"):
            list(stream.subjects(timeout=10))


@pytest.mark.faults
@pytest.mark.timeout(120)
def test_a_listing_without_some_streams_says_so() -> None:
    """A server of the cluster is gone, and with it streams of one replica: named, and not left out in silence."""
    with Cluster(3) as cluster:
        survivor = cluster.meta_leader()
        with jsclient.connect(survivor.url) as nc:
            js = JetStream(nc)
            homes = {}
            for number in range(9):
                info = js.create_stream(StreamConfig(name=f"S{number}", subjects=[f"s.{number}"])).cached_info
                assert info is not None
                assert info.cluster is not None
                homes[f"S{number}"] = info.cluster.leader
            victim = next((home for home in homes.values() if home != survivor.name), "")
            if not victim:  # placement is the server's choice
                return
            cluster.by_name(victim).kill()
            lost = sorted(name for name, home in homes.items() if home == victim)
            seen = []
            with pytest.raises(errors.ListingIncomplete) as caught:
                for info in js.streams():
                    seen.append(info.config.name)  # noqa: PERF401
            assert caught.value.missing == lost
            assert sorted(seen + lost) == sorted(homes)
            assert sorted(js.stream_names()) == sorted(homes)
