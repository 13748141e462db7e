"""Fan-out: every service has its own durable consumer, and gets each message at its own
pace."""

import jsclient
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig

with jsclient.connect("nats://127.0.0.1:4222") as nc:
    js = JetStream(nc)
    stream = js.create_or_update_stream(
        StreamConfig(name="SIGNUPS", subjects=["signups.>"])
    )
    for country in ("de", "fr", "de"):
        js.publish(f"signups.{country}", b"a new user")

    mail = stream.create_or_update_consumer(ConsumerConfig(durable_name="mail"))
    german = stream.create_or_update_consumer(
        ConsumerConfig(durable_name="german", filter_subject="signups.de")
    )
    for consumer, expected in ((mail, 3), (german, 2)):
        batch = consumer.fetch(expected, timeout=5)
        for msg in batch:
            msg.ack()
        assert len(batch) == expected
