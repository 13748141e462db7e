"""A work queue: one worker does each job, and the ack removes it from the stream."""

import jsclient
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.workers import WorkerPool

done = []

with jsclient.connect("nats://127.0.0.1:4222") as nc:
    js = JetStream(nc)
    stream = js.create_or_update_stream(
        StreamConfig(name="RESIZE", subjects=["resize.*"], retention="workqueue")
    )
    for number in range(20):
        js.publish("resize.image", f"{number}.png", msg_id=str(number))

    consumer = stream.create_or_update_consumer(
        ConsumerConfig(durable_name="resizers", ack_wait=30)
    )
    with WorkerPool(consumer, lambda msg: done.append(msg.data), threads=4) as pool:
        while stream.info().state.messages:
            pool.wait(timeout=0.05)

    assert len(set(done)) == len(done)
    assert len(done) in (
        20,
        0,
    )  # 0 in a second run within two minutes: these jobs were published before
