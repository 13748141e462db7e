"""Filters of a query that the server or the planner can apply (`spark.sql.python.filterPushdown.enabled=true`).

While that setting is off (the default), Spark fails the query if the reader has `pushFilters`. So this is a separate
class, used only if Spark has loaded its side of the protocol.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from jsclient import protocol
from jsclient.arrow.access import StreamAccess
from jsclient.arrow.ranges import StreamState
from jsclient.jetstream.message import timestamp_ns
from jsclient.spark.reader import JetStreamReader
from jsclient.spark.schema import SOURCE_COLUMNS

NEVER_NULL = frozenset(SOURCE_COLUMNS) - {"headers", "reply"}

BOUNDS: Final[dict[type[Filter], tuple[int | None, int | None]]] = {
    EqualTo: (0, 1),
    GreaterThan: (1, None),
    GreaterThanOrEqual: (0, None),
    LessThan: (None, 0),
    LessThanOrEqual: (None, 1),
}
"""The sequences [value + low, value + high) that a filter leaves."""


class PushdownReader(JetStreamReader):
    """Applies filters to the range and the subjects if possible. Spark checks the filters that `pushFilters` yields."""

    since: int | None = None
    until: int | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for item in filters:
            if not self._apply(item):
                yield item

    def _apply(self, item: Filter) -> bool:
        """Narrow the plan. Returns True if Spark need not check the filter again."""
        attribute = getattr(item, "attribute", None)
        if attribute is None or len(attribute) != 1:
            return False
        name = attribute[0]
        if isinstance(item, IsNotNull):
            return name in NEVER_NULL
        value = getattr(item, "value", None)
        if name == "seq":
            return self._sequence(item, value)
        if name == "stream" and isinstance(item, (EqualTo, In)):
            names: set[Any] = {value} if isinstance(item, EqualTo) else set(value or ())
            self.wanted: set[str] | None = names if self.wanted is None else self.wanted & names
            return True
        if name == "subject":
            return self._subject(item, value)
        if name == "timestamp" and isinstance(value, dt.datetime):
            self._time(item, value)
        return False

    def _narrow(self, low: int | None, high: int | None) -> None:
        if low is not None:
            self.low: int | None = low if self.low is None else max(self.low, low)
        if high is not None:
            self.high: int | None = high if self.high is None else min(self.high, high)

    def _sequence(self, item: Filter, value: Any) -> bool:
        if isinstance(item, In):
            numbers = [v for v in value if isinstance(v, int)]
            if numbers and len(numbers) == len(value):
                self._narrow(min(numbers), max(numbers) + 1)
            return False
        if type(value) is not int or type(item) not in BOUNDS:
            return False
        low, high = BOUNDS[type(item)]
        self._narrow(None if low is None else value + low, None if high is None else value + high)
        return True

    def _subject(self, item: Filter, value: Any) -> bool:
        if isinstance(item, EqualTo) and isinstance(value, str) and _storable(value):
            kept = [value] if not self.subjects or any(protocol.matches(f, value) for f in self.subjects) else []
            self.subjects: tuple[str, ...] = tuple(kept)
            self.empty: bool = self.empty or not kept
            return True
        if isinstance(item, StringStartsWith) and isinstance(value, str) and not self.subjects:
            whole, dot, _ = value.rpartition(".")
            if dot and _storable(whole):
                self.subjects = (f"{whole}.>",)
        return False

    def _time(self, item: Filter, value: dt.datetime) -> None:
        when = value if value.tzinfo is not None else value.replace(tzinfo=dt.timezone.utc)
        ns = timestamp_ns(when)
        # The column is truncated to microseconds, so the bounds reach one further; Spark checks again.
        if isinstance(item, (GreaterThan, GreaterThanOrEqual, EqualTo)):
            self.since = ns if self.since is None else max(self.since, ns)
        if isinstance(item, (LessThan, LessThanOrEqual, EqualTo)):
            end = ns + 1000
            self.until = end if self.until is None else min(self.until, end)

    def _bounds(self, access: StreamAccess, state: StreamState) -> tuple[int, int]:
        start, end = super()._bounds(access, state)
        if self.since is not None:
            start = max(start, access.sequence_at(max(self.since, 0), state))
        if self.until is not None:
            end = min(end, access.sequence_at(max(self.until, 0), state))
        return start, max(start, end)


def _storable(subject: str) -> bool:
    """True if a message can have this subject. Spark handles all other filters, for example with wildcards."""
    try:
        protocol.check_subject(subject)
    except ValueError:
        return False
    return True
