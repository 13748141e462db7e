"""`messages()` of consumers: the part of an iterator that a program sees."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic

from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Timeout
from jsclient.jetstream.consuming.pull_inboxes import FLUSH_TIMEOUT
from jsclient.jetstream.consuming.pull_options import Paused
from jsclient.jetstream.message import M

if TYPE_CHECKING:
    from jsclient.jetstream.consuming.iterator import MessageIterator


class Messages(Generic[M]):
    """Iterate forever (`for msg in messages`), or take one with `next(timeout)`. Several threads may share it.

    At the end of its `with` block, and at `close()`, it returns unread messages to the server. It raises an error that
    ends the reading, such as ConsumerDeleted, and reports all others to `on_error`. It survives reconnects, leader
    changes and missing heartbeats.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """

    def __init__(self, iterator: MessageIterator[M]) -> None:
        self._iterator = iterator

    def __iter__(self) -> Iterator[M]:
        return self._iterator  # a loop takes from it without a further call for each message

    def __next__(self) -> M:
        return next(self._iterator)

    def next(self, timeout: Timeout = DEFAULT) -> M:
        """One message. Waits at most `timeout` seconds (30 by default); 0 takes only an already received message.

        Raises NoMessages if none came in time, and IteratorClosed after `stop`, `close` or the end of a drain.
        """
        return self._iterator.next(timeout)

    @property
    def buffered(self) -> int:
        """The number of messages received and not taken."""
        return self._iterator.buffered

    @property
    def delivered(self) -> int:
        """The number of messages taken up to now."""
        return self._iterator.delivered

    @property
    def missed_heartbeats(self) -> int:
        """The number of times that the server was silent for too long."""
        return self._iterator.missed_heartbeats

    @property
    def paused_until(self) -> Paused | None:
        """Set while the consumer is paused on the server, if the client has noticed it."""
        return self._iterator.paused_until

    @property
    def resets(self) -> int:
        """The number of times that the client has re-created an ordered consumer; 0 for other consumers."""
        return self._iterator.resets

    @property
    def closed(self) -> bool:
        """True once it has ended."""
        return self._iterator.closed

    def stop(self) -> None:
        """End the iteration: blocked and later calls end immediately, and the server sends nothing more.

        It does not wait, so it is safe in a signal handler. Unread messages go back at the next call, or at `close`.
        """
        self._iterator.stop()

    def drain(self, timeout: float | dt.timedelta = FLUSH_TIMEOUT) -> None:
        """Request nothing more; the iteration ends after the messages that were received.

        `timeout`: seconds to wait for messages on their way. With ack policy none these are all requested messages. If
        some do not come in time, `on_error` gets DrainIncomplete with their number.
        """
        self._iterator.drain(timeout)

    def close(self, timeout: float | dt.timedelta = FLUSH_TIMEOUT) -> None:
        """Stop and release the subscription; unread messages go back to the server immediately. Idempotent.

        `timeout`: seconds to wait for messages on their way; later ones go back when they come.
        """
        self._iterator.close(timeout)

    def __enter__(self) -> Messages[M]:
        return self

    def __exit__(self, *exc: object) -> None:
        self._iterator.__exit__(*exc)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "ending" if self._iterator.ending else "open"
        return f"<Messages of {self._iterator.source} {state} buffered={self.buffered}>"

    def __reduce__(self) -> Any:
        return engine_of(self._iterator.connection).refuse_pickle(self)
