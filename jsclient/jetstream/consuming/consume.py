"""`consume(handler)`: worker threads that call a handler for every message of a shared iterator."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors, handlers, waiting
from jsclient._connection import Drainable, wait_for
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Deadline, Timeout, resolve
from jsclient.instruments import handling
from jsclient.jetstream.consuming.hooks import call_hook, error_hook
from jsclient.jetstream.consuming.messages import Messages
from jsclient.jetstream.consuming.pull_inboxes import FLUSH_TIMEOUT, SHORTEST_CLOSE
from jsclient.jetstream.consuming.pull_messages import RUN_OUT
from jsclient.jetstream.message import JetStreamMsg, M
from jsclient.threads import Thread, start_all

if TYPE_CHECKING:
    from jsclient.jetstream.consuming.iterator import MessageIterator


log: logging.Logger = logging.getLogger("jsclient.jetstream.consume")

STOP_TIMEOUT: Final = 30.0
"""Seconds that leaving a `with` block or `drain` waits for handlers in flight."""


class HandlerThreads(Drainable):
    """The threads of a consume, and how they end: by themselves, or with their connection."""

    def __init__(self, messages: MessageIterator[M], handler: Callable[[M], Any], workers: int) -> None:
        self.messages: MessageIterator[Any] = messages
        self.error: BaseException | None = None
        self.done: waiting.Gate = waiting.Gate()
        self._handler = handling(messages.connection.options.instrumentation, handler)
        messages.for_handlers()
        self._on_error = error_hook(messages.options.on_error)
        self._lock = waiting.new_lock()
        self._running = workers
        name = f"jsclient-worker-{messages.source}"
        self._threads = [Thread(f"{name}-{i}" if workers > 1 else name, self._work) for i in range(workers)]
        try:
            engine_of(messages.connection).drainables.enter(self, instead_of=messages)
            engine_of(messages.connection).check_takes()
            start_all(self._threads, f"the consume of {messages.source}")
        except BaseException:
            messages.stop()
            # The threads that have begun end by themselves.
            self._worker_ended(sum(not thread.began for thread in self._threads))
            self.wait_for_handlers(STOP_TIMEOUT)
            raise

    def wait_for_handlers(self, timeout: float | None) -> None:
        """Wait for the handlers in flight, except in one of them."""
        # In a forked child none of the threads lives, so no thread would set `done`.
        if not self.runs_here() and any(thread.is_alive() for thread in self._threads):
            self.done.wait(timeout)

    def _work(self) -> None:
        handler = self._handler
        message: JetStreamMsg | None
        try:
            for message in self.messages:
                try:
                    if (result := handler(message)) is not None:
                        handlers.ran(result)
                        result = None  # as the message below
                except Exception as error:
                    self._handler_failed(error, message)
                message = None  # else the last message would live until the next one comes
        except errors.ConnectionClosed as closed:
            if closed.reason is not None:  # otherwise the application has closed it
                self._ended_by(closed.reason)
        except BaseException as error:  # also SystemExit in a handler: it would end the thread silently
            self._ended_by(error)
        finally:
            self._worker_ended(1)

    def _worker_ended(self, count: int) -> None:
        with self._lock:
            self._running -= count
            last = count > 0 and self._running == 0
        if last:
            try:
                self.messages.close()
            finally:
                self.done.set()

    def _handler_failed(self, error: Exception, message: JetStreamMsg) -> None:
        """The server redelivers the message after ack_wait, unless the hook settles it."""
        if self._on_error is None:
            log.error("the handler failed on %r", message, exc_info=error)
        else:
            call_hook(self._on_error, error, message)

    def _ended_by(self, error: BaseException) -> None:
        """The end that one worker met ends all workers; it is reported once."""
        with self._lock:
            first = self.error is None
            self.error = self.error or error
        self.messages.stop()
        if first:
            log.error("consume of %s ended: %s", self.messages.source, errors.brief(error), exc_info=error)
            if self._on_error is not None:
                try:
                    handlers.ran(self._on_error(error, None))
                except BaseException:  # also SystemExit: the other workers and `wait` have to learn of the end
                    log.exception("a hook of the application failed")

    # --- the end of the connection: see Drainable -------------------------------------------------------------

    def begin_drain(self) -> None:
        self.messages.ask_no_more()

    def all_received(self) -> None:
        if not self.messages.runs_out:
            self.messages.complete()

    def finish_drain(self, deadline: Deadline) -> None:
        if self.messages.runs_out:
            self.messages.run_out(deadline)
            self.messages.complete()
        if wait_for(self.done, deadline, lambda: self.messages.connection.closed):
            return
        left = self.messages.buffered
        self.messages.close(SHORTEST_CLOSE)
        raise errors.DrainTimeout(
            f"a handler of {self.messages.source} did not end in time: the acks of the consume will not arrive, and "
            f"{errors.counted(left, 'message')} went back unhandled. Give it more time, or let handlers end sooner."
        )

    def end(self, reason: errors.ConnectionClosed) -> None:
        self.messages.end(reason)

    def hand_back(self) -> list[bytes]:
        return self.messages.hand_back()

    def runs_here(self) -> bool:
        return threading.current_thread() in self._threads


class ConsumeContext:
    """A running consume. Leaving its `with` block stops it and waits for the handlers in flight.

    One worker handles messages in order; of several workers, one handles each message. A consume can end by itself: the
    consumer is deleted, the connection's credentials are revoked, a handler calls `sys.exit`, or `stop_after` is
    reached. Then `error` is the reason (None in good order), `wait` raises it, and `on_error` gets it once.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """

    def __init__(self, messages: MessageIterator[M], handler: Callable[[M], Any], workers: int) -> None:
        self._handlers = HandlerThreads(messages, handler, workers)
        self._messages: MessageIterator[Any] = messages

    @property
    def error(self) -> BaseException | None:
        """The error that ended it; None while it runs and after a regular end."""
        return self._handlers.error

    @property
    def closed(self) -> bool:
        """True once all workers have ended."""
        return self._handlers.done.is_set()

    @property
    def messages(self) -> Messages[Any]:
        """Its messages, with counters, `buffered` and `paused_until`."""
        return Messages(self._messages)

    def wait(self, timeout: Timeout = None) -> bool:
        """Wait until it has ended (indefinitely by default); False after the timeout.

        Raises the error that ended it: ConsumerDeleted, AuthError if the connection gave up, SystemExit of a handler
        ...
        """
        engine_of(self._messages.connection).check_process()
        if not self._handlers.done.wait(resolve(timeout, None)):
            return False
        if self.error is not None:
            raise self.error
        return True

    def stop(self) -> None:
        """Start no more handlers. It does not wait (`wait` does); safe in signal handlers and in the handler."""
        self._messages.stop()

    def drain(self, timeout: Timeout = DEFAULT) -> None:
        """Request nothing more, handle the received messages, and wait until that is done (30 s by default).

        After the timeout it stops the consume and raises DrainTimeout. Called in the handler, it does not wait.
        """
        deadline = Deadline.of(timeout, STOP_TIMEOUT)
        here = self._handlers.runs_here()
        self._messages.drain(deadline.at_most(RUN_OUT if self._messages.runs_out and not here else FLUSH_TIMEOUT))
        if here:
            return
        if not self._handlers.done.wait(deadline.remaining()):
            self._messages.stop()
            left = errors.counted(self._messages.buffered, "message")
            raise errors.DrainTimeout(f"the drain ended with {left} unhandled")

    def close(self, timeout: Timeout = DEFAULT) -> None:
        """Stop, and wait at most `timeout` seconds (30 by default) for handlers in flight; idempotent."""
        self.stop()
        self._handlers.wait_for_handlers(resolve(timeout, STOP_TIMEOUT))

    def __enter__(self) -> ConsumeContext:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ConsumeContext of {self._messages.source} {'closed' if self.closed else 'running'}>"

    def __reduce__(self) -> Any:
        return engine_of(self._messages.connection).refuse_pickle(self)
