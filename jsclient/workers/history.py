"""Failures and `Retry` of messages that are not finished, as far as this process knows them.

The server counts deliveries. It cannot distinguish a delivery that ended in Retry from one that failed. From the first
Retry on, each process therefore counts failures here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from jsclient import errors, waiting
from jsclient.workers.options import REASONS_KEPT
from jsclient.workers.outcomes import puts_off

if TYPE_CHECKING:
    from jsclient.jetstream import JetStreamMsg


class Known(NamedTuple):
    """The tries of one message in this process."""

    failed: int = 0
    asked: int = 0  # for another try, by Retry


class History:
    """The tries of at most REASONS_KEPT messages; thread-safe. `exact`: count failures from the start."""

    def __init__(self, exact: bool) -> None:
        self.exact: bool = exact
        self._known: dict[Any, Known] = {}
        self._lock = waiting.new_lock()

    def note(self, message: JetStreamMsg, error: BaseException) -> Known:
        """Count a try that ended in `error`. Returns all tries of the message so far."""
        key = key_of(message)
        with self._lock:
            failed, asked = self._known.pop(key, Known())
            if puts_off(error):
                self.exact = True
                known = Known(failed, asked + 1)
            else:
                known = Known(failed + 1, asked)
            if len(self._known) >= REASONS_KEPT:
                del self._known[next(iter(self._known))]
            self._known[key] = known
        return known

    def asked(self, message: JetStreamMsg) -> int:
        """The number of tries that ended in Retry."""
        return self._known.get(key_of(message), Known()).asked if self._known else 0

    def forget(self, message: JetStreamMsg) -> None:
        """The message is finished."""
        if self._known:
            with self._lock:
                self._known.pop(key_of(message), None)


def key_of(message: JetStreamMsg) -> Any:
    """The same for all deliveries of a message. A message of a re-created stream has another one."""
    try:
        return message.stream_seq, message.metadata.timestamp_ns
    except errors.NotJetStreamMessage:
        return (message.subject, message.data)
