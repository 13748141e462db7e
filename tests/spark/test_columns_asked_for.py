"""Only the columns that a schema asks for are moved, and copies carry no headers of servers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from jsclient.spark import close_idle, connection, publish_partition, read_range
from jsclient.spark.values import moment
from jsclient.testing import NatsServer

from .conftest import Js
from .test_without_jvm import source


@pytest.fixture(autouse=True)
def idle_connections_closed() -> Iterator[None]:
    yield
    close_idle()


def schema_of(**columns: str) -> Any:
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        MapType,
        StringType,
        StructType,
    )

    kinds = {
        "bigint": LongType(),
        "int": IntegerType(),
        "string": StringType(),
        "binary": BinaryType(),
        "headers": MapType(StringType(), ArrayType(StringType())),
    }
    schema = StructType()
    for name, kind in columns.items():
        schema = schema.add(name, kinds[kind])
    return schema


def received(url: str) -> int:
    """Bytes that the connection of this process has received."""
    with connection({"servers": url}) as nc:
        return nc.stats().bytes_in


def table(url: str, stream: str, schema: Any, **options: Any) -> list[dict[str, Any]]:
    made = source(url, stream, **options).reader(schema)
    found: list[dict[str, Any]] = []
    for partition in made.partitions():
        for batch in made.read(partition):
            found += batch.to_pylist()
    return found


@pytest.mark.parametrize("method", ["auto", "consumer"])
def test_a_schema_without_values_moves_none(js: Js, server: NatsServer, stream_name: str, method: str) -> None:
    js.create(stream_name)
    for number in range(40):
        headers = {"A": "b", "C": "d"} if number % 2 else None
        js.nc.request(f"{stream_name}.{number % 4}", b"x" * (50_000 + number), headers=headers)
    schema = schema_of(seq="bigint", subject="string", size="int", headers="headers")
    close_idle()
    found = table(server.url, stream_name, schema, readMethod=method)
    assert [row["seq"] for row in found] == list(range(1, 41))
    assert [row["size"] for row in found] == [50_000 + n for n in range(40)]
    assert [row["headers"] for row in found] == [[("A", ["b"]), ("C", ["d"])] if n % 2 else None for n in range(40)]
    assert received(server.url) < 100_000
    close_idle()
    table(server.url, stream_name, schema_of(value="binary"), readMethod=method)
    assert received(server.url) > 40 * 50_000


def test_times_before_now() -> None:
    assert abs(moment("-15m") - (time.time_ns() - 900 * 10**9)) < 10**9
    assert abs(moment("-500ms") - (time.time_ns() - 5 * 10**8)) < 10**9
    with pytest.raises(ValueError, match="-15m"):
        moment("yesterday")


def test_a_relative_starting_timestamp(js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name)
    js.fill(stream_name, 5)
    schema = schema_of(seq="bigint")
    assert len(table(server.url, stream_name, schema, startingTimestamp="-1h")) == 5
    assert len(table(server.url, stream_name, schema, startingTimestamp="-0s")) == 0, "nothing is that recent"


@pytest.mark.parametrize("named", [True, False])
def test_a_copy_has_no_headers_of_servers(js: Js, server: NatsServer, stream_name: str, named: bool) -> None:
    js.create(stream_name)
    js.create(f"{stream_name}_copy", allow_msg_ttl=False)
    js.nc.request(f"{stream_name}.x", b"1", headers={"Nats-Msg-Id": "a", "Nats-Expected-Stream": stream_name, "A": "b"})
    found = table(server.url, stream_name, schema_of(headers="headers", value="binary"))
    given = [{**row, "headers": dict(row["headers"]), "subject": f"{stream_name}_copy.x"} for row in found]
    job: dict[str, Any] = {"job": "copy", "batch": 1} if named else {}
    given[0]["expected_last_seq"] = 0
    assert publish_partition(given, {"servers": server.url}, **job).rows == 1
    (copy,) = read_range({"servers": server.url, "stream": f"{stream_name}_copy"}, 1, 2)
    assert copy.headers["A"] == "b"
    assert copy.headers.get("Nats-Msg-Id") != "a"
    assert "Nats-Expected-Stream" not in copy.headers
    assert copy.headers["Nats-Expected-Last-Sequence"] == "0"
