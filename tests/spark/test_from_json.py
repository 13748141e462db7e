"""The table of the page on JSON types: the same values through `valueFormat=json` and through Spark's `from_json`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import Js

from jsclient.jetstream import JetStream
from jsclient.spark.versions import running

PAGE = Path(__file__).parents[2] / "tools" / "docs" / "pages" / "json-types.md"
ROW = re.compile(r"^\| (\S+) \| `(.+?)` \| (.+?) \| (.+?) \|$", re.MULTILINE)
ROWS = ROW.findall(PAGE.read_text(encoding="utf-8"))
CORRUPT = "_corrupt string"
SHOWN = {"binary": "hex(a)", "array": "to_json(a)", "map": "to_json(a)", "struct": "to_json(a)"}


def answers(frame: Any, kind: str) -> list[str]:
    """The cells of a table: a value, null, or bad."""
    shown = SHOWN.get(re.split(r"\W", kind)[0], "cast(a AS string)")
    found = frame.orderBy("seq").selectExpr(f"{shown} AS shown", "_corrupt IS NOT NULL AS bad").collect()
    return ["bad" if row.bad else "null" if row.shown is None else f"`{row.shown}`" for row in found]


@pytest.mark.skipif(running()[1] < (4, 3), reason="the page shows the answers of Spark 4.3")
@pytest.mark.parametrize("kind", dict.fromkeys(kind for kind, *_ in ROWS))
def test_answers(kind: str, js: Js, reading: Callable[..., Any], stream_name: str) -> None:
    js.create(stream_name)
    stream = JetStream(js.nc)
    table = [row[1:] for row in ROWS if row[0] == kind]
    for value, *_ in table:
        stream.publish(f"{stream_name}.x", f'{{"a": {value}}}'.encode())
    ours = reading(stream_name, f"seq bigint, a {kind}, {CORRUPT}", valueFormat="json", badRecords="null")
    parse = f"from_json(cast(value AS string), 'a {kind}, {CORRUPT}', map('columnNameOfCorruptRecord', '_corrupt'))"
    theirs = reading(stream_name, "seq bigint, value binary").selectExpr("seq", f"{parse} AS d").select("seq", "d.*")
    found = list(zip((value for value, *_ in table), answers(theirs, kind), answers(ours, kind), strict=True))
    same = [(value, one, "same" if one == other else other) for value, one, other in found]
    assert same == table


def test_every_type_is_in_the_table() -> None:
    kinds = {re.split(r"\W", kind)[0] for kind, *_ in ROWS}
    numbers = {"boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal"}
    assert kinds == numbers | {"string", "binary", "timestamp", "timestamp_ntz", "date", "array", "map", "struct"}
