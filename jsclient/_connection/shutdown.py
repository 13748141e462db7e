"""Ends a connection: by a drain in order, by an immediate close, or for good because of an error."""

from __future__ import annotations

import logging
import threading
import warnings
from typing import TYPE_CHECKING, Final

from jsclient import errors, waiting
from jsclient._connection.connecting import NO_THREAD_PAUSE
from jsclient._connection.drainable import Drainable
from jsclient._connection.events import ConnectionEvent, guarded
from jsclient._connection.link import Link
from jsclient._connection.session import CLOSE_FLUSH, JOIN_TIMEOUT
from jsclient.durations import DEFAULT, Deadline, Timeout, resolve
from jsclient.states import ConnectionState, LinkEvent
from jsclient.threads import Thread

if TYPE_CHECKING:
    from jsclient._connection.engine import Engine
    from jsclient.connection import Connection

log = logging.getLogger("jsclient.connection")

ACK: Final = b"$JS.ACK."

LAST_FLUSH: Final = 0.1
"""Seconds that a drain still gives the server, after its own time is up, to read the frames sent."""


class Shutdown:
    """Both ways end in `close_now`, once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._fatal: BaseException | None = None
        self._close_asked = self._drain_asked = False
        self._untold: list[None] = [None]  # empty once the close was reported
        self._closer = self._drainer = 0  # the thread that does it
        self._drained = waiting.Gate()  # open once the draining thread has finished
        self._drain_problem: errors.DrainTimeout | None = None

    # --- closing ----------------------------------------------------------------------------------------

    def close(self, wait: bool = True) -> None:
        """Send buffered data (at most 2 s), then end everything; blocked calls raise ConnectionClosed. Idempotent.

        `wait=False` only requests it and returns immediately, which is safe in signal handlers and `__del__`. A call by
        a signal handler on top of a write of the same thread does the same.
        """
        engine = self._engine
        if wait and not engine.outbox.lock._is_owned():
            self.close_now()
        elif not engine.session.closing.is_set():
            self._close_asked = True
            engine.clock.call_soon(self.close_now)

    def abandon(self, connection: Connection) -> None:
        """The garbage collector took its Connection, which the program had not closed. A finalizer runs anywhere, even
        while our locks are held, so another thread does the work."""
        engine = self._engine
        if engine.clock.thread.ident is None or engine.draining or self._close_asked or self._drain_asked:
            return
        self.close(wait=False)  # first: a warning may be an exception
        warnings.warn(f"unclosed {engine!r}: call close(), or use a with block", ResourceWarning, 3, source=connection)

    def close_now(self, wait: bool = True, error: BaseException | None = None, flush: float | None = None) -> None:
        engine = self._engine
        session = engine.session
        first = False
        link: Link | None = None
        try:
            with session.lock:
                if not session.closing.is_set():
                    first = True  # before other threads can see it: from here on the end comes, even after a Ctrl-C
                    self._closer = threading.get_ident()
                    session.closing.set()
            if first:
                self._fatal = error
                link = session.link
                session.begin_close()
                self._let_go()
                if link is not None and error is None:
                    session.final_flush(link, CLOSE_FLUSH if flush is None else flush, self._hand_back)
        finally:
            if first:
                try:
                    self._finish_close(link or session.link)
                except BaseException:  # Ctrl-C in there: threads and the socket would stay forever
                    self._finish_close(link or session.link)
                    raise
        # A signal handler on top of the closing thread would wait for work that continues only when it returns.
        if not first and wait and threading.get_ident() not in (engine.clock.thread.ident, self._closer):
            session.closed.wait(CLOSE_FLUSH + 2 * JOIN_TIMEOUT)

    def _let_go(self) -> None:
        """End all waits for a reply, a message or room in a window; no handler starts any more."""
        engine = self._engine
        engine.requests.fail(self.closed_error)
        for drainable in engine.drainables.all():
            guarded(drainable.end, self.closed_error())
        for subscription in list(engine.subscriptions.sinks.values()):
            guarded(subscription.end, self.closed_error())
        engine.events.link_event(LinkEvent.CLOSED)

    def _hand_back(self) -> list[bytes]:
        """The last frames to send: they return unhandled messages to the server, which delivers them elsewhere."""
        engine = self._engine
        frames: list[bytes] = []
        for drainable in engine.drainables.all():
            guarded(lambda drainable: frames.extend(drainable.hand_back()), drainable)
        engine.drainables.wait_for_calls()
        return [*frames, *engine.drainables.left]

    def _finish_close(self, link: Link | None) -> None:
        engine = self._engine
        engine.session.begin_close()  # again, if Ctrl-C came before it
        left = engine.outbox.close(self.closed_error)
        if left:
            log.warning("connection %d was closed with %d messages unsent", engine.number, len(left))
            acks = sum(isinstance(frame, bytes) and frame[4 : 4 + len(ACK)] == ACK for frame in left)
            engine.count_out(acks - len(left))  # acks are not counted
        engine.requests.fail(self.closed_error)  # the ones that began meanwhile
        try:
            engine.session.end_close(link)
        finally:  # it waits for threads, and Ctrl-C ends that
            engine.subscriptions.sinks.clear()
            engine.clock.stop()
            engine.callback_pool.stop()
            for barrier in list(engine.callback_pool.barriers):
                barrier.end()
            if self._untold:
                self._untold.pop()
                engine.events.tell(ConnectionEvent("closed", self._fatal), last=True)
            engine.events_thread.stop()
            engine.gone()
        if engine.clock.thread.is_alive() and threading.current_thread() is not engine.clock.thread:
            engine.clock.thread.join(JOIN_TIMEOUT)

    def fail(self, error: BaseException) -> None:
        """The session has ended for good (called by it, on one of its threads)."""
        engine = self._engine
        log.error("connection %d ends: %s", engine.number, errors.brief(error))
        engine.report_error(error, None)
        self.close_now(wait=False, error=error)

    def closed_error(self) -> errors.ConnectionClosed:
        """The error of all later calls. Its `reason` is the error that ended the connection, if there was one."""
        if self._fatal is None:
            return errors.ConnectionClosed("the connection is closed")
        closed = errors.ConnectionClosed(f"the connection has ended: {errors.brief(self._fatal)}")
        closed.reason = self._fatal
        return closed

    # --- draining ---------------------------------------------------------------------------------------

    def drain(self, timeout: Timeout = DEFAULT, wait: bool = True) -> None:
        """See `Connection.drain`. Runs on another thread if the caller does not wait, or would wait for itself."""
        engine = self._engine
        seconds = resolve(timeout, engine.options.drain_timeout)
        if wait and not engine.drainables.run_here() and not engine.outbox.lock._is_owned():
            self._drain(seconds)
        elif not self._drain_asked and not engine.closed:
            self._drain_asked = True
            engine.clock.call_soon(lambda: self._drain_in_background(seconds))

    def _drain_in_background(self, seconds: float | None) -> None:
        engine = self._engine
        name = f"jsclient-worker-drain-{engine.number}"
        try:
            Thread(name, self._drain_quietly, seconds).start()
        except (errors.NoThread, MemoryError) as error:
            log.error(
                "no thread to drain connection %d with, trying again: %s",
                engine.number,
                errors.brief(error),
                exc_info=error,
            )
            engine.clock.call_later(NO_THREAD_PAUSE, lambda: self._drain_in_background(seconds))

    def _drain_quietly(self, seconds: float | None) -> None:
        try:
            self._drain(seconds, quiet=True)
        except errors.JsClientError as error:
            self._engine.report_error(error, None)

    def _drain(self, seconds: float | None, quiet: bool = False) -> None:
        engine = self._engine
        if engine.closed:
            return
        deadline = Deadline(seconds)
        session = engine.session
        with session.lock:
            first = not engine.draining
            if first:
                self._drainer = threading.get_ident()
            engine.draining = True
            if first and not engine.closed:
                session.state = ConnectionState.DRAINING_SUBSCRIPTIONS
        if not first:
            # Another thread drains: closing now would discard the messages that it waits for.
            if self._drainer == threading.get_ident() and not self._drained.is_set():
                raise errors.Reentered("drain in a signal handler or finalizer, on top of the same on its own thread")
            if not self._drained.wait(deadline.remaining()):
                raise errors.DrainTimeout("another thread still drains this connection")
            if self._drain_problem is not None:
                raise errors.DrainTimeout(self._drain_problem.what)
            return
        problem: errors.DrainTimeout | None = None
        try:
            problem = self._drain_problem = self._drain_in_order(deadline)
            if problem is not None and quiet:
                engine.report_error(problem, None)  # now: closing ends the events thread
        finally:  # also after a Ctrl-C
            try:
                self.close_now(flush=max(deadline.at_most(CLOSE_FLUSH), LAST_FLUSH))
            finally:
                self._drained.set()
        if problem is not None and not quiet:
            raise problem

    def _drain_in_order(self, deadline: Deadline) -> errors.DrainTimeout | None:
        """Stop receiving, let the application finish, stop publishing, and make sure that everything arrives."""
        engine = self._engine
        drainables = [drainable for drainable in engine.drainables.all() if not drainable.publishes]
        for drainable in drainables:
            drainable.begin_drain()
        # Without a link nothing is on its way, and a new link starts without these subscriptions.
        late = self._flush_draining(deadline.remaining()) if drainables and engine.is_connected else None
        for drainable in drainables:
            drainable.all_received()
        problem = self._finish(drainables, deadline)
        engine.session.drain_publishes()
        # Listed only now: a handler that ran until here may have been the first to publish.
        publishing = [drainable for drainable in engine.drainables.all() if drainable.publishes]
        problem = self._finish(publishing, deadline) or problem
        if not engine.is_connected and not engine.closed and not engine.outbox.keeps():
            return problem  # no kept frame needs a new link
        unsent = self._flush_draining(deadline.at_most(CLOSE_FLUSH) if problem or late else deadline.remaining())
        return problem or unsent

    def _finish(self, drainables: list[Drainable], deadline: Deadline) -> errors.DrainTimeout | None:
        problem: errors.DrainTimeout | None = None
        for drainable in drainables:
            try:
                drainable.finish_drain(deadline)
            except errors.DrainTimeout as error:
                problem = problem or error
        return problem

    def _flush_draining(self, timeout: float | None) -> errors.DrainTimeout | None:
        engine = self._engine
        try:
            engine.requests.rtt(timeout)
        except (errors.TimedOut, errors.NatsConnectionError) as error:
            kept = len(engine.outbox.frames)
            lost = f", and the client threw {errors.counted(kept, 'message')} of its buffer away" if kept else ""
            return errors.DrainTimeout(f"draining ended before everything was sent{lost}: {errors.brief(error)}")
        return None
