"""Documents to Arrow columns and back: what fits is exact, what does not fit is bad, never guessed."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from typing import Any

import msgspec
import pytest

pa = pytest.importorskip("pyarrow")

from jsclient.arrow import formats  # noqa: E402
from jsclient.arrow.formats import DocumentDecoder, Unsupported, encode_columns, encode_values  # noqa: E402

UTC = dt.timezone.utc
NESTED = pa.struct([("a", pa.int32()), ("more", pa.list_(pa.struct([("b", pa.string())])))])
ONLY_JSON = [
    pa.field("ratio", pa.float32()),
    pa.field("ratios", pa.list_(pa.float32())),
    pa.field("wall", pa.timestamp("us")),
]
FIELDS: list[tuple[str, Any, list[Any]]] = [
    ("id", pa.int64(), [1, -(2**63), None]),
    ("small", pa.int8(), [127, -128, None]),
    ("price", pa.float64(), [1.5, 2.0, None]),
    ("ok", pa.bool_(), [True, False, None]),
    ("name", pa.string(), ["é", "", None]),
    ("raw", pa.binary(), [b"\x00\xff", b"", None]),
    ("at", pa.timestamp("us", tz="UTC"), [dt.datetime(2026, 1, 2, 3, 4, 5, 678, UTC)] * 2 + [None]),
    ("day", pa.date32(), [dt.date(2026, 1, 2), dt.date(1969, 1, 1), None]),
    ("sum", pa.decimal128(10, 2), [decimal.Decimal("12.34"), decimal.Decimal("-1.00"), None]),
    ("tags", pa.list_(pa.string()), [["x", None], [], None]),
    ("map", pa.map_(pa.string(), pa.int64()), [[("k", 1)], [], None]),
    ("nested", NESTED, [{"a": 1, "more": [{"b": "x"}, None]}, {"a": None, "more": None}, None]),
    ("in lists", pa.list_(NESTED), [[{"a": 1, "more": []}, None], [], None]),
]


@pytest.mark.parametrize("kind", formats.FORMATS)
def test_there_and_back(kind: str) -> None:
    fields = [pa.field(name, type_) for name, type_, _ in FIELDS]
    columns = [pa.array(values, type_) for _, type_, values in FIELDS]
    documents = encode_columns(kind, [field.name for field in fields], columns)
    decoded = DocumentDecoder(kind, fields).decode(documents)
    assert not decoded.bad
    for column, back in zip(columns, decoded.columns, strict=True):
        back.validate(full=True)
        assert back.equals(column), (column, back)
    assert (json.loads if kind == "json" else msgspec.msgpack.decode)(documents[2]) == {}  # nulls are left out


@pytest.mark.parametrize("kind", formats.FORMATS)
@pytest.mark.parametrize(("name", "type_", "values"), FIELDS)
def test_whole_documents(kind: str, name: str, type_: Any, values: list[Any]) -> None:
    column = pa.array(values, type_)
    documents = encode_values(kind, column)
    assert documents[2] is None
    decoded = DocumentDecoder(kind, [pa.field("value", type_)], whole=True).decode([d or b"" for d in documents])
    assert list(decoded.bad) == [2]  # an empty payload is no document
    assert decoded.columns[0].equals(column)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"null",
        b"[]",
        b"7",
        b'{"id": 1',
        b'{"id": 1}{"id": 2}',
        b'{"id": "1"}',
        b'{"id": 1.5}',
        b'{"id": 9223372036854775808}',
        b'{"small": 128}',
        b'{"name": "\xff"}',
        b'{"name": 1}',
        b'{"at": "yesterday"}',
        b'{"wall": "2026-01-02T03:04:05Z"}',
        b'{"ratio": 3.5e38}',
        b'{"ratios": [1, -1e39]}',
        b'{"sum": "12.345"}',
        b'{"sum": 1e30}',
        b'{"raw": "?"}',
        b'{"tags": "x"}',
        b'{"nested": {"a": 2147483648}}',
        b'{"nested": ' * 5000,
    ],
)
def test_bad_documents_are_alone(document: bytes) -> None:
    fields = [pa.field(name, type_) for name, type_, _ in FIELDS] + ONLY_JSON
    good = b'{"id": 5, "unknown": {"x": [1]}}'
    decoded = DocumentDecoder("json", fields).decode([good, document, good])
    assert list(decoded.bad) == [1]
    assert decoded.bad[1]
    assert decoded.columns[0].to_pylist() == [5, None, 5]
    for column in decoded.columns:
        column.validate(full=True)


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("2025-12-31T23:59:59.9999999Z", "2025-12-31T23:59:59.999999+00:00"),
        ("2025-12-31T23:59:59.999999999+05:30", "2025-12-31T23:59:59.999999+05:30"),
        ("2025-12-31 23:59:59.1234567", "2025-12-31T23:59:59.123456+00:00"),
        ("2025-12-31T23:59:59.1+05:30", "2025-12-31T23:59:59.100000+05:30"),
    ],
)
def test_times_are_cut_to_microseconds(text: str, exact: str) -> None:
    at = pa.timestamp("us", tz="UTC")
    fields = [pa.field("at", at), pa.field("all", pa.list_(at)), pa.field("text", pa.string())]
    decoded = DocumentDecoder("json", fields).decode([json.dumps({"at": text, "all": [text], "text": text}).encode()])
    assert not decoded.bad
    expected = dt.datetime.fromisoformat(exact)
    assert [column[0].as_py() for column in decoded.columns] == [expected, [expected], text]


def test_many_bad_documents_of_both_kinds() -> None:
    """Some are refused by msgspec, and some only by the column."""
    fields = [pa.field("id", pa.int64()), pa.field("sum", pa.decimal128(4, 2)), pa.field("f", pa.float32())]
    kinds = [b'{"id": 1}', b'{"id": 2, "sum": 1.234}', b'{"id": "x"}', b'{"id": 4, "f": 1e300}', b'{"id": 5, "sum": 1}']
    decoded = DocumentDecoder("json", fields).decode(kinds * 7)
    assert list(decoded.bad) == [number for number in range(35) if number % 5 in (1, 2, 3)]
    assert decoded.columns[0].to_pylist() == [1, None, None, None, 5] * 7
    assert "data loss" in decoded.bad[1]
    assert "out of the range" in decoded.bad[3]


def test_documents_do_not_run_into_each_other() -> None:
    """Two halves and a double: joined they would be as many documents as there are messages."""
    decoder = DocumentDecoder("json", [pa.field("a", pa.int64()), pa.field("b", pa.int64())])
    decoded = decoder.decode([b'{"a":1', b'"b":2}', b'{"a":3},{"a":4}'])
    assert sorted(decoded.bad) == [0, 1, 2]


@pytest.mark.parametrize("type_", [pa.uint64(), pa.duration("s"), pa.map_(pa.int32(), pa.int32()), pa.null()])
def test_types_that_documents_do_not_have(type_: Any) -> None:
    with pytest.raises(Unsupported, match="'outer.x'"):
        DocumentDecoder("json", [pa.field("outer", pa.struct([("x", type_)]))])
    with pytest.raises(Unsupported, match="two fields"):
        DocumentDecoder("json", [pa.field("x", pa.int32())] * 2)
