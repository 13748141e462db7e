"""partitionBy=subject: all messages of a subject in one task, in order.

A subject belongs to the bucket crc32(subject) mod k, so the plan of a replay is the same. If possible (2.10, up to
2,000 subjects in a bucket), the server filters. Otherwise every task reads the complete range and keeps its bucket.
"""

from __future__ import annotations

from typing import Final

import attrs

from jsclient import checks
from jsclient.arrow.access import StreamAccess
from jsclient.arrow.chunks import bucket_of
from jsclient.arrow.ranges import Range
from jsclient.errors import InvalidSubject

MOST_SUBJECTS: Final = 10_000  # subjects of the stream up to which they are listed at all
MOST_FILTERS: Final = 2_000  # subjects of one consumer; creating it takes 33 ms for 1,000, and 900 ms for 5,000
REPLACED: Final = "\ufffd"


def by_subject(access: StreamAccess, whole: Range, parts: int) -> list[Range]:
    """One range per bucket over the complete plan; a bucket without subjects is an empty range."""
    buckets = _listed(access, parts, whole.filters)
    if buckets is not None and access.capabilities.at_least((2, 10)):
        # Every message of [start, end) is already stored, so no subject of it can be missing in the list.
        return [
            attrs.evolve(whole, index=i, filters=tuple(names), start=whole.start if names else whole.end)
            for i, names in enumerate(buckets)
        ]
    return [attrs.evolve(whole, index=i, buckets=(i, parts)) for i in range(parts)]


def _listed(access: StreamAccess, parts: int, filters: tuple[str, ...]) -> list[list[str]] | None:
    """The subjects of the stream by bucket.

    None if there are too many to list or to ask for in one request, or if one is not a plain subject. For example, a
    message on `>` would, as a filter, bring all others into its bucket.
    """
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
    fits = all(
        len(bucket) <= MOST_FILTERS and sum(map(len, bucket)) + 4 * len(bucket) <= access.nc.max_payload // 2
        for bucket in buckets
    )
    return buckets if fits else None


def _is_plain(subject: str) -> bool:
    if REPLACED in subject:
        return False  # the server replaces bytes that are not UTF-8, so the client cannot know them
    try:
        checks.subject(subject)
    except InvalidSubject:
        return False
    return True
