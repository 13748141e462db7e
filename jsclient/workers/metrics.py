"""A pool's statistics for Prometheus, through its own library: `pip install jsclient[metrics]`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from jsclient.instruments.metrics import library

if TYPE_CHECKING:
    from jsclient.workers.pool import WorkerPool

__all__ = ["PoolCollector", "text_page"]

_COUNTERS = ("handled", "failed", "redelivered", "rejected", "dead", "hung", "missed_heartbeats")


class PoolCollector:
    """A custom collector: `prometheus_client.REGISTRY.register(PoolCollector(pool))`. Reads the pool when scraped."""

    def __init__(self, pool: WorkerPool, **labels: str) -> None:
        library()
        self._pool = pool
        self._labels = {"stream": pool.consumer.stream_name, "consumer": pool.consumer.name, **labels}

    def collect(self) -> Iterator[Any]:
        """The metrics; Prometheus calls this."""
        return families([(self._labels, attrs.asdict(self._pool.snapshot()))])


def families(told: Iterable[tuple[Mapping[str, str], Mapping[str, Any]]]) -> Iterator[Any]:
    """Statistics of one or several pools as metric families. The labels have the same names in all of them."""
    core, found = library().core, dict[str, Any]()
    for labels, figures in told:
        for key, value in figures.items():
            if not isinstance(value, (int, float)):
                continue
            if key not in found:
                kind = core.CounterMetricFamily if key in _COUNTERS else core.GaugeMetricFamily
                found[key] = kind(f"jsclient_pool_{key}", f"WorkerPool: {key.replace('_', ' ')}", labels=list(labels))
            found[key].add_metric(list(labels.values()), float(value))
    yield from found.values()


def text_of(told: Iterable[tuple[Mapping[str, str], Mapping[str, Any]]]) -> bytes:
    """The statistics of several pools as a Prometheus text page."""

    class Told:
        def collect(self) -> Iterator[Any]:
            return families(told)

    client = library()
    registry = client.CollectorRegistry()
    registry.register(Told())
    page: bytes = client.generate_latest(registry)
    return page


def text_page(pool: WorkerPool, **labels: str) -> bytes:
    """The statistics as a Prometheus text page, for your HTTP handler."""
    client = library()
    registry = client.CollectorRegistry()
    registry.register(PoolCollector(pool, **labels))
    page: bytes = client.generate_latest(registry)
    return page
