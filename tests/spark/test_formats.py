"""valueFormat: values decoded into columns by the tasks, columns encoded into values, and records that do not fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.spark.conftest import Js

import jsclient
from jsclient.jetstream import JetStream
from jsclient.spark import JetStreamDataSource, from_spark, publish_partition
from jsclient.spark.errors import JetStreamSparkError
from jsclient.testing import NatsServer

FLAT = "seq bigint, id bigint, name string, price decimal(10,2), at timestamp, tags array<string>, more map<string,int>"
NESTED = "seq bigint, value struct<id:bigint,name:string>"


def put(js: Js, name: str, *values: bytes) -> None:
    stream = JetStream(js.nc)
    for number, value in enumerate(values):
        stream.publish(f"{name}.{number % 2}", value, headers={"From": "test"})


@pytest.mark.parametrize("kind", ["json", "msgpack"])
def test_documents_in_and_out(
    spark: Any, js: Js, reading: Any, server: NatsServer, stream_name: str, kind: str
) -> None:
    js.create(stream_name)
    rows = spark.sql(
        "SELECT 'a' || id AS name, id, cast(id AS decimal(10,2)) / 3 AS price, array('x', null) AS tags, "
        "timestamp'2026-01-02 03:04:05.678901' AS at, map('k', cast(id AS int)) AS more, "
        f"'{stream_name}.x' AS subject, cast(null AS string) AS nothing FROM range(5)"
    ).selectExpr("* EXCEPT (price)", "cast(price AS decimal(10,2)) AS price")
    (rows.coalesce(1).write.format("jetstream").mode("append").option("servers", server.url)
     .option("valueFormat", kind).save())  # fmt: skip
    first = JetStream(js.nc).stream(stream_name).get_msg(1).data
    decoded = (json.loads if kind == "json" else msgspec.msgpack.decode)(first)
    assert decoded["id"] == 0
    assert "nothing" not in decoded
    back = reading(stream_name, FLAT, valueFormat=kind)
    columns = ["id", "name", "price", "at", "tags", "more"]
    assert back.orderBy("seq").select(columns).collect() == rows.orderBy("id").select(columns).collect()
    some = reading(stream_name, NESTED, valueFormat=kind).orderBy("seq").collect()
    assert some[4].value.asDict() == {"id": 4, "name": "a4"}


def test_a_typed_value_and_rows_of_python(
    spark: Any, js: Js, reading: Any, server: NatsServer, stream_name: str
) -> None:
    js.create(stream_name)
    options = {"servers": server.url, "subject": f"{stream_name}.x", "valueFormat": "json"}
    frame = spark.sql("SELECT named_struct('id', 1L, 'name', cast(null AS string)) AS value")
    frame.write.format("jetstream").mode("append").options(**options).save()
    publish_partition([{"id": 2, "name": "b"}, {"value": {"id": 3}}], options)
    found = reading(stream_name, NESTED, valueFormat="json").orderBy("seq").select("value.*").collect()
    assert [tuple(row) for row in found] == [(1, None), (2, "b"), (3, None)]
    with pytest.raises(JetStreamSparkError, match="SCHEMA_MISMATCH.*cannot be written"):
        publish_partition([{"id": object()}], options)


GOOD, BAD = b'{"id": 1, "name": "a"}', b'{"id": "1"}'


def test_records_that_do_not_fit(js: Js, reading: Callable[..., Any], stream_name: str) -> None:
    js.create(stream_name)
    put(js, stream_name, GOOD, BAD, b"", GOOD)
    with pytest.raises(Exception, match=rf"message 2 on '{stream_name}.1'") as caught:
        reading(stream_name, "id bigint", valueFormat="json").collect()
    error = from_spark(caught.value)
    assert error is not None
    assert error.token == "JETSTREAM_BAD_RECORD"
    for kind, values in (("binary", [None, BAD, b"", None]), ("string", [None, BAD.decode(), "", None])):
        schema = f"seq bigint, id bigint, _corrupt {kind}"
        rows = reading(stream_name, schema, valueFormat="json", badRecords="null").orderBy("seq").collect()
        assert [row.id for row in rows] == [1, None, None, 1]
        assert [row._corrupt for row in rows] == values
    schema = "seq bigint, value struct<id:bigint>, _corrupt binary"
    rows = reading(stream_name, schema, valueFormat="json", badRecords="null").orderBy("seq").collect()
    assert [row.value is None for row in rows] == [False, True, True, False]


def test_dead_letters_of_a_stream_that_is_made_again(
    js: Js, reading: Callable[..., Any], server: NatsServer, stream_name: str
) -> None:
    """The same sequences in the same stream, within the duplicate window; each read twice."""
    js.create(f"{stream_name}_dead")
    options = {"valueFormat": "json", "badRecords": "dead-letter", "deadLetterSubject": f"{stream_name}_dead.x"}
    for text in (b"first", b"second"):
        js.create(stream_name)
        put(js, stream_name, text)
        for _ in range(2):
            assert reading(stream_name, "seq bigint, id bigint", **options).collect() == []
        JetStream(js.nc).delete_stream(stream_name)
    stream = JetStream(js.nc).stream(f"{stream_name}_dead")
    assert [message.data for message in stream.get_batch(10)] == [b"first", b"second"]


def test_dead_letters(js: Js, reading: Callable[..., Any], server: NatsServer, stream_name: str) -> None:
    js.create(stream_name)
    js.create(f"{stream_name}_dead")
    put(js, stream_name, GOOD, BAD, b"\xff", GOOD)
    options = {"valueFormat": "json", "badRecords": "dead-letter", "deadLetterSubject": f"{stream_name}_dead.x"}
    for _ in range(2):  # a task that is tried again stores them once
        assert [row.seq for row in reading(stream_name, "seq bigint, id bigint", **options).collect()] == [1, 4]
    with jsclient.connect(server.url) as nc:
        stream = JetStream(nc).stream(f"{stream_name}_dead")
        assert stream.info().state.messages == 2
        letter = stream.get_msg(1)
        assert letter.data == BAD
        assert letter.headers is not None
        assert letter.headers["Dead-Letter-Sequence"] == "2"
        assert letter.headers["Dead-Letter-Subject"] == f"{stream_name}.1"
        assert letter.headers["From"] == "test"
        assert "int" in letter.headers["Dead-Letter-Reason"]
    with pytest.raises(Exception, match="PUBLISH_FAILED.*could not be stored on 'nobody.takes.it'"):
        reading(stream_name, "seq bigint, id bigint", **{**options, "deadLetterSubject": "nobody.takes.it"}).collect()


@pytest.mark.parametrize(
    ("schema", "options", "text"),
    [
        (None, {"valueFormat": "json"}, "needs the columns of the documents"),
        ("seq bigint, value struct<a:int>, b int", {"valueFormat": "json"}, "typed value and the columns"),
        ("a interval day to second", {"valueFormat": "json"}, "'a' has type"),
        ("a int, _corrupt string", {"valueFormat": "json"}, "belong together"),
        ("a int", {"valueFormat": "json", "badRecords": "null"}, "belong together"),
        ("a int, _corrupt int", {"valueFormat": "json", "badRecords": "null"}, "belong together"),
        ("a int", {"valueFormat": "json", "badRecords": "dead-letter"}, "belong together"),
        ("a int", {"badRecords": "null"}, "needs valueFormat"),
        ("a int, seq string", {"valueFormat": "json"}, "'seq' is bigint"),
        ("a int", {"valueFormat": "xml"}, "must be one of binary, json, msgpack"),
    ],
)
def test_schemas_that_make_no_sense(spark: Any, schema: str, options: dict[str, str], text: str) -> None:
    with pytest.raises(Exception, match=text):
        source = JetStreamDataSource({"servers": "nats://n", "stream": "ANY", **options})
        source.reader(spark.createDataFrame([], schema or source.schema()).schema)
