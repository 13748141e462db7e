"""Small promises of the sink and of the tasks: permissions, ids, limits, notes to the user, requests that are saved."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

import jsclient
from jsclient.arrow import chunks, pulling
from jsclient.exactly import task
from jsclient.jetstream import JetStream
from jsclient.spark import permissions, pool, required_permissions
from jsclient.spark import writer as writing
from jsclient.spark.errors import JetStreamSparkError
from jsclient.testing import NatsServer, wait_until

from .conftest import Js, mode_works, refused_before
from .test_refusals import stream_writer
from .test_without_jvm import batches, read, reader, rows_of, schema_of, source, stream_reader, writer


@pytest.fixture(autouse=True)
def idle_connections_closed() -> Iterator[None]:
    yield
    from jsclient.spark import close_idle

    close_idle()


@contextmanager
def requests_to(js: Js, subject: str) -> Iterator[Counter[str]]:
    """Counts what is sent to the JetStream API meanwhile, by the first two tokens of the operation."""
    found: Counter[str] = Counter()

    def count(message: Any) -> None:
        found[".".join(message.subject.split(".")[2:4])] += 1

    with jsclient.connect(js.nc.connected_url) as other:
        subscription = other.subscribe(subject, count)
        other.flush()
        yield found
        other.flush()
        subscription.drain()


def sizes_of_chunks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The messages of each chunk that is pulled from now on."""
    found: list[int] = []

    def chunk_of(messages: Any, deliveries: Any) -> Any:
        found.append(len(messages))
        return chunks.chunk_of(messages, deliveries)

    monkeypatch.setattr(pulling, "chunk_of", chunk_of)
    return found


# --- permissions --------------------------------------------------------------------------------------------------


def with_users(users: str) -> str:
    admin = '{ user: admin, password: "" }'
    return f"authorization: {{ users: [ {admin}, {users} ] }}\n"


def test_who_may_only_publish_can_use_the_sink(
    stream_name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jsclient.exactly.sending.ACK_TIMEOUT", 1.0)
    allowed = f'{{ publish: {{ allow: ["{stream_name}.>"] }}, subscribe: {{ allow: ["_INBOX.>"] }} }}'
    with NatsServer(with_users(f"{{ user: u, password: p, permissions: {allowed} }}")) as server:
        with jsclient.connect(server.url, user="admin", password="") as nc:
            Js(nc).create(stream_name)
            made = writer(server.url, subject=f"{stream_name}.x", user="u", password="p")
            message = made.write(batches(0, 3000))
            made.commit([message])
            assert f"no permission for STREAM.INFO.{stream_name}" in caplog.text
            assert Js(nc).state(stream_name)["messages"] == 3000
        # A subject that may not be published to still ends the task.
        refused = writer(server.url, subject="other.x", user="u", password="p")
        with pytest.raises(JetStreamSparkError, match=r"PUBLISH_FAILED.*PermissionViolation.*other\.x"):
            refused.write(batches(0, 10))


def test_the_listed_permissions_are_enough(stream_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way of use by a user who may do exactly what is listed for it."""
    queue = f"{stream_name}_q"
    common = {"servers": "nats://localhost", "user": "u", "password": "p"}
    sink = {**common, "subject": f"{stream_name}.x"}
    ways: dict[str, tuple[str, dict[str, str]]] = {
        "read": ("read", {**common, "stream": stream_name, "subjects": f"{stream_name}.*"}),
        "stream": ("readStream", {**common, "stream": stream_name, "failOnDataLoss": "false"}),
        "queue": ("readStream", {**common, "stream": queue, "ackMode": "purge"}),
        "auto": ("write", sink),
        "job": ("write", {**sink, "deliverySemantics": "exactly-once"}),
        "journal": ("writeStream", {**sink, "deliverySemantics": "exactly-once", "publishMode": "async"}),
    }
    monkeypatch.setattr(task, "SETTLED", 0.0)
    users = ", ".join(
        f"{{ user: {name}, password: p, {permissions(options, way)} }}" for name, (way, options) in ways.items()
    )
    with NatsServer(with_users(users)) as server:
        with jsclient.connect(server.url, user="admin", password="") as nc:
            js = Js(nc)
            js.create(stream_name, allow_direct=True)
            js.create(queue, retention="workqueue", allow_direct=True)
            js.fill(stream_name, 100)
            js.fill(queue, 100)
        for name, (way, options) in ways.items():
            given = {key: value for key, value in options.items() if key not in ("servers", "stream")} | {"user": name}
            if way == "writeStream":
                with mode_works(server, options["publishMode"]):
                    for run in ("run-1", "run-2"):
                        monkeypatch.setattr(writing, "streaming_batch", lambda name=name, run=run: (name, run, 1))
                        writes_as_a_query(server.url, given, dies=run == "run-1")
            elif way == "write":
                with mode_works(server, options.get("publishMode", "auto")):
                    assert writer(server.url, **given).write(batches(0, 10)).totals.rows == 10
            elif way == "read":
                assert read(reader(server.url, options["stream"], **given, minPartitions=2)) == list(range(100))
            else:
                with refused_before(server, (2, 11) if name == "queue" else (2, 9), "DIRECT_UNAVAILABLE"):
                    reads_as_a_query(server.url, options["stream"], given)


def test_the_listed_permissions_are_enough_for_buckets_and_many_streams(stream_name: str) -> None:
    from jsclient import keyvalue, objectstore
    from jsclient.spark.kv import KeyValueDataSource
    from jsclient.spark.objects import ObjectsDataSource

    one, other = f"{stream_name}_1", f"{stream_name}_2"
    connect = {"servers": "nats://localhost", "user": "u", "password": "p"}
    rows = {"key": "string", "value": "binary"}
    objects = {"name": "string", "content": "binary"}
    ways: dict[str, tuple[str, str, dict[str, str], dict[str, str]]] = {
        "list": ("jetstream", "read", {"stream": f"{one},{other}", "subjects": "*.1"}, rows),
        "pattern": ("jetstream", "read", {"stream": f"{stream_name}_*", "readMethod": "consumer"}, rows),
        "table": ("jetstream-kv", "read", {"bucket": "b", "keys": "k.>"}, rows),
        "history": ("jetstream-kv", "read", {"bucket": "b", "mode": "history"}, rows),
        "feed": ("jetstream-kv", "readStream", {"bucket": "b"}, rows),
        "put": ("jetstream-kv", "write", {"bucket": "b"}, rows),
        "journal": ("jetstream-kv", "writeStream", {"bucket": "b", "deliverySemantics": "exactly-once"}, rows),
        "objects": ("jetstream-objects", "read", {"bucket": "o"}, objects),
    }
    users = ", ".join(
        f"{{ user: {name}, password: p, {permissions({**connect, **options}, way, format=kind)} }}"  # type: ignore[arg-type]
        for name, (kind, way, options, _) in ways.items()
    )
    with NatsServer(with_users(users)) as server:
        with jsclient.connect(server.url, user="admin", password="") as nc:
            js = Js(nc)
            for name in (one, other):
                js.create(name)
                js.fill(name, 40)
            bucket = keyvalue.create_key_value(JetStream(nc), keyvalue.KeyValueConfig(bucket="b"))
            bucket.put("k.1", b"1")
            objectstore.create_object_store(JetStream(nc), objectstore.ObjectStoreConfig(bucket="o")).put("x", b"xyz")
        for name, (kind, way, options, columns) in ways.items():
            given = {**connect, **options, "servers": server.url, "user": name}
            if kind == "jetstream":
                made = source(
                    server.url, options["stream"], **{k: v for k, v in given.items() if k not in ("servers", "stream")}
                )
                assert len(rows_of_any(made.reader(schema_of("seq bigint, value binary")))) in (20, 80), name
            elif kind == "jetstream-objects":
                schema = schema_of("name string, content binary")
                assert rows_of_any(ObjectsDataSource(given).reader(schema)) == [("x", b"xyz")]
            elif way in ("write", "writeStream"):
                import pyarrow as pa

                schema = schema_of("key string, value binary")
                table = pa.record_batch([pa.array(["k.2"]), pa.array([b"2"], pa.binary())], names=list(columns))
                if way == "write":
                    put = KeyValueDataSource(given).writer(schema, False)
                    put.commit([put.write(iter([table]))])
                else:
                    changes = KeyValueDataSource(given).streamWriter(schema, False)
                    changes.commit([changes.write(iter([table]))], 0)
            elif way == "read":
                assert rows_of_any(KeyValueDataSource(given).reader(schema_of("key string, value binary")))
            else:
                from pyspark.sql.streaming.datasource import ReadAllAvailable

                feed = KeyValueDataSource(given).streamReader(schema_of("key string, value binary"))
                start = feed.initialOffset()
                end = json.loads(json.dumps(feed.latestOffset(start, ReadAllAvailable())))
                assert [
                    row for part in feed.partitions(start, end) for batch in feed.read(part) for row in rows_in(batch)
                ]


def rows_in(batch: Any) -> list[tuple[Any, ...]]:
    return [batch] if isinstance(batch, tuple) else [tuple(row.values()) for row in batch.to_pylist()]


def rows_of_any(made: Any) -> list[tuple[Any, ...]]:
    return [row for part in made.partitions() for batch in made.read(part) for row in rows_in(batch)]


def writes_as_a_query(url: str, given: dict[str, str], dies: bool) -> None:
    def rows() -> Iterator[Any]:
        yield from batches(100, 150)
        if dies:
            raise RuntimeError("on purpose")
        yield from batches(150, 200)

    made = stream_writer(url, **given)
    with pytest.raises(RuntimeError) if dies else nullcontext():
        made.commit([made.write(rows())], 1)


def reads_as_a_query(url: str, stream: str, given: dict[str, str]) -> None:
    from pyspark.sql.streaming.datasource import ReadMaxRows

    query = stream_reader(url, stream, startingOffsets="earliest", **given)
    start = query.initialOffset()
    end = json.loads(json.dumps(query.latestOffset(start, ReadMaxRows(60))))
    assert rows_of(query, query.partitions(start, end)) == list(range(60))
    query.commit(end)
    query.reportLatestOffset()
    query.stop()


def test_permissions_are_those_of_the_options() -> None:
    options = {"servers": "n", "stream": "S", "domain": "hub", "readMethod": "consumer", "inboxPrefix": "_I.x"}
    needed = required_permissions(options, "read")
    assert "$JS.hub.API.CONSUMER.MSG.NEXT.S.>" in needed["publish"]
    assert not any("DIRECT" in subject for subject in needed["publish"])
    assert needed["subscribe"] == ["_I.x.>"]
    with pytest.raises(JetStreamSparkError, match="BAD_OPTION.*'reads' is none of"):
        required_permissions(options, "reads")


# --- limits of an account -----------------------------------------------------------------------------------------


def test_a_limit_on_consumers_is_waited_for(js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name, max_consumers=1)
    js.fill(stream_name, 100)
    body = {"stream_name": stream_name, "config": {"name": "other", "ack_policy": "none"}}
    js.api.request(f"CONSUMER.CREATE.{stream_name}.other", body)
    with pytest.raises(JetStreamSparkError, match=r"READ_FAILED.*maximum consumers limit"):
        read(reader(server.url, stream_name, reconnectTimeout="300ms"))
    timer = threading.Timer(0.5, lambda: js.api.request(f"CONSUMER.DELETE.{stream_name}.other"))
    timer.start()
    assert read(reader(server.url, stream_name)) == list(range(100))
    timer.join()


# --- what is not asked or sent twice ------------------------------------------------------------------------------


def test_later_tasks_ask_nothing_about_the_sink(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    js.create(stream_name)
    made = writer(server.url, subject=f"{stream_name}.x")
    made.write(batches(0, 100))
    with requests_to(js, "$JS.API.>") as found:
        for number in range(1, 4):
            monkeypatch.setattr(writing, "partition_id", lambda number=number: number)
            made.write(batches(number * 100, number * 100 + 100))
    assert found == {}


@pytest.mark.parametrize("parts", [1, 4])
def test_filters_bring_few_rows_of_others(
    js: Js, server: NatsServer, stream_name: str, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    js.create(stream_name)
    js.fill(stream_name, 4000, subject=lambda n: f"{stream_name}.{n % 10}")
    sent = sizes_of_chunks(monkeypatch)
    options = {"subjects": f"{stream_name}.3", "minPartitions": parts, "endingOffsets": '{"seq": 2001}'}
    found = read(reader(server.url, stream_name, readMethod="consumer", **options))
    assert found == list(range(3, 2000, 10))
    assert sum(sent) <= len(found) + parts


@pytest.mark.parametrize(("subjects", "parts"), [(600, 4), (2400, 2)])
def test_many_subjects_are_filtered_by_the_server(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch, subjects: int, parts: int
) -> None:
    stream = f"{stream_name.partition('[')[0]}_{subjects}"
    js.create(stream)
    js.fill(stream, 3 * subjects, subject=lambda n: f"{stream}.{n % subjects}")
    js.fill(stream, 5, first=3 * subjects, subject=lambda n: f"{stream}.0")  # a tail that only one task has
    total = 3 * subjects + 5
    sent = sizes_of_chunks(monkeypatch)
    made = reader(server.url, stream, partitionBy="subject", minPartitions=parts)
    with requests_to(js, "$JS.API.>") as asked:
        found = [rows_of(made, [part]) for part in made.partitions()]
    assert sorted(n for part in found for n in part) == list(range(total))
    assert all(part == sorted(part) for part in found)
    homes = {n % subjects: at for at, part in enumerate(found) for n in part[:-5]}
    assert all(homes[n % subjects] == at for at, part in enumerate(found) for n in part if n < 3 * subjects)
    if server.version >= (2, 10):
        assert sum(sent) <= total * 1.05
        assert asked["STREAM.MSG"] < 20 * parts, "the leader is not asked about each subject"
    else:
        assert sum(sent) <= total * parts


def test_subjects_that_are_no_text_stay_in_their_task(js: Js, server: NatsServer, stream_name: str) -> None:
    """The server lists such a subject with other characters, so a filter made of that matches nothing."""
    js.create(stream_name)
    for number in range(60):
        js.nc.publish(f"{stream_name}.{chr(0xDC80 + number % 3)}", b"%d" % number)
    js.nc.flush()
    made = reader(server.url, stream_name, partitionBy="subject", minPartitions=3, readMethod="consumer")
    assert sorted(n for part in made.partitions() for n in rows_of(made, [part])) == list(range(60))


def test_connections_outlive_a_slow_trigger(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trigger of a minute must not open a connection for every batch."""
    with pool.connection(server.url) as nc:
        first = nc.client_id
    later = time.monotonic() + 120
    monkeypatch.setattr(pool, "time", SimpleNamespace(monotonic=lambda: later, sleep=time.sleep))  # noqa: TID251
    assert pool._pool._old() == [], "what the thread that closes idle connections would close"
    with pool.connection(server.url) as nc:
        assert nc.client_id == first


# --- what the user is told ----------------------------------------------------------------------------------------


def test_short_windows_are_told_to_the_driver(
    js: Js, server: NatsServer, stream_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    js.create(stream_name, duplicate_window=10**8)

    def slow() -> Iterator[Any]:
        started = time.monotonic()
        yield from batches(0, 100)
        wait_until(lambda: time.monotonic() - started > 0.15, 5)

    made = writer(server.url, subject=f"{stream_name}.x")
    message = made.write(slow())
    assert "recognises" not in caplog.text, "a task is not what the user looks at"
    made.commit([message, message])
    assert caplog.text.count("recognises repeated messages for 0.1 s only (less than 120 s)") == 1
    assert caplog.text.count("and a task took longer") == 1
    queue = f"{stream_name}_q"
    js.create(queue, retention="workqueue")
    made = writer(server.url, subject=f"{queue}.x")
    made.commit([made.write(batches(0, 10))])
    assert "retention workqueue: when its server restarts it forgets the ids" in caplog.text
