"""A message with a value as its payload. The loops that deliver messages make these themselves."""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

from jsclient.durations import DEFAULT, Timeout
from jsclient.jetstream.message import JetStreamMsg
from jsclient.jetstream.without_payload import lacks_payload, missing

T = TypeVar("T")

UNREAD: Final = object()
"""The placeholder of a value."""


class TypedMsg(JetStreamMsg, Generic[T], gc=False, eq=False):
    """A message with a value as its payload: `msg.value`.

    Attributes:
        value: The decoded payload, of the type given to `typed`. Reading it raises DecodeFailed if decoding failed; you
            can then ack, nak or terminate the message as any other. It raises PayloadMissing if the consumer has
            `headers_only`.

    It also has the fields of `JetStreamMsg`.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """

    _values: Any = None
    value: T = None  # type: ignore[assignment]

    def ack_next(self, timeout: Timeout = DEFAULT) -> TypedMsg[T]:
        """As for every message. The next message has a value, too, with any `on_bad`."""
        return self._values.of(JetStreamMsg.ack_next(self, timeout))  # type: ignore[no-any-return]


class UnreadMsg(TypedMsg[T], Generic[T], gc=False, eq=False):
    """A message without a decoded value, because decoding waits for the first access, or has failed."""

    _value: Any = UNREAD

    @property  # type: ignore[misc]
    def value(self) -> T:  # type: ignore[override]
        """The decoded payload, decoded at the first access. Raises DecodeFailed."""
        value = self._value
        return value_of(self) if value is UNREAD else value  # type: ignore[no-any-return]


def value_of(message: Any) -> Any:
    """Decode the payload of a message without a value, and keep the value."""
    if not message.msg.data and lacks_payload(message.msg):
        raise missing(message.subject)
    try:
        value = message._value = message._values.decode(message.msg.data)
    except Exception as error:
        raise message._values.failed(message, error) from error
    return value


def read(message: Any) -> None:
    """For layers: get the value, from the stream if the message came without its payload; see `Values.read`."""
    message._values.read(message)
