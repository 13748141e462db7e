"""WorkerPool: threads that handle the messages of one pull consumer, and see to acks, retries and the end."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from jsclient import errors, handlers, waiting
from jsclient._engine import Taker, wait_for
from jsclient.connection import engine_of
from jsclient.declared import arguments
from jsclient.durations import DEFAULT, Deadline, Timeout, resolve
from jsclient.hints import Unpack
from jsclient.instruments import handling
from jsclient.jetstream import Consumer, JetStreamMsg
from jsclient.jetstream.consuming.pull import UNLIMITED_BATCH
from jsclient.jetstream.consuming.pull_inboxes import FLUSH_TIMEOUT
from jsclient.jetstream.consuming.typed import values_in
from jsclient.shared_options import with_shared_options
from jsclient.threads import Thread, start_all
from jsclient.waiting import Gate
from jsclient.workers import stats
from jsclient.workers.batch_work import BatchWork
from jsclient.workers.keyed_work import KeyedWork
from jsclient.workers.options import MAX_PREFETCH, PoolOptions, PoolOptionsDict
from jsclient.workers.parts import PoolEvent, PoolMessages, StopReport, Worker, tell
from jsclient.workers.prefetch import SAMPLE, SAMPLE_SECONDS, Prefetch
from jsclient.workers.progress import PART, Held, Progress
from jsclient.workers.settle import Settler
from jsclient.workers.signals import StopSignals
from jsclient.workers.typed import typed_handler, with_dead_letter
from jsclient.workers.waits import waits_of

if TYPE_CHECKING:
    from jsclient.connection import Connection

T = TypeVar("T", bound=JetStreamMsg)

log: logging.Logger = logging.getLogger("jsclient.workers")


@with_shared_options
class WorkerPool(Taker):
    """Handle the messages of a pull consumer in `threads` threads. Starts at once; use it in a `with` block.

    The outcome of `handler(message)` decides the ack: it returns: ack (`confirm=True`: wait for the server's
    confirmation); it raises: delivered again after the pool's `backoff`, the consumer's, or 1 s; it raises
    `Retry(delay)`: after that delay, up to `retries` times; `Reject(reason)`: never again. With `attempts=N` a message
    that fails at its N-th delivery or later is given up (deliveries that ended in Retry are left out). Given up means
    stored under `dead_letter` with its reason, if that is set, then terminated; while it cannot be stored, it is tried
    again. Deliveries that no handler saw (given back by a stop, prefetched by a killed process) count, but a message
    is only given up unseen after five more than `attempts`: it seems to kill its workers. `manual=True`: the handler
    acks by itself; what it raises is still dealt with unless it has.

    While a handler runs, the server is told so after a third of `ack_wait` (or of the consumer's back-off entry in
    force), for at most `progress_limit` seconds (an hour). `key=function(message)` keeps order: messages of one key
    are handled one after another in stream order, a failed one is tried again in this process before the next; that
    holds within one pool, not between pools that share a consumer (see GroupPool). After a lost link it starts nothing
    until the server knows of no unfinished delivery that is not here: for `ack_wait` if some were lost.
    `batch=(size, seconds)`: the handler gets a list of up to `size` messages, at the latest `seconds` after the
    first; it may return an outcome per message or raise BatchFailed.

    `later="jobs.later"`: a message to be tried again after `later_from` seconds (60) or more waits as a schedule
    under that subject of its own stream, a work queue with `allow_msg_schedules` (server 2.12), and holds no place of
    `max_ack_pending`; it comes back as a new message. Where the server or the stream has no schedules it is naked.

    Fast handlers prefetch up to `max_prefetch` messages, slow ones hold none beyond those being handled; if all of
    them block, what was prefetched goes back after a third of `ack_wait`.

    `WorkerPool(consumer.typed(Order), handler)`: the handler gets messages with a `value` of that type. A message that
    cannot be decoded does not reach it. With `on_bad="raise"` it counts as one whose handler raised DecodeFailed. With
    "skip" the pool terminates it, with "reject" it stores it under `dead_letter` first.

    `group` is the priority group to take part in, for a consumer that has some (server 2.11).
    `on_event` gets PoolEvents in the worker threads. Raises ConfigError for a consumer that does not fit: its
    `max_deliver` must be -1 with `attempts`, its ack policy explicit.
    """

    @arguments
    def __init__(
        self,
        consumer: Consumer[T],
        handler: Callable[[T], Any] | Callable[[list[T]], Any],
        **options: Unpack[PoolOptionsDict],
    ) -> None:
        handlers.required(handler, "the handler")
        values = values_in(consumer)
        given: Any = options
        try:
            self.options: PoolOptions = with_dead_letter(PoolOptions(**given), values)
        except TypeError as error:
            raise errors.ConfigError(f"{error}; see jsclient.workers.PoolOptions") from None
        self.consumer: Consumer[Any] = consumer
        """What it takes messages from."""
        self.connection: Connection = consumer.nc
        """Its connection."""
        self._engine = engine_of(self.connection)
        self.handler: Callable[[Any], Any] = handling(
            self.connection.options.instrumentation, typed_handler(handler, values, bool(self.options.batch))
        )
        """For layers."""
        waits = waits_of(consumer, self.options)
        self.settler: Settler = Settler(self, waits.backoff)
        """For layers."""
        self._workers = [Worker() for _ in range(self.options.threads)]
        intervals = [wait / PART for wait in waits.ack]
        self._progress = Progress(
            self.connection, self._held, intervals, self.options.progress_limit, self._hung, self._stuck
        )
        self._first_interval = self._progress.intervals[0]
        self._keyed = KeyedWork(self, waits.ack)
        self._turn = waiting.new_turn()  # of the thread that takes a message while nothing is prefetched
        self._suspects = waiting.new_turn()
        self._first_prefix = b"\0"
        self.stopping: bool = False
        """For layers."""
        self._release_asked = False
        self._waited = False
        self._giving_back = False
        self._released = waiting.new_turn()
        self._ended = Gate()
        self._running = len(self._workers)
        self._running_lock = waiting.new_lock()
        self.error: BaseException | None = None
        """What ended it; None while it runs, and after a stop of its own."""
        unit = self.options.batch[0] if self.options.batch else 1
        first = min(len(self._workers) * unit, waits.max_batch or UNLIMITED_BATCH)
        # No byte limit: the window changes all the time, and pulls that share out bytes would get crumbs. Memory is
        # bounded by what may be prefetched, see Prefetch.
        window: dict[str, Any] = {"max_messages": first, "max_bytes": 0, "threshold_messages": 1}
        window |= {"group": self.options.group, "on_error": self._reported}
        self._messages: PoolMessages = PoolMessages(consumer, **window)
        if values is not None:
            self._messages.makes(values.later)  # decoded by the worker's thread
        self._messages.for_handlers()
        self._prefetch = Prefetch(self._messages, self._workers, unit, self.options.max_prefetch, waits.max_batch)
        self._start()

    def _start(self) -> None:
        work = self._keyed.work if self.options.key else self._work
        if self.options.batch:
            work = BatchWork(self, self.options.batch, self._messages, self._prefetch, self._take_one).work
        for number, worker in enumerate(self._workers):
            name = f"jsclient-worker-pool-{self.consumer.name}-{number}"
            worker.thread = Thread(name, self._guard, work, worker)
        threads = [worker.thread for worker in self._workers if worker.thread is not None]
        try:
            self._engine.takers.enter(self, instead_of=self._messages)
            self._engine.check_takes()
            if self.options.in_progress:
                self._progress.start()
            start_all(threads, f"the pool of {self.consumer}")
        except BaseException:
            self.stopping = True
            self._messages.stop()
            # Those that have begun end by themselves.
            self._worker_ended(sum(not thread.began for thread in threads))
            self.stop()
            raise

    # --- workers ----------------------------------------------------------------------------------------

    def _guard(self, work: Callable[[Worker], None], worker: Worker) -> None:
        try:
            work(worker)
        except errors.IteratorClosed:
            pass
        except errors.ConnectionClosed as closed:
            self._ended_by(closed.reason)
        except BaseException as error:
            self._ended_by(error)
        finally:
            self._worker_ended(1)

    def _ended_by(self, error: BaseException | None) -> None:
        """What ends one worker ends all: a pool that lost some of its threads would look healthy. Told once; None:
        the application itself has closed the connection."""
        first = error is not None and self._note_end(error)
        self.stopping = True
        self._messages.stop()
        if first:
            self.event("failed", None, error)

    def _note_end(self, error: BaseException) -> bool:
        """True the first time."""
        with self._running_lock:
            first = self.error is None
            self.error = self.error or error
        if first:
            log.error("the pool of %s ends: %s", self.consumer, errors.brief(error), exc_info=error)
        return first

    def _worker_ended(self, count: int) -> None:
        with self._running_lock:
            self._running -= count
            last = count > 0 and self._running == 0
        self._keyed.wake()
        if last:
            self._progress.stop()
            try:
                self._release()
            finally:
                self._ended.set()

    def _work(self, worker: Worker) -> None:
        # The hot path of the pool, in one function: what it adds to a bare consume loop is a lookup of the first
        # delivery, two looks at the clock, and the ack. With a Held per message and calls for counting and acking it
        # cost 7.9 us where consume took 4.4; like this 5.2.
        take, prefetch, monotonic = self._messages.__next__, self._prefetch, time.monotonic
        handler, settler, counters = self.handler, self.settler, worker.counters
        plain = settler.plain
        held = Held(None, self._first_interval)
        here = (held,)
        note_time = counters.times.append
        calls, spent = 0, 0.0  # that the worker has not been told of
        message: JetStreamMsg | None
        while not self.stopping:
            if prefetch.size:
                try:
                    message = take()
                except StopIteration:
                    return
            else:
                message = self._take_one(worker)
            if message is None:
                continue
            if not (message.msg.raw_reply or b"").startswith(self._first_prefix):
                self._handle_again(worker, message)
                continue
            held.started = held.told = started = monotonic()
            held.message = message
            worker.held = here
            try:
                if (result := handler(message)) is not None:
                    handlers.ran(result)
                    result = None  # or it would live until the next message comes
            except BaseException as error:
                # Held until that is settled too: a dead letter may take longer than ack_wait.
                settler.failed(worker, message, error, 1, monotonic() - started)
                worker.held = ()
                continue
            worker.held = ()
            seconds = monotonic() - started
            note_time(seconds)
            calls += 1
            spent += seconds
            if calls >= SAMPLE or spent >= SAMPLE_SECONDS or not prefetch.size:
                self._add_calls(worker, calls, spent, message)
                calls, spent = 0, 0.0
            if plain:
                counters.handled += 1
                try:
                    message.ack()
                except errors.JsClientError as error:
                    settler.not_acked(message, error)
            else:
                settler.handled(worker, message, seconds)
            held.message = message = None  # or it would live until the next one comes

    def _take_one(self, worker: Worker) -> JetStreamMsg | None:
        """A message for this worker alone: one worker at a time counts the free ones, pulls for them and takes.

        Without the turn, a worker that has taken and is not yet seen as busy would be pulled for once more, and that
        message would wait behind a slow handler.
        """
        with self._turn:
            self._prefetch.make_room(worker)
            message = self._messages.take(None)
            if message is not None:
                worker.held = (Held(message, self._first_interval),)
            return message

    def _handle_again(self, worker: Worker, message: JetStreamMsg) -> None:
        """A message that was delivered before, or the very first one of the pool."""
        deliveries = self.deliveries(worker, message)
        worker.held = (Held(message, self._progress.interval(deliveries)),)
        if self.settler.is_spent(message, deliveries):
            self.settler.exhausted(worker, message, deliveries)
            worker.held = ()
            return
        if self.settler.is_suspect(message, deliveries):
            with self._suspects:  # alone, and acked before the next: one that kills the process takes no other along
                self._try_again(worker, message, deliveries)
                self._engine.flush_outbox()
        else:
            self._try_again(worker, message, deliveries)
        worker.held = ()

    def _try_again(self, worker: Worker, message: JetStreamMsg, deliveries: int) -> None:
        started = time.monotonic()
        error: BaseException | None = None
        try:
            handlers.ran(self.handler(message))
        except BaseException as raised:
            error = raised
        seconds = time.monotonic() - started
        self.count(worker, seconds, message)
        if error is None:
            worker.held = ()
            self.settler.handled(worker, message, seconds)
        else:
            self.settler.failed(worker, message, error, deliveries, seconds)

    def take_for(self, worker: Worker, timeout: float | None) -> JetStreamMsg | None:
        """The next message, for a worker that is the only one to take; asks for no more than workers are free."""
        if not self._prefetch.size:
            self._prefetch.make_room(worker)
        return self._messages.take(timeout)

    @property
    def interruptions(self) -> int:
        """How often something happened after which deliveries may be missing."""
        return self._messages.interruptions + self._messages.missed_heartbeats

    def not_started(self, message: JetStreamMsg) -> None:
        """A message that was taken when the end came: it goes back."""
        self._messages.not_started([message])

    def hold(self, message: JetStreamMsg) -> Held:
        """For layers: take a message into work."""
        return Held(message, self._progress.interval(self.count_of(message)))

    def deliveries(self, worker: Worker, message: JetStreamMsg) -> int:
        """How often the message was delivered; learns what the ack subject of a first delivery begins with."""
        count = self.count_of(message)
        if count > 1:
            worker.counters.redelivered += 1
        return count

    def count_of(self, message: JetStreamMsg) -> int:
        """For layers: how often the message was delivered; 1, its least, where that is not known."""
        try:
            count = max(message.num_delivered, 1)
        except errors.NotJetStreamMessage:
            return 1  # an account import rewrote the ack subject: nothing is known
        if count == 1 and self._first_prefix == b"\0":
            tokens = (message.msg.raw_reply or b"").split(b".")
            # $JS.ACK.<stream>.<consumer>.<delivered>. or, with domain and account, two tokens more before the stream
            self._first_prefix = b".".join(tokens[: 5 if len(tokens) == 9 else 7]) + b"."
        return count

    def count(self, worker: Worker, seconds: float, message: JetStreamMsg) -> None:
        """Note how long a handler took."""
        worker.counters.times.append(seconds)
        self._add_calls(worker, 1, seconds, message)

    def _add_calls(self, worker: Worker, calls: int, seconds: float, message: JetStreamMsg) -> None:
        worker.calls += calls
        worker.spent += seconds
        if worker.calls >= SAMPLE or worker.spent >= SAMPLE_SECONDS:
            self._prefetch.sample(worker, len(message.msg.data))

    # --- looking at it ----------------------------------------------------------------------------------

    def _held(self) -> Iterable[Held]:
        held = {id(item): item for worker in self._workers for item in worker.held}
        held.update((id(item), item) for item in self._keyed.held())
        return held.values()

    def _hung(self, held: Held) -> None:
        seconds = time.monotonic() - held.started
        log.error(
            "a handler of %s has run for %.1f s, the limit is %.1f s: its message goes to another worker",
            self.consumer,
            seconds,
            self.options.progress_limit,
        )
        if self.options.key is not None:
            self._keyed.hung(held.key)
        self._engine.run_callback(self.event, "hung", held.hung, None, seconds)

    def _stuck(self, now: float) -> None:
        """Fast handlers prefetch. When all of a sudden every worker is busy for as long as after which the server is
        told of it, what waits here is not told of and would be delivered again: others get it now."""
        if self._giving_back or self.stopping or not self._messages.buffered:
            return
        since = now - self._first_interval
        if all(worker.held and all(held.started < since for held in worker.held) for worker in self._workers):
            self._giving_back = True
            if not self._in_background(self._give_back_prefetched, "give-back"):
                self._giving_back = False

    def _give_back_prefetched(self) -> None:
        count = 0
        try:
            self._prefetch.shrink(self._first_interval)
            while not self.stopping and (message := self._messages.take(0)) is not None:
                self.settler.give_back(message)
                count += 1
            self._engine.flush_outbox()
        except errors.JsClientError:
            pass  # stopped or closed: the thread that did that gives back the rest
        finally:
            self._giving_back = False
        log.info("the handlers of %s have become slow: %d prefetched messages were given back", self.consumer, count)

    def _in_background(self, call: Callable[[], None], what: str) -> bool:
        name = f"jsclient-worker-pool-{self.consumer.name}-{what}"
        try:
            Thread(name, call).start()
        except (errors.NoThread, MemoryError) as error:
            log.error(
                "no thread for the %s of the pool of %s: %s", what, self.consumer, errors.brief(error), exc_info=error
            )
            return False
        return True

    def event(self, kind: str, message: Any, error: BaseException | None = None, seconds: float = 0.0) -> None:
        """For layers: tell `on_event`; what it raises is logged."""
        if self.options.on_event is not None:
            tell(self.options.on_event, PoolEvent(kind, message, error, seconds))

    def _reported(self, error: Exception) -> None:
        log.warning("%s: %s", self.consumer, error, exc_info=error)
        self.event("failed", None, error)

    def snapshot(self) -> stats.PoolSnapshot:
        """Counters and latencies at this moment; cheap enough for a probe every second."""
        messages = self._messages
        return stats.snapshot(
            (worker.counters for worker in self._workers),
            self._held(),
            hung=self._progress.hung,
            backlog=self._keyed.backlog,
            buffered=messages.buffered,
            pulls_outstanding=messages.pulls_outstanding,
            missed_heartbeats=messages.missed_heartbeats,
            running=not self._ended.is_set() and not self.stopping,
        )

    @property
    def closed(self) -> bool:
        """True once every worker has ended."""
        return self._ended.is_set()

    # --- the end ----------------------------------------------------------------------------------------

    def wait(self, timeout: Timeout = None) -> bool:
        """Wait until it has ended by itself or was stopped (for ever by default); False after the timeout.

        Raises what ended it: ConsumerDeleted, AuthError of a connection that is given up ...
        """
        self._engine.check_process()
        if not self._ended.wait(resolve(timeout, None)):
            return False
        if self.error is not None:
            raise self.error
        return True

    @arguments
    def stop(self, timeout: Timeout = DEFAULT, wait: bool = True) -> StopReport | None:
        """Start no more handlers, give back what was not started, and wait (25 s by default) for those that run.

        Never raises for a handler that does not end: the report names what was cut off. `wait=False` returns None
        at once: safe in signal handlers; so does a call inside a handler. Acks are flushed before it returns. In a
        forked child it raises ForkedConnection, as nobody there knows how the parent's handlers ended.
        """
        self.stopping = True
        self._messages.stop()
        if not wait or self.runs_here():
            if not self._release_asked:
                self._release_asked = True
                with contextlib.suppress(errors.ForkedConnection):  # in a forked child there is nothing to give back
                    self._engine.clock.call_soon(self._release_in_background)
            return None
        self._engine.check_process()
        deadline = Deadline.of(timeout, self.options.stop_timeout)
        self._waited = True
        self._release(deadline.at_most(FLUSH_TIMEOUT))
        finished = self._ended.wait(deadline.remaining())
        running = self._in_hand()
        for message in running:
            self.event("cut off", message)
        if not self.connection.closed:
            try:
                self.connection.flush(max(deadline.at_most(2.0), 0.1))
            except errors.JsClientError as error:
                log.warning("the last acks may not have arrived: %s", error, exc_info=error)
        return StopReport(finished, tuple(running), self._messages.given_back)

    def _release_in_background(self) -> None:
        self._in_background(self._release, "release")

    def _release(self, timeout: float = FLUSH_TIMEOUT) -> None:
        """What was received and not started goes back to the server now, not after ack_wait."""
        self.stopping = True
        with self._released:
            self._messages.close(timeout)
            self._messages.not_started(self._keyed.clear())
        if not self.connection.closed:
            self._engine.flush_outbox()

    def _in_hand(self) -> list[JetStreamMsg]:
        """The messages that handlers work on now."""
        return [held.message for worker in self._workers for held in worker.held if held.message is not None]

    # --- the end of the connection: see Taker -----------------------------------------------------------

    def begin_drain(self) -> None:
        self.stopping = True
        self._messages.withdraw()
        self._messages.stop()

    def all_received(self) -> None:
        self._messages.complete()
        self._release()

    def finish_drain(self, deadline: Deadline) -> None:
        if not wait_for(self._ended, deadline, lambda: self.connection.closed):
            raise errors.DrainTimeout(
                f"{len(self._in_hand())} handlers of the pool of {self.consumer} did not end in time"
            )

    def end(self, reason: errors.ConnectionClosed) -> None:
        if not self.stopping and reason.reason is not None and self._note_end(reason.reason):
            self._engine.run_callback(self.event, "failed", None, reason.reason)
        self.stopping = True
        self._messages.end(reason)
        self._messages.not_started(self._keyed.clear())

    def hand_back(self) -> list[bytes]:
        return self._messages.hand_back()

    def runs_here(self) -> bool:
        return threading.current_thread() in {worker.thread for worker in self._workers}

    @arguments
    def run_until_signal(self, timeout: Timeout = DEFAULT) -> StopReport:
        """Block until SIGTERM or SIGINT (or until the pool ends by itself), then stop; call it in the main thread.

        While it stops, further signals change nothing; the third SIGINT raises KeyboardInterrupt. Raises what ended
        the pool, as `wait` does, if that was not the application.
        """
        with StopSignals() as signals:
            signals.wait(self._ended)
            report = self.stop(timeout)
        if self.error is not None:
            raise self.error
        assert report is not None
        return report

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(errors.ForkedConnection):  # a child that leaves the blocks of its parent
            self.stop(0 if self._waited else DEFAULT)  # handlers that a stop has cut off get no second wait

    def __repr__(self) -> str:
        state = "closed" if self.closed else "stopping" if self.stopping else "running"
        return f"<WorkerPool of {self.consumer} {len(self._workers)} threads {state}>"

    def __reduce__(self) -> Any:
        return self._engine.refuse_pickle(self)


def worker_threads(pool: WorkerPool) -> Iterator[threading.Thread]:  # noqa: TID251
    """The threads of a pool; for tests and debuggers."""
    return (worker.thread for worker in pool._workers if worker.thread is not None)


__all__ = ["MAX_PREFETCH", "PoolEvent", "StopReport", "WorkerPool"]
