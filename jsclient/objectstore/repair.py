"""Chunks that belong to no object: finding them, and proving it before anything is removed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from jsclient import waiting
from jsclient.durations import Deadline
from jsclient.errors import BadObjectMeta, TimedOut
from jsclient.objectstore.models import SUBJECT_ROOT, ObjectInfo, chunk_subject

if TYPE_CHECKING:
    from jsclient.jetstream.stream import Stream
    from jsclient.objectstore.metas import Metas

logger: logging.Logger = logging.getLogger("jsclient.objectstore")

REPAIR_SETTLE: Final = 2.0
"""Seconds that chunks without an object must not have grown to count as abandoned."""


def repair(metas: Metas, listed: Iterator[ObjectInfo], deadline: Deadline) -> int:
    """Remove chunks that no object refers to. Returns the number of uploads that they belonged to.

    A listing only names candidates. Before anything is removed, every meta message is read from the stream's leader,
    one by one up to its "no more". If one cannot be read, nothing is removed and the error has the reason.
    """
    stream, bucket = metas.stream, metas.bucket
    found = chunk_counts(stream, bucket, deadline)
    if found:
        for info in listed:
            found.pop(_subject_of(bucket, info), None)
    if not found:
        return 0
    if deadline.at_most(REPAIR_SETTLE) < REPAIR_SETTLE:
        raise TimedOut(
            f"a repair of object store {bucket!r} takes more than {REPAIR_SETTLE:g} s. Nothing was removed. "
            "Try again when the store is less busy."
        )
    waiting.Gate().wait(REPAIR_SETTLE)
    later = chunk_counts(stream, bucket, deadline)
    abandoned = {subject for subject, count in found.items() if later.get(subject) == count}
    for info in metas.all(deadline):
        if not info.deleted:
            abandoned.discard(_subject_of(bucket, info))
    for subject in sorted(abandoned):
        stream.purge(subject=subject, timeout=deadline.remaining())
    return len(abandoned)


def chunk_counts(stream: Stream, bucket: str, deadline: Deadline) -> dict[str, int]:
    """Chunk subjects and the number of chunks of each. Messages on other subjects are left alone."""
    prefix = f"{SUBJECT_ROOT}{bucket}.C."
    counts = {}
    for subject, count in stream.subjects(prefix + ">", timeout=deadline.remaining()):
        try:
            counts[chunk_subject(bucket, subject[len(prefix) :])] = count
        except BadObjectMeta:
            logger.warning("object store %s holds something on %r, which no object store writes", bucket, subject)
    return counts


def _subject_of(bucket: str, info: ObjectInfo) -> str:
    """The subject of an object's chunks. Returns "" for an object without chunks (a link, or an unusable nuid)."""
    try:
        return chunk_subject(bucket, info.nuid)
    except BadObjectMeta:
        return ""
