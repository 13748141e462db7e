"""What is refused, by which token: readers and writers called as Spark calls them, but without it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from jsclient.spark.errors import JetStreamSparkError
from jsclient.testing import NatsServer

from .conftest import Js
from .test_without_jvm import read, reader, rows_of, schema_of, stream_reader, writer


@pytest.fixture(autouse=True)
def idle_connections_closed() -> Iterator[None]:
    yield
    from jsclient.spark import close_idle

    close_idle()


@pytest.mark.parametrize(
    ("options", "token", "part"),
    [
        ({"recordPerPartition": "1"}, "UNKNOWN_OPTION", "did you mean 'recordsPerPartition'"),
        ({"minPartitions": "none"}, "BAD_OPTION", "whole number"),
        ({"readMethod": "direct"}, "DIRECT_UNAVAILABLE", "allow_direct"),
        ({"stream": "NOPE"}, "STREAM_NOT_FOUND", "'NOPE'"),
        ({"servers": "nats://127.0.0.1:1", "reconnectTimeout": "500ms"}, "CONNECT_FAILED", "check 'servers'"),
    ],
)
def test_reading(js: Js, server: NatsServer, options: dict[str, str], token: str, part: str) -> None:
    if js.api.request("STREAM.NAMES", {"subject": "read.x"}).get("streams") is None:
        js.create("read")
        js.fill("read", 3)
    with pytest.raises(JetStreamSparkError, match=part) as caught:
        read(reader(server.url, **{"stream": "read", **options}))
    assert caught.value.token == f"JETSTREAM_{token}"


@pytest.mark.parametrize(
    ("columns", "values", "options", "token"),
    [
        ("value binary, other string", [], {}, "SCHEMA_MISMATCH"),
        ("value bigint", [], {}, "SCHEMA_MISMATCH"),
        ("value binary", [None], {}, "NULL_VALUE"),
        ("value binary", [b"a"], {"subject": "nowhere.at.all"}, "PUBLISH_FAILED"),
        ("value binary", [b"a"], {"subject": "bad..subject"}, "PUBLISH_FAILED"),
        ("value binary", [b"a"], {"maxInFlight": "1"}, "UNKNOWN_OPTION"),
    ],
)
def test_writing(
    js: Js,
    server: NatsServer,
    columns: str,
    values: list[Any],
    options: dict[str, str],
    token: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import pyarrow as pa

    from jsclient.spark.datasource import JetStreamDataSource

    monkeypatch.setattr("jsclient.exactly.sending.ACK_TIMEOUT", 0.3)

    with pytest.raises(JetStreamSparkError) as caught:
        source = JetStreamDataSource({"servers": server.url, "subject": "write.x", **options})
        made = source.writer(schema_of(columns), False)
        made.write(iter([pa.record_batch([pa.array(values, pa.binary())], names=["value"])]))
    assert caught.value.token == f"JETSTREAM_{token}"


def test_work_queues(js: Js, server: NatsServer) -> None:
    js.create("queue", retention="workqueue", allow_direct=True)
    js.fill("queue", 30)
    with pytest.raises(JetStreamSparkError, match="WORKQUEUE_NEEDS_ACKMODE"):
        stream_reader(server.url, "queue").initialOffset()
    consumer = {"stream_name": "queue", "config": {"name": "other", "ack_policy": "explicit", "durable_name": "other"}}
    js.api.request("CONSUMER.CREATE.queue.other", consumer)
    with pytest.raises(JetStreamSparkError, match=r"WORKQUEUE_SHARED.*'other'"):
        stream_reader(server.url, "queue", ackMode="purge").initialOffset()
    assert js.state("queue")["messages"] == 30


def test_checkpoints_that_do_not_fit(js: Js, server: NatsServer) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    js.create("kept")
    js.fill("kept", 100)
    first = stream_reader(server.url, "kept", startingOffsets="earliest")
    start = json.loads(json.dumps(first.latestOffset(first.initialOffset(), ReadAllAvailable())))
    js.fill("kept", 100, first=100)
    js.api.request("STREAM.PURGE.kept", {"seq": 151})

    def goes_on(offset: dict[str, Any], **options: Any) -> list[int]:
        made = stream_reader(server.url, "kept", **options)
        return rows_of(made, made.partitions(offset, made.latestOffset(offset, ReadAllAvailable())))

    with pytest.raises(JetStreamSparkError, match=r"DATA_LOSS.*'kept'.*sequences 101 to 150"):
        goes_on(start)
    assert goes_on(start, failOnDataLoss="false") == list(range(150, 200))
    with pytest.raises(JetStreamSparkError, match=r"OFFSET_VERSION.*format 3"):
        goes_on({**start, "v": 3})
    with pytest.raises(JetStreamSparkError, match=r"STREAM_RECREATED.*belongs to stream 'other'"):
        goes_on({**start, "s": {"other": start["s"]["kept"]}, "plan": {"other": 1}})
    js.api.request("STREAM.DELETE.kept")
    js.create("kept")
    js.fill("kept", 300)
    with pytest.raises(JetStreamSparkError, match=r"STREAM_RECREATED.*'kept' was created.*from 101 on"):
        goes_on(start)
    assert goes_on(start, failOnDataLoss="false") == list(range(300))


def stream_writer(url: str, columns: str = "value binary", **options: Any) -> Any:
    from jsclient.spark.datasource import JetStreamDataSource

    return JetStreamDataSource({"servers": url, **options}).streamWriter(schema_of(columns), False)


def test_overwriting(server: NatsServer) -> None:
    from jsclient.spark.datasource import JetStreamDataSource

    source = JetStreamDataSource({"servers": server.url, "subject": "x.y"})
    for make in (source.writer, source.streamWriter):
        with pytest.raises(JetStreamSparkError, match="OVERWRITE_UNSUPPORTED"):
            make(schema_of("value binary"), True)
    assert writer(server.url, subject="x.y") is not None
