"""A rate limit for all workers together.

A semaphore bounds the calls at one time, and the consumer bounds the messages in work.
"""

import jsclient
from jsclient import coordination
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig

with jsclient.connect("nats://127.0.0.1:4222") as nc:
    js = JetStream(nc)
    stream = js.create_or_update_stream(StreamConfig(name="CALLS", subjects=["calls"]))
    js.publish("calls", b"an expensive call")

    # All workers of this consumer together hold at most 10 messages, in any number of
    # processes.
    consumer = stream.create_or_update_consumer(
        ConsumerConfig(durable_name="callers", max_ack_pending=10)
    )
    # At most 3 processes call the partner at the same time (a ttl for each lease needs
    # server 2.11).
    age = None if nc.server_info.at_least(2, 11) else 30
    seats = coordination.Semaphore(
        coordination.lease_bucket(js, ttl=age),
        "partner-api",
        seats=3,
        ttl=30 if age else 10,
    )
    for msg in consumer.fetch(1, timeout=5):
        with seats as lease:
            lease.check()  # LeaseLost when the time is over
            msg.ack()
