"""DuckDB: SQL over a part of a stream."""

import json

import duckdb
import pyarrow as pa

import jsclient
from jsclient.jetstream import JetStream, StreamConfig

with jsclient.connect("nats://127.0.0.1:4222") as nc:
    js = JetStream(nc)
    stream = js.create_or_update_stream(StreamConfig(name="TRIPS", subjects=["trips"]))
    for minutes in (10, 20, 60):
        js.publish("trips", json.dumps({"minutes": minutes}))
    with stream.ordered_consumer().read_until(drained=True) as messages:
        trips = pa.Table.from_pylist([json.loads(msg.data) for msg in messages])
    assert duckdb.sql("SELECT avg(minutes) FROM trips").fetchall() == [(30.0,)]
