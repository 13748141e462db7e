"""Finite reads of messages with values: `read_until(decode=Order)` of consumers and ordered consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from jsclient import handlers, hints
from jsclient.jetstream.consuming.finite import FiniteRead, OrderedRead
from jsclient.jetstream.consuming.typed import Reading, tell
from jsclient.jetstream.consuming.typed_message import TypedMsg

if TYPE_CHECKING:
    from jsclient.jetstream.consuming.pull_options import ErrorHook
    from jsclient.jetstream.message import JetStreamMsg

T = TypeVar("T")


class TypedFiniteRead(FiniteRead, Generic[T]):
    """What `Consumer.read_until(decode=...)` returns: as FiniteRead, and each message has a `value`."""

    def __init__(self, reading: Reading[T], on_error: ErrorHook | None, /, *given: Any, **options: Any) -> None:
        self._values = _Values(reading, on_error)
        super().__init__(*given, **options)

    def __next__(self) -> TypedMsg[T]:
        while True:
            found = self._values.of(super().__next__())
            if found is not None:
                return found


class TypedOrderedRead(OrderedRead, Generic[T]):
    """What `OrderedConsumer.read_until(decode=...)` returns: as OrderedRead, and each message has a `value`."""

    def __init__(self, reading: Reading[T], on_error: ErrorHook | None, /, *given: Any, **options: Any) -> None:
        self._values = _Values(reading, on_error)
        super().__init__(*given, **options)

    def __next__(self) -> TypedMsg[T]:
        while True:
            found = self._values.of(super().__next__())
            if found is not None:
                return found


class _Values(Generic[T]):
    """How what was read becomes messages with values."""

    def __init__(self, reading: Reading[T], on_error: ErrorHook | None) -> None:
        handlers.check(on_error, "on_error")
        self._reading = reading
        self._on_error = on_error

    def of(self, message: JetStreamMsg) -> TypedMsg[T] | None:
        """None for a message that cannot be decoded, and is left out."""
        found = self._reading.of(message)
        return found if self._reading.takes(found, self._tell) else None

    def _tell(self, error: Exception, message: JetStreamMsg) -> None:
        tell(self._on_error, "a finite read", error, message)


hints.given(TypedFiniteRead, TypedOrderedRead)
