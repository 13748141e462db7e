"""The two small buckets: the progress of a query for tools on the NATS side, and the ledger of committed batches.

The buckets must exist: creating one needs rights that a data pipeline should not have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from jsclient import errors
from jsclient.spark.errors import JetStreamSparkError

if TYPE_CHECKING:
    from jsclient.keyvalue import KeyValue
    from jsclient.spark.access import SparkAccess

T = TypeVar("T")
UNSURE = (errors.UnknownOutcome, errors.RequestTimeout, errors.ConnectionLost)


def put_progress(access: SparkAccess, bucket: str, key: str, value: bytes) -> None:
    """Store the last committed offset under `key`; repeated until it is certain, the newest value wins."""
    kv = _open(access, bucket)

    def put() -> None:
        try:
            kv.put(key, value)
        except errors.UnknownOutcome as error:
            raise errors.RequestTimeout(errors.brief(error)) from error

    _guarded(bucket, lambda: access.retrying(f"writing bucket {bucket!r}", put))


def _guarded(bucket: str, call: Callable[[], T]) -> T:
    try:
        return call()
    except JetStreamSparkError as error:
        if isinstance(error.__cause__, (errors.NoStreamForSubject, errors.StreamNotFound, errors.BucketNotFound)):
            raise JetStreamSparkError(
                "JETSTREAM_STREAM_NOT_FOUND",
                f"there is no bucket {bucket!r}; create it (one value of history is enough)",
            ) from error
        raise


def _open(access: SparkAccess, bucket: str) -> KeyValue:
    from jsclient.jetstream import JetStream
    from jsclient.keyvalue import KeyValue

    js = JetStream(access.nc, domain=access.options.domain, api_prefix=access.options.api_prefix)
    return KeyValue(js, bucket)
