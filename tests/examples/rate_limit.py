"""A rate limit for all workers together: a semaphore for how many at once, the consumer's own limit for the window."""

import jsclient
from jsclient import coordination
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig

with jsclient.connect("nats://127.0.0.1:4222") as nc:
    js = JetStream(nc)
    stream = js.create_or_update_stream(StreamConfig(name="CALLS", subjects=["calls"]))
    js.publish("calls", b"an expensive call")

    # At most 10 messages are with all workers of this consumer together, however many processes take part.
    consumer = stream.create_or_update_consumer(ConsumerConfig(durable_name="callers", max_ack_pending=10))
    # At most 3 processes talk to the other side at the same time (leases of their own time need server 2.11).
    age = None if nc.server_info.at_least(2, 11) else 30
    seats = coordination.Semaphore(
        coordination.lease_bucket(js, ttl=age), "partner-api", seats=3, ttl=30 if age else 10
    )
    for msg in consumer.fetch(1, timeout=5):
        with seats as lease:
            lease.check()  # LeaseLost when the time is over
            msg.ack()
