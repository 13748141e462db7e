"""A task of a scheduler such as Airflow: handles the stored messages, and ends.

The run takes only messages that were stored when it began; later ones are for the next
run. A task that dies has acknowledged only what it has done, and its repetition
continues behind that.
"""

import jsclient
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig


def daily_load(servers: str) -> int:
    with jsclient.connect(servers, name="daily-load") as nc:
        js = JetStream(nc)
        consumer = js.create_or_update_consumer(
            "EVENTS", ConsumerConfig(durable_name="daily", ack_wait=60)
        )
        info = consumer.info()
        left, loaded = info.num_pending + info.num_ack_pending, 0
        while left > 0:
            batch = consumer.fetch(min(left, 1000), timeout=5)
            if not batch:
                raise RuntimeError(
                    f"{left} messages are missing: {batch.ended}, {batch.error}"
                )  # the task fails, and is repeated
            for msg in batch:
                loaded += 1  # write it where it belongs, keyed by msg.stream_seq
                msg.ack()
            left -= len(batch)
        return loaded


with jsclient.connect("nats://127.0.0.1:4222") as nc:
    js = JetStream(nc)
    js.create_or_update_stream(StreamConfig(name="EVENTS", subjects=["events"]))
    for number in range(5):
        js.publish("events", str(number))
    assert daily_load("nats://127.0.0.1:4222") == 5
    assert daily_load("nats://127.0.0.1:4222") == 0
