"""Ordered consumers after the server's consumer is gone: each way of asking finds it out, makes a new one, goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import JetStream, StreamConfig
from jsclient.jetstream.consuming.ordered import OrderedConsumer
from jsclient.testing import FakeServer, NatsServer, wait_until
from jsclient.testing.fake import FakeClient, ScriptFailed


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="O", subjects=["o.>"]))
    return js


def publish(js: JetStream, first: int, last: int) -> None:
    for number in range(first, last + 1):
        js.publish("o.a", b"%d" % number)


def polled(consumer: OrderedConsumer) -> list[int]:
    return [int(message.data) for message in consumer.fetch_no_wait(100)]


def lose(js: JetStream) -> None:
    for name in js.consumer_names("O"):
        js.delete_consumer("O", name)


@pytest.mark.parametrize("poll", [polled, lambda consumer: [int(m.data) for m in consumer.fetch(100, timeout=0)]])
def test_polls_go_on_after_the_consumer_was_deleted(
    js: JetStream, poll: Callable[[OrderedConsumer], list[int]]
) -> None:
    with js.ordered_consumer("O") as consumer:
        for round_ in range(4):
            publish(js, 2 * round_ + 1, 2 * round_ + 2)
            assert poll(consumer) == [2 * round_ + 1, 2 * round_ + 2]
            lose(js)
        assert poll(consumer) == []


def test_polls_go_on_after_a_restart(server: NatsServer, js: JetStream) -> None:
    with js.ordered_consumer("O") as consumer:
        for round_ in range(3):
            publish(js, 2 * round_ + 1, 2 * round_ + 2)
            assert polled(consumer) == [2 * round_ + 1, 2 * round_ + 2]
            server.restart()
        assert polled(consumer) == []


def test_polls_without_time_go_on(server: NatsServer, js: JetStream) -> None:
    """`next(timeout=0)` never waits for anything, and still finds out that its consumer is gone."""
    publish(js, 1, 1)
    with js.ordered_consumer("O").messages(heartbeat=0.2) as messages:
        seen: list[int] = []

        def poll() -> bool:
            try:
                seen.append(int(messages.next(timeout=0).data))
            except errors.NoMessages:
                pass
            return len(seen) == 3

        wait_until(lambda: poll() or seen == [1], 5)
        lose(js)
        publish(js, 2, 3)
        wait_until(poll, 5)
        assert seen == [1, 2, 3]


def test_info_of_a_consumer_that_is_gone_makes_the_next_read_begin_anew(js: JetStream) -> None:
    with js.ordered_consumer("O") as consumer:
        publish(js, 1, 2)
        assert polled(consumer) == [1, 2]
        lose(js)
        with pytest.raises(errors.ConsumerNotFound):
            consumer.info()
        publish(js, 3, 3)
        started = time.monotonic()
        assert int(consumer.next(timeout=5).data) == 3
        assert time.monotonic() - started < 2


NONE = {"consumer_seq": 0, "stream_seq": 0}


def consumer_info(name: bytes) -> bytes:
    config = {"name": name.decode(), "ack_policy": "none"}
    info = {"stream_name": "O", "name": name.decode(), "created": "2026-01-01T00:00:00Z", "config": config}
    return json.dumps({**info, "delivered": NONE, "ack_floor": NONE, "num_pending": 0}).encode()


def forgetful(client: FakeClient) -> None:
    """Answers the third CONSUMER.CREATE only, which is for the same consumer as the others, and serves its pull."""
    client.handshake(headers=True)
    sids: dict[bytes, bytes] = {}
    names: list[bytes] = []
    while True:
        try:
            line = client.line(60)
        except ScriptFailed:
            return
        words = line.split() or [b""]
        if line == b"PING\r\n":
            client.send(b"PONG\r\n")
        elif words[0] == b"SUB":
            sids[words[1].removesuffix(b"*")] = words[-1]
        elif b".CONSUMER.CREATE." in line:
            names.append(words[1].split(b".")[-1])
            client.line()
            assert len(set(names)) == 1
            if len(names) == 3:
                answer(client, sids, words[2], consumer_info(names[0]))
        elif b".CONSUMER.MSG.NEXT." in line:
            sid = next(sid for prefix, sid in sids.items() if words[2].startswith(prefix))
            reply = b"$JS.ACK.O.%b.1.1.1.1700000000000000000.0" % names[0]
            client.send(b"MSG o.a %b %b 1\r\n1\r\n" % (sid, reply))
        elif b"$JS.API.INFO" in line:
            answer(client, sids, words[2], b'{"type":"x","api":{"level":0}}')


def answer(client: FakeClient, sids: dict[bytes, bytes], reply: bytes, body: bytes) -> None:
    sid = next(sid for prefix, sid in sids.items() if reply.startswith(prefix))
    client.send(b"MSG %b %b %d\r\n%b\r\n" % (reply, sid, len(body), body))


def test_a_lost_create_is_repeated_every_second() -> None:
    with FakeServer(forgetful) as fake, jsclient.connect(fake.url) as nc:
        started = time.monotonic()
        with JetStream(nc).ordered_consumer("O").messages() as messages:
            assert messages.next(timeout=5).data == b"1"
        assert 1.9 < time.monotonic() - started < 2.9
