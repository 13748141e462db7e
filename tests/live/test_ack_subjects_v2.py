"""A server whose ack and flow control subjects have the newer form (`js_ack_fc_v2`, server 2.14)."""

from __future__ import annotations

import jsclient
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.jetstream.consuming.push import OrderedPushConsumer
from jsclient.testing import NatsServer, wait_until

FLAG = "feature_flags { js_ack_fc_v2: true }"


def test_acks_and_flow_control(server: NatsServer) -> None:
    new = server.version >= (2, 14, 0)
    with NatsServer(FLAG if new else "") as flagged, jsclient.connect(flagged.url) as nc:
        js = JetStream(nc)
        stream = js.create_stream(StreamConfig(name="S", subjects=["s.>"], storage="memory"))
        for number in range(200):
            js.publish_async(f"s.{number}", bytes(20_000))
        js.publish_async_complete(10)
        consumer = stream.create_consumer(ConsumerConfig(durable_name="C"))
        first, *rest = consumer.fetch(10, timeout=5)
        assert str(first.reply).startswith("$JS.ACK._." if new else "$JS.ACK.S.C.")
        assert (first.metadata.stream, first.metadata.consumer, first.stream_seq) == ("S", "C", 1)
        first.double_ack()
        for message in rest:
            message.ack()
        wait_until(lambda: consumer.info().ack_floor.stream_seq == 10)
        with OrderedPushConsumer(js, "S", heartbeat=1.0).messages() as messages:
            assert [messages.next(timeout=5).stream_seq for _ in range(200)] == list(range(1, 201))
            assert messages.resets == 0
