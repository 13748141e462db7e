"""Lines that are slow, or dead without a word. The comparison with nats-py is `make networks`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import jsclient
from jsclient import objectstore
from jsclient.jetstream import ConsumerConfig, JetStream, JetStreamMsg, StreamConfig
from jsclient.testing import NatsServer, Proxy, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

KIB = 1 << 10


def test_what_waits_for_a_slow_line_is_not_sent_again(proxy: Proxy) -> None:
    """It takes 4 s, and an ack is overdue after a second: chunks went out again and again, which took longer still."""
    with jsclient.connect(proxy.url) as nc:
        js = JetStream(nc, publish_async_ack_timeout=2)
        store = objectstore.create_object_store(js, objectstore.ObjectStoreConfig(bucket="slow"))
        data = bytes(1024 * KIB)
        proxy.throttle(256 * KIB, "up")
        before = proxy.up.bytes
        store.put("object", data)
        assert proxy.up.bytes - before < 1.1 * len(data)
        assert store.get_bytes("object") == data
        objectstore.delete_object_store(js, "slow")


def test_a_large_message_may_take_longer_than_pings_wait() -> None:
    """The PING stands behind it. As long as the line takes more of it, the link lives; it was cut, and sent again."""
    with (
        NatsServer(config="max_payload: 32MB\nmax_pending: 64MB\n") as own,
        Proxy(own.port) as proxy,
        jsclient.connect(proxy.url, ping_interval=1, max_pings_out=2) as nc,
    ):
        data, got = bytes(32 * 1024 * KIB - 1), []
        with jsclient.connect(own.url) as other:
            sub = other.subscribe("large")
            other.flush()
            proxy.throttle(4 * 1024 * KIB, "up")
            nc.publish("large", data)
            got.append(sub.next(60).data)
        assert got == [data]
        assert nc.stats().reconnects == 0


def test_a_line_that_dies_without_a_word(proxy: Proxy) -> None:
    """Pings notice it, and on the next link everything goes on: stored once, delivered all."""
    taken: list[bytes] = []

    def take(message: JetStreamMsg) -> None:
        taken.append(message.data)
        message.ack()

    with jsclient.connect(proxy.url, ping_interval=0.3) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="D", subjects=["d"]))
        consumer = js.create_consumer("D", ConsumerConfig(durable_name="C", ack_wait=2))
        with consumer.consume(take):
            for number in range(20):
                js.publish("d", b"%d" % number, msg_id=str(number))
            wait_until(lambda: len(taken) >= 20)
            assert proxy.half_open() == 1
            futures = [js.publish_async("d", b"%d" % number, msg_id=str(number)) for number in range(20, 40)]
            assert [future.result(30).stream for future in futures] == ["D"] * 20
            wait_until(lambda: set(taken) == {b"%d" % number for number in range(40)}, 20)
        assert nc.stats().reconnects == 1
        assert js.stream("D").info().state.messages == 40
        js.delete_stream("D")


@pytest.mark.slow
def test_an_object_is_stored_although_its_line_dies(proxy: Proxy) -> None:
    """With the defaults: the dead line is noticed before the acks of its chunks are given up. They were not sent again,
    because they were given up first."""
    data = bytes(range(256)) * 4 * KIB
    with jsclient.connect(proxy.url) as nc:
        store = objectstore.create_object_store(JetStream(nc), objectstore.ObjectStoreConfig(bucket="dies"))

        store.put("object", half_sent(data, proxy))
        assert nc.stats().reconnects == 1
        assert store.get_bytes("object") == data
        objectstore.delete_object_store(JetStream(nc), "dies")


def half_sent(data: bytes, proxy: Proxy) -> Iterator[bytes]:
    """The data, over a line that dies in the middle."""
    middle = len(data) // 2
    yield data[:middle]
    proxy.half_open()
    yield data[middle:]
