"""`kv.purge_all()` and `kv.purge_deletes()`: remove revisions and the markers of deleted keys."""

from __future__ import annotations

import datetime as dt
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from jsclient.durations import DEFAULT, Patience, plain_or_none
from jsclient.errors import ConfigError
from jsclient.keyvalue import missing
from jsclient.keyvalue.entry import PURGE_HEADERS, age
from jsclient.keyvalue.keys import refuse_key, valid_key
from jsclient.keyvalue.watch import WatchOptions
from jsclient.nuid import next_nuid

if TYPE_CHECKING:
    from jsclient.keyvalue.bucket import KeyValue

log: logging.Logger = logging.getLogger("jsclient.keyvalue")

PURGE_WINDOW: Final = 256


def purge_all(kv: KeyValue[Any], patience: Patience) -> int:
    """See KeyValue.purge_all."""
    publish = kv._writer.publish_async
    futures: deque[Any] = deque()
    count = 0
    with missing.named(kv._written_stream):
        for key in kv._keys((), patience, None):
            if not _usable(kv, key):
                continue
            if len(futures) >= PURGE_WINDOW:
                futures.popleft().result(patience.remaining())
            futures.append(publish(kv._write_prefix + key, b"", headers=PURGE_HEADERS, msg_id=next_nuid()))
            count += 1
        for future in futures:
            future.result(patience.remaining())
    return count


def purge_deletes(kv: KeyValue[Any], older_than: float | dt.timedelta, patience: Patience) -> int:
    """See KeyValue.purge_deletes."""
    limit = plain_or_none(older_than)
    if limit is None or isinstance(limit, bool) or not isinstance(limit, (int, float)) or not limit >= 0:
        raise ConfigError(f"older_than must be 0 or more seconds, got {older_than!r}")
    with kv._watch((), WatchOptions(meta_only=True), patience.remaining(), patience.deadline(), None) as watcher:
        entries = watcher.initial(DEFAULT if patience.whole is None else patience.whole)
    last = {entry.key: entry for entry in entries}  # a key that was written meanwhile appears twice
    now = dt.datetime.now(dt.timezone.utc)
    removed = 0
    for marker in last.values():
        if marker.is_put or not _usable(kv, marker.key):
            continue
        subject = kv._prefix + marker.key
        with missing.named(kv.stream_name):
            if not limit or age(marker, now) >= limit:
                # Up to the marker and not further: later revisions are new values.
                kv._stream.purge(subject=subject, seq=marker.revision + 1, timeout=patience.remaining())
                removed += 1
            else:
                # Not `keep=1`: of two values that were stored since, it would remove the first one.
                kv._stream.purge(subject=subject, seq=marker.revision, timeout=patience.remaining())
    return removed


def _usable(kv: KeyValue[Any], key: str) -> bool:
    """True if a stored key is valid. Another client may have published on `$KV.<bucket>.>`, and as the subject of a
    purge that means every key."""
    if valid_key(key) and len(key) <= kv._limit:
        return True
    log.warning("bucket %s holds an entry that is left alone: %s", kv.bucket, refuse_key(key, kv._limit))
    return False
