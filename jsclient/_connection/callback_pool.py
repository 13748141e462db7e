"""Runs the callbacks of many subscriptions on few threads.

The messages of one subscription are handled in order, and different subscriptions run side by side.

An `OrderedCallback` is the callback of one subscription, together with its mailbox. Its turn is a token: it is free, or
the entry waits in the pool's line, or a worker runs it. A worker takes the first entry in line and makes up to SLICE
calls. If more messages have come and others wait, it puts the entry back at the end of the line.

1. A worker that has found a mailbox empty releases the turn. Then it looks into the mailbox again and tries to take
   the turn back. So no message waits without a turn, and two workers never have the same entry.

2. At most one worker is between being woken and taking work (`_waking`). A worker that takes an entry and leaves others
   in line wakes the next one. So callbacks that never block run on one thread, and if one blocks, the next begins
   immediately.

3. The number of threads can grow to the number of callbacks that block. No smaller limit applies, because callbacks may
   wait for each other. The pool grows when the line is not empty, no worker is idle, and no callback has returned for
   GROW_AFTER. It grows by half, at most by one thread for each entry in line.

4. Before a worker parks, it sends the messages that callbacks have published.

5. An idle worker ends after WORKER_IDLE. If the system cannot start a thread, the pool tries again after a pause. A
   worker already holds the turn then, so no later message would start a thread.

10,000 subscriptions with callbacks took 10,000 threads and 293 MB. Now they take 5 threads and 64 MB, at 3-5 µs per
message instead of 400-500.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from jsclient import errors, handlers, waiting
from jsclient._connection.drainable import SLICE as DRAIN_SLICE
from jsclient._connection.mailbox import Mailbox
from jsclient.durations import Deadline
from jsclient.threads import Thread

if TYPE_CHECKING:
    from jsclient._connection.callbacks import EventsThread
    from jsclient._connection.flusher import Flusher
    from jsclient.connection import Connection
    from jsclient.message import Msg

log = logging.getLogger("jsclient.subscription")

SLICE: Final = 64
"""Messages of one subscription that a worker handles before it turns to the next in line."""

GROW_AFTER: Final = 0.002
"""Seconds in which no callback returns, after which the pool starts another thread for the entries in line."""

WORKER_IDLE: Final = 10.0
"""Seconds without work after which a worker thread ends; the next message starts one."""

NO_THREAD_PAUSE: Final = 0.1
"""Seconds until the pool tries again to start a thread when the system had none."""


class Owner(Protocol):
    """A subscription with a callback."""

    sid: bytes
    mailbox: Mailbox

    @property
    def closed(self) -> bool:
        """True once it has ended."""


class Host(Protocol):
    """The part of an engine that callbacks need."""

    number: int
    clock: Flusher
    events_thread: EventsThread
    callback_pool: CallbackPool
    flush_outbox: Callable[[], None]

    @property
    def closed(self) -> bool:
        """True once its end has begun."""

    def check_usable(self) -> None:
        """Raises ConnectionClosed."""

    def report_error(self, error: BaseException, subscription: Any) -> None:
        """To `on_error`, or to the log."""

    def callbacks_at_work(self) -> list[OrderedCallback]:
        """The callbacks that have not handled all their messages yet."""


class OrderedCallback:
    """The callback of one subscription."""

    __slots__ = (
        "_callback",
        "_connection",
        "_drained",
        "_mailbox",
        "_pool",
        "_subscription",
        "_turn",
        "barriers",
        "handled",
        "worker",
    )

    def __init__(
        self, subscription: Owner, connection: Connection, callback: Callable[[Msg], Any], pool: CallbackPool
    ) -> None:
        self._subscription: Owner = subscription
        self._connection: Connection = connection
        self._callback: Callable[[Msg], Any] = callback
        self._pool: CallbackPool = pool
        self._mailbox: Mailbox = subscription.mailbox
        self._turn: list[bool] = [True]  # `pop` takes it and `append` gives it back, each in one step
        self._drained: waiting.Gate | None = None
        self.handled: int = 0  # callbacks that have returned
        self.barriers: list[Barrier] = []  # they wait until it has handled some of its messages
        self.worker: int = 0  # the thread in which the callback runs now

    def messages_came(self) -> None:
        """Have the callback called for the messages in the mailbox; cheap if that is under way."""
        if self._turn and self._take_turn():
            self._pool.submit(self)

    def _take_turn(self) -> bool:
        try:
            return self._turn.pop()
        except IndexError:
            return False

    def due(self) -> int:
        """The number of callbacks that will have returned when all messages present now are handled, or one more."""
        waits = len(self._mailbox.items)  # first: a callback that returns meanwhile then counts twice, not zero times
        return waits + self.handled + 1

    @property
    def is_idle(self) -> bool:
        """True when everything that came was handled."""
        # The mailbox first: a worker that has taken the last message from it keeps the turn until that is handled.
        return not self._mailbox.items and bool(self._turn)

    def run(self) -> bool:
        """A worker, which has the turn, calls the callback for the messages present. True if more are left and others
        wait."""
        self.worker = threading.get_ident()
        mailbox, callback, pool = self._mailbox, self._callback, self._pool
        popleft, engine = mailbox.popleft, pool.engine
        connection = self._connection
        while True:
            for _ in range(SLICE):
                try:
                    message = popleft()
                except IndexError:
                    break
                try:
                    message.connection = connection
                    if (result := callback(message)) is not None:
                        handlers.ran(result)
                        result = None  # or it would live until the next message comes
                except BaseException as error:  # also SystemExit: it would end the worker unnoticed
                    engine.report_error(error, self._subscription)
                self.handled += 1
                pool.returned += 1
                if self.barriers:
                    self._tell_barriers()
            else:
                if pool.others_wait():
                    self.worker = 0
                    return True
                continue
            self.worker = 0
            self._turn.append(True)
            if not mailbox.items:
                self._tell_barriers()
                gate = self._drained
                if gate is not None:
                    gate.set()
                return False
            if not self._take_turn():
                return False  # the reader has put it in line again
            self.worker = threading.get_ident()

    def _tell_barriers(self) -> None:
        for known in list(self.barriers):
            known.look(self)

    def runs_here(self) -> bool:
        """True when this thread is running the callback."""
        return self.worker == threading.get_ident()

    def wait_idle(self, deadline: Deadline, closed: Callable[[], bool]) -> bool:
        """Wait until everything was handled, until the deadline or until the connection is closed."""
        gate = self._drained = waiting.Gate()
        self.messages_came()
        while not self.is_idle:
            if deadline.expired() or closed():
                return False
            gate.wait(deadline.at_most(DRAIN_SLICE))
            gate.clear()
        return True

    def ended(self) -> None:
        """The mailbox was closed: if the subscription has its own thread, that thread has to end."""
        self._pool.look_again()

    def forked(self) -> None:
        """This is a forked child, perhaps forked in a callback: its thread ends when the callback returns."""
        self._pool.stop()


class CallbackPool:
    """A pool of worker threads for the callbacks of one connection, or (`own`) of one subscription."""

    def __init__(self, engine: Host, own: Owner | None = None) -> None:
        self.returned = 0  # callbacks that have returned: a sign of life
        self.engine: Host = engine
        self._own: Owner | None = own  # the subscription, if it has a thread to itself
        self._line: deque[OrderedCallback] = deque()
        self._idle: deque[waiting.Ticket[Any]] = deque()
        self._waking = False
        self.workers: int = 0
        self._started = 0
        self._lock = waiting.new_lock()
        self._watching = False
        self._seen = -1
        self._stopped = False
        self.barriers: list[Barrier] = []  # of the connection: its own pool knows them

    def submit(self, callback: OrderedCallback) -> None:
        """Put it in line; the caller has taken its turn."""
        self._line.append(callback)
        if not self._waking:
            self._wake()

    def others_wait(self) -> bool:
        return bool(self._line)

    def look_again(self) -> None:
        """A subscription has ended: if it has its own thread, that thread ends, too."""
        if self._own is not None:
            self._wake_idle()

    def stop(self) -> None:
        """The threads end as soon as their callbacks return."""
        self._stopped = True
        self._wake_idle()

    def _wake_idle(self) -> None:
        while self._idle:
            try:
                self._idle.pop().put(None)
            except IndexError:
                return

    @property
    def _is_over(self) -> bool:
        """True when a thread that finds nothing in line shall end."""
        return self._stopped or (self._own is not None and self._own.closed)

    # --- threads ----------------------------------------------------------------------------------------

    def _wake(self) -> None:
        # Set this first: if that worker's idle time is up just then, it clears the flag, and must do so last.
        self._waking = True
        try:
            ticket = self._idle.pop()
        except IndexError:
            self._waking = False
            if self.workers:
                self._watch(GROW_AFTER)
            else:
                self._start(1)
            return
        ticket.put(None)

    def _start(self, count: int) -> None:
        for _ in range(count):
            with self._lock:
                if self._stopped or (self._own is not None and self.workers):
                    return
                self.workers += 1
                self._started += 1
            number = self._started if self._own is None else f"own-{self._own.sid.decode()}"
            name = f"jsclient-worker-{self.engine.number}-{number}"
            worker: Thread | None = None
            try:
                worker = Thread(name, self._work)
                worker.start()
            except (errors.NoThread, MemoryError) as error:  # or the interpreter is going down: the reader continues
                self._watch(NO_THREAD_PAUSE)
                log.error(
                    "no thread for callbacks, trying again in %g s: %s",
                    NO_THREAD_PAUSE,
                    errors.brief(error),
                    exc_info=error,
                )
                return
            finally:
                if worker is None or not worker.began:
                    with self._lock:
                        self.workers -= 1

    def _watch(self, after: float) -> None:
        """Look again after a while whether the line moves."""
        if not self._watching:
            self._watching = True
            self._seen = self.returned
            self.engine.clock.call_later(after, self._look)

    def _look(self) -> None:
        self._watching = False
        if self._stopped or self._idle or not self._line:
            return
        if self.returned == self._seen or not self.workers:
            self._start(min(len(self._line), max(1, self.workers // 2)))
        self._watch(GROW_AFTER)

    # --- a worker ---------------------------------------------------------------------------------------

    def _work(self) -> None:
        line = self._line
        while not self._stopped:
            try:
                callback = line.popleft()
            except IndexError:
                if not self._park():
                    break
                continue
            if line and not self._waking:
                self._wake()
            try:
                unfinished = callback.run()
            except MemoryError:  # too little memory to report what the callback raised: leave it for the rest
                unfinished = True
            if unfinished:
                line.append(callback)  # with its turn
        with self._lock:
            self.workers -= 1
            self._stopped = self._stopped or self._own is not None  # messages that come later start no second thread
        if line and not self._stopped:
            self._watch(GROW_AFTER)

    def _park(self) -> bool:
        """Wait for work; False when the thread is not needed any more."""
        self.engine.flush_outbox()
        ticket: waiting.Ticket[Any] = waiting.Ticket()
        self._idle.append(ticket)
        if not self._line and not self._is_over:  # checked after the ticket is queued
            try:
                # A subscription's own thread lives as long as the subscription, so thread-local state is not lost.
                waiting.get(ticket, WORKER_IDLE if self._own is None else None)
                self._waking = False
                return True
            except queue.Empty:
                pass
        try:
            self._idle.remove(ticket)
        except ValueError:
            self._waking = False  # woken just now
            return True
        return bool(self._line) and not self._stopped


BARRIER_TIMEOUT: Final = 30.0
"""Seconds that `barrier` waits by default, as a drain does."""


class Barrier:
    """Ends once, when these callbacks have handled the messages present now, or when the connection has ended.

    The callbacks and the pool know it while it lasts. A callback looks whether a barrier is present after it has
    returned. So the barrier first enters itself, and then looks at the callbacks once more.
    """

    def __init__(self, engine: Host, callbacks: list[OrderedCallback], call: Callable[[], Any] | None) -> None:
        self._engine = engine
        self._calls = [] if call is None else [call]  # `pop` takes it, so it runs once
        self._left = {callback: callback.due() for callback in callbacks}
        self.over = waiting.Gate()
        engine.callback_pool.barriers.append(self)
        for callback in callbacks:
            callback.barriers.append(self)
        for callback in callbacks:
            self.look(callback)
        if not self._left or engine.closed:
            self.end()

    def look(self, callback: OrderedCallback) -> None:
        """The callback has returned, or it is idle."""
        if callback.handled >= self._left.get(callback, 0) or callback.is_idle:
            self._left.pop(callback, None)
            _discard(callback.barriers, self)
            if not self._left:
                self.end()

    def forked(self) -> None:
        """In a forked child it ends, and a callback that continues there forgets it."""
        for callback in list(self._left):
            callback.barriers.clear()
        self.over.set()

    def end(self) -> None:
        for callback in list(self._left):
            _discard(callback.barriers, self)
        _discard(self._engine.callback_pool.barriers, self)
        self.over.set()
        with contextlib.suppress(IndexError):
            self._engine.events_thread.run(self._calls.pop(), always=self._engine.closed)


def _discard(barriers: list[Barrier], barrier: Barrier) -> None:
    with contextlib.suppress(ValueError):  # another thread has removed it
        barriers.remove(barrier)


def barrier(engine: Host, call: Callable[[], Any] | None, deadline: Deadline) -> None:
    """See `Connection.barrier`."""
    engine.check_usable()
    callbacks = engine.callbacks_at_work()
    if call is None and any(callback.runs_here() for callback in callbacks):
        raise errors.Reentered("a callback cannot wait until it has returned itself: give barrier a function to call")
    made = Barrier(engine, callbacks, call)
    if call is not None:
        return
    try:
        passed = made.over.wait(deadline.remaining())
    finally:
        made.end()
    engine.check_usable()  # a close discards the messages that wait
    if not passed:
        raise errors.TimedOut(
            "callbacks have not handled in time what had come before. They go on with it. Wait again."
        )
