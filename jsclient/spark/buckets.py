"""Options, schemas and errors that the formats `jetstream-kv` and `jetstream-objects` share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import attrs

from jsclient import errors
from jsclient.keyvalue.keys import check_bucket, check_filter
from jsclient.spark import options as known
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.options import SparkOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

CONNECTING: Final = {
    *("servers", "domain", "apiprefix", "credentialsfile", "nkeyseedfile", "credentialsprovider", "user", "password"),
    *("token", "nkeysecret", "credentialssecret", "tls.cafile", "tls.certfile", "tls.keyfile", "tls.first"),
    *("inboxprefix", "reconnecttimeout", "tasktimeout"),
}
"""Options of `jetstream` that every format has."""

KV_ROOT: Final = "KV_"
"""The prefix of the name of a key-value bucket's stream."""


@attrs.frozen(kw_only=True)
class BucketOptions:
    """The options of a bucket, in addition to the options of its stream."""

    stream: SparkOptions
    bucket: str
    keys: tuple[str, ...] = ()
    history: bool = False
    skip_conflicts: bool = False


def parse(given: Mapping[str, str], way: str, root: str, own: set[str], streams: set[str]) -> BucketOptions:
    """The options for one use of a bucket. `own` are options of buckets, `streams` options that its stream may have,
    too.

    `root` is the prefix of the name of a bucket's stream.
    """
    options = {name.lower(): value for name, value in given.items()}
    path = options.pop("path", None)
    bucket = options.get("bucket") or path
    if not bucket:
        raise JetStreamSparkError("JETSTREAM_MISSING_OPTION", "a bucket is needed, for example load('settings')")
    mine = {name: options.pop(name) for name in {"bucket", *own} if name in options}
    for name in options:
        known.refuse_removed(name, "JETSTREAM_UNKNOWN_OPTION")
        if name not in CONNECTING | streams | known.SPARKS_OWN:
            raise JetStreamSparkError(
                "JETSTREAM_UNKNOWN_OPTION",
                f"{name!r} is not an option of buckets; there are {', '.join(sorted({'bucket', *own, *streams}))} and "
                "those of connections",
            )
    keys = tuple(key.strip() for key in mine.get("keys", "").split(",") if key.strip())
    try:
        check_bucket(bucket)
        for key in keys:
            check_filter(key)
    except ValueError as error:
        raise JetStreamSparkError("JETSTREAM_BAD_OPTION", errors.brief(error)) from None
    if way in (known.READ, known.READ_STREAM):
        options["stream"] = f"{root}{bucket}"
        if keys:
            options["subjects"] = ",".join(f"$KV.{bucket}.{key}" for key in keys)
    stream = known.parse(options, way)
    return BucketOptions(
        stream=attrs.evolve(stream, compacted=True),
        bucket=bucket,
        keys=keys,
        history=_word(mine, "mode", "latest", "history"),
        skip_conflicts=_word(mine, "onconflict", "fail", "skip"),
    )


def sink_options(given: Mapping[str, str], way: str) -> BucketOptions:
    """The options of the sink of a key-value bucket."""
    return parse(given, way, KV_ROOT, {"onconflict"}, {"deliverysemantics", "journal"})


def _word(given: Mapping[str, str], name: str, first: str, second: str) -> bool:
    """True if an option has its second word; the first one is the default."""
    value = given.get(name, first).lower()
    if value not in (first, second):
        raise JetStreamSparkError("JETSTREAM_BAD_OPTION", f"option {name!r} must be {first} or {second}, got {value!r}")
    return value == second


def check_columns(
    schema: StructType, columns: Mapping[str, tuple[str, ...]], needed: tuple[str, ...] = ()
) -> list[str]:
    """The names of a schema. Each must be in `columns` with one of its types, and all `needed` ones must be present."""
    for field in schema.fields:
        allowed = columns.get(field.name)
        kind = field.dataType.simpleString()
        if allowed is None or kind not in allowed:
            what = f"is {' or '.join(allowed)}, not {kind}" if allowed else f"is none of {', '.join(columns)}"
            raise JetStreamSparkError("JETSTREAM_SCHEMA_MISMATCH", f"column {field.name!r} {what}")
    names = [field.name for field in schema.fields]
    missing = [name for name in needed if name not in names] or ([] if names else list(columns)[:1])
    if missing:
        raise JetStreamSparkError("JETSTREAM_SCHEMA_MISMATCH", f"there is no column {missing[0]!r}")
    return names


@contextmanager
def named_errors(options: SparkOptions, token: str, what: str) -> Iterator[None]:
    """Turn errors of the library into JetStreamSparkError."""
    try:
        yield
    except errors.BucketNotFound as error:
        raise JetStreamSparkError("JETSTREAM_STREAM_NOT_FOUND", options.hide(errors.brief(error))) from error
    except errors.JsClientError as error:
        raise JetStreamSparkError(
            token, options.hide(f"{what}: {type(error).__name__}: {errors.brief(error)}")
        ) from error
