"""The endless iterator against a real server."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import attrs
import pytest
from tests.pauses import time_passes
from tests.stream_m import durable, inner, publish

import jsclient
from jsclient import errors
from jsclient.connection import engine_of
from jsclient.jetstream import JetStream, StreamConfig
from jsclient.jetstream.consuming.pull_options import Paused, PullOptions, PullOptionsDict, Resumed
from jsclient.testing import NatsServer, Proxy, wait_until


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="M", subjects=["m.>"], storage="memory"))
    return js


def in_thread(call: Any, *args: Any) -> threading.Thread:
    thread = threading.Thread(target=call, args=args, daemon=True)
    thread.start()
    return thread


def test_it_streams_in_order_and_ends_with_the_with_block(js: JetStream) -> None:
    publish(js, 3000)
    consumer = durable(js, max_ack_pending=5000)
    seen = []
    with consumer.messages() as messages:
        for message in messages:
            message.ack()
            seen.append(message.metadata.stream_seq)
            if len(seen) == 3000:
                break
        assert messages.delivered == 3000
    assert seen == list(range(1, 3001))
    assert messages.closed
    js.nc.flush()
    wait_until(lambda: consumer.info().num_ack_pending == 0, 5)
    assert list(messages) == []


def test_never_more_than_max_messages_are_under_way(js: JetStream) -> None:
    publish(js, 300)
    consumer = durable(js)
    with consumer.messages(max_messages=20) as messages:
        for taken in range(1, 101):
            messages.next(timeout=5)
            if taken % 25 == 0:
                wait_until(lambda: consumer.info().num_waiting == 0 or messages.buffered < 20, 5)
                assert consumer.info().num_ack_pending <= taken + 20


def test_stop_releases_a_blocked_next_and_later_ones(js: JetStream) -> None:
    messages = durable(js).messages()
    ended: list[str] = []

    def run() -> None:
        try:
            messages.next(timeout=30)
        except errors.IteratorClosed:
            ended.append("next")

    threads = [in_thread(run) for _ in range(3)]
    threads.append(in_thread(lambda: ended.append("for") if list(messages) == [] else None))
    wait_until(lambda: inner(messages)._pump.waiting == 4, 5)
    messages.stop()
    for thread in threads:
        thread.join(2)
    assert sorted(ended) == ["for", "next", "next", "next"]
    with pytest.raises(errors.IteratorClosed):
        messages.next(timeout=5)
    wait_until(lambda: js.consumer("M", "C").info().num_waiting == 0, 5)


@pytest.mark.parametrize("limit", [1, 7, 500, 1200])
def test_stop_after_is_exact(js: JetStream, limit: int) -> None:
    publish(js, 1500)
    consumer = durable(js, max_ack_pending=5000)
    assert len(list(consumer.messages(stop_after=limit))) == limit
    info = consumer.info()
    assert (info.num_ack_pending, info.num_waiting, info.delivered.stream_seq) == (limit, 0, limit)


def test_threads_share_one_iterator(js: JetStream) -> None:
    publish(js, 5000)
    seen: list[int] = []
    with durable(js, max_ack_pending=10_000).messages() as messages:

        def run() -> None:
            for message in messages:
                message.ack()
                seen.append(message.metadata.stream_seq)

        threads = [in_thread(run) for _ in range(8)]
        wait_until(lambda: len(seen) == 5000, 30)
        messages.stop()
        for thread in threads:
            thread.join(5)
    assert sorted(seen) == list(range(1, 5001))


def test_workers_with_max_messages_one_hoard_nothing(js: JetStream) -> None:
    """A message is asked for when a worker wants one, not while it works (nats.go #1338)."""
    publish(js, 20)
    consumer = durable(js)
    busy, release = threading.Semaphore(0), threading.Event()
    done: list[int] = []
    with consumer.messages(max_messages=1) as messages:

        def run() -> None:
            for message in messages:
                busy.release()
                release.wait(20)
                message.ack()
                done.append(message.metadata.stream_seq)

        threads = [in_thread(run) for _ in range(5)]
        for _ in range(5):
            assert busy.acquire(timeout=5)
        info = consumer.info()
        assert (info.num_ack_pending, info.num_waiting) == (5, 0)
        release.set()
        wait_until(lambda: len(done) == 20, 10)
        messages.stop()
        for thread in threads:
            thread.join(5)
    assert sorted(done) == list(range(1, 21))


def test_the_keyword_arguments_are_the_options() -> None:
    fields = [field.name for field in attrs.fields(PullOptions)]
    assert list(PullOptionsDict.__annotations__) == fields[: len(PullOptionsDict.__annotations__)]


# --- what goes wrong on the server --------------------------------------------------------------------------------


def test_a_consumer_that_never_was_is_raised(js: JetStream) -> None:
    reported: list[Exception] = []
    consumer = js.consumer("M", "nobody", fetch_info=False)
    with consumer.messages(heartbeat=0.5, expires=1, on_error=reported.append) as messages:
        started = time.monotonic()
        with pytest.raises(errors.ConsumerDeleted):
            messages.next(timeout=20)
        assert time.monotonic() - started < 3
    assert all(isinstance(error, errors.PullNoResponders) for error in reported)


@pytest.mark.parametrize("end", ["stop", "close"])
def test_an_end_just_before_the_wait_is_not_missed(js: JetStream, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """A thread that has looked and is about to wait must not sleep until the next heartbeat."""
    messages = durable(js).messages()
    inbox = inner(messages)._pump.inbox.inbox
    wait = type(inbox).next

    def ended_meanwhile(self: Any, seconds: float | None) -> Any:
        if self is inbox:
            getattr(messages, end)()
        return wait(self, seconds)

    monkeypatch.setattr(type(inbox), "next", ended_meanwhile)
    started = time.monotonic()
    with pytest.raises(errors.IteratorClosed):
        messages.next(timeout=10)
    assert time.monotonic() - started < 1
    messages.close()


@pytest.mark.slow
def test_a_pause_is_an_event(js: JetStream, server: NatsServer) -> None:
    if server.version[:2] < (2, 11):
        with pytest.raises(errors.NotSupported):
            js.pause_consumer("M", durable(js).name, 5)
        return
    consumer = durable(js)
    js.pause_consumer("M", "C", 5)
    publish(js, 1)
    events: list[Any] = []
    with consumer.messages(expires=1, heartbeat=0.5, on_event=events.append) as messages:
        with pytest.raises(errors.NoMessages):
            messages.next(timeout=2)
        assert [type(event) for event in events] == [Paused]
        assert messages.paused_until is not None
        assert messages.paused_until.until is not None
        js.resume_consumer("M", "C")
        assert messages.next(timeout=5)
    assert all(isinstance(event, (Paused, Resumed)) for event in events)


@pytest.mark.slow
def test_a_server_that_hangs_is_noticed_and_survived(server: NatsServer, js: JetStream) -> None:
    consumer = durable(js)
    publish(js, 1)
    reported: list[Exception] = []
    with consumer.messages(heartbeat=0.5, on_error=reported.append) as messages:
        messages.next(timeout=5)
        server.pause()
        try:
            started = time.monotonic()
            with pytest.raises(errors.NoMessages):
                messages.next(timeout=2.5)
            assert isinstance(reported[0], errors.NoHeartbeat)
        finally:
            server.resume()
        assert time.monotonic() - started < 6
        publish(js, 5)
        assert [messages.next(timeout=5).metadata.stream_seq for _ in range(5)] == [2, 3, 4, 5, 6]
        assert messages.missed_heartbeats >= 1


@pytest.mark.slow
def test_a_slow_application_is_no_alarm(js: JetStream) -> None:
    publish(js, 3)
    reported: list[Exception] = []
    with durable(js).messages(heartbeat=0.2, expires=1, on_error=reported.append) as messages:
        for _ in range(3):
            messages.next(timeout=5)
            time_passes(1.5, "the application takes longer than pulls and heartbeats")
        publish(js, 1)
        messages.next(timeout=5)
        assert messages.missed_heartbeats == 0
    assert reported == []


def test_it_pulls_again_at_once_after_a_reconnect(server: NatsServer, js: JetStream) -> None:
    durable(js)
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        consumer = JetStream(nc).consumer("M", "C")
        with consumer.messages() as messages:
            for round_ in range(1, 6):
                publish(js, 10)
                for _ in range(10):
                    messages.next(timeout=5).ack()
                nc.flush()
                proxy.cut()
                timer = threading.Timer(0.3, publish, (js, 1))
                timer.start()
                started = time.monotonic()
                messages.next(timeout=10).ack()
                assert time.monotonic() - started < 4, round_
                timer.join()
    info = js.consumer("M", "C").info()
    assert info.delivered.stream_seq == 55


@pytest.mark.parametrize("seen", [False, True])
def test_a_link_that_is_lost_and_back_between_two_takes(server: NatsServer, js: JetStream, seen: bool) -> None:
    """The next take pulls again, also if an earlier take saw the loss and has ended (nats.go #2135)."""
    durable(js)
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        with JetStream(nc).consumer("M", "C").messages() as messages:
            for round_ in range(1, 4):
                publish(js, 5)
                for _ in range(5):
                    messages.next(timeout=5).ack()
                nc.flush()
                if seen:
                    proxy.refuse()
                    wait_until(lambda: not nc.is_connected)
                    with pytest.raises(errors.NoMessages):
                        messages.next(timeout=0.1)
                    proxy.accept()
                else:
                    proxy.cut()
                wait_until(lambda now=round_: nc.stats().reconnects == now)  # type: ignore[misc]
                nc.flush()
                publish(js, 1)
                started = time.monotonic()
                messages.next(timeout=10).ack()
                assert time.monotonic() - started < 4, round_


def test_buffered_messages_survive_a_disconnect(server: NatsServer, js: JetStream) -> None:
    publish(js, 20)
    durable(js)
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        with JetStream(nc).consumer("M", "C").messages() as messages:
            first = messages.next(timeout=5)
            wait_until(lambda: messages.buffered == 19, 5)
            proxy.refuse()
            proxy.cut()
            wait_until(lambda: not nc.is_connected, 5)
            rest = [messages.next(timeout=5) for _ in range(19)]
            for message in [first, *rest]:
                message.ack()
            proxy.accept()
            wait_until(lambda: nc.is_connected, 10)
            nc.flush()
    wait_until(lambda: js.consumer("M", "C").info().num_ack_pending == 0, 5)


def test_a_forgotten_iterator_unsubscribes(js: JetStream) -> None:
    consumer = durable(js)
    messages = consumer.messages()
    with pytest.raises(errors.NoMessages):
        messages.next(timeout=0.1)
    before = len(engine_of(js.nc).subscriptions.sinks)
    del messages
    gc.collect()
    wait_until(lambda: len(engine_of(js.nc).subscriptions.sinks) < before, 5)
    wait_until(lambda: consumer.info().num_waiting == 0, 5)


def test_a_user_status_header_is_no_status(js: JetStream) -> None:
    js.nc.publish("m.a", b"", headers={"Status": "409", "Description": "Consumer Deleted"})
    js.nc.publish("m.a", b"x")
    with durable(js).messages() as messages:
        first = messages.next(timeout=5)
        assert first.headers is not None
        assert first.headers["Status"] == "409"
        assert messages.next(timeout=5).data == b"x"


def test_a_message_that_somebody_sends_to_the_pull_inbox_is_only_a_message(js: JetStream) -> None:
    consumer = durable(js)
    with consumer.messages() as messages:
        subject = inner(messages)._pump.inbox.prefix.decode() + "1"
        js.nc.publish(subject, b"plain")
        js.nc.publish(subject, b"headed", headers={"A": "b"})
        js.nc.flush()
        taken = [next(messages), next(messages)]
        assert [message.data for message in taken] == [b"plain", b"headed"]
        assert inner(messages)._state.taken_bytes == sum(message.size for message in taken)
        with pytest.raises(errors.MsgNoReply):
            taken[0].ack()
