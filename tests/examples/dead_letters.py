"""Dead letters: a message that fails for good is kept with its reason.

You look at it, and send it again after you have fixed the cause.
"""

import jsclient
from jsclient.jetstream import ConsumerConfig, JetStream, JetStreamMsg, StreamConfig
from jsclient.workers import DeadLetters, WorkerPool

mended = False
seen: list[bytes] = []


def handle(msg: JetStreamMsg) -> None:
    if msg.data == b"broken" and not mended:
        raise ValueError("no such customer")
    seen.append(msg.data)


with jsclient.connect("nats://127.0.0.1:4222") as nc:
    js = JetStream(nc)
    js.create_or_update_stream(StreamConfig(name="DEAD", subjects=["dead.>"]))
    stream = js.create_or_update_stream(
        StreamConfig(name="INVOICING", subjects=["invoicing"])
    )
    consumer = stream.create_or_update_consumer(ConsumerConfig(durable_name="billing"))
    for text in ("good", "broken"):
        js.publish("invoicing", text)

    with WorkerPool(
        consumer, handle, attempts=2, backoff=[0.01], dead_letter="dead.invoicing"
    ) as pool:
        while pool.snapshot().dead < 1:
            pool.wait(timeout=0.05)
        letters = DeadLetters(js)
        (letter,) = letters.list(stream="INVOICING")
        print(letter.reason)
        mended = True
        letters.replay(letter)
        while b"broken" not in seen:
            pool.wait(timeout=0.05)
