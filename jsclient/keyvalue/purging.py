"""`kv.purge_all()` and `kv.purge_deletes()`: remove revisions and the markers of deleted keys."""

from __future__ import annotations

import datetime as dt
import logging
from collections import deque
from typing import Any, Final

from jsclient.durations import DEFAULT, Patience, plain_or_none
from jsclient.errors import ConfigError
from jsclient.keyvalue import missing
from jsclient.keyvalue.access import Access
from jsclient.keyvalue.entry import PURGE_HEADERS, age
from jsclient.keyvalue.keys import refuse_key, valid_key
from jsclient.keyvalue.watch import WatchOptions
from jsclient.nuid import next_nuid

log: logging.Logger = logging.getLogger("jsclient.keyvalue")

PURGE_WINDOW: Final = 256


def purge_all(access: Access, patience: Patience) -> int:
    """See KeyValue.purge_all."""
    publish = access.writer.publish_async
    futures: deque[Any] = deque()
    count = 0
    with missing.named(access.written_stream):
        for key in access.keys((), patience):
            if not _usable(access, key):
                continue
            if len(futures) >= PURGE_WINDOW:
                futures.popleft().result(patience.remaining())
            futures.append(publish(access.write_prefix + key, b"", headers=PURGE_HEADERS, msg_id=next_nuid()))
            count += 1
        for future in futures:
            future.result(patience.remaining())
    return count


def purge_deletes(access: Access, older_than: float | dt.timedelta, patience: Patience) -> int:
    """See KeyValue.purge_deletes."""
    limit = plain_or_none(older_than)
    if limit is None or isinstance(limit, bool) or not isinstance(limit, (int, float)) or not limit >= 0:
        raise ConfigError(f"older_than must be 0 or more seconds, got {older_than!r}")
    with access.watch((), WatchOptions(meta_only=True), patience.remaining(), patience.deadline()) as watcher:
        entries = watcher.initial(DEFAULT if patience.whole is None else patience.whole)
    last = {entry.key: entry for entry in entries}  # a key that was written meanwhile appears twice
    now = dt.datetime.now(dt.timezone.utc)
    removed = 0
    for marker in last.values():
        if marker.is_put or not _usable(access, marker.key):
            continue
        subject = access.prefix + marker.key
        with missing.named(access.stream_name):
            if not limit or age(marker, now) >= limit:
                # Up to the marker and not further: later revisions are new values.
                access.stream.purge(subject=subject, seq=marker.revision + 1, timeout=patience.remaining())
                removed += 1
            else:
                # Not `keep=1`: of two values that were stored since, it would remove the first one.
                access.stream.purge(subject=subject, seq=marker.revision, timeout=patience.remaining())
    return removed


def _usable(access: Access, key: str) -> bool:
    """True if a stored key is valid. Another client may have published on `$KV.<bucket>.>`, and as the subject of a
    purge that means every key."""
    if valid_key(key) and len(key) <= access.limit:
        return True
    log.warning("bucket %s holds an entry that is left alone: %s", access.bucket, refuse_key(key, access.limit))
    return False
