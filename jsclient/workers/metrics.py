"""A pool's figures for Prometheus, through its own library: `pip install jsclient[metrics]`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import attrs

from jsclient.errors import ConfigError

if TYPE_CHECKING:
    from jsclient.workers.pool import WorkerPool

_COUNTERS = ("handled", "failed", "redelivered", "rejected", "dead", "hung", "missed_heartbeats")


def _library() -> Any:
    try:
        import prometheus_client
        import prometheus_client.core
    except ImportError as error:
        raise ConfigError("Prometheus figures need its library: pip install 'jsclient[metrics]'") from error
    return prometheus_client


class PoolCollector:
    """A custom collector: `prometheus_client.REGISTRY.register(PoolCollector(pool))`. Reads the pool when scraped."""

    def __init__(self, pool: WorkerPool, **labels: str) -> None:
        _library()
        self._pool = pool
        self._labels = {"stream": pool.consumer.stream_name, "consumer": pool.consumer.name, **labels}

    def collect(self) -> Iterator[Any]:
        core = _library().core
        names, values = list(self._labels), list(self._labels.values())
        for key, value in attrs.asdict(self._pool.snapshot()).items():
            kind = core.CounterMetricFamily if key in _COUNTERS else core.GaugeMetricFamily
            family = kind(f"jsclient_pool_{key}", f"WorkerPool: {key.replace('_', ' ')}", labels=names)
            family.add_metric(values, float(value))
            yield family


def text_page(pool: WorkerPool, **labels: str) -> bytes:
    """The figures as a Prometheus text page, for an HTTP handler of your own."""
    library = _library()
    registry = library.CollectorRegistry()
    registry.register(PoolCollector(pool, **labels))
    page: bytes = library.generate_latest(registry)
    return page
