"""`consume(handler)`: worker threads that call a handler for every message of a shared iterator."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from jsclient import errors, waiting
from jsclient.durations import DEFAULT, Deadline, Timeout, resolve

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.jetstream.message import JetStreamMsg

log = logging.getLogger("jsclient.jetstream.consume")

STOP_TIMEOUT: Final = 30.0
"""Seconds that leaving a `with` block or `drain` waits for handlers in flight."""


class MessageSource(Protocol):
    """What a consume takes from: the iterators of pull, ordered and push consumers."""

    options: Any
    source: Any
    connection: Connection

    @property
    def buffered(self) -> int: ...
    def __iter__(self) -> Iterator[JetStreamMsg]: ...
    def stop(self) -> None: ...
    def drain(self) -> None: ...
    def close(self) -> None: ...


class ConsumeContext:
    """A running consume. Leaving its `with` block stops it and waits for the handlers in flight.

    With one worker messages are handled in order; with more, each message by one of them. When the consume ends by
    itself (consumer deleted, `stop_after` reached) `error` says why (None in good order), and `wait` raises it.
    """

    def __init__(self, messages: MessageSource, handler: Callable[[JetStreamMsg], Any], workers: int) -> None:
        if not callable(handler):
            messages.close()
            raise errors.ConfigError("consume needs a handler: a function that takes one message")
        if workers < 1:
            messages.close()
            raise errors.ConfigError(f"workers must be positive, got {workers}")
        self._messages = messages
        self._handler = handler
        self._on_error = messages.options.on_error
        self._lock = waiting.new_lock()
        self._running = workers
        self._done = waiting.Gate()
        self.error: Exception | None = None
        name = f"jsclient-worker-{messages.source}"
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{i}" if workers > 1 else name, daemon=True)
            for i in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        handler = self._handler
        message: JetStreamMsg | None
        try:
            for message in self._messages:
                try:
                    handler(message)
                except Exception as error:
                    self._handler_failed(error, message)
                message = None  # or the last one would live until the next comes
        except (errors.IteratorClosed, errors.ConnectionClosed):
            pass
        except Exception as error:
            self._ended_by(error)
        finally:
            with self._lock:
                self._running -= 1
                last = self._running == 0
            if last:
                try:
                    self._messages.close()
                finally:
                    self._done.set()

    def _handler_failed(self, error: Exception, message: JetStreamMsg) -> None:
        """The message stays unacked: the server sends it again after ack_wait."""
        if self._on_error is None:
            log.error("the handler failed on %r", message, exc_info=error)
            return
        try:
            self._on_error(error)
        except Exception:
            log.exception("a hook of the application failed")

    def _ended_by(self, error: Exception) -> None:
        with self._lock:
            first = self.error is None
            self.error = self.error or error
        if first:
            log.error("consume of %s ended: %s", self._messages.source, error)
            if self._on_error is not None:
                try:
                    self._on_error(error)
                except Exception:
                    log.exception("a hook of the application failed")

    # --- for the application ------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """True once all workers have ended."""
        return self._done.is_set()

    @property
    def messages(self) -> Any:
        """The iterator below: counters, `buffered`, `paused_until`."""
        return self._messages

    def wait(self, timeout: Timeout = None) -> bool:
        """Wait until it has ended (for ever by default); False after the timeout. Raises the error that ended it."""
        self._messages.connection.check_process()
        if not self._done.wait(resolve(timeout, None)):
            return False
        if self.error is not None:
            raise self.error
        return True

    def stop(self) -> None:
        """Start no more handlers. Does not wait (`wait` does); safe in signal handlers and in the handler."""
        self._messages.stop()

    def drain(self, timeout: Timeout = DEFAULT) -> None:
        """Ask for nothing more, handle what was received, and wait for that (30 s by default).

        Raises DrainTimeout; then it is stopped. Called in the handler it does not wait.
        """
        deadline = Deadline(resolve(timeout, STOP_TIMEOUT))
        self._messages.drain()
        if threading.current_thread() in self._threads:
            return
        if not self._done.wait(deadline.remaining()):
            self._messages.stop()
            raise errors.DrainTimeout(f"{self._messages.buffered} messages were not handled in time")

    def close(self, timeout: Timeout = DEFAULT) -> None:
        """Stop, and wait at most `timeout` seconds (30 by default) for handlers in flight; idempotent."""
        self.stop()
        # In a forked child none of them lives, and nobody would ever say that it is done.
        if threading.current_thread() not in self._threads and any(thread.is_alive() for thread in self._threads):
            self._done.wait(resolve(timeout, STOP_TIMEOUT))

    def __enter__(self) -> ConsumeContext:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ConsumeContext of {self._messages.source} {'closed' if self.closed else 'running'}>"

    def __reduce__(self) -> Any:
        return self._messages.connection.refuse_pickle(self)
