"""Records in key-value buckets for people and tools: the committed offset of a query, and each of its batches.

The buckets must exist, because creating one needs permissions that a data pipeline should not have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jsclient import errors
from jsclient.arrow.access import StreamAccess
from jsclient.exactly.sending import context
from jsclient.spark.errors import JetStreamSparkError

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.spark.options import SparkOptions


def put_progress(nc: Connection, options: SparkOptions, bucket: str, key: str, value: bytes) -> None:
    """Store a value under `key`. Repeats the put until it is certain; the newest value wins."""
    from jsclient.keyvalue import KeyValue

    access, kv = StreamAccess(nc, options, f"KV_{bucket}"), KeyValue(context(nc, options), bucket)

    def put() -> None:
        try:
            kv.put(key, value)
        except errors.UnknownOutcome as error:
            raise errors.RequestTimeout(errors.brief(error)) from error

    try:
        access.retrying(f"writing bucket {bucket!r}", put)
    except JetStreamSparkError as error:
        if isinstance(error.__cause__, (errors.NoStreamForSubject, errors.StreamNotFound, errors.BucketNotFound)):
            raise JetStreamSparkError(
                "JETSTREAM_STREAM_NOT_FOUND",
                f"there is no bucket {bucket!r}; create it (one value of history is enough)",
            ) from error
        raise
