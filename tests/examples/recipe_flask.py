"""Flask: one connection per process, made at the first request.

The view returns when the order is stored.
"""

from flask import Flask, request

import jsclient
from jsclient.jetstream import JetStream, StreamConfig

OPTIONS = jsclient.ConnectOptions(servers="nats://127.0.0.1:4222", name="shop")
app = Flask(__name__)


@app.post("/orders")
def place_order() -> tuple[dict[str, object], int]:
    js = JetStream(
        jsclient.shared(OPTIONS)
    )  # in the view, never at import time: servers fork
    ack = js.publish(
        "web.orders",
        request.get_data(),
        msg_id=request.headers.get("Idempotency-Key"),
        timeout=5,
    )
    return {"seq": ack.seq, "duplicate": ack.duplicate}, 200 if ack.duplicate else 201


if __name__ == "__main__":  # a server runs the app; here a test client asks it twice
    JetStream(jsclient.shared(OPTIONS)).create_or_update_stream(
        StreamConfig(name="WEB", subjects=["web.>"])
    )
    client = app.test_client()
    first, again = (
        client.post("/orders", data=b"book", headers={"Idempotency-Key": "7"})
        for _ in range(2)
    )
    assert first.status_code in (
        201,
        200,
    )  # 200 in a second run within two minutes: the stream knows the key
    assert again.status_code == 200
    assert first.get_json()["seq"] == again.get_json()["seq"]
