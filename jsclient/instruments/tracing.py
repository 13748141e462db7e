"""OpenTelemetry: spans, and the W3C trace context in message headers. `pip install jsclient[tracing]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jsclient import handlers
from jsclient.errors import ConfigError, brief
from jsclient.instruments import End, Instrumentation, Operation

__all__ = ["OpenTelemetry"]


def library() -> Any:
    """(context, propagate, trace) of OpenTelemetry; raises ConfigError if it is not installed."""
    try:
        from opentelemetry import context, propagate, trace
    except ImportError as error:
        raise ConfigError("tracing needs OpenTelemetry: pip install 'jsclient[tracing]'") from error
    return context, propagate, trace


class OpenTelemetry(Instrumentation):
    """Spans for publishes, requests and handlers; `connect(url, instrumentation=OpenTelemetry())`.

    A publish or request puts `traceparent` (and other fields of the propagator) into the headers, if the server accepts
    headers. A handler runs within the trace that its message carries. Acks, reconnects and slow consumers become
    separate spans; messages without a handler become none. `name(operation)` replaces the names of spans. `tracer`
    replaces the library's own tracer.
    """

    def __init__(self, tracer: Any = None, *, name: Any = None) -> None:
        self._context, self._propagate, self._trace = library()
        self._tracer = tracer if tracer is not None else self._trace.get_tracer("jsclient")
        handlers.check(name, "name")
        self._name = name

    def begin(self, operation: Operation) -> End | None:
        """Begin the span of an operation; called by the connection."""
        if operation.kind == "deliver":
            return self._handle(operation) if operation.handled else None
        kinds = self._trace.SpanKind
        kind = {"publish": kinds.PRODUCER, "request": kinds.CLIENT, "ack": kinds.CLIENT}.get(
            operation.kind, kinds.INTERNAL
        )
        span = self._tracer.start_span(self._title(operation), kind=kind, attributes=_attributes(operation))
        if operation.kind in ("publish", "request"):
            operation.headers = self._with_context(span, operation.headers)
        return lambda error: self._end(span, error)

    def _title(self, operation: Operation) -> str:
        return str(self._name(operation)) if self._name is not None else f"{operation.kind} {operation.subject}".strip()

    def _with_context(self, span: Any, headers: Mapping[str, Any] | None) -> Any:
        carrier: dict[str, str] = {}
        self._propagate.inject(carrier, context=self._trace.set_span_in_context(span))
        return {**(dict(headers.items()) if headers else {}), **carrier}

    def _handle(self, operation: Operation) -> End:
        headers = operation.headers or {}
        parent = self._propagate.extract({str(key).lower(): _one(value) for key, value in headers.items()})
        span = self._tracer.start_span(
            self._title(operation),
            context=parent,
            kind=self._trace.SpanKind.CONSUMER,
            attributes=_attributes(operation),
        )
        token = self._context.attach(self._trace.set_span_in_context(span, parent))

        def end(error: BaseException | None) -> None:
            self._context.detach(token)
            self._end(span, error)

        return end

    def _end(self, span: Any, error: BaseException | None) -> None:
        if error is not None:
            span.record_exception(error)
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, brief(error)))
        span.end()


def _one(value: Any) -> str:
    return value if isinstance(value, str) else next(iter(value), "")


_TYPES = {"publish": "send", "deliver": "process", "request": "send", "ack": "settle"}


def _attributes(operation: Operation) -> dict[str, Any]:
    """The attributes, named by the semantic conventions for messaging."""
    found: dict[str, Any] = {"messaging.system": "nats", "messaging.operation.name": operation.kind}
    if operation.kind in _TYPES:
        found["messaging.operation.type"] = _TYPES[operation.kind]
    if operation.subject:
        found["messaging.destination.name"] = operation.subject
    if operation.size:
        found["messaging.message.body.size"] = operation.size
    if operation.detail:
        found["jsclient.detail"] = operation.detail
    return found
