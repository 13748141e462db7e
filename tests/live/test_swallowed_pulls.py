"""Pulls that vanish without a word: each is noticed and repeated, also where only one message was asked for."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.jetstream.consuming.fetch import BatchEnd
from jsclient.testing import FakeServer, LeafPair, Proxy, wait_until
from jsclient.testing.fake import FakeClient, ScriptFailed
from jsclient.workers import WorkerPool

BEAT = 0.4
STREAM = StreamConfig(name="P", subjects=["p.>"], storage="memory")

#: Ways to have exactly one message outstanding.
ONE: list[dict[str, Any]] = [{"max_messages": 1}, {"stop_after": 1}, {"max_messages": 2, "threshold_messages": 1}]


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(STREAM)
    return js


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"max_messages": 1}, pytest.param({"stop_after": 1}, marks=pytest.mark.slow)])
def test_a_server_that_refuses_without_a_word(js: JetStream, options: dict[str, Any]) -> None:
    """max_waiting=1: a pull with a heartbeat that finds the place taken is dropped in silence."""
    consumer = js.create_consumer("P", ConsumerConfig(durable_name="C", max_waiting=1))
    told: list[Exception] = []
    with consumer.messages(max_messages=1, heartbeat=BEAT) as other:
        with pytest.raises(errors.NoMessages):
            other.next(timeout=0.05)
        wait_until(lambda: consumer.info().num_waiting == 1, 5)
        with consumer.messages(heartbeat=BEAT, on_error=told.append, **options) as messages:
            started = time.monotonic()
            while len(told) < 3:
                with pytest.raises(errors.NoMessages):
                    messages.next(timeout=0.1)
                assert time.monotonic() - started < 3 * 2 * BEAT + 2
            assert isinstance(told[0], errors.MaxWaitingExceeded)
            other.close()
            js.publish("p.a", b"1")
            messages.next(timeout=5).ack()


def swallowing(count: int) -> object:
    """A script: so many pulls are swallowed, then each gets its messages."""

    def script(client: FakeClient) -> None:
        client.handshake(headers=True)
        sid, pulls = b"", 0
        while True:
            try:
                line = client.line(60)
            except ScriptFailed:
                return  # the client has closed
            if line == b"PING\r\n":
                client.send(b"PONG\r\n")
            elif line.startswith(b"SUB ") and not sid:  # of pulls; that of requests comes later
                sid = line.split()[-1]
            elif b".CONSUMER.MSG.NEXT." in line:
                pulls += 1
                batch = int(re.search(rb'"batch":(\d+)', client.line()).group(1))  # type: ignore[union-attr]
                if pulls > count:
                    for number in range(batch):
                        reply = b"$JS.ACK.P.C.1.%d.%d.1700000000000000000.0" % (number + 1, number + 1)
                        client.send(b"MSG p.a %b %b 1\r\n%d\r\n" % (sid, reply, number % 10))

    return script


@pytest.mark.parametrize("options", [ONE[0], *(pytest.param(one, marks=pytest.mark.slow) for one in ONE[1:])])
def test_a_scripted_server_that_swallows_pulls(options: dict[str, Any]) -> None:
    told: list[tuple[float, Exception]] = []
    with FakeServer(swallowing(2)) as fake, jsclient.connect(fake.url) as nc:  # type: ignore[arg-type]
        consumer = JetStream(nc).consumer("P", "C", fetch_info=False)
        started = time.monotonic()
        with consumer.messages(
            heartbeat=BEAT,
            on_error=lambda error: told.append((time.monotonic(), error)),
            leave_buffered=True,
            **options,
        ) as messages:
            assert messages.next(timeout=10).data == b"0"
        assert [type(error) for _, error in told] == [errors.NoHeartbeat] * 2
        for (at, _), before in zip(told, [started, told[0][0]], strict=True):
            assert at - before < 2 * BEAT + 0.3


@pytest.mark.slow
@pytest.mark.parametrize("pool", [False, True])
def test_a_leaf_link_that_was_down_for_four_seconds(pool: bool) -> None:
    """The hub drops the pull with the interest; our own link never notices."""
    proxies: list[Proxy] = []

    def via(port: int) -> int:
        proxies.append(Proxy(port).start())
        return proxies[0].port

    try:
        with LeafPair(via=via) as pair, jsclient.connect(pair.leaf.url) as nc:
            js = JetStream(nc, domain="hub")
            js.create_stream(STREAM)
            consumer = js.create_consumer("P", ConsumerConfig(durable_name="C"))
            seen: list[bytes] = []
            running = (
                WorkerPool(consumer, lambda message: seen.append(message.data), threads=1)
                if pool
                else consumer.consume(lambda message: seen.append(message.data), max_messages=1, heartbeat=1.0)
            )
            with running:
                wait_until(lambda: consumer.info().num_waiting == 1, 5)
                proxies[0].refuse()
                down = time.monotonic()
                wait_until(lambda: pair.leaf.monitor("leafz").get("leafnodes", 0) == 0, 10)
                wait_until(lambda: time.monotonic() - down > 4, 6)
                proxies[0].accept()
                pair.wait_ready()
                with jsclient.connect(pair.hub.url) as hub:
                    JetStream(hub).publish("p.a", b"1")
                wait_until(lambda: seen == [b"1"], 15)
    finally:
        for proxy in proxies:
            proxy.close()


def test_bytes_that_are_used_up_exactly_end_the_fetch(js: JetStream) -> None:
    for number in range(20):
        js.nc.publish("p.a", b"%02d" % number + b"." * 98)
    js.nc.flush()
    consumer = js.create_consumer("P", ConsumerConfig(durable_name="C", ack_policy="none"))
    first = consumer.fetch(1, timeout=5)[0]
    size = len(first.subject) + len(first.reply) + len(first.data)
    for expected in (5, 3):
        started = time.monotonic()
        batch = consumer.fetch_bytes(expected * size, timeout=10, heartbeat=1.0)
        assert time.monotonic() - started < 1
        assert (len(batch), batch.ended, batch.error) == (expected, BatchEnd.MAX_BYTES, None)
    assert consumer.fetch(1, timeout=5)[0].data.startswith(b"09")
