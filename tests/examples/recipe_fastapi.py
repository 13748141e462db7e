"""FastAPI: endpoints declared with `def` run in its thread pool.

Any number of them can share one connection.
"""

from fastapi import FastAPI
from fastapi.testclient import TestClient

import jsclient
from jsclient.jetstream import JetStream, StreamConfig

OPTIONS = jsclient.ConnectOptions(servers="nats://127.0.0.1:4222", name="api")
app = FastAPI()


@app.post("/orders/{number}")
def place_order(
    number: str,
) -> dict[str, int]:  # not `async def`: the call blocks, and a thread of the pool may
    ack = JetStream(jsclient.shared(OPTIONS)).publish(
        "fast.orders", number, msg_id=number
    )
    return {"seq": ack.seq}


if __name__ == "__main__":
    JetStream(jsclient.shared(OPTIONS)).create_or_update_stream(
        StreamConfig(name="FAST", subjects=["fast.>"])
    )
    assert TestClient(app).post("/orders/7").json() == {"seq": 1}
