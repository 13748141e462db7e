"""What the iterators of pull and push consumers have in common: how they are used, and how they end."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeVar

from jsclient import errors
from jsclient.durations import DEFAULT, Timeout, resolve
from jsclient.jetstream.fetch import FETCH_TIMEOUT
from jsclient.jetstream.inboxes import nak_all

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.jetstream.message import JetStreamMsg
    from jsclient.mailbox import Mailbox
    from jsclient.message import Msg

log = logging.getLogger("jsclient.jetstream.pull")

S = TypeVar("S", bound="MessageIterator")


class MessageIterator:
    """Base of Messages and PushMessages. A subclass takes from the mailbox in `_get`."""

    connection: Connection
    source: Any
    options: Any
    _mailbox: Mailbox
    _terminal: Exception | None = None
    _stopped = False
    _closed = True  # until there is something to close

    def _get(self, timeout: float | None) -> JetStreamMsg | None:
        """The next message, or None after the timeout."""
        raise AssertionError("subclasses say it")

    def close(self) -> None:
        raise AssertionError("subclasses say it")

    def __iter__(self: S) -> S:
        return self

    def __next__(self) -> JetStreamMsg:
        try:
            message = self._get(None)
        except errors.IteratorClosed:
            raise StopIteration from None
        assert message is not None
        return message

    def next(self, timeout: Timeout = DEFAULT) -> JetStreamMsg:
        """One message; waits at most `timeout` seconds (30 by default; 0: only what has been received already).

        Raises NoMessages when none came in time, IteratorClosed after `stop`, `close` or the end of a drain.
        """
        seconds = resolve(timeout, FETCH_TIMEOUT)
        message = self._get(seconds)
        if message is None:
            raise errors.NoMessages(f"no message of {self.source} within {seconds:g} s")
        return message

    def _check_open(self) -> None:
        if self._terminal is not None:
            self.close()
            raise self._terminal
        if self._stopped:
            self._finish()

    def _finish(self) -> None:
        self.close()
        raise errors.IteratorClosed(f"the iterator over {self.source} was stopped")

    def _fail(self, error: Exception | None) -> None:
        """Nothing can come any more: everybody who takes gets the reason."""
        self._terminal = error
        self._mailbox.wake()

    def _report(self, error: Exception | None) -> None:
        if error is not None:
            call_hook(self.options.on_error, error, f"{self.source}: %s")

    @property
    def buffered(self) -> int:
        """Messages received and not taken."""
        return len(self._mailbox)

    @property
    def closed(self) -> bool:
        return self._closed

    def stop(self) -> None:
        """End the iteration: blocked and later calls end at once. Safe in a signal handler; does not wait.

        What was received and not taken is given back when the iterator is next asked, or closed.
        """
        self._stopped = True
        self._mailbox.wake()

    @property
    def _wants_acks(self) -> bool:
        raise AssertionError("subclasses say it")

    def _give_back(self, messages: list[Msg]) -> None:
        if self._wants_acks and not self.options.leave_buffered:
            nak_all(messages, self.connection)

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return self.connection.refuse_pickle(self)


def call_hook(hook: Any, value: Any, text: str | None) -> None:
    """Call a hook of the application; what it raises must not end the consume. Without a hook `text` is logged."""
    if hook is None:
        if text is not None:
            log.warning(text, value)
        return
    try:
        hook(value)
    except Exception:
        log.exception("a hook of the application failed")
