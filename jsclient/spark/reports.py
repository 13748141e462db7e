"""Reports of tasks about losses. The process that plans the query logs and counts them.

The tasks of a Python source cannot report anything through Spark. They publish on a subject of the query instead,
`_spark.<id of the query>`. This is best effort, because the tasks also log every report themselves.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

import jsclient
from jsclient import errors
from jsclient.first_use import prepared
from jsclient.spark.connecting import connect_options
from jsclient.spark.telling import tell

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.spark.options import SparkOptions
    from jsclient.subscription import Subscription

log: logging.Logger = logging.getLogger("jsclient.spark")


class Report(msgspec.Struct, omit_defaults=True):
    """A finding of one task."""

    text: str
    lost: int = 0
    expired: int = 0


def send(nc: Connection, query: str, report: Report) -> None:
    """Log the report here, and send it to the driver if this is a task of a streaming query."""
    tell(report.text)
    if not query:
        return
    try:
        nc.publish(f"_spark.{query}", msgspec.json.encode(report))
        nc.flush(timeout=2)
    except errors.JsClientError as error:
        log.info("the driver of query %s was not told: %s", query, error)


class Ear:
    """Listens for the reports of one query, on its own connection. The first `listen` opens it."""

    def __init__(self, options: SparkOptions) -> None:
        self._options = options
        self._nc: Connection | None = None
        self._subscription: Subscription | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Ear, (self._options,)

    def listen(self, query: str) -> None:
        if self._subscription is not None:
            return
        try:
            self._nc = jsclient.connect(connect_options(self._options))
            self._subscription = self._nc.subscribe(f"_spark.{query}")
            self._nc.flush(timeout=2)
        except errors.JsClientError as error:
            log.info("reports of the tasks of query %s are not heard: %s", query, error)
            self.close()

    def take(self) -> list[Report]:
        """The reports since the last call."""
        found: list[Report] = []
        while self._subscription is not None:
            try:
                found.append(msgspec.json.decode(self._subscription.next(timeout=0).data, type=prepared(Report)))
            except (errors.JsClientError, StopIteration):
                break
            except msgspec.MsgspecError:
                continue
        for report in found:
            tell(f"a task reports: {report.text}")
        return found

    def close(self) -> None:
        nc, self._nc, self._subscription = self._nc, None, None
        if nc is not None:
            nc.close()
