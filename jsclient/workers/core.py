"""The threads of a WorkerPool: they receive messages, run the handler, and care for acks, retries and shutdown."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from jsclient import errors, handlers, waiting
from jsclient.durations import DEFAULT, Deadline, Timeout
from jsclient.jetstream import Consumer, JetStreamMsg
from jsclient.jetstream.consuming.credit import UNLIMITED_BATCH
from jsclient.jetstream.consuming.pull_inboxes import FLUSH_TIMEOUT
from jsclient.jetstream.consuming.typed import values_in
from jsclient.threads import Thread, start_all
from jsclient.workers import stats
from jsclient.workers.batch_work import BatchWork
from jsclient.workers.host import Core
from jsclient.workers.keyed_work import KeyedWork
from jsclient.workers.options import PoolOptions
from jsclient.workers.parts import PoolMessages, StopReport, Worker
from jsclient.workers.prefetch import SAMPLE, SAMPLE_SECONDS, Prefetch
from jsclient.workers.progress import PART, Held, Progress
from jsclient.workers.settle import Settler
from jsclient.workers.typed import with_dead_letter
from jsclient.workers.waits import waits_of

log: logging.Logger = logging.getLogger("jsclient.workers")


class PoolCore(Core):
    """The work of a WorkerPool. Programs see the WorkerPool."""

    stopping: bool  # again, because pyright infers a type here, too
    taken_from: Consumer[Any] | None

    def __init__(self, consumer: Consumer[Any], handler: Callable[[Any], Any], options: dict[str, Any]) -> None:
        handlers.required(handler, "the handler")
        values = values_in(consumer)
        try:
            chosen = with_dead_letter(PoolOptions(**options), values)
        except TypeError as error:
            raise errors.ConfigError(f"{error}; see jsclient.workers.PoolOptions") from None
        super().__init__(consumer.nc, chosen, values, handler, f"the pool of {consumer}", log)
        self.taken_from = consumer
        waits = waits_of(consumer, self.options)
        self.settler: Settler = Settler(self, waits.backoff)
        intervals = [wait / PART for wait in waits.ack]
        self._progress = Progress(
            self.connection, self._held, intervals, self.options.progress_limit, self.hung, self._stuck
        )
        self._first_interval = self._progress.intervals[0]
        self._keyed = KeyedWork(self, waits.ack)
        self._turn = waiting.new_turn()  # of the thread that takes a message while nothing is prefetched
        self._suspects = waiting.new_turn()
        self._first_prefix = b"\0"
        self._release_asked = False
        self._giving_back = False
        self._released = waiting.new_turn()
        self._running = len(self.workers)
        unit = self.options.batch[0] if self.options.batch else 1
        first = min(len(self.workers) * unit, waits.max_batch or UNLIMITED_BATCH)
        # No byte limit: the window changes all the time, and pulls that share out bytes would get crumbs. The prefetch
        # bounds the memory, see Prefetch.
        window: dict[str, Any] = {"max_messages": first, "max_bytes": 0, "threshold_messages": 1}
        window |= {"group": self.options.group, "on_error": self.reported}
        self.messages: PoolMessages = PoolMessages(consumer, **window)
        if values is not None:
            self.messages.makes(values.later)  # decoded by the worker's thread
        self.messages.for_handlers()
        self.prefetch: Prefetch = Prefetch(
            self.messages, self.workers, unit, self.options.max_prefetch, waits.max_batch
        )
        self._start()

    def _start(self) -> None:
        work = self._keyed.work if self.options.key else self._work
        if self.options.batch:
            work = BatchWork(self, self.options.batch).work
        for number, worker in enumerate(self.workers):
            name = f"jsclient-worker-pool-{self.consumer.name}-{number}"
            worker.thread = Thread(name, self._guard, work, worker)
        threads = [worker.thread for worker in self.workers if worker.thread is not None]
        try:
            self.engine.drainables.enter(self, instead_of=self.messages)
            self.engine.check_takes()
            if self.options.in_progress:
                self._progress.start()
            start_all(threads, self.title)
        except BaseException:
            self.stopping = True
            self.messages.stop()
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
        """The end of one worker ends all: a pool that lost some of its threads would look healthy. `error` is None if
        the application itself has closed the connection."""
        first = error is not None and self.note_end(error)
        self.stopping = True
        self.messages.stop()
        if first:
            self.event("failed", None, error)

    def _worker_ended(self, count: int) -> None:
        with self._error_lock:
            self._running -= count
            last = count > 0 and self._running == 0
        self._keyed.wake()
        if last:
            self._progress.stop()
            try:
                self._release()
            finally:
                self.ended.set()

    def _work(self, worker: Worker) -> None:
        # The hot path of the pool, in one function. With a Held per message and calls for counting and acking it cost
        # 7.9 µs, and a bare consume loop 4.4; like this 5.2.
        take, prefetch, monotonic = self.messages.__next__, self.prefetch, time.monotonic
        handler, settler, counters = self.handler, self.settler, worker.counters
        plain = settler.plain
        held = Held(None, self._first_interval)
        here = (held,)
        note_time = counters.times.append
        calls, spent = 0, 0.0  # not added to the worker yet
        message: JetStreamMsg | None
        while not self.stopping:
            if prefetch.size:
                try:
                    message = take()
                except StopIteration:
                    return
            else:
                message = self.take_one(worker)
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

    def take_one(self, worker: Worker) -> JetStreamMsg | None:
        """A message for this worker alone: one worker at a time counts the free ones, pulls for them and takes.

        Without the turn, the pool would also pull for a worker that has just taken a message. The second message would
        wait behind a slow handler.
        """
        with self._turn:
            self.prefetch.make_room(worker)
            message = self.messages.take(None)
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
                self.engine.flush_outbox()
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
        if not self.prefetch.size:
            self.prefetch.make_room(worker)
        return self.messages.take(timeout)

    @property
    def interruptions(self) -> int:
        """The number of events after which deliveries may be missing."""
        return self.messages.interruptions + self.messages.missed_heartbeats

    def not_started(self, message: JetStreamMsg) -> None:
        """Return a message that a worker took when the end came."""
        self.messages.not_started([message])

    def hold(self, message: JetStreamMsg) -> Held:
        """Take a message into work."""
        return Held(message, self._progress.interval(self.count_of(message)))

    def deliveries(self, worker: Worker, message: JetStreamMsg) -> int:
        """The deliveries of the message; learns the prefix of the ack subject of a first delivery."""
        count = self.count_of(message)
        if count > 1:
            worker.counters.redelivered += 1
        return count

    def count_of(self, message: JetStreamMsg) -> int:
        """The deliveries of the message; 1 if the number is unknown."""
        try:
            count = max(message.num_delivered, 1)
        except errors.NotJetStreamMessage:
            return 1  # an account import has rewritten the ack subject
        if count == 1 and self._first_prefix == b"\0":
            tokens = (message.msg.raw_reply or b"").split(b".")
            # $JS.ACK.<stream>.<consumer>.<delivered>. or, with domain and account, two tokens more before the stream
            self._first_prefix = b".".join(tokens[: 5 if len(tokens) == 9 else 7]) + b"."
        return count

    def count(self, worker: Worker, seconds: float, message: JetStreamMsg) -> None:
        super().count(worker, seconds, message)
        self._add_calls(worker, 1, seconds, message)

    def _add_calls(self, worker: Worker, calls: int, seconds: float, message: JetStreamMsg) -> None:
        worker.calls += calls
        worker.spent += seconds
        if worker.calls >= SAMPLE or worker.spent >= SAMPLE_SECONDS:
            self.prefetch.sample(worker, len(message.msg.data))

    # --- looking at it ----------------------------------------------------------------------------------

    def _held(self) -> Iterable[Held]:
        held = {id(item): item for worker in self.workers for item in worker.held}
        held.update((id(item), item) for item in self._keyed.held())
        return held.values()

    def hung(self, held: Held) -> None:
        if self.options.key is not None:
            self._keyed.hung(held.key)
        super().hung(held)

    def _stuck(self, now: float) -> None:
        """Fast handlers prefetch. If every worker has become slow, the server would deliver the prefetched messages
        again, because nobody reports these as in progress: others get them now."""
        if self._giving_back or self.stopping or not self.messages.buffered:
            return
        since = now - self._first_interval
        if all(worker.held and all(held.started < since for held in worker.held) for worker in self.workers):
            self._giving_back = True
            if not self._in_background(self._give_back_prefetched, "give-back"):
                self._giving_back = False

    def _give_back_prefetched(self) -> None:
        count = 0
        try:
            self.prefetch.shrink(self._first_interval)
            while not self.stopping and (message := self.messages.take(0)) is not None:
                self.settler.give_back(message)
                count += 1
            self.engine.flush_outbox()
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

    def snapshot(self) -> stats.PoolSnapshot:
        """Counters and latencies at this moment; cheap enough for a probe every second."""
        messages = self.messages
        return stats.snapshot(
            (worker.counters for worker in self.workers),
            self._held(),
            hung=self._progress.hung,
            backlog=self._keyed.backlog,
            buffered=messages.buffered,
            pulls_outstanding=messages.pulls_outstanding,
            missed_heartbeats=messages.missed_heartbeats,
            running=not self.ended.is_set() and not self.stopping,
        )

    # --- the end ----------------------------------------------------------------------------------------

    def stop(self, timeout: Timeout = DEFAULT, wait: bool = True) -> StopReport | None:
        self.stopping = True
        self.messages.stop()
        if not wait or self.runs_here():
            if not self._release_asked:
                self._release_asked = True
                with contextlib.suppress(errors.ForkedConnection):  # in a forked child there is nothing to give back
                    self.engine.clock.call_soon(self._release_in_background)
            return None
        self.engine.check_process()
        deadline = Deadline.of(timeout, self.options.stop_timeout)
        self.waited = True
        self._release(deadline.at_most(FLUSH_TIMEOUT))
        finished = self.ended.wait(deadline.remaining())
        running = self.in_hand()
        if not self.connection.closed:
            try:
                self.connection.flush(max(deadline.at_most(2.0), 0.1))
            except errors.JsClientError as error:
                log.warning("the last acks may not have arrived: %s", error, exc_info=error)
        return self.report(finished, running, self.messages.given_back)

    def _release_in_background(self) -> None:
        self._in_background(self._release, "release")

    def _release(self, timeout: float = FLUSH_TIMEOUT) -> None:
        """Return received messages that no handler has started to the server now, not after ack_wait."""
        self.stopping = True
        with self._released:
            self.messages.close(timeout)
            self.messages.not_started(self._keyed.clear())
        if not self.connection.closed:
            self.engine.flush_outbox()

    # --- the end of the connection: see Drainable -----------------------------------------------------------

    def begin_drain(self) -> None:
        self.stopping = True
        self.messages.withdraw()
        self.messages.stop()

    def all_received(self) -> None:
        self.messages.complete()
        self._release()

    def end(self, reason: errors.ConnectionClosed) -> None:
        if not self.stopping and reason.reason is not None and self.note_end(reason.reason):
            self.engine.run_callback(self.event, "failed", None, reason.reason)
        self.stopping = True
        self.messages.end(reason)
        self.messages.not_started(self._keyed.clear())

    def hand_back(self) -> list[bytes]:
        return self.messages.hand_back()

    def __repr__(self) -> str:
        state = "closed" if self.ended.is_set() else "stopping" if self.stopping else "running"
        return f"<WorkerPool of {self.consumer} {len(self.workers)} threads {state}>"
