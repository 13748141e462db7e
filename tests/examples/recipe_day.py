"""A day of a stream in pandas and DuckDB: decoded into columns, without Python rows."""

import datetime as dt

import duckdb
import pyarrow as pa

import jsclient
from jsclient import arrow
from jsclient.jetstream import JetStream, StreamConfig

with jsclient.connect("nats://127.0.0.1:4222") as nc:
    js = JetStream(nc)
    stream = js.create_or_update_stream(StreamConfig(name="RIDES", subjects=["rides"]))
    stream.purge()
    for minutes in (10, 20, 60):
        js.publish("rides", b'{"city": "Graz", "minutes": %d}' % minutes)

    end = dt.datetime.now(dt.timezone.utc) + dt.timedelta(minutes=1)
    rides = arrow.read_table(
        js,
        "RIDES",
        start_time=end - dt.timedelta(days=1),
        end_time=end,
        columns=["timestamp"],
        value_format="json",
        schema=pa.schema([("city", pa.string()), ("minutes", pa.int64())]),
    )
    frame = rides.to_pandas()  # for polars: polars.from_arrow(rides)
    print(frame.groupby("city").minutes.mean().to_dict())
    print(duckdb.sql("SELECT city, max(minutes) FROM rides GROUP BY city").fetchall())
