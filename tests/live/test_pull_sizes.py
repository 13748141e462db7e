"""How many messages and bytes a pull requests, against a real server: windows, `max_bytes`, large messages."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.stream_m import durable, inner, publish

import jsclient
from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.jetstream.consuming.pull_options import MAX_BYTES
from jsclient.testing import NatsServer, Proxy, wait_until


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="M", subjects=["m.>"], storage="memory"))
    return js


def test_bytes_and_messages_hold_together(js: JetStream) -> None:
    publish(js, 50, size=10_000)
    consumer = durable(js)
    with consumer.messages(max_bytes=90_000) as messages:
        messages.next(timeout=5)
        wait_until(lambda: messages.buffered >= 3, 5)
        assert consumer.info().num_ack_pending <= 9
        for _ in range(49):
            messages.next(timeout=5)


@pytest.mark.parametrize("options", [{}, {"max_messages": 0}])
def test_never_more_bytes_than_allowed_are_buffered(js: JetStream, options: dict[str, Any]) -> None:
    publish(js, 60, size=10_000)
    consumer = durable(js)
    with consumer.messages(max_bytes=100_000, **options) as messages:
        for taken in range(1, 61):
            messages.next(timeout=5)
            assert consumer.info().num_ack_pending - taken < 10  # 9 fit into it, with their subjects


def test_the_window_follows_who_takes(js: JetStream) -> None:
    publish(js, 20_000)
    consumer = durable(js, ack_policy="none")
    with consumer.messages() as messages:
        windows = {inner(messages)._state.max_messages for _ in itertools.islice(messages, 20_000)}
        assert min(windows) == 500
        assert 500 < max(windows) <= 4_000


@pytest.mark.parametrize("options", [{}, {"max_messages": 0}, {"max_messages": 50}])
def test_messages_that_fill_a_pull_exactly_do_not_stop_it(js: JetStream, options: dict[str, Any]) -> None:
    """No server tells the end of such a pull; it took two heartbeats to notice."""
    publish(js, 700, size=100)
    consumer = durable(js, ack_policy="none", max_ack_pending=-1)
    consumer.fetch(110, timeout=5)  # from here on the ack subjects are of one length
    size = consumer.next(timeout=5).size
    reported: list[Exception] = []
    with consumer.messages(max_bytes=40 * size, on_error=reported.append, **options) as messages:
        got = [messages.next(timeout=1.0).size for _ in range(480)]
    assert set(got) == {size}
    assert not reported


def test_a_message_that_needs_all_bytes_comes_among_small_ones(js: JetStream) -> None:
    publish(js, 300)
    publish(js, 1, size=7_000)
    publish(js, 3)
    ways: list[dict[str, Any]] = [{}, {"max_messages": 0}, {"max_messages": 500, "threshold_messages": 500}]
    for options in ways:
        consumer = js.create_consumer("M", ConsumerConfig(ack_policy="none"))
        with consumer.messages(max_bytes=10_000, **options) as messages:
            assert len([messages.next(timeout=5) for _ in range(304)]) == 304
            pulls = inner(messages)._state.open
            assert max(pulls, default=0) - min(pulls, default=0) < 100


@pytest.mark.slow
def test_a_window_that_has_grown_beyond_the_consumers_limit_shrinks(js: JetStream, server: NatsServer) -> None:
    """It grows over a line of 20 ms: near the server that depends on which of the two is faster just then."""
    publish(js, 60_000)
    durable(js, ack_policy="none")
    reported: list[Exception] = []
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as far:
        proxy.delay(0.01)
        with JetStream(far).consumer("M", "C").messages(on_error=reported.append) as messages:
            for _ in itertools.islice(messages, 20_000):
                pass
            assert inner(messages)._state.max_messages > 500
            js.update_consumer("M", ConsumerConfig(durable_name="C", ack_policy="none", max_batch=600))
            assert sum(1 for _ in itertools.islice(messages, 40_000)) == 40_000
            assert inner(messages)._state.max_messages <= 600
        assert not reported


def test_only_bytes(js: JetStream) -> None:
    publish(js, 50, size=1_000)
    with durable(js).messages(max_messages=0, max_bytes=10_000) as messages:
        assert len([messages.next(timeout=5) for _ in range(50)]) == 50


def test_a_message_beyond_max_bytes_is_reported(js: JetStream) -> None:
    publish(js, 1, size=10_000)
    reported: list[Exception] = []
    with durable(js).messages(max_bytes=5_000, on_error=reported.append) as messages:
        with pytest.raises(errors.NoMessages):
            messages.next(timeout=1)
    (error,) = reported
    assert isinstance(error, errors.MaxBytesExceeded)
    assert "max_bytes=5000" in str(error)
    assert error.advice == "Raise max_bytes, or remove the message."


def test_reading_continues_when_a_message_beyond_max_bytes_is_removed(js: JetStream) -> None:
    publish(js, 1, size=10_000)
    js.publish("m.a", b"small")
    reported: list[Exception] = []
    with durable(js).messages(max_bytes=5_000, on_error=reported.append) as messages:
        with pytest.raises(errors.NoMessages):
            messages.next(timeout=0.3)
        js.stream("M").delete_msg(1)
        assert messages.next(timeout=10).data == b"small"
        publish(js, 1, size=10_000)
        with pytest.raises(errors.NoMessages):
            messages.next(timeout=0.5)
    assert [type(error) for error in reported] == [errors.MaxBytesExceeded] * 2


def test_a_message_may_be_larger_than_what_is_asked_for_by_default() -> None:
    with NatsServer("max_payload: 32MB") as server, jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        stream = js.create_stream(StreamConfig(name="LARGE", subjects=["LARGE"], storage="memory"))
        sizes = [1, MAX_BYTES + 1, 1, 1, MAX_BYTES + 1, 1]
        for size in sizes:
            js.publish("LARGE", bytes(size))
        with stream.create_consumer(ConsumerConfig(ack_policy="none")).messages() as messages:
            assert [len(messages.next(timeout=10).data) for _ in sizes] == sizes


def test_several_reads_at_once_do_not_make_a_server_cut_the_link_off() -> None:
    """It does when 64 MiB wait for a connection."""
    assert 4 * MAX_BYTES <= 64 * 1024 * 1024


@pytest.mark.parametrize(("size", "limit"), [(300, 1024), (700, 1024), (900, 1024), (1024, 2048), (5_000, 8_192)])
def test_pulls_are_in_proportion_to_the_messages(js: JetStream, size: int, limit: int) -> None:
    """Where a message needs more than half of the bytes there is a pull for each, and now and then one in vain."""
    for _ in range(30):
        js.publish("m.a", bytes(size))
    consumer = js.create_consumer("M", ConsumerConfig(durable_name="PROPORTION", ack_policy="none"))
    with js.nc.subscribe("$JS.API.CONSUMER.MSG.NEXT.M.PROPORTION") as pulls:
        with consumer.messages(max_messages=10, max_bytes=limit) as messages:
            for _ in range(30):
                messages.next(timeout=5)
        js.nc.flush()
        assert 0 < pulls.pending <= 45
