"""W3C trace context from message headers to handlers, through OpenTelemetry: `pip install jsclient[tracing]`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from jsclient.errors import ConfigError
from jsclient.jetstream.api.headers import readable


def _library() -> Any:
    try:
        from opentelemetry import context, propagate, trace
    except ImportError as error:
        raise ConfigError("tracing needs OpenTelemetry: pip install 'jsclient[tracing]'") from error
    return context, propagate, trace


def traced(handler: Callable[[Any], Any], name: str | None = None) -> Callable[[Any], Any]:
    """The handler, run inside the publisher's trace: `WorkerPool(consumer, traced(handle))`.

    `traceparent` and `tracestate` of the message become the parent of a span named after the subject (or `name`).
    """
    context, propagate, trace = _library()
    tracer = trace.get_tracer("jsclient.workers")

    @functools.wraps(handler)
    def run(message: Any) -> Any:
        carrier = {key.lower(): value for key, value in readable(message).items()}
        parent = propagate.extract(carrier)
        token = context.attach(parent)
        try:
            with tracer.start_as_current_span(name or message.subject, context=parent):
                return handler(message)
        finally:
            context.detach(token)

    return run


def inject(headers: dict[str, str] | None = None) -> dict[str, str]:
    """The headers with the current trace context added, for a publish."""
    _, propagate, _ = _library()
    carrier = dict(headers or {})
    propagate.inject(carrier)
    return carrier
