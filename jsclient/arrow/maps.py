"""Arrow maps as every pyarrow from 11 on can make and read them; Spark 3.5 and 4.0 clusters have old ones."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def map_array(offsets: pa.Array, keys: pa.Array, items: pa.Array, kind: pa.DataType) -> pa.Array:
    """`MapArray.from_arrays(offsets, keys, items, type=kind)`, which needs pyarrow 15; a null offset is a null map."""
    plain = pa.MapArray.from_arrays(offsets, keys, items)
    fields = [pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)]
    entries = pa.StructArray.from_arrays([keys, items], fields=fields)
    return pa.Array.from_buffers(kind, len(plain), plain.buffers()[:2], children=[entries])


def to_pylist(column: pa.Array) -> list[Any]:
    """`to_pylist(maps_as_pydicts="strict")`, which needs pyarrow 18.1: maps become dicts at every depth."""
    values = column.to_pylist()
    return [_plain(value, column.type) for value in values] if _holds_map(column.type) else values


def _holds_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    if pa.types.is_struct(kind):
        return any(_holds_map(kind[i].type) for i in range(kind.num_fields))
    return _is_list(kind) and _holds_map(kind.value_type)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _plain(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {key: _plain(item, kind.item_type) for key, item in value}
    if pa.types.is_struct(kind):
        fields = (kind[i] for i in range(kind.num_fields))
        return {field.name: _plain(value[field.name], field.type) for field in fields}
    return [_plain(item, kind.value_type) for item in value] if _is_list(kind) else value
