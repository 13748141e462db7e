"""partitionBy=subject: all messages of a subject in one task, in order.

A subject belongs to the bucket crc32(subject) mod k, so the plan of a replay is the same. The server filters where
that is possible (2.10, up to 10,000 subjects in the stream), by one consumer for 1,000 of them; otherwise every task
reads the whole range and keeps its bucket.
"""

from __future__ import annotations

from typing import Final

import attrs

from jsclient import checks
from jsclient.arrow.chunks import bucket_of
from jsclient.arrow.ranges import Range
from jsclient.errors import InvalidSubject
from jsclient.planning.access import PlanningAccess

MOST_SUBJECTS: Final = 10_000  # subjects of the stream up to which they are listed at all
REPLACED: Final = "\ufffd"


def by_subject(access: PlanningAccess, whole: Range, parts: int) -> list[Range]:
    """One range per bucket over the whole of the plan; a bucket without subjects is an empty range."""
    buckets = _listed(access, parts, whole.filters)
    if buckets is not None and access.capabilities.at_least((2, 10)):
        # Every message of [start, end) is already stored, so no subject of it can be missing in the list.
        return [
            attrs.evolve(whole, index=i, filters=tuple(names), start=whole.start if names else whole.end)
            for i, names in enumerate(buckets)
        ]
    return [attrs.evolve(whole, index=i, buckets=(i, parts)) for i in range(parts)]


def _listed(access: PlanningAccess, parts: int, filters: tuple[str, ...]) -> list[list[str]] | None:
    """The subjects of the stream by bucket; None when there are too many to list, or one that is no plain subject (as a
    filter, a message on `>` would bring all the others into its bucket)."""
    names: set[str] = set()
    for subject in filters or (">",):
        operation = f"STREAM.INFO.{access.stream}"
        for page in access.api.pages(operation, "state.subjects", {"subjects_filter": subject}):
            names.update(page.get("state", {}).get("subjects") or ())
            if len(names) > MOST_SUBJECTS or not all(map(_is_plain, names)):
                return None
    buckets: list[list[str]] = [[] for _ in range(parts)]
    for name in sorted(names):
        buckets[bucket_of(name.encode("utf-8", "surrogateescape"), parts)].append(name)
    return buckets


def _is_plain(subject: str) -> bool:
    if REPLACED in subject:
        return False  # of bytes that are no UTF-8 the server does not say which they are
    try:
        checks.subject(subject)
    except InvalidSubject:
        return False
    return True
