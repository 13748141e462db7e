"""Prometheus: the number of operations, their outcomes and their durations. `pip install jsclient[metrics]`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from jsclient import handlers
from jsclient.errors import ConfigError
from jsclient.instruments import End, Instrumentation, Operation

__all__ = ["Prometheus"]


def library() -> Any:
    """The client library of Prometheus; raises ConfigError if it is not installed."""
    try:
        import prometheus_client
        import prometheus_client.core
    except ImportError as error:
        raise ConfigError("Prometheus figures need its library: pip install 'jsclient[metrics]'") from error
    return prometheus_client


class Prometheus(Instrumentation):
    """Metrics of all connections that use it; `connect(url, instrumentation=Prometheus())`.

    `jsclient_operations_total` and `jsclient_operation_seconds` have the labels operation and outcome ("ok", or the
    name of the error). `jsclient_payload_bytes_total` has the label operation. `label(operation)` adds your own label,
    such as the first token of the subject. Let it return few different values, because each is a series. `registry`
    replaces the default registry of the process.
    """

    def __init__(self, registry: Any = None, *, label: Callable[[Operation], str] | None = None) -> None:
        client = library()
        registry = client.REGISTRY if registry is None else registry
        more = () if label is None else ("label",)
        handlers.check(label, "label")
        self._label = label
        names = ("operation", "outcome", *more)
        self._count = client.Counter("jsclient_operations", "Operations that have ended.", names, registry=registry)
        self._seconds = client.Histogram(
            "jsclient_operation_seconds", "How long operations took.", names, registry=registry
        )
        self._bytes = client.Counter(
            "jsclient_payload_bytes", "Bytes of payloads sent and delivered.", ("operation", *more), registry=registry
        )

    def begin(self, operation: Operation) -> End:
        """Begin to measure an operation; called by the connection."""
        kind = operation.kind
        more = () if self._label is None else (self._label(operation),)
        if operation.size:
            self._bytes.labels(kind, *more).inc(operation.size)
        began = time.perf_counter()

        def end(error: BaseException | None) -> None:
            labels = (kind, "ok" if error is None else type(error).__name__, *more)
            self._count.labels(*labels).inc()
            self._seconds.labels(*labels).observe(time.perf_counter() - began)

        return end
