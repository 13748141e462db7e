"""Ordered push consumers against a real server."""

from __future__ import annotations

import threading

import attrs
import pytest

import jsclient
from jsclient import errors
from jsclient._connection import Mailbox
from jsclient.jetstream import JetStream, StreamConfig
from jsclient.jetstream.consuming.messages import Messages
from jsclient.jetstream.consuming.ordered_sequence import OrderedOptions, OrderedOptionsDict
from jsclient.jetstream.consuming.push import OrderedPushConsumer
from jsclient.testing import NatsServer, Proxy, wait_until


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="Q", subjects=["q.>"], storage="memory"))
    return js


def publish(js: JetStream, count: int, first: int = 1, size: int = 0) -> None:
    for number in range(first, first + count):
        js.nc.publish("q.a", (b"%d " % number).ljust(size, b"."))
    js.nc.flush()


def take(messages: Messages, count: int) -> list[int]:
    return [int(messages.next(timeout=10).data.split()[0]) for _ in range(count)]


def test_everything_in_order_with_flow_control(js: JetStream) -> None:
    publish(js, 3000, size=5000)
    with OrderedPushConsumer(js, "Q", heartbeat=1.0).messages() as messages:
        assert take(messages, 3000) == list(range(1, 3001))
        assert messages.resets == 0
    wait_until(lambda: list(js.stream("Q").consumer_names()) == [], 5)


def test_the_methods_that_make_one(js: JetStream) -> None:
    publish(js, 10)
    assert list(OrderedOptionsDict.__annotations__) == [field.name for field in attrs.fields(OrderedOptions)][:10]
    for consumer in (js.ordered_push_consumer("Q", heartbeat=1.0), js.stream("Q").ordered_push_consumer()):
        assert isinstance(consumer, OrderedPushConsumer)
        with consumer.messages() as messages:
            assert take(messages, 10) == list(range(1, 11))
    later = js.ordered_push_consumer("Q", deliver_policy="by_start_sequence", opt_start_seq=8)
    with later.messages() as messages:
        assert take(messages, 3) == [8, 9, 10]
    with pytest.raises(errors.ConfigError):
        js.ordered_push_consumer("Q", heartbeat=0.01)


def test_a_link_that_is_down_is_no_silence_of_the_consumer(server: NatsServer, js: JetStream) -> None:
    publish(js, 10)
    alarms: list[BaseException] = []
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        proxy.refuse()
        wait_until(lambda: not nc.is_connected)
        reading = OrderedPushConsumer(JetStream(nc), "Q", heartbeat=0.2)
        with reading.messages(on_error=alarms.append) as messages:
            with pytest.raises(errors.NoMessages):
                messages.next(timeout=1)  # four heartbeats
            proxy.accept()
            assert take(messages, 10) == list(range(1, 11))
            assert (alarms, messages.missed_heartbeats) == ([], 0)


def test_a_deleted_consumer_is_made_again(js: JetStream) -> None:
    publish(js, 100)
    with OrderedPushConsumer(js, "Q", heartbeat=0.5).messages() as messages:
        assert take(messages, 100) == list(range(1, 101))
        js.delete_consumer("Q", next(js.consumer_names("Q")))
        publish(js, 50, first=101)
        assert take(messages, 50) == list(range(101, 151))
        assert messages.resets >= 1


def test_reconnects_are_mended(server: NatsServer, js: JetStream) -> None:
    publish(js, 300)
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        with OrderedPushConsumer(JetStream(nc), "Q", heartbeat=0.5).messages() as messages:
            seen: list[int] = []
            for _ in range(3):
                seen += take(messages, 100)
                proxy.cut()
            publish(js, 10, first=301)
            seen += take(messages, 10)
    assert seen == list(range(1, 311))


def test_a_reader_that_pauses_loses_nothing(js: JetStream) -> None:
    """A server that waits for the answer to its flow control sends a message per heartbeat, and drops none."""
    publish(js, 50, size=1_000_000)
    with OrderedPushConsumer(js, "Q", heartbeat=0.5).messages() as messages:
        seen = take(messages, 1)
        wait_until(lambda: messages.buffered >= 5)
        assert messages.buffered < 49
        seen += take(messages, 49)
        assert seen == list(range(1, 51))
        assert messages.resets == 0


def test_the_limits_of_other_push_readers_drop_nothing(js: JetStream) -> None:
    """nats.go #2107: flow control bounds what waits, so no limit of the client makes a gap."""
    publish(js, 2000)
    with OrderedPushConsumer(js, "Q", heartbeat=0.5).messages(pending_messages=5, pending_bytes=50) as messages:
        wait_until(lambda: messages.buffered >= 500)
        assert take(messages, 2000) == list(range(1, 2001))
        assert messages.resets == 0


def test_messages_that_were_dropped_are_read_again(js: JetStream, monkeypatch: pytest.MonkeyPatch) -> None:
    """nats.go #2107: a message counts when the reader takes it, so a drop before that is a gap."""
    mailbox = Mailbox(20, None)
    monkeypatch.setattr("jsclient.jetstream.consuming.push.Mailbox", lambda messages, nbytes: mailbox)
    with OrderedPushConsumer(js, "Q", heartbeat=0.5).messages() as messages:
        publish(js, 10)
        assert take(messages, 5) == list(range(1, 6))
        publish(js, 2000, first=11)
        wait_until(lambda: mailbox.dropped > 0)
        mailbox.max_messages = None
        assert take(messages, 2005) == list(range(6, 2011))
        assert messages.resets >= 1


def test_a_deleted_stream_is_raised(js: JetStream) -> None:
    with OrderedPushConsumer(js, "Q", heartbeat=0.5).messages(on_error=lambda error: None) as messages:
        timer = threading.Timer(0.2, js.delete_stream, ("Q",))
        timer.start()
        with pytest.raises(errors.StreamNotFound):
            messages.next(timeout=20)
        timer.join()


def test_consume(js: JetStream) -> None:
    publish(js, 200)
    seen: list[int] = []
    with OrderedPushConsumer(js, "Q").consume(lambda message: seen.append(int(message.data))):
        wait_until(lambda: len(seen) == 200, 10)
    assert seen == list(range(1, 201))
