"""Offsets, ranges, admission, ids, Arrow batches. No JVM, no server."""

from __future__ import annotations

import json
from types import SimpleNamespace

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsclient.arrow.ranges import StreamState
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.ids import ContentIds, key_of
from jsclient.spark.offsets import Offset, StreamOffset, shape_of, start_of
from jsclient.spark.options import WRITE, SparkOptions, parse
from jsclient.spark.planner import Limits, Load, check_head, cut, share

PART = StreamOffset("2026-01-01T00:00:00Z", 90, start=5, parts=3, mark=(89, 1795318963220001234), soft=True)
OFFSET = Offset({"S": PART}, id="q", shape="0123456x")


KEY = key_of("q", 1)


def state(first: int = 1, last: int = 100, **more: object) -> StreamState:
    fields: dict[str, object] = {"name": "S", "created": "c", "messages": last - first + 1, "bytes": 0, **more}
    return StreamState(first=first, last=last, **fields)  # type: ignore[arg-type]


def test_offsets_keep_their_text() -> None:
    text = (
        '{"v":2,"id":"q","shape":"0123456x","s":{"S":{"made":"2026-01-01T00:00:00Z","from":5,"next":90,'
        '"mark":[89,1795318963220001234],"soft":true}},"plan":{"S":3}}'
    )
    assert json.dumps(OFFSET.to_dict(), separators=(",", ":")) == text
    assert Offset.from_dict(json.loads(text)) == OFFSET
    by_subject = Offset({"S": attrs.evolve(PART, by_subject=True, mark=None, soft=False)}, id="q")
    assert by_subject.to_dict()["plan"] == {"S": ["subject", 3]}
    assert Offset.from_dict(json.loads(json.dumps(by_subject.to_dict()))) == by_subject


def test_offsets_of_many_streams_keep_their_text() -> None:
    resting = PART.resting()
    assert resting == StreamOffset(PART.made, 90, start=90, mark=PART.mark)
    assert StreamOffset("c", 7, start=7, soft=True).resting().soft, "nothing was promised yet"
    many = Offset({"T": resting, "S": PART, "R": attrs.evolve(PART, soft=False, mark=None)}, id="q", shape="x")
    text = json.dumps(many.to_dict())
    assert list(json.loads(text)["s"]) == ["R", "S", "T"]
    assert json.loads(text)["plan"] == {"R": 3, "S": 3}
    assert Offset.from_dict(json.loads(text)) == many
    assert json.dumps(Offset.from_dict(json.loads(text)).to_dict()) == text
    assert Offset.from_dict(Offset({}, id="q").to_dict()) == Offset({}, id="q")
    cuts = Offset({"S": attrs.evolve(PART, cuts=(20, 70))}, id="q")
    assert cuts.to_dict()["plan"] == {"S": [20, 70]}
    assert Offset.from_dict(cuts.to_dict()) == cuts


FIRST = {"v": 1, "stream": "S", "created": "c", "base": 700, "seq": 791, "parts": 4}


def test_offsets_of_the_first_version_are_read() -> None:
    (old,) = Offset.from_dict(FIRST).streams.values()
    assert (old.made, old.next, old.parts, old.start, old.base) == ("c", 791, 4, None, 700)
    assert start_of(Offset.from_dict({**FIRST, "seq": 750}).streams["S"], old) == 750
    # after a crash in batch 0 the initial offset is evaluated again, by this version
    assert start_of(StreamOffset("c", 797, start=797), old) == 700
    assert start_of(None, old) == 700
    assert Offset.from_dict(FIRST).to_dict()["v"] == 2


@pytest.mark.parametrize(
    ("value", "token"),
    [
        ({**OFFSET.to_dict(), "v": 3}, "OFFSET_VERSION"),
        ({**OFFSET.to_dict(), "v": None}, "OFFSET_VERSION"),
        ({**OFFSET.to_dict(), "s": {}}, "OFFSET_VERSION"),
        ({**OFFSET.to_dict(), "s": {"S": {"made": "c", "from": 1, "next": "9"}}}, "OFFSET_VERSION"),
        ({**OFFSET.to_dict(), "s": {"S": {"made": "c", "from": 1, "next": 1 << 63}}}, "OFFSET_VERSION"),
        ({**OFFSET.to_dict(), "plan": {"S": 0}}, "OFFSET_VERSION"),
        ({**OFFSET.to_dict(), "plan": {"S": ["other", 1]}}, "OFFSET_VERSION"),
        ({**OFFSET.to_dict(), "plan": {"S": [20, 20]}}, "OFFSET_VERSION"),
        ({**OFFSET.to_dict(), "plan": {"S": [20, 90]}}, "OFFSET_VERSION"),
        ({**OFFSET.to_dict(), "plan": {"S": []}}, "OFFSET_VERSION"),
        ({**OFFSET.to_dict(), "plan": {"T": 1}}, "OFFSET_VERSION"),
        ({**OFFSET.to_dict(), "s": {"T": {"made": "c", "from": 1, "next": 9}}}, "OFFSET_VERSION"),
        ({**FIRST, "seq": "9"}, "OFFSET_VERSION"),
        ({**FIRST, "parts": 0}, "OFFSET_VERSION"),
    ],
)
def test_strange_offsets_are_refused(value: dict[str, object], token: str) -> None:
    with pytest.raises(JetStreamSparkError, match=f"JETSTREAM_{token}"):
        Offset.from_dict(value)


def test_a_replayed_batch_0_begins_where_the_first_attempt_began() -> None:
    reevaluated = StreamOffset("c", 797, start=797)
    assert start_of(reevaluated, StreamOffset("c", 791, start=700)) == 700


def test_the_shape_tells_which_option_was_changed() -> None:
    plain = shape_of((), "seq")
    assert plain == shape_of((), "seq")
    assert shape_of(("a", "b"), "seq") == shape_of(("b", "a"), "seq") != plain
    assert shape_of((), "subject")[:-1] == plain[:-1]
    assert shape_of((), "subject") != plain


@given(st.integers(0, 10**12), st.integers(0, 10**6), st.integers(1, 300))
def test_cut_covers_the_span_without_holes(start: int, span: int, parts: int) -> None:
    ranges = cut(start, start + span, parts)
    assert len(ranges) == min(parts, span)
    assert all(a < b for a, b in ranges)
    assert [b for _, b in ranges[:-1]] == [a for a, _ in ranges[1:]]
    if ranges:
        assert (ranges[0][0], ranges[-1][1]) == (start, start + span)
        sizes = [b - a for a, b in ranges]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("span", "expected"), [(0, 0), (1, 1), (100_000, 2), (250_000, 3), (10**9, 200)])
def test_number_of_partitions(span: int, expected: int) -> None:
    assert Limits(100_000, 2, 200).count(Load(span, span, 0)) == expected


def loads(*spans: int, nbytes: int = 0) -> list[Load]:
    return [Load(span, span, nbytes) for span in spans]


def test_partitions_of_many_streams() -> None:
    limits = Limits(100, 1, 10)
    assert limits.spread(loads(250, 0, 100, 1)) == [3, 0, 1, 1]
    assert limits.spread([]) == []
    # more than maxPartitions: where a partition has most to read; but every stream has one
    assert limits.spread(loads(1000, 2000, 10)) == [3, 6, 1]
    assert limits.spread(loads(*[1000] * 12)) == [1] * 12
    # fewer than minPartitions
    assert Limits(100, 8, 10).spread(loads(90, 30, 2)) == [5, 2, 1]
    assert Limits(100, 8, 10).spread(loads(2, 1)) == [2, 1]
    # by bytes
    assert Limits(100, 1, 10, 1000).spread(loads(50, 50, nbytes=3500)) == [4, 4]


@given(st.lists(st.integers(0, 10**7), max_size=20), st.integers(1, 300), st.integers(1, 300))
def test_partitions_of_many_streams_keep_to_the_bounds(spans: list[int], least: int, most: int) -> None:
    least, most = min(least, most), max(least, most)
    parts = Limits(1000, least, most).spread(loads(*spans))
    busy = sum(1 for span in spans if span)
    assert all((count > 0) == (span > 0) and count <= span for count, span in zip(parts, spans, strict=True))
    assert sum(parts) <= max(most, busy)
    assert sum(parts) >= min(least, sum(spans))


def test_a_limit_is_shared() -> None:
    assert share([5, 100, 1], None) == [None, None, None]
    assert share([5, 100, 1], 106) == [None, None, None]
    assert share([5, 100, 1], 50) == [5, 44, 1]
    assert share([100, 100, 100], 50) == [16, 17, 17]
    assert share([7, 7, 7], 2) == [1, 1, 0]
    assert share([], 2) == []


def test_lost_heads_are_named_with_their_range() -> None:
    assert check_head(state(first=5), 5, 10, fail=True) == (5, "")
    assert check_head(state(first=50), 10, 10, fail=True) == (10, "")
    with pytest.raises(JetStreamSparkError, match=r"DATA_LOSS.*'S'.*10 to 49 \(40 of the range \[10, 80\)\)"):
        check_head(state(first=50), 10, 80, fail=True)
    start, warning = check_head(state(first=50), 10, 80, fail=False)
    assert start == 50
    assert "10 to 49" in warning
    assert check_head(state(first=500), 10, 80, fail=False)[0] == 80


def test_ids_are_the_same_in_any_order_and_tell_equal_rows_apart() -> None:
    rows = [(b"s", b"", b"a"), (b"s", b"", b"b"), (b"s", b"", b"a"), (b"s", b"a", b""), (b"sa", b"", b"")]
    one, other = ContentIds(KEY, "0"), ContentIds(KEY, "0")
    ids = [one.next(*row) for row in rows]
    assert len(set(ids)) == len(rows)
    assert set(ids) == {other.next(*row) for row in reversed(rows)}
    assert set(ids).isdisjoint({ContentIds(KEY, "1").next(*row) for row in rows})
    assert all(len(each.split(b".")[0]) == 20 for each in ids)


def test_ids_depend_on_the_whole_of_query_and_batch() -> None:
    row = (b"s", b"", b"a")
    keys = [key_of("12345678-a", 1), key_of("12345678-b", 1), key_of("12345678-a", 11), key_of("12345678-a1", 1)]
    assert len({ContentIds(key, "0").next(*row) for key in keys}) == 4


def test_ids_of_many_rows_are_those_of_single_ones() -> None:
    one, other = ContentIds(KEY, "0"), ContentIds(KEY, "0")
    for subjects, values in (
        ([b"a", b"b", b"a"], [b"1", b"1", b"2"]),
        ([b"a", b"a", b"a"], [b"3", b"3", b"1"]),  # equal ones within the batch, and one of the batch before
        ([], []),
    ):
        single = [other.next(subject, b"", value) for subject, value in zip(subjects, values, strict=True)]
        assert one.plain(subjects, values) == single


def chunk(first: int, payloads: list[bytes], headers: list[bytes | None] | None = None) -> SimpleNamespace:
    n = len(payloads)
    return SimpleNamespace(
        subjects=[b"a.%d" % i for i in range(n)],
        sequences=list(range(first, first + n)),
        timestamps=[1_700_000_000_123_456_789 + i for i in range(n)],
        headers=headers,
        payloads=payloads,
    )


@pytest.mark.spark
def test_batches_are_what_spark_expects() -> None:
    from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructType

    from jsclient.arrow.columns import BatchBuilder
    from jsclient.spark.schema import check_source, schema_of

    headers = MapType(StringType(), ArrayType(StringType()))
    schema = StructType().add("stream", "string").add("subject", "string").add("seq", "long")
    schema = schema.add("timestamp", "timestamp").add("headers", headers).add("value", "binary")
    schema = schema.add("timestamp_ns", LongType()).add("size", "integer")
    builder = BatchBuilder("S", check_source(schema), schema_of(schema), 4, 1000)
    assert list(builder.add(chunk(1, [b"x", b"yy"]), 3)) == []
    block = b"NATS/1.0\r\nA: 1\r\nB:2\r\nA: 3\r\n\r\n"
    (batch,) = builder.add(chunk(3, [b"", b"z"], [None, block]), 1)
    assert batch.schema.equals(schema_of(schema))
    batch.validate(full=True)
    rows = batch.to_pylist()
    assert [r["value"] for r in rows] == [b"x", b"yy", b"", b"z"]
    assert [r["size"] for r in rows] == [1, 2, 0, 1]
    assert [r["seq"] for r in rows] == [1, 2, 3, 4]
    assert rows[0]["subject"] == "a.0"
    assert rows[0]["stream"] == "S"
    assert rows[0]["timestamp_ns"] == 1_700_000_000_123_456_789
    assert rows[0]["timestamp"].microsecond == 123_456
    assert [r["headers"] for r in rows[:3]] == [None] * 3
    assert rows[3]["headers"] == [("A", ["1", "3"]), ("B", ["2"])]
    assert list(builder.finish()) == []


@pytest.mark.spark
def test_batches_are_flushed_by_bytes_and_subjects_need_not_be_utf8() -> None:
    from pyspark.sql.types import StructType

    from jsclient.arrow.columns import BatchBuilder
    from jsclient.spark.schema import schema_of

    schema = StructType().add("subject", "string").add("value", "binary")
    builder = BatchBuilder("S", ["subject", "value"], schema_of(schema), 1000, 10)
    big = chunk(1, [b"0123456789"])
    big.subjects = [b"caf\xe9"]
    (batch,) = builder.add(big, 10)
    assert batch.to_pylist() == [{"subject": "caf\ufffd", "value": b"0123456789"}]


@pytest.mark.spark
@pytest.mark.parametrize(("name", "kind"), [("nonsense", "string"), ("seq", "string"), ("value", "string")])
def test_columns_the_source_does_not_have(name: str, kind: str) -> None:
    from pyspark.sql.types import StructType

    from jsclient.spark.schema import check_source

    with pytest.raises(JetStreamSparkError, match="SCHEMA_MISMATCH"):
        check_source(StructType().add(name, kind))


@pytest.mark.spark
def test_columns_of_the_sink() -> None:
    from pyspark.sql.types import StructType

    from jsclient.spark.schema import check_sink

    value = StructType().add("value", "string")

    def options(**given: str) -> SparkOptions:
        return parse({"servers": "nats://h", **given}, WRITE)

    check_sink(value, options(subject="orders.new"))
    with pytest.raises(JetStreamSparkError, match="option 'subject'"):
        check_sink(value, options())
    with pytest.raises(JetStreamSparkError, match="no column 'key'"):
        check_sink(value.add("key", "string"), options(subject="x"))
    with pytest.raises(JetStreamSparkError, match="needs a column 'msg_id'"):
        check_sink(StructType().add("value", "string"), options(subject="x", messageId="column"))
