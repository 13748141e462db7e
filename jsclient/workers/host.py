"""The common part of WorkerPool and GroupPool: the object behind a pool, and its public side."""

from __future__ import annotations

import abc
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jsclient import errors, kinds, waiting
from jsclient._connection import Drainable, wait_for
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Deadline, Timeout, resolve
from jsclient.instruments import handling
from jsclient.jetstream import Consumer
from jsclient.waiting import Gate
from jsclient.workers.options import PoolOptions
from jsclient.workers.parts import PoolEvent, StopReport, Worker, tell
from jsclient.workers.signals import StopSignals
from jsclient.workers.stats import PoolSnapshot
from jsclient.workers.typed import typed_handler

if TYPE_CHECKING:
    from jsclient._connection import Engine
    from jsclient.connection import Connection
    from jsclient.jetstream import JetStreamMsg
    from jsclient.jetstream.consuming.typed import Values
    from jsclient.workers.progress import Held


class Core(Drainable, abc.ABC):
    """Threads with handlers, and their end. `title` names the pool in logs."""

    def __init__(
        self,
        connection: Connection,
        options: PoolOptions,
        values: Values[Any] | None,
        handler: Callable[[Any], Any],
        title: str,
        log: logging.Logger,
    ) -> None:
        self.connection: Connection = connection
        self.engine: Engine = engine_of(connection)
        self.options: PoolOptions = options
        self.handler: Callable[[Any], Any] = handling(
            connection.options.instrumentation, typed_handler(handler, values, bool(options.batch))
        )
        self.title = title
        self._log = log
        self.taken_from: Consumer[Any] | None = None
        self.workers: list[Worker] = [Worker() for _ in range(options.threads)]
        self.stopping: bool = False
        self.ended: Gate = Gate()
        self.waited: bool = False  # a stop has waited for the handlers
        self.error: BaseException | None = None
        self._error_lock = waiting.new_lock()

    @property
    def consumer(self) -> Consumer[Any]:
        if self.taken_from is None:
            raise errors.ConfigError(f"{self!r} has no consumer yet. Wait until it has joined.")
        return self.taken_from

    def note_end(self, error: BaseException) -> bool:
        """Keep the first error, which ended the pool. Returns True for that one."""
        with self._error_lock:
            first = self.error is None
            self.error = self.error or error
        if first:
            self._log.error("%s ends: %s", self.title, errors.brief(error), exc_info=error)
        return first

    # --- handlers ---------------------------------------------------------------------------------------

    def count(self, worker: Worker, seconds: float, message: JetStreamMsg) -> None:
        """Note how long a handler took."""
        worker.counters.times.append(seconds)

    def in_hand(self) -> list[JetStreamMsg]:
        """The messages that handlers work on now."""
        return [held.message for worker in self.workers for held in worker.held if held.message is not None]

    def hung(self, held: Held) -> None:
        seconds, limit = time.monotonic() - held.started, self.options.progress_limit
        text = "a handler of %s has run for %.1f s, the limit is %.1f s: the server redelivers its message"
        self._log.error(text, self.title, seconds, limit)
        self.engine.run_callback(self.event, "hung", held.hung, None, seconds)

    def event(self, kind: str, message: Any, error: BaseException | None = None, seconds: float = 0.0) -> None:
        """Call `on_event` and log its exceptions."""
        if self.options.on_event is not None:
            tell(self.options.on_event, PoolEvent(kind, message, error, seconds))

    def reported(self, error: Exception) -> None:
        """An error that reading survives."""
        self._log.warning("%s: %s", self.title, error, exc_info=error)
        self.event("failed", None, error)

    # --- the end ----------------------------------------------------------------------------------------

    @abc.abstractmethod
    def snapshot(self) -> PoolSnapshot:
        """Counters and latencies at this moment."""

    @abc.abstractmethod
    def stop(self, timeout: Timeout = DEFAULT, wait: bool = True) -> StopReport | None:
        """See `Pool.stop`."""

    def report(self, finished: bool, running: list[JetStreamMsg], given_back: int) -> StopReport:
        """The result of a stop. `running` are the messages that it cuts off."""
        for message in running:
            self.event("cut off", message)
        return StopReport(finished, tuple(running), given_back)

    def finish_drain(self, deadline: Deadline) -> None:
        if not wait_for(self.ended, deadline, lambda: self.connection.closed):
            left = errors.counted(len(self.in_hand()), "handler")
            raise errors.DrainTimeout(f"{left} of {self.title} did not end in time")

    def runs_here(self) -> bool:
        return threading.current_thread() in {worker.thread for worker in self.workers}


class Pool:
    """The public side of a pool.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    @property
    def consumer(self) -> Consumer[Any]:
        """The consumer of the messages. A member of a group raises ConfigError before it has joined."""
        return self._core.consumer

    @property
    def options(self) -> PoolOptions:
        """The options of the pool, with the defaults."""
        return self._core.options

    @property
    def stopping(self) -> bool:
        """True once it starts no more handlers."""
        return self._core.stopping

    @property
    def closed(self) -> bool:
        """True once every handler has ended."""
        return self._core.ended.is_set()

    @property
    def error(self) -> BaseException | None:
        """The error that ended it; None while it runs, and after a stop."""
        return self._core.error

    def snapshot(self) -> PoolSnapshot:
        """Counters and latencies at this moment; cheap enough for a probe every second."""
        return self._core.snapshot()

    def wait(self, timeout: Timeout = None) -> bool:
        """Wait until it has ended by itself or was stopped (indefinitely by default); False after the timeout.

        Raises the error that ended it: ConsumerDeleted, GroupNotFound, AuthError of a connection that is given up ...
        """
        self._core.engine.check_process()
        if not self._core.ended.wait(resolve(timeout, None)):
            return False
        if self._core.error is not None:
            raise self._core.error
        return True

    def stop(self, timeout: Timeout = DEFAULT, wait: bool = True) -> StopReport | None:
        """Start no more handlers, return unstarted messages to the server, and wait (25 s by default) for running
        handlers.

        A GroupPool keeps the last fifth of the time (at most 5 s) for leaving its group. If it cuts off a handler, the
        partitions go to other members only when the server counts the process as dead.

        Never raises for a handler that does not end: the report names the messages that were cut off. `wait=False`
        returns None immediately: safe in signal handlers; so does a call inside a handler. Acks are flushed before it
        returns. In a forked child it raises ForkedConnection, because the child cannot find out how the parent's
        handlers ended.
        """
        kinds.check(bool, wait=wait)
        resolve(timeout, None)  # a wrong value raises while the pool still runs
        return self._core.stop(timeout, wait)

    def run_until_signal(self, timeout: Timeout = DEFAULT) -> StopReport:
        """Block until SIGTERM or SIGINT (or until the pool ends by itself), then stop. Call it in the main thread.

        While it stops, further signals change nothing. The third SIGINT raises KeyboardInterrupt. Raises the error that
        ended the pool, as `wait` does, unless the application ended it.
        """
        resolve(timeout, None)  # a wrong value raises before the wait for a signal
        with StopSignals() as signals:
            signals.wait(self._core.ended)
            report = self.stop(timeout)
        if self._core.error is not None:
            raise self._core.error
        assert report is not None
        return report

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(errors.ForkedConnection):  # a child that leaves the blocks of its parent
            self.stop(0 if self._core.waited else DEFAULT)  # handlers that a stop has cut off get no second wait

    def __repr__(self) -> str:
        return repr(self._core)

    def __reduce__(self) -> Any:
        return self._core.engine.refuse_pickle(self)
