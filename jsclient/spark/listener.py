"""The distance of a query from the end of its streams."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from jsclient import handlers

log: logging.Logger = logging.getLogger("jsclient.spark")


def lag(progress: Any) -> dict[str, int]:
    """Stream -> sequences behind its end, from `query.lastProgress` or the progress of a listener event.

    A Python source cannot have its own metrics in Spark 4.3, so the end of the stream comes as `latestOffset`. Deleted
    messages and messages that the filters skip count as well.
    """
    behind: dict[str, int] = {}
    for source in _sources(progress):
        latest = _streams(source, "latestOffset")
        for stream, end in _streams(source, "endOffset").items():
            if stream in latest:
                behind[stream] = max(0, int(latest[stream]["next"]) - int(end["next"]))
    return behind


def losses(progress: Any) -> dict[str, int]:
    """`{"lost": ..., "expired": ...}` in sequences since the run began; both 0 if the progress does not report them."""
    measured = [_metrics(source) for source in _sources(progress)]
    return {name: sum(int(metrics.get(name, 0)) for metrics in measured) for name in ("lost", "expired")}


def rates(progress: Any) -> dict[str, float]:
    """Stream -> messages stored in it per second, as measured by the last triggers."""
    measured = [_metrics(source).get("rate") or {} for source in _sources(progress)]
    return {str(stream): float(rate) for rates in measured for stream, rate in rates.items()}


def planned(progress: Any) -> dict[str, tuple[int | None, int]]:
    """Stream -> the range [from, next) of sequences that the batch was planned for."""
    return {
        stream: (part.get("from"), int(part["next"]))
        for source in _sources(progress)
        for stream, part in _streams(source, "endOffset").items()
    }


def _sources(progress: Any) -> list[Any]:
    sources = progress["sources"] if isinstance(progress, dict) else progress.sources if progress is not None else []
    return list(sources or ())


def _streams(source: Any, name: str) -> dict[str, Any]:
    """Stream -> its part of an offset."""
    return _decoded(source, name).get("s") or {}


def _metrics(source: Any) -> dict[str, Any]:
    return _decoded(source, "latestOffset").get("metrics") or {}


def _decoded(source: Any, name: str) -> dict[str, Any]:
    value = source.get(name) if isinstance(source, dict) else getattr(source, name, None)
    try:
        decoded = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return {}
    return decoded if isinstance(decoded, dict) else {}


class JetStreamListener(StreamingQueryListener):
    """Logs one line per batch and stream with its range, rows, lag, rates and trigger time, or passes them to `export`.

    `spark.streams.addListener(JetStreamListener())`. `export(numbers)` runs on Spark's listener thread and gets
    {"query", "id", "batch", "stream", "from", "next", "rows", "empty", "behind", "lost", "expired", "rate",
    "rows_per_second", "trigger_ms"}. The planned range is [from, next). `behind` is the distance of its end from the
    end of the stream, and `rate` is the number of messages that the stream receives per second. `export` is called once
    per stream; rows, losses and times belong to the complete batch.

    `id` and `batch` match the query and batch in the audit record of the write (logger `jsclient.spark.audit`).
    """

    def __init__(self, export: Callable[[dict[str, Any]], None] | None = None) -> None:
        handlers.check(export, "export")
        self._export = export

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        for stream, behind in lag(progress).items():
            first, end = planned(progress).get(stream, (None, None))
            numbers = {
                "query": progress.name or str(progress.id),
                "id": str(progress.id),
                "batch": progress.batchId,
                "stream": stream,
                "from": first,
                "next": end,
                "rows": progress.numInputRows,
                "empty": progress.numInputRows == 0,
                "behind": behind,
                **losses(progress),
                "rate": rates(progress).get(stream, 0.0),
                "rows_per_second": progress.processedRowsPerSecond,
                "trigger_ms": dict(progress.durationMs or {}).get("triggerExecution"),
            }
            if self._export is not None:
                handlers.ran(self._export(numbers))
            else:
                log.info(
                    "query %(query)s batch %(batch)s: %(rows)s rows of stream %(stream)s [%(from)s, %(next)s), "
                    "%(behind)s behind and %(rate)s/s stored, %(lost)s lost, "
                    "%(rows_per_second)s rows/s, trigger %(trigger_ms)s ms",
                    numbers,
                )

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        pass
