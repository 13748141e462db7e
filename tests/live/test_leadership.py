"""Leaders and replicas are changed from a program: the calls return when it is true."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import ClusterInfo, ConsumerConfig, JetStream, Stream, StreamConfig
from jsclient.testing import Cluster, NatsServer


@pytest.fixture(scope="module")
def js() -> Iterator[JetStream]:
    with Cluster(4) as cluster, jsclient.connect(cluster.url) as nc:
        yield JetStream(nc, timeout=20)


@pytest.fixture
def stream(js: JetStream) -> Stream:
    name = uuid.uuid4().hex
    return js.create_stream(StreamConfig(name=name, subjects=[name], num_replicas=3))


def cluster_of(found: ClusterInfo | None) -> ClusterInfo:
    assert found is not None
    return found


def members(stream: Stream) -> set[str]:
    found = cluster_of(stream.info().cluster)
    return {found.leader, *(replica.name for replica in found.replicas or ())}


def test_another_server_leads_the_stream(js: JetStream, stream: Stream) -> None:
    before = cluster_of(stream.info().cluster)
    after = cluster_of(stream.step_down().cluster)
    assert after.leader
    assert (after.leader, after.leader_since) != (before.leader, before.leader_since)
    js.publish(stream.name, b"1")
    assert stream.info().state.messages == 1


def test_the_server_that_was_named_leads(js: JetStream, stream: Stream) -> None:
    consumer = stream.create_consumer(ConsumerConfig(durable_name="C", num_replicas=3))
    for handle in (stream, consumer):
        found = cluster_of(handle.info().cluster)
        wanted = next(replica.name for replica in found.replicas or ())
        if not js.nc.server_info.at_least(2, 11):
            with pytest.raises(errors.NotSupported):
                handle.step_down(to=wanted)
            continue
        assert cluster_of(handle.step_down(to=wanted).cluster).leader == wanted
        assert cluster_of(handle.step_down(to=wanted).cluster).leader == wanted
        with pytest.raises(errors.PeerNotFound, match="does not hold"):
            handle.step_down(to="elsewhere")


def test_another_server_leads_the_consumer(stream: Stream) -> None:
    consumer = stream.create_consumer(ConsumerConfig(durable_name="C", num_replicas=3))
    before = cluster_of(consumer.info().cluster)
    after = cluster_of(consumer.step_down().cluster)
    assert (after.leader, after.leader_since) != (before.leader, before.leader_since)


def test_a_server_is_taken_out(js: JetStream, stream: Stream) -> None:
    js.publish(stream.name, b"kept")
    held = members(stream)
    gone = cluster_of(stream.info().cluster).leader
    found = cluster_of(stream.remove_peer(gone).cluster)
    assert found.leader not in ("", gone)
    assert gone not in members(stream)
    assert stream.get_msg(1, direct=False).data == b"kept"
    with pytest.raises(errors.PeerNotFound, match="does not hold"):
        stream.remove_peer(gone)
    assert held - {gone} <= members(stream)


def test_what_has_one_replica_is_refused(js: JetStream) -> None:
    stream = js.create_stream(StreamConfig(name="ONE", subjects=["one"]))
    consumer = stream.create_consumer(ConsumerConfig(durable_name="C"))
    leader = cluster_of(stream.info().cluster).leader
    calls: list[Callable[[], Any]] = [stream.step_down, consumer.step_down, lambda: stream.remove_peer(leader)]
    for call in calls:
        with pytest.raises(errors.ConfigError, match="one replica"):
            call()


def test_a_server_without_a_cluster(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        stream = JetStream(nc).create_stream(StreamConfig(name="ALONE", subjects=["alone"]))
        calls: list[Callable[[], Any]] = [stream.step_down, lambda: stream.remove_peer("x")]
        for call in calls:
            with pytest.raises((errors.ConfigError, errors.NotClustered)):
                call()
        stream.delete()


def test_no_change_in_time_is_an_unknown(stream: Stream) -> None:
    with pytest.raises(errors.TimedOut):
        stream.step_down(timeout=0.02)
