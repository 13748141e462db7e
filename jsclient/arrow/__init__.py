"""Ranges of streams as Arrow tables and back, for notebooks, pandas, polars and DuckDB (extra: arrow).

    from jsclient import arrow

    table = arrow.read_table(js, "ORDERS")                         # all messages stored so far
    more = arrow.read_table(js, "ORDERS", after=table)             # messages that came since
    with arrow.read_batches(js, "ORDERS", columns=["seq", "value"]) as batches:
        for batch in batches: ...
    arrow.write_table(js, table.select(["subject", "value"]))

The same machinery reads for `jsclient.spark`. The README.md of this folder explains everything.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsclient.arrow.tables import ReadArguments, read_batches, read_table
    from jsclient.arrow.writing import Written, write_table

__all__ = ["ReadArguments", "Written", "read_batches", "read_table", "write_table"]

# Loaded when first used, because code that reads without columns does not need pyarrow.
_HOMES = {
    "ReadArguments": "tables",
    "Written": "writing",
    "read_batches": "tables",
    "read_table": "tables",
    "write_table": "writing",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'jsclient.arrow' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"jsclient.arrow.{home}"), name)
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise ImportError('jsclient.arrow needs pyarrow: pip install "jsclient[arrow]"') from error
