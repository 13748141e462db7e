"""The columns of the source and of the sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from jsclient.spark.errors import JetStreamSparkError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from jsclient.spark.options import SparkOptions

DEFAULT_COLUMNS: Final = {
    "stream": "string",
    "subject": "string",
    "seq": "bigint",
    "timestamp": "timestamp",
    "headers": "map<string,array<string>>",
    "value": "binary",
}
EXTRA_COLUMNS: Final = {"timestamp_ns": "bigint", "size": "int", "reply": "string"}
SOURCE_COLUMNS: Final = {**DEFAULT_COLUMNS, **EXTRA_COLUMNS}
KV_COLUMNS: Final = {
    "bucket": "string",
    "key": "string",
    "value": "binary",
    "revision": "bigint",
    "time": "timestamp",
    "operation": "string",
}
TEXTS: Final = ("string", "binary")
SOURCE_DDL: Final = ", ".join(f"{name} {kind}" for name, kind in DEFAULT_COLUMNS.items())

# Columns of the sink and the types each may have.
SINK_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "subject": ("string",),
    "value": ("binary", "string"),
    "headers": ("map<string,string>", "map<string,array<string>>"),
    "msg_id": ("string",),
    "expected_last_subject_seq": ("bigint", "int"),
    "expected_last_seq": ("bigint", "int"),
    "ttl": ("string", "int", "bigint"),
}


def check_source(schema: StructType, options: SparkOptions | None = None) -> list[str]:
    """The names of the columns to deliver, in order. Raises JETSTREAM_SCHEMA_MISMATCH for unknown columns."""
    names: list[str] = []
    documents = options is not None and options.value_format != "binary"
    columns = KV_COLUMNS if options is not None and options.compacted else SOURCE_COLUMNS
    for field in schema.fields:
        if (documents and field.name not in SOURCE_COLUMNS) or (documents and field.name == "value"):
            names.append(field.name)
            continue
        wanted = columns.get(field.name)
        if wanted is None:
            raise JetStreamSparkError(
                "JETSTREAM_SCHEMA_MISMATCH",
                f"the source has no column {field.name!r}; it has {', '.join(columns)}: choose among them "
                "in .schema(), and compute others with select",
            )
        if field.dataType.simpleString() != wanted:
            raise JetStreamSparkError(
                "JETSTREAM_SCHEMA_MISMATCH",
                f"column {field.name!r} is {wanted}, not {field.dataType.simpleString()}; cast it after loading",
            )
        names.append(field.name)
    if not names:
        raise JetStreamSparkError(
            "JETSTREAM_SCHEMA_MISMATCH", "the schema has no columns; choose at least one, for example seq bigint"
        )
    return names


def needs_payloads(columns: list[str], options: SparkOptions) -> bool:
    """True if a column is made of the payloads. A bucket is read in full, because its markers are small."""
    return "value" in columns or options.value_format != "binary" or options.compacted


def check_sink(schema: StructType, options: SparkOptions) -> None:
    """Refuse a DataFrame that the sink cannot publish; the text of JETSTREAM_SCHEMA_MISMATCH tells you what to do."""
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    documents = options.value_format != "binary"
    inside = [name for name in types if name not in SINK_COLUMNS]
    for name, kind in types.items():
        allowed = SINK_COLUMNS.get(name)
        if documents and (allowed is None or name == "value"):
            continue
        if allowed is None:
            raise JetStreamSparkError(
                "JETSTREAM_SCHEMA_MISMATCH",
                f"the sink takes no column {name!r}; it takes {', '.join(SINK_COLUMNS)}: select and rename, for "
                'example df.selectExpr("\'orders.new\' AS subject", "to_json(struct(*)) AS value")',
            )
        if kind not in allowed:
            raise JetStreamSparkError(
                "JETSTREAM_SCHEMA_MISMATCH", f"column {name!r} must be {' or '.join(allowed)}, not {kind}; cast it"
            )
    if documents and ("value" in types) == bool(inside):
        raise JetStreamSparkError(
            "JETSTREAM_SCHEMA_MISMATCH",
            f"with valueFormat={options.value_format} the document is either the column 'value' or the columns beside "
            f"{', '.join(SINK_COLUMNS)}; there are {', '.join(types)}",
        )
    if not documents and "value" not in types:
        raise JetStreamSparkError("JETSTREAM_SCHEMA_MISMATCH", "the sink needs a column 'value' (binary or string)")
    if "subject" not in types and options.subject is None:
        raise JetStreamSparkError(
            "JETSTREAM_MISSING_OPTION", "there is no column 'subject', so the option 'subject' is needed"
        )


def schema_of(spark_schema: Any) -> pa.Schema:
    """The Arrow schema Spark checks the first batch against (types, order, nullability)."""
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return to_arrow_schema(spark_schema, timezone="UTC")
    except TypeError:  # PySpark before 4.2: always UTC
        return to_arrow_schema(spark_schema)
