"""pandas: a part of a stream as a table, and a table as a stream."""

import json

import pandas as pd

import jsclient
from jsclient.jetstream import JetStream, StreamConfig

with jsclient.connect("nats://127.0.0.1:4222") as nc:
    js = JetStream(nc)
    stream = js.create_or_update_stream(
        StreamConfig(name="PRICES", subjects=["prices.*"])
    )
    table = pd.DataFrame({"symbol": ["a", "b", "a"], "price": [1.0, 2.0, 3.0]})
    futures = [
        js.publish_async(
            f"prices.{row['symbol']}", json.dumps(row), msg_id=f"load-1-{number}"
        )
        for number, row in enumerate(table.to_dict("records"))
    ]
    for future in futures:
        future.result(timeout=30)  # every row is stored, or this raises

    with stream.ordered_consumer().read_until(
        drained=True
    ) as messages:  # what is there now, complete or an error
        read = pd.DataFrame(
            json.loads(msg.data) | {"seq": msg.stream_seq} for msg in messages
        )
    assert read.groupby("symbol").price.mean().to_dict() == {"a": 2.0, "b": 2.0}
