"""What a query leaves in key-value buckets for people and tools: its committed offset, a record of each batch.

The buckets must exist: creating one needs rights that a data pipeline should not have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jsclient import errors
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.sending import context

if TYPE_CHECKING:
    from jsclient.spark.access import SparkAccess


def put_progress(access: SparkAccess, bucket: str, key: str, value: bytes) -> None:
    """Store a value under `key`; repeated until it is certain, the newest value wins."""
    from jsclient.keyvalue import KeyValue

    kv = KeyValue(context(access.nc, access.options), bucket)

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
