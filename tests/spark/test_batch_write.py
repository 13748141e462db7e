"""write and foreachPartition: contents, ids, modes, refusals, secrets."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jsclient.protocol import Headers
from jsclient.spark.errors import from_spark
from jsclient.testing import NatsServer

from .conftest import Js, mode_works


def sink(frame: Any, url: str, mode: str = "append", **options: Any) -> None:
    writer = frame.write.format("jetstream").mode(mode).option("servers", url)
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save()


def stored(js: Js, stream: str, **body: Any) -> tuple[dict[str, list[str]], bytes]:
    """Headers and payload of one message: seq=, or last_by_subj=."""
    message = js.api.request(f"STREAM.MSG.GET.{stream}", body)["message"]
    block = base64.b64decode(message.get("hdrs") or "")
    headers = Headers.decode(block) if block else Headers()
    return {name: headers.get_all(name) for name in headers}, base64.b64decode(message.get("data") or "")


@pytest.mark.parametrize("mode", ["async", "fast", "auto"])
def test_rows_arrive_with_subjects_headers_and_ids(
    spark: Any, js: Js, server: NatsServer, stream_name: str, contents: Callable[[str], list[int]], mode: str
) -> None:
    js.create(stream_name, allow_batched=True)
    frame = spark.range(0, 3000, 1, 2).selectExpr(
        f"concat('{stream_name}.', CASE WHEN id = 7 THEN 'seven' ELSE cast(id % 3 AS string) END) AS subject",
        "cast(id AS string) AS value",
        "CASE WHEN id = 7 THEN map('A', array('1', '2'), 'B', array('x')) END AS headers",
    )
    with mode_works(server, mode):
        sink(frame, server.url, publishMode=mode)
        assert sorted(contents(stream_name)) == list(range(3000))
        headers, value = stored(js, stream_name, last_by_subj=f"{stream_name}.seven")
        assert (value, headers["A"], headers["B"]) == (b"7", ["1", "2"], ["x"])
        ids = [stored(js, stream_name, seq=seq)[0]["Nats-Msg-Id"] for seq in range(1, 30)]
        assert len({text for [text] in ids}) == 29


def test_a_column_of_ids_is_exact_for_every_plan(spark: Any, js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name)
    for parts in (1, 3):
        frame = spark.range(0, 1000, 1, parts).selectExpr("'x' AS value", "concat('row-', id) AS msg_id")
        sink(frame, server.url, subject=f"{stream_name}.x")
    assert js.state(stream_name)["messages"] == 1000


def test_equal_rows_all_survive(spark: Any, js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name)
    sink(spark.range(0, 500, 1, 2).selectExpr("'same' AS value"), server.url, subject=f"{stream_name}.x")
    assert js.state(stream_name)["messages"] == 500


@pytest.mark.spark_modes
def test_a_retried_task_publishes_nothing_twice(
    spark: Any, js: Js, server: NatsServer, stream_name: str, tmp_path: Any
) -> None:
    js.create(stream_name)
    flag = str(tmp_path / "failed")

    def fail_once(batches: Iterator[Any]) -> Iterator[Any]:
        import pathlib

        yield from batches
        path = pathlib.Path(flag)
        if not path.exists():
            path.touch()
            raise RuntimeError("a task that fails once")

    frame = spark.range(0, 20_000, 1, 2).selectExpr("cast(id AS string) AS value").mapInArrow(fail_once, "value string")
    sink(frame, server.url, subject=f"{stream_name}.x", publishMode="async")
    assert js.state(stream_name)["messages"] == 20_000


@pytest.mark.parametrize(
    ("columns", "options", "token"),
    [
        (["'a' AS value", "1 AS other"], {}, "SCHEMA_MISMATCH"),
        (["cast(NULL AS string) AS value"], {}, "NULL_VALUE"),
        (["'a' AS value"], {"mode": "overwrite"}, "OVERWRITE_UNSUPPORTED"),
    ],
)
def test_refusals_reach_the_user(
    spark: Any, server: NatsServer, columns: list[str], options: dict[str, Any], token: str
) -> None:
    frame = spark.range(1).selectExpr(*columns)
    with pytest.raises(Exception, match=f"JETSTREAM_{token}") as caught:
        sink(frame, server.url, **{"subject": "x.y", **options})
    error = from_spark(caught.value)
    assert error is not None
    assert error.token == f"JETSTREAM_{token}"


def test_for_each_partition_and_map_in_arrow(spark: Any, js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name)
    options = {"servers": server.url, "subject": f"{stream_name}.x"}

    def publish(rows: Iterator[Any]) -> None:
        from jsclient.spark import publish_partition

        kept = list(rows)
        for _ in range(2):  # equal rows of two calls are two rows
            publish_partition(kept, options)

    spark.range(0, 500, 1, 2).selectExpr("cast(id AS string) AS value").foreachPartition(publish)
    assert js.state(stream_name)["messages"] == 1000

    def in_arrow(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from jsclient.spark import publish_partition

        totals = publish_partition(batches, {**options, "publishMode": "async"})
        yield pa.record_batch([pa.array([totals.rows])], names=["rows"])

    counts = spark.range(0, 2000, 1, 2).selectExpr("cast(id AS string) AS value").mapInArrow(in_arrow, "rows bigint")
    assert sorted(row.rows for row in counts.collect()) == [1000, 1000]
    assert js.state(stream_name)["messages"] == 3000

    def lookup(keys: Iterator[Any]) -> Iterator[tuple[int, int]]:
        from jsclient.spark import connection, read_range

        with connection({"servers": server_url}) as nc:
            nc.flush()
        for row in keys:
            for record in read_range({"servers": server_url, "stream": stream_name}, row.id, row.id + 2):
                yield row.id, record.seq

    server_url = server.url
    found = spark.createDataFrame([(5,), (50,)], "id int").rdd.mapPartitions(lookup).collect()
    assert sorted(found) == [(5, 5), (5, 6), (50, 50), (50, 51)]


def test_one_connection_per_worker_process(spark: Any, js: Js, server: NatsServer) -> None:
    """Twenty tasks on two slots need as many connections as there are workers, not twenty."""
    url = server.url

    def clients(_: Iterator[Any]) -> Iterator[tuple[int, int]]:
        import os

        from jsclient.spark import connection

        with connection({"servers": url}) as nc:
            yield os.getpid(), nc.client_id

    seen = spark.sparkContext.parallelize(range(20), 20).mapPartitions(clients).collect()
    assert len(set(seen)) == len({pid for pid, _ in seen}) <= 4


def test_a_live_connection_in_a_closure_is_explained(spark: Any, js: Js) -> None:
    nc = js.nc
    with pytest.raises(Exception, match=r"cannot be pickled.*ConnectOptions") as caught:
        spark.range(2).foreachPartition(lambda rows: nc.publish("x", b""))
    assert "thread" not in str(caught.value).lower()


def test_secrets_are_shown_nowhere(
    spark: Any, spark_environment: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    secret, password = "s3cr3t-tok3n", "pa55word"
    config = f'authorization {{ token: "{secret}" }}'
    with NatsServer(config) as closed:
        import jsclient
        from jsclient.jetstream.api.requests import Api

        with jsclient.connect(closed.url, token=secret) as nc:
            Api(nc).request("STREAM.CREATE.SEC", {"name": "SEC", "subjects": ["SEC.>"]})
        options = {"servers": closed.url, "token": secret}
        frame = spark.range(10).selectExpr("cast(id AS string) AS value")
        sink(frame, subject="SEC.x", url=options["servers"], token=secret)
        loaded = spark.read.format("jetstream").options(**options).load("SEC")
        assert loaded.count() == 10
        plans = str(loaded._jdf.queryExecution().toString())
        query = (
            spark.readStream.format("jetstream").options(**options, startingOffsets="earliest").load("SEC")
            .selectExpr("value").writeStream.format("jetstream").options(**options, subject="SEC.y")
            .option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(60)
        progress = str(query.lastProgress)
        with pytest.raises(Exception, match="JETSTREAM_CONNECT_FAILED") as refused:
            spark.read.format("jetstream").options(servers=closed.url, user="u", password=password).load("SEC").count()
    shown = plans + progress + str(refused.value) + repr(loaded) + "".join(capfd.readouterr())
    for folder in (tmp_path / "c", spark_environment / "events"):
        shown += "".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())
    assert "SparkListenerJobStart" in shown
    assert secret not in shown
    assert password not in shown
