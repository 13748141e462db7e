"""The trace of a message around one handler, where the connection has no instrument. `pip install jsclient[tracing]`.

For all of a connection: `connect(url, instrumentation=jsclient.instruments.tracing.OpenTelemetry())`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jsclient import handlers
from jsclient.instruments import handling
from jsclient.instruments.tracing import OpenTelemetry, library

__all__ = ["inject", "traced"]


def traced(handler: Callable[[Any], Any], name: str | None = None) -> Callable[[Any], Any]:
    """The handler, run inside the publisher's trace: `WorkerPool(consumer, traced(handle))`.

    `traceparent` and `tracestate` of the message become the parent of a span named after the subject (or `name`).
    """
    handlers.check(handler, "the handler")
    _, _, trace = library()
    tracer = trace.get_tracer("jsclient.workers")
    run = handling(OpenTelemetry(tracer, name=lambda operation: name or operation.subject), handler)
    run.is_instrumented = True  # type: ignore[attr-defined]
    return run


def inject(headers: dict[str, str] | None = None) -> dict[str, str]:
    """The headers with the current trace context added, for a publish. `headers`: your own; default: none."""
    _, propagate, _ = library()
    carrier = dict(headers or {})
    propagate.inject(carrier)
    return carrier
