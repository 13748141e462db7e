"""The work of a GroupPool: it finds its partitions, and its threads handle their messages in order."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from jsclient import errors
from jsclient.durations import DEFAULT, Deadline, Timeout
from jsclient.groups import config
from jsclient.groups.group import PartitionedGroup
from jsclient.groups.left_behind import LeftBehind
from jsclient.groups.member_state import MemberState, log
from jsclient.groups.membership import Membership
from jsclient.groups.options import MemberOptions
from jsclient.groups.term import Term, pin_of
from jsclient.jetstream import Consumer, ConsumerConfig
from jsclient.threads import Thread, start_all
from jsclient.workers import stats
from jsclient.workers.options import PoolOptions
from jsclient.workers.order import Item
from jsclient.workers.parts import StopReport, Worker
from jsclient.workers.progress import PART, Held, Progress
from jsclient.workers.settle import BY_HANDLER

RETRY: Final = (0.05, 0.15)
"""Seconds between two tries to get partitions that another member still works on."""

TROUBLE: Final = 1.0
"""Seconds before another try when the server refused for another reason, or did not answer."""


LEAVE: Final = 5.0
LEAVE_PART: Final = 0.2
"""Seconds, and part, of the time for a stop that are left for leaving when handlers do not end."""


class Member(MemberState):
    """One member of a group. Programs see the GroupPool."""

    stopping: bool  # again, because pyright infers a type here, too
    group_config: config.Group
    taken_from: Consumer[Any] | None

    def __init__(
        self, group: PartitionedGroup[Any], handler: Callable[[Any], Any], terms: MemberOptions, options: PoolOptions
    ) -> None:
        super().__init__(group, handler, terms, options)
        self.state: str = "starting"
        self._term: Term | None = None
        self._cut_off = False
        intervals = [self.terms.ack_wait / PART]
        self._progress = Progress(
            self.connection, self._held, intervals, self.options.progress_limit, self.hung, lambda now: None
        )
        self._membership = Membership(self)
        self._left_behind = LeftBehind(self.group, self.records)
        self._control = Thread(f"jsclient-group-{self.member}", self._run)
        for number, worker in enumerate(self.workers):
            name = f"jsclient-group-{self.member}-{number}"
            worker.thread = Thread(name, self._work, worker)
        self._start()

    def _start(self) -> None:
        threads = [worker.thread for worker in self.workers if worker.thread is not None]
        try:
            self.engine.drainables.enter(self)
            self.engine.check_takes()
            self._membership.start()
            self._progress.start()
            start_all([*threads, self._control], self.title)
        except BaseException:
            self.stopping = True
            self._membership.stop()
            self._progress.stop()
            self.wake()
            self.ended.set()
            raise

    @property
    def partitions(self) -> list[int]:
        """The partitions that this process works on now."""
        term = self._term
        return [] if term is None else list(term.partitions)

    # --- the control thread: which partitions are ours ------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self.stopping:
                self._turn()
        except errors.ConnectionClosed as closed:
            self.error = self.error or closed.reason
        except BaseException as error:
            self._end_by(error)
        finally:
            self.stopping = True
            try:
                self._leave()
            finally:
                self.wake()
                self._progress.stop()
                self.ended.set()

    def _turn(self) -> None:
        term = self._term
        self.group_config = self._membership.config()
        wanted = self.group_config.filters_of(self.member)
        if term is not None and (term.over or sorted(wanted) != sorted(term.consumer_filters)):
            self._hand_over(term)
            return
        if self.automatic:
            self._left_behind.look(self.group_config.revision, blocked=self.state == "joining")
        if term is None:
            self._join(wanted)
            return
        now = time.monotonic()
        if now >= term.next_look() or (not term.usable and term.order.backlog):
            term.look()
        if term.waits_for_others and self.group.elastic and self._is_last_instance():
            self._hand_over(term)  # its owner is dead: a new consumer begins with its unfinished messages
            return
        if not term.over:
            self._pause(max(0.0, term.next_look() - time.monotonic()))

    def _join(self, wanted: list[str]) -> None:
        if not wanted:
            self._say("waiting")
            self._pause(TROUBLE)
            return
        partitions = self.group_config.partitions_of(self.member)
        try:
            consumer = self._create(wanted)
            if consumer is None:
                self._say("joining")
                self._pause(random.uniform(*RETRY))
                return
            suspects = self.records.crashed(partitions, self.instance)
            epoch = self.records.begin(self.member, self.instance, partitions, self.automatic)
            self.taken_from = consumer
            term = Term(self, consumer, partitions, epoch)
            term.consumer_filters = wanted
            term.suspects, term.tries = suspects, self.records.tries()
        except (errors.ConnectionClosed, errors.ConfigError):
            raise
        except errors.JsClientError as error:
            self.reported(error)
            self._pause(TROUBLE)
            return
        with self.ready:
            self._term = term
        term.look()
        try:
            term.start()
        except errors.NoThread as error:  # that passes
            self.reported(error)
            self._pause(TROUBLE)
            return
        self._say("working")

    def _create(self, wanted: list[str]) -> Consumer | None:
        """The member's consumer, or None while others have its partitions."""
        name, stream = self.group.consumer_of(self.member), self.group.work_stream
        settings = ConsumerConfig(
            name=name if self.group.elastic else None,
            durable_name=None if self.group.elastic else name,
            ack_wait=self.terms.ack_wait,
            max_ack_pending=self.terms.max_ack_pending,
            filter_subjects=wanted,
            inactive_threshold=self.terms.lease if self.group.elastic else None,
            priority_groups=[config.PRIORITY_GROUP],
            priority_policy="pinned_client",
            priority_timeout=self.terms.priority_timeout,
        )
        try:
            consumer = self.group.js.create_consumer(stream, settings)
        except errors.WorkQueueConsumerError:
            return None
        except errors.ConsumerExists:
            if not self.group.elastic:
                raise errors.ConfigError(f"consumer {name!r} of {stream!r} exists with other settings") from None
            self._delete_dead(self.group.js.consumer(stream, name))
            return None
        info = consumer.cached_info
        assert info is not None
        if self.group.elastic and info.delivered.consumer_seq and self._delete_dead(consumer):
            return None  # the next try makes it again, to begin with the rest
        return consumer

    def _delete_dead(self, consumer: Consumer) -> bool:
        """Delete an unused consumer of this member; never one of a living process."""
        info = consumer.cached_info
        if info is None or pin_of(info) or not self._is_last_instance():
            return False
        self.group.js.delete_consumer(consumer.stream_name, consumer.name)
        return True

    def _is_last_instance(self) -> bool:
        """True if no other process of this member lives."""
        return not self.records.living(self.member) - {self.instance}

    def _hand_over(self, term: Term) -> None:
        """Start no more handlers, let running ones end, then give the partitions up. This order keeps the order of
        keys.
        """
        self._say("handing over")
        term.stop_starting()
        deadline = Deadline(self.terms.hand_over_timeout)
        while term.order.running and not (self._cut_off or self.connection.closed):
            if deadline.expired():
                for item in list(term.order.running.values()):
                    self.event("order lost", item.message)
                break
            if not term.over and time.monotonic() >= term.next_look():
                term.look()  # keeps the pin, and sees whether it is lost
            self._pause(deadline.at_most(0.25))
        self._finish(term)

    def _finish(self, term: Term) -> None:
        cut_off = self._cut_off and bool(term.order.running)
        alone = self.group.elastic and not cut_off
        try:
            alone = alone and self._is_last_instance()
        except errors.JsClientError:
            alone = False
        term.finish(delete=alone)
        with self.ready:
            self._term = None
        if cut_off or self.connection.closed:
            return  # the next member has to know that handlers were running
        try:
            self.records.end(self.member)
            if not alone:
                self.group.step_down(self.member)
        except errors.JsClientError as error:
            log.info("the end of %s was not noted: %s", self.member, error)

    def _leave(self) -> None:
        term = self._term
        if term is not None:
            self._hand_over(term)
        self._say("stopped")
        self._membership.stop()

    def _pause(self, seconds: float) -> None:
        self.woken.wait(seconds)
        self.woken.clear()

    def _say(self, state: str) -> None:
        if state != self.state:
            self.state = state
            log.info("member %s of %s: %s", self.member, self.group.name, state)
            self.event(state, None)

    # --- workers --------------------------------------------------------------------------------------------

    def _work(self, worker: Worker) -> None:
        try:
            while (found := self._next(worker)) is not None:
                self._handle(worker, *found)
        except BaseException as error:
            self._end_by(error)

    def _next(self, worker: Worker) -> tuple[Term, Item] | None:
        """Wait for a message that may be started. Returns None at the end."""
        with self.ready:
            while not self.ended.is_set():
                term, now = self._term, time.monotonic()
                if self.stopping and (term is None or not term.order.running):
                    return None
                if term is None or self.stopping or not term.usable:
                    if term is not None and not term.usable and term.order.backlog:
                        self.woken.set()
                    self.ready.wait(0.5)
                    continue
                item = term.order.next(now)
                if item is not None:
                    item.held.started, item.held.waiting = now, False
                    worker.held = (item.held,)
                    return term, item
                due = term.order.next_due()
                self.ready.wait(0.5 if due is None else min(0.5, max(due - now, 0.001)))
        return None

    def _handle(self, worker: Worker, term: Term, item: Item) -> None:
        message, held = item.message, item.held
        delay: float | None
        if item.poison:
            error = RuntimeError(item.poison)
            given_up = self.settler.give_up(worker, message, error, 1 + held.retries, item.poison)
            held.retries += 1
            delay = None if given_up else self.settler.delay(error, 1)
        else:
            # Not the server's count: that includes messages that no handler saw, and begins again with every consumer.
            alone = term.order.alone
            if alone:
                term.begin_alone(item)
            delay = self.settler.run_keyed(worker, message, 1, held)
            if alone and not self.connection.closed:
                self._flush()
        with self.ready:
            worker.held = ()
            item.held.waiting = True
            if delay is None or delay == BY_HANDLER:
                term.order.finished(item, again=delay == BY_HANDLER)
            else:
                term.order.failed(item, time.monotonic() + delay)
            self.ready.notify()
        if term.handing_over:
            self.woken.set()

    def _flush(self) -> None:
        """The ack is with the server before the next message is started."""
        try:
            self.connection.flush(2.0)
        except errors.JsClientError as error:
            log.info("an ack may not have arrived: %s", error)

    def _held(self) -> Iterator[Held]:
        term = self._term
        with self.ready:
            items = [] if term is None or term.handing_over is None else list(term.order.items.values())
        return iter([item.held for item in items])

    def snapshot(self) -> stats.PoolSnapshot:
        """Counters and latencies at this moment; cheap enough for a probe every second."""
        term = self._term
        return stats.snapshot(
            (worker.counters for worker in self.workers),
            self._held(),
            hung=self._progress.hung,
            backlog=0 if term is None else term.order.backlog,
            buffered=0,
            pulls_outstanding=0 if term is None else 1,
            missed_heartbeats=0,
            running=not self.stopping,
        )

    # --- the end --------------------------------------------------------------------------------------------

    def _end_by(self, error: BaseException) -> None:
        if self.note_end(error):
            self.event("failed", None, error)
        self.stopping = True
        self.wake()

    def stop(self, timeout: Timeout = DEFAULT, wait: bool = True) -> StopReport | None:
        self.stopping = True
        self.woken.set()
        if not wait or self.runs_here():
            return None
        self.engine.check_process()
        deadline = Deadline.of(timeout, self.options.stop_timeout)
        self.waited = True
        seconds = deadline.remaining()
        # The last part of the time is for leaving: the records show the next member which messages were cut off.
        finished = self.ended.wait(None if seconds is None else max(seconds * (1 - LEAVE_PART), seconds - LEAVE))
        running = self.in_hand()
        if not finished:
            self._cut_off = True
            self.woken.set()
            finished = self.ended.wait(deadline.remaining()) and not running
        return self.report(finished, running, 0)

    # --- the end of the connection: see Drainable ---------------------------------------------------------------

    def begin_drain(self) -> None:
        self.stop(wait=False)

    def end(self, reason: errors.ConnectionClosed) -> None:
        if not self.stopping:
            self.error = self.error or reason.reason
        self.stopping = True
        term = self._term
        if term is not None:
            term.messages_do("end", reason)
        self.woken.set()

    def hand_back(self) -> list[bytes]:
        term = self._term
        return [] if term is None else list(term.messages_do("hand_back"))

    def __repr__(self) -> str:
        return f"<GroupPool {self.member} of {self.group.name} {self.state} partitions={self.partitions}>"
