"""The two small buckets: the progress of a query for tools on the NATS side, and the ledger of committed batches.

The buckets must exist: creating one needs rights that a data pipeline should not have.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from jsclient import errors
from jsclient.spark.errors import JetStreamSparkError

if TYPE_CHECKING:
    from jsclient.keyvalue import KeyValue
    from jsclient.spark.access import StreamAccess

T = TypeVar("T")
UNSURE = (errors.UnknownOutcome, errors.RequestTimeout, errors.ConnectionLost)


def put_progress(access: StreamAccess, bucket: str, key: str, value: bytes) -> None:
    """Store the last committed offset under `key`; repeated until it is certain, the newest value wins."""
    kv = _open(access, bucket)

    def put() -> None:
        try:
            kv.put(key, value)
        except errors.UnknownOutcome as error:
            raise errors.RequestTimeout(str(error)) from error

    _guarded(bucket, lambda: access.retrying(f"writing bucket {bucket!r}", put))


def read_ledger(access: StreamAccess, bucket: str, key: str) -> tuple[int, int]:
    """(last committed batch or -1, revision or 0) of a query, as the leader of the bucket knows it."""
    kv = _open(access, bucket)

    def get() -> tuple[int, int]:
        try:
            entry = kv.get(key, direct=False)
            return int(json.loads(entry.value)["batch"]), entry.revision
        except errors.KeyNotFound:
            return -1, 0
        except (ValueError, KeyError, TypeError):
            raise JetStreamSparkError(
                "JETSTREAM_PUBLISH_FAILED",
                f"bucket {bucket!r}, key {key!r} is not a ledger of ours; give ledgerBucket a bucket of its own",
            ) from None

    return _guarded(bucket, lambda: access.retrying(f"reading bucket {bucket!r}", get))


def write_ledger(access: StreamAccess, bucket: str, key: str, batch: int, revision: int) -> None:
    """Record a committed batch, if nobody else has written since `revision`; else JETSTREAM_FENCED.

    When the answer was lost, the put is repeated: it then conflicts with itself, and what is stored decides. A batch
    that is there already although our first put is known not to have arrived came from the other driver.
    """
    kv = _open(access, bucket)
    value = b'{"batch": %d}' % batch
    unsure = False

    def put() -> None:
        nonlocal unsure
        try:
            kv.update(key, value, revision)
        except UNSURE as error:
            unsure = True
            raise errors.RequestTimeout(str(error)) from error

    try:
        _guarded(bucket, lambda: _conflicts_pass(lambda: access.retrying(f"writing bucket {bucket!r}", put)))
    except errors.RevisionMismatch:
        found, _ = read_ledger(access, bucket, key)
        if unsure and found == batch:
            return
        raise JetStreamSparkError(
            "JETSTREAM_FENCED",
            f"another driver runs the query {key!r}: the ledger in bucket {bucket!r} says batch {found}, this one was "
            f"to commit batch {batch}. A retry cannot cure it: stop one of the two, or give each its own checkpoint",
        ) from None


def _conflicts_pass(call: Callable[[], T]) -> T:
    """`retrying` wraps every error of ours; a conflict is an answer, not a failure, so it is taken out again."""
    try:
        return call()
    except JetStreamSparkError as error:
        if isinstance(error.__cause__, errors.RevisionMismatch):
            raise error.__cause__ from None
        raise


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


def _open(access: StreamAccess, bucket: str) -> KeyValue:
    from jsclient.jetstream import JetStream
    from jsclient.keyvalue import KeyValue

    js = JetStream(access.nc, domain=access.options.domain, api_prefix=access.options.api_prefix)
    return KeyValue(js, bucket)
