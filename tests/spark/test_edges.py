"""What a sceptic would try: lagging replicas, mirrors that keep less, heads that move, odd schemas and options."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

import jsclient
from jsclient.arrow import chunks, pulling
from jsclient.arrow.access import StreamAccess
from jsclient.jetstream import JetStream
from jsclient.jetstream.batch_get import AnswerSink
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.values import moment
from jsclient.testing import NatsServer

from .conftest import Js, mode_works, refused_before
from .test_without_jvm import at, batches, next_of, read, reader, rows_of, source, stream_reader, writer


@pytest.fixture(autouse=True)
def idle_connections_closed() -> Iterator[None]:
    yield
    from jsclient.spark import close_idle

    close_idle()


# --- replicas, mirrors, heads that move ---------------------------------------------------------------------------


def lagging(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first consumer sits on a replica that has nothing yet: it says that nothing is pending."""
    lied: list[str] = []
    real = StreamAccess.create_consumer

    def create(self: StreamAccess, name: str, more: dict[str, Any], threshold: float) -> Any:
        info = real(self, name, more, threshold)
        if not lied:
            lied.append(name)
            return msgspec.structs.replace(info, num_pending=0)
        return info

    monkeypatch.setattr(StreamAccess, "create_consumer", create)
    return lied


def test_a_consumer_on_a_lagging_replica_loses_no_rows(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    js.create(stream_name)
    js.fill(stream_name, 3000)
    lied = lagging(monkeypatch)
    assert read(reader(server.url, stream_name, readMethod="consumer")) == list(range(3000))
    assert lied


def test_a_replica_that_catches_up_in_the_middle_loses_no_rows(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch, in_portions: Callable[..., None]
) -> None:
    js.create(stream_name)
    js.fill(stream_name, 3000)
    lied: list[int] = []
    real = chunks.chunk_of

    def chunk_of(messages: Any, found: Any) -> Any:
        chunk = real(messages, found)
        if not lied:
            lied.append(chunk.pending)
            chunk.pending = 0
        return chunk

    monkeypatch.setattr(pulling, "chunk_of", chunk_of)
    in_portions(10_000, 500)
    assert read(reader(server.url, stream_name, readMethod="consumer")) == list(range(3000))
    assert lied[0] > 0


def test_a_time_is_not_looked_up_on_a_lagging_replica(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    js.create(stream_name)
    js.fill(stream_name, 100)
    lied = lagging(monkeypatch)
    made = reader(server.url, stream_name, startingTimestamp="2020-01-01T00:00:00Z")
    assert read(made) == list(range(100))
    assert lied


def test_a_mirror_that_keeps_less_is_not_believed(
    js: Js, server: NatsServer, stream_name: str, in_portions: Callable[..., None]
) -> None:
    """With allow_direct and mirror_direct a mirror answers half of the direct gets, and it may keep less."""
    js.create(stream_name, allow_direct=True)
    js.fill(stream_name, 1000)
    mirror = f"{stream_name}_mirror"
    js.create(mirror, subjects=None, mirror={"name": stream_name}, mirror_direct=True, max_msgs=100)
    js.settle(mirror, 1000)
    in_portions(10_000, 50)
    for _ in range(3):
        assert read(reader(server.url, stream_name)) == list(range(1000))


@pytest.mark.parametrize("method", ["consumer", "direct"])
def test_a_head_that_overtakes_a_running_task_is_noticed(
    js: Js, server: NatsServer, stream_name: str, method: str, in_portions: Callable[..., None]
) -> None:
    stream = stream_name.replace("[", "_").rstrip("]_")
    js.create(stream, allow_direct=True)
    js.fill(stream, 10_000)
    in_portions(100)
    options = {"readMethod": method}
    made = reader(server.url, stream, **options)

    def truncate() -> None:
        js.api.request(f"STREAM.PURGE.{stream}", {"seq": 9001})

    with refused_before(server, (2, 11) if method == "direct" else (2, 9), "DIRECT_UNAVAILABLE"):
        with (
            at([1000], [truncate]) as check,
            pytest.raises(JetStreamSparkError, match=rf"DATA_LOSS.*'{stream}'.*to 9000"),
        ):
            read(made, check)
        # Messages deleted one by one are no loss, and a head that moves behind the reader is none either.
        gone = [9101, 9102, 9500]
        for seq in gone:
            js.api.request(f"STREAM.MSG.DELETE.{stream}", {"seq": seq, "no_erase": True})

        def behind() -> None:
            js.api.request(f"STREAM.PURGE.{stream}", {"seq": 9200})

        with at([500], [behind]) as check:
            found = read(reader(server.url, stream, **options), check)
        assert found == [n for n in range(9000, 10_000) if n + 1 not in gone]


def test_a_query_outlives_a_server_that_dies_right_after_its_answer(
    stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from jsclient.spark.following import Follower

    with NatsServer() as server:
        with jsclient.connect(server.url) as nc:
            Js(nc).create(stream_name)
            Js(nc).fill(stream_name, 10)
        made = stream_reader(server.url, stream_name, startingOffsets="earliest")
        start = made.initialOffset()
        real = Follower.look

        def dies(self: Any, *args: Any) -> Any:
            found = real(self, *args)
            server.kill()
            return found

        monkeypatch.setattr(Follower, "look", dies)
        assert next_of(made.latestOffset(start, ReadAllAvailable())) == 11


# --- options ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("servers", ["nats://u:pa55word@h:4222,", "nats://u:pa55word@h:port", "na ts://u:pa55word@h"])
def test_no_secret_in_a_complaint_about_servers(servers: str) -> None:
    with pytest.raises(JetStreamSparkError) as caught:
        reader(servers, "S").partitions()
    assert "pa55word" not in str(caught.value)


def test_an_empty_password_hides_nothing_else() -> None:
    from jsclient.spark import options

    checked = options.parse({"servers": "nats://h", "stream": "S", "password": ""}, options.READ)
    assert checked.hide("plain text") == "plain text"


def test_purging_begins_with_the_oldest_message(js: Js, server: NatsServer, stream_name: str) -> None:
    """What lies below a committed offset is purged: a query that began at the end would purge what nobody has read."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    js.create(stream_name, retention="workqueue", allow_direct=True)
    js.fill(stream_name, 50)
    made = stream_reader(server.url, stream_name, ackMode="purge")
    start = made.initialOffset()
    end = made.latestOffset(start, ReadAllAvailable())
    with refused_before(server, (2, 11), "DIRECT_UNAVAILABLE"):
        assert rows_of(made, made.partitions(start, end)) == list(range(50))
    for late in ({"startingOffsets": "latest"}, {"startingOffsets": '{"seq": 9}'}, {"startingTimestamp": 1000}):
        with pytest.raises(JetStreamSparkError, match="CONFLICTING_OPTIONS.*purge"):
            stream_reader(server.url, stream_name, ackMode="purge", **late)


def test_a_start_behind_the_end_is_refused(js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name)
    js.fill(stream_name, 10)
    at_the_end = stream_reader(server.url, stream_name, startingOffsets='{"seq": 11}')
    assert next_of(at_the_end.initialOffset()) == 11
    with pytest.raises(JetStreamSparkError, match=r"BAD_OPTION.*startingOffsets.*12.*ends at 10"):
        stream_reader(server.url, stream_name, startingOffsets='{"seq": 12}').initialOffset()


def test_empty_streams(js: Js, server: NatsServer, stream_name: str) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    js.create(stream_name)
    assert read(reader(server.url, stream_name)) == []
    assert read(reader(server.url, stream_name, startingOffsets='{"seq": 5}', endingOffsets='{"seq": 9}')) == []
    for begin in ("earliest", "latest"):
        made = stream_reader(server.url, stream_name, startingOffsets=begin)
        start = made.initialOffset()
        assert next_of(start) == 1
        assert made.latestOffset(start, ReadAllAvailable()) is start
    js.fill(stream_name, 10)
    js.api.request(f"STREAM.PURGE.{stream_name}", {})
    assert read(reader(server.url, stream_name)) == []
    with pytest.raises(JetStreamSparkError, match=r"DATA_LOSS.*sequences 1 to 10"):
        read(reader(server.url, stream_name, startingOffsets='{"seq": 1}'))


# --- schemas and rows ---------------------------------------------------------------------------------------------


def test_columns_that_may_not_be_null(js: Js, server: NatsServer, stream_name: str) -> None:
    from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructType

    js.create(stream_name)
    for headers in ({"A": ["1", "2"], "B": "x"}, {"A": "1", "B": "x"}):
        js.nc.request(f"{stream_name}.x", b"1", headers=headers)
    kind = MapType(StringType(), ArrayType(StringType(), False), False)
    schema = StructType().add("seq", LongType(), False).add("headers", kind)
    made = source(server.url, stream_name).reader(schema)
    rows = [row for p in made.partitions() for b in made.read(p) for row in b.to_pylist()]
    assert rows == [
        {"seq": 1, "headers": [("A", ["1", "2"]), ("B", ["x"])]},
        {"seq": 2, "headers": [("A", ["1"]), ("B", ["x"])]},
    ]
    with pytest.raises(JetStreamSparkError, match=r"SCHEMA_MISMATCH.*no columns"):
        source(server.url, stream_name).reader(StructType())


def test_headers_that_are_not_for_rows(js: Js, server: NatsServer, stream_name: str) -> None:
    """Copied with the rows of a stream that was written by atomic batches, they would begin such a batch again."""
    js.create(stream_name)
    from jsclient.spark import publish_partition

    options = {"servers": server.url, "subject": f"{stream_name}.x", "publishMode": "async"}
    given = {"Nats-Batch-Id": "1", "nats-msg-id": "1", "Nats-Batch-Commit": "1", "A": "1"}
    assert publish_partition([{"value": "1", "headers": given}], options).rows == 1
    stored = JetStream(js.nc).stream(stream_name).get_msg(1)
    assert stored.headers is not None
    assert set(stored.headers) == {"A", "Nats-Msg-Id"}
    assert stored.headers["Nats-Msg-Id"] != "1", "the sink has its own ids"
    for headers in ({"A": "1\r\nB: 2"}, {"A B": "1"}, {"": "1"}):
        with pytest.raises(JetStreamSparkError, match="JETSTREAM_"):
            publish_partition([{"value": "1", "headers": headers}], options)
    assert publish_partition([{"value": "1", "headers": {"A": None, "B": "2"}}], options).rows == 1


def test_the_last_ack_is_counted_before_the_task_ends(js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name)
    made = writer(server.url, subject=f"{stream_name}.x", publishMode="async")
    for number in range(100):
        totals = made.write(batches(number, number + 1)).totals
        assert totals.streams == {stream_name: (number + 1, number + 1)}


def test_jobs_that_begin_alike_are_two_jobs(js: Js, server: NatsServer, stream_name: str) -> None:
    from jsclient.spark import publish_partition

    js.create(stream_name)
    options = {"servers": server.url, "subject": f"{stream_name}.x"}
    for job in ("nightly-orders-1", "nightly-orders-2", "nightly-orders-2"):
        publish_partition([{"value": "1"}], options, job=job)
    assert js.state(stream_name)["messages"] == 2


def test_ranges_by_time_and_sequence(js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name)
    js.fill(stream_name, 100)
    stored = js.api.request(f"STREAM.MSG.GET.{stream_name}", {"seq": 1})["message"]["time"]
    ms = moment(stored[:23]) // 10**6

    def between(**options: Any) -> list[int]:
        return read(reader(server.url, stream_name, **options))

    assert between(startingTimestamp=ms) == list(range(100))
    assert between(endingTimestamp=ms) == []
    assert between(startingOffsets='{"seq": 11}', endingOffsets='{"seq": 21}') == list(range(10, 20))
    late = {"startingTimestamp": "2100-01-01T00:00:00Z"}
    with pytest.raises(JetStreamSparkError, match="TIMESTAMP_BEYOND_END"):
        between(**late)
    assert between(startingTimestamp=time.time_ns() // 10**6 - 1) == []


def test_a_lost_head_is_an_error_unless_accepted(js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name)
    js.fill(stream_name, 100)
    js.api.request(f"STREAM.PURGE.{stream_name}", {"seq": 41})
    with pytest.raises(JetStreamSparkError, match=r"DATA_LOSS.*sequences 1 to 40 \(40 of"):
        read(reader(server.url, stream_name, startingOffsets='{"seq": 1}'))
    accepted = reader(server.url, stream_name, startingOffsets='{"seq": 1}', failOnDataLoss="false")
    assert read(accepted) == list(range(40, 100))


@pytest.mark.parametrize("mode", ["async", "fast"])
def test_two_attempts_at_once_store_each_row_once(js: Js, server: NatsServer, stream_name: str, mode: str) -> None:
    """Speculation: a slow attempt and its copy write the same partition at the same time; one of them is committed."""
    stream = stream_name.replace("[", "_").rstrip("]_")
    js.create(stream, allow_batched=True)
    made = writer(server.url, subject=f"{stream}.x", publishMode=mode)
    with mode_works(server, mode):
        with ThreadPoolExecutor(3) as attempts:
            running = [attempts.submit(made.write, batches(0, 8000, 500)) for _ in range(3)]
            messages = [attempt.result(60) for attempt in running]
        made.commit(messages[:1])
        assert [message.totals.rows for message in messages] == [8000] * 3
        assert sorted(read(reader(server.url, stream, subjects=f"{stream}.x"))) == list(range(8000))


@pytest.mark.parametrize("mode", ["async", "fast"])
def test_plain_rows_get_no_header_block(js: Js, server: NatsServer, stream_name: str, mode: str) -> None:
    stream = stream_name.replace("[", "_").rstrip("]_")
    js.create(stream, allow_batched=True)
    made = writer(server.url, subject=f"{stream}.x", publishMode=mode, deliverySemantics="at-least-once")
    with mode_works(server, mode):
        assert made.write(batches(0, 3000)).totals.rows == 3000
        assert "hdrs" not in js.api.request(f"STREAM.MSG.GET.{stream}", {"seq": 3000})["message"]
        assert read(reader(server.url, stream)) == list(range(3000))


def made_of(query: Any) -> str:
    """When the stream of a query was created, as its offsets say it."""
    ((_, stream),) = query.initialOffset()["s"].items()
    return str(stream["made"])


def test_a_purge_after_a_restart_spares_a_stream_made_anew(js: Js, server: NatsServer, stream_name: str) -> None:
    """The last batch of a run is committed at the next start: its stream may be another one by then."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    def create() -> None:
        js.create(stream_name, retention="workqueue", allow_direct=True)
        js.fill(stream_name, 50)

    create()
    made = stream_reader(server.url, stream_name, ackMode="purge")
    end = made.latestOffset(made.initialOffset(), ReadAllAvailable())
    js.api.request(f"STREAM.DELETE.{stream_name}")
    create()
    again = stream_reader(server.url, stream_name, ackMode="purge")
    again.commit(end)
    assert js.state(stream_name)["messages"] == 50
    again.commit({**end, "s": {stream_name: {**end["s"][stream_name], "made": made_of(again)}}})
    assert js.state(stream_name)["messages"] == 0


def test_large_messages_and_small_pulls(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    js.create(stream_name)
    sizes = [10, 300_000, 20, 100_000, 1, 900_000]
    for size in sizes:
        js.nc.request(f"{stream_name}.x", b"x" * size)
    monkeypatch.setattr("jsclient.arrow.pulling.PULL_BYTES", 64 << 10)
    monkeypatch.setattr("jsclient.spark.reader.BATCH_BYTES", 256 << 10)
    made = reader(server.url, stream_name, readMethod="consumer")
    found = [batch.column("value").to_pylist() for part in made.partitions() for batch in made.read(part)]
    assert [len(value) for values in found for value in values] == sizes
    assert len(found) == 2


@pytest.mark.parametrize(
    "option",
    [{"taskTimeout": "0"}, {"recordsPerPartition": "0"}, {"minPartitions": str(1 << 70)}],
)
def test_limits_that_make_no_sense(option: dict[str, str]) -> None:
    with pytest.raises(JetStreamSparkError, match=f"BAD_OPTION.*{next(iter(option))}"):
        reader("nats://h", "S", **option)


@pytest.mark.timeout(20)  # a refusal is told at once, not when `reconnectTimeout` (60 s) is over
@pytest.mark.parametrize("mode", ["async", "auto"])
def test_fences_of_rows_are_checked_by_the_stream(js: Js, server: NatsServer, stream_name: str, mode: str) -> None:
    from jsclient.spark import publish_partition

    stream = stream_name.replace("[", "_").rstrip("]_")
    js.create(stream, allow_batched=True, allow_msg_ttl=True)
    options = {"servers": server.url, "publishMode": mode}
    rows = [{"subject": f"{stream}.{n}", "value": "1", "expected_last_subject_seq": 0} for n in range(10)]
    assert publish_partition(rows, options, job="a").rows == 10
    with pytest.raises(JetStreamSparkError, match=r"PUBLISH_FAILED.*wrong last sequence"):
        publish_partition(rows[:1], options, job="b")
    assert js.state(stream)["messages"] == 10


def test_a_task_ends_at_its_timeout(js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name)
    with pytest.raises(JetStreamSparkError, match=r"TASK_TIMEOUT.*partition 0.*after 15000 of them.*taskTimeout"):
        writer(server.url, subject=f"{stream_name}.x", taskTimeout="1ms").write(batches(0, 15_000, 15_000))
    js.settle(stream_name, 1)
    with pytest.raises(JetStreamSparkError, match=rf"TASK_TIMEOUT.*'{stream_name}'.*taskTimeout"):
        read(reader(server.url, stream_name, taskTimeout="1ms"))


@pytest.mark.parametrize("place", [1, 8, 50])  # of answers of 50: the first, one in the middle, the last
def test_a_message_lost_on_its_way_to_us_is_asked_for_again(
    js: Js, server: NatsServer, monkeypatch: pytest.MonkeyPatch, place: int, in_portions: Callable[..., None]
) -> None:
    """Direct gets are plain messages: a broken route of a cluster loses some of them without a sign on our link."""
    stream = f"direct_{place}"
    js.create(stream, allow_direct=True)
    js.fill(stream, 100)
    lost: list[Any] = []
    real = AnswerSink.deliver

    def deliver(self: Any, messages: list[Any], nbytes: int) -> None:
        for message in messages:
            if not lost and b"\r\nNats-Sequence: %d\r\n" % place in (message.raw_headers or b""):
                lost.append(message)
                messages = [other for other in messages if other is not message]
        real(self, messages, nbytes)

    monkeypatch.setattr(AnswerSink, "deliver", deliver)
    in_portions(10_000, 50)
    with refused_before(server, (2, 11), "DIRECT_UNAVAILABLE"):
        assert read(reader(server.url, stream, readMethod="direct")) == list(range(100))
        assert lost


def test_filters_need_not_lie_within_the_subjects_of_the_stream(js: Js, server: NatsServer) -> None:
    """Before 2.10 servers refuse such filters."""
    js.create("narrow", subjects=["narrow.*.x"])
    js.fill("narrow", 100, subject=lambda number: f"narrow.{number % 2}.x")
    for subject, wanted in (
        ("narrow.>", range(100)),
        ("narrow.1.*", range(1, 100, 2)),
        ("*.0.>", range(0, 100, 2)),
        ("other.x", ()),
    ):
        assert read(reader(server.url, "narrow", subjects=subject, readMethod="consumer")) == list(wanted)
