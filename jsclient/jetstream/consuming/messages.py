"""`Consumer.messages()`: an endless, pre-buffered iterator over a pull consumer.

The reader thread puts messages into the inbox; whoever takes them keeps the pulls going, so there is no thread of
ours behind it. All bookkeeping is in PullState. The lock is taken when something else than a plain message comes,
when a pull is due, and before waiting: never for a message that is there.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections import deque
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors, waiting
from jsclient._engine import Unkept
from jsclient.cancel import Cancel
from jsclient.connection import engine_of
from jsclient.durations import Deadline
from jsclient.jetstream.consuming.diagnosis import ASK_TIMEOUT
from jsclient.jetstream.consuming.iterator import MessageIterator, call_hook
from jsclient.jetstream.consuming.pull_inboxes import ELECTION, FLUSH_TIMEOUT, PullInbox, nak_all, pool_of
from jsclient.jetstream.consuming.pull_options import Paused, PullOptions, Resumed
from jsclient.jetstream.consuming.pull_statuses import Verdict, classify
from jsclient.jetstream.consuming.watchdog import NEVER, Look, Watchdog, next_look
from jsclient.jetstream.message import JetStreamMsg
from jsclient.states import WAKE, LinkEvent

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.jetstream.consuming.pull_source import PullSource
    from jsclient.message import Msg

log = logging.getLogger("jsclient.jetstream.pull")

DIAGNOSE_EVERY: Final = 10.0
"""Seconds between two CONSUMER.INFO of one iterator: that request is expensive for a server with many consumers."""

ASK_AGAIN: Final = 2.0

COMPLETED: Final = b"NATS/1.0 409 Batch Completed\r\nNats-Pending-Messages: 0\r\nNats-Pending-Bytes: "
"""How nearly every pull with a byte limit ends; read without the detour that other statuses take (10 us)."""


class Messages(MessageIterator):
    """Iterate for ever (`for msg in messages`), or take one with `next(timeout)`. Several threads may share it.

    Leaving its `with` block (or `close()`) gives messages that were received and not taken back to the server.
    What no pull can survive (consumer deleted, request refused) is raised from the iterator; the rest goes to
    `on_error` and it goes on. It lives through reconnects, leader changes and missing heartbeats.
    """

    def __init__(self, source: PullSource, options: PullOptions) -> None:
        self.source = source
        self.options = options
        self.connection: Connection = source.nc
        self._engine = engine_of(self.connection)
        self._engine.check_usable()
        if options.cancel is not None:
            options.cancel.check()
        self.missed_heartbeats = 0
        self.paused_until: Paused | None = None
        self._terms = options.terms()
        self._inbox = pool_of(self.connection).lease(self.connection, source.pull_subject)
        self._state = options.state(self._inbox.numbers)
        self._take = self._state.take
        self._mailbox = self._inbox.mailbox
        self._popleft = self._mailbox.popleft
        self._lock = waiting.new_lock()  # reentrant: a signal handler may stop what its own thread takes from
        self._due = True  # a pull may be due: look when the application comes for the next message
        self._waiting = 0
        self._connected = True
        self._watchdog = Watchdog.of_pulls(self._terms, time.monotonic())
        self._diagnosed_at = -NEVER
        self._terminal = None
        self._stopped = False
        self._draining = False
        self._returned = deque()
        self._closed = False
        self._engine.takers.enter(self)
        if options.cancel is not None:
            options.cancel.enter(self._inbox, partial(_cancelled, weakref.ref(self), options.cancel))

    # --- taking -------------------------------------------------------------------------------------------

    def __next__(self) -> JetStreamMsg:
        # The same as _get, without its two calls: they are a tenth of what a message costs.
        if self._due:
            self._keep_pulling()
        try:
            item = self._popleft()
            headers = item.raw_headers
            # A blank there may be the server's status. A pinned group learns its pin from the headers.
            if (headers is None or (headers[8:9] != b" " and not self.options.group)) and not self._stopped:
                state = self._state
                if self._take() >= state.check_at:
                    self._reached()
                if state.max_bytes:
                    # Summed up before it is added: between reading and writing a count no other thread may run.
                    size = len(item.raw_subject) + len(item.payload) + len(item.raw_reply or b"")
                    if headers is not None:
                        size += len(headers)
                    state.taken_bytes += size
                return JetStreamMsg(item, self._engine)
        except IndexError:
            item = None
        except AttributeError:
            pass  # a link event
        try:
            message = self._get_slowly(item, None)
        except errors.IteratorClosed:
            raise StopIteration from None
        assert message is not None
        return message

    def _get(self, timeout: float | None) -> JetStreamMsg | None:
        """The next message, or None after the timeout. No lock for a message that is there."""
        if self._due:
            self._keep_pulling()
        try:
            item = self._popleft()
            if item.raw_headers is None and not self._stopped:
                return self._deliver(item)
        except IndexError:
            item = None
        except AttributeError:
            pass  # a link event
        return self._get_slowly(item, timeout)

    def _deliver(self, item: Msg) -> JetStreamMsg:
        state = self._state
        if self._take() >= state.check_at:
            self._reached()
        if state.max_bytes:
            size = len(item.raw_subject) + len(item.payload) + len(item.raw_reply or b"")
            if item.raw_headers is not None:
                size += len(item.raw_headers)
            state.taken_bytes += size
        return JetStreamMsg(item, self._engine)

    def _get_slowly(self, item: Any, timeout: float | None) -> JetStreamMsg | None:
        deadline = Deadline(timeout)
        while True:
            if item is not None:
                found = self._handle(item)
                if found is not None:
                    return found
            self._check_open()
            try:
                item = self._mailbox.take()
                if item is None:
                    if deadline.expired():
                        self._look_after(deadline)
                        return None
                    item = self._wait(deadline)
            except errors.SubscriptionClosed:
                self._finish()

    def _handle(self, item: Any) -> JetStreamMsg | None:
        """A message is returned; statuses and link events are dealt with."""
        if item is WAKE:
            return None
        if isinstance(item, LinkEvent):
            self._link_event(item)
            return None
        if isinstance(item, Exception):
            self._fail(item)  # no permission to publish pulls
            return None
        if self._inbox.is_control(item):
            self._status(item)
            return None
        if self._stopped:
            self._return(item)
            return None
        if self.options.group:
            self.source.learn_pin(self.options.group, item)
        return self._admit(item)

    def _admit(self, item: Msg) -> JetStreamMsg | None:
        """Ordered consumers look at the message first."""
        return self._deliver(item)

    # --- pulling ------------------------------------------------------------------------------------------

    def _reached(self) -> None:
        """The threshold is reached: pull now if somebody waits for messages, else when the next one is asked for.

        A worker that takes one message at a time must not have another one sent while it works (nats.go #1338).
        """
        state = self._state
        if state.stop_after is not None:
            with self._lock:
                if state.taken() >= state.stop_after:
                    self.stop()
                    return
        if self._waiting:
            self._keep_pulling()
        else:
            self._due = True

    def _keep_pulling(self, now: float | None = None) -> None:
        """Send the pull that is due, if any."""
        self._user = get_ident()
        with self._lock:
            self._due = False
            now = time.monotonic() if now is None else now
            need = self._state.need(now, self._engine.round_trip) if self._pulls else None
            if need is None:
                return
            frame = self._open_pull(need)
        self._post_pull(frame)

    @property
    def _pulls(self) -> bool:
        return self._connected and not (self._stopped or self._draining)

    def _open_pull(self, need: tuple[int, int]) -> bytes:
        """The frame of a pull that goes out now; the caller holds the lock."""
        number = self._state.opened(*need)
        self._inbox.inbox.grant(*need)
        self._watchdog.restart(time.monotonic())
        pins = self.source.pins
        body = self._terms.request(*need, pins.get(self.options.group, "") if pins else "")
        return self._engine.encode(self.source.pull_subject, body, self._inbox.reply(number))

    def _post_pull(self, frame: bytes | None) -> None:
        if frame is None:
            return
        try:
            self._engine.post_now(Unkept(frame))
        except errors.ConnectionLost:
            with self._lock:
                self._disconnected()
                # Another thread may have dealt with the reconnect already: then nothing else would tell us of it.
                self._connected = self.connection.is_connected
                self._state.failed(time.monotonic())

    def _wait(self, deadline: Deadline) -> Any:
        """Nothing is there: keep pulls and timers going until something is, or the deadline; may return None."""
        with self._lock:
            self._waiting += 1
        try:
            now = time.monotonic()  # one and the same for both, or a back-off could end between them
            self._keep_pulling(now)
            due = self._next_timer(now)
            left = deadline.remaining()
            if due > now or self._mailbox.items:
                seconds = left if due == NEVER else due - now if left is None else min(left, due - now)
                item = self._inbox.inbox.next(seconds)
                if item is not None:
                    return item
        finally:
            with self._lock:
                self._waiting -= 1
        now = time.monotonic()
        if now >= self._next_timer(now):
            self._silent(deadline)
        return None

    def _next_timer(self, now: float) -> float:
        """When to look again although nothing came: a back-off ends, or silence becomes an alarm."""
        with self._lock:
            if not self._pulls:
                return NEVER
            mailbox = self._mailbox
            return next_look(self._state, self._watchdog, len(mailbox), now, mailbox.last_frame)

    def resize(self, max_messages: int, threshold_messages: int) -> None:
        """For layers: how many messages may be buffered and requested together, from the next pull on.

        What is under way is not taken back. `WorkerPool` follows its free workers with it.
        """
        with self._lock:
            self._state.max_messages = max_messages
            self._state.threshold_messages = threshold_messages
            self._due = True

    # --- what comes beside messages -------------------------------------------------------------------------

    def _link_event(self, event: LinkEvent) -> None:
        with self._lock:
            if event is LinkEvent.DISCONNECTED:
                self._disconnected()
            elif event is LinkEvent.RECONNECTED:
                # Subscriptions are re-sent by the connection, pulls are ours; features.md 1.9: at once.
                self._connected = True
                self._state.lost(*self._inbox.snapshot())
                self._state.works()
        if event is LinkEvent.RECONNECTED:
            self._keep_pulling()

    def _disconnected(self) -> None:
        self._connected = False
        self._state.lost(*self._inbox.snapshot())

    def _status(self, message: Msg) -> None:
        raw = message.raw_headers or b""
        if raw.startswith(COMPLETED) and raw[len(COMPLETED) : -4].isdigit():
            verdict = Verdict("quiet", unserved=(0, int(raw[len(COMPLETED) : -4])), reason="complete")
            with self._lock:
                # The bytes that were not needed come back. No look at what is due: no message came or went.
                self._state.ended(self._inbox.number(message), verdict, 0)
            return
        status = message.status
        assert status is not None
        verdict = classify(status.code, status.description, message.headers, self.source.pull_subject)
        if verdict.kind == "alive":
            self._state.works()
            return
        with self._lock:
            number = self._inbox.number(message)
            asked = self._state.open.get(number) if number is not None else None
            if asked and isinstance(verdict.error, errors.BadPullRequest) and self._state.stop_growing(asked[0]):
                verdict = Verdict("quiet", unserved=verdict.unserved)
            # Every pull with a byte limit ends in a status (2.10): nothing is counted where nothing is given back.
            nothing_lost = verdict.unserved is not None and verdict.unserved[0] == 0 and not verdict.all_pulls
            buffered, size = (0, 0) if nothing_lost else self._inbox.snapshot()
            if not self._state.ended(number, verdict, buffered, time.monotonic(), size):
                return
            if verdict.forget_pin:
                self.source.pins.pop(self.options.group, None)
        if verdict.kind == "terminal":
            error = verdict.error
            if isinstance(error, errors.ConsumerDeleted):
                error = self.source.why_deleted(error, min(ASK_TIMEOUT, 2 * self._watchdog.doubt))
            self._fail(error)
        if verdict.kind == "report":
            # Nobody there: gone for good, or without a leader for the moment?
            if not (isinstance(verdict.error, errors.NoResponders) and self._diagnose()):
                self._report(verdict.error)
        elif verdict.reason == "max bytes":
            self._too_large(verdict, asked, buffered)
        elif verdict.reason == "timeout" and asked and verdict.unserved and verdict.unserved[0] == asked[0]:
            self._diagnose()  # it brought nothing: perhaps the consumer is paused
        self._keep_pulling()

    def _too_large(self, verdict: Verdict, asked: tuple[int, int] | None, buffered: int) -> None:
        """A pull with the whole byte limit brought nothing: the next message can never come within it."""
        limit = self._state.max_bytes
        if buffered or asked is None or asked[1] < limit or (verdict.unserved and verdict.unserved[1] < limit):
            return
        text = f"the next message is larger than max_bytes={limit}: raise the limit"
        with self._lock:
            self._state.failed(time.monotonic())
        self._report(errors.MaxBytesExceeded(409, "", text))

    def _look_after(self, deadline: Deadline) -> None:
        """Send the pull that is due and see what silence means: for whoever does not wait, or has waited."""
        now = time.monotonic()
        self._keep_pulling(now)
        if now >= self._next_timer(now):
            self._silent(deadline)

    def _silent(self, deadline: Deadline) -> None:
        """No frame while a pull is out: ask what is wrong, or raise the alarm and pull again (see Watchdog)."""
        watchdog, mailbox = self._watchdog, self._mailbox
        with self._lock:
            if mailbox.items or not self._pulls or not self._state.outstanding(0):
                return  # something came after all, or it was a back-off that ended
            now, last_frame = time.monotonic(), mailbox.last_frame
            look, alarm = watchdog.look(now, last_frame), watchdog.alarm_at(last_frame)
            if look is Look.ALARM:
                self._pulls_are_dead()
        if look is Look.ALARM:
            self._report(
                errors.NoHeartbeat(f"no heartbeat and no message of {self.source} for {watchdog.patience:g} s")
            )
        elif look is Look.ASK and self._diagnose(watchdog.ask_time(deadline, last_frame, now)):
            with self._lock:
                if not mailbox.items and watchdog.alarm_at(mailbox.last_frame) == alarm:
                    self._pulls_are_dead()  # the answer was reported

    def _pulls_are_dead(self) -> None:
        self._state.lost(0)
        self._watchdog.restart(time.monotonic())
        self.missed_heartbeats += 1

    def _diagnose(self, timeout: float = ASK_TIMEOUT) -> bool:
        """One CONSUMER.INFO, not too often; True when it explains the silence."""
        with self._lock:
            now = time.monotonic()
            if now < self._diagnosed_at + DIAGNOSE_EVERY:
                return False
            self._diagnosed_at = now
        diagnosis = self.source.examine(min(timeout, ASK_TIMEOUT))
        if isinstance(diagnosis, Paused):
            self.paused_until = diagnosis
            self._event(diagnosis)
            return True
        if self.paused_until is not None:
            self.paused_until = None
            self._event(Resumed())
        if diagnosis is None:
            return False
        if isinstance(diagnosis, errors.MaxWaitingExceeded):
            with self._lock:
                self._state.failed(time.monotonic())
            self._report(diagnosis)
        elif self._electing():
            # A cluster that has just come up may not know the consumer yet: ask again before it is believed.
            with self._lock:
                self._diagnosed_at = now - DIAGNOSE_EVERY + ASK_AGAIN
            self._report(diagnosis)
        else:
            self._fail(diagnosis)
        return True

    def _electing(self) -> bool:
        return time.monotonic() < pool_of(self.connection).reconnected_at + ELECTION

    def _event(self, event: Any) -> None:
        log.info("%s: %s", self.source, event)
        call_hook(self.options.on_event, event, None)

    # --- the end --------------------------------------------------------------------------------------------

    @property
    def delivered(self) -> int:
        """Messages taken up to now."""
        with self._lock:
            return self._state.delivered(self._state.taken())

    @property
    def _wants_acks(self) -> bool:
        return not self.source.ack_none

    def drain(self, timeout: float = FLUSH_TIMEOUT) -> None:
        """Ask for nothing more; the iteration ends after what was received.

        `timeout`: seconds to wait for what is on its way.
        """
        with self._lock:
            if self._draining or self._stopped:
                return
            self.withdraw()
        try:
            self.connection.flush(timeout)
        except errors.JsClientError:
            pass  # nothing more can come over a link that is gone
        self.complete()

    def withdraw(self) -> None:
        self._draining = True
        if self._mailbox.closed is None:
            self._engine.remove_subscription(self._inbox.inbox, tell_server=True, keep_sink=True)

    def complete(self) -> None:
        self._inbox.inbox.drain_sub()

    def _leftovers(self) -> list[Msg]:
        return self._inbox.leftovers()

    def close(self, timeout: float = FLUSH_TIMEOUT) -> None:
        """Stop and release the subscription; messages not taken go back to the server at once. Idempotent.

        `timeout`: seconds to wait for those that are on their way; later ones go back when they come.
        """
        self._stopped = True
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self.options.cancel is not None:
            self.options.cancel.leave(self._inbox)
        give_back = not self.options.leave_buffered and self.connection.is_connected
        self._mailbox.wake()
        pool_of(self.connection).forget(self._inbox)
        if self.connection.closed:
            return  # the end of the connection hands back what is there
        self._give_back(self._inbox.settle(give_back, timeout, more=self._wants_acks))

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            try:
                pool_of(self.connection).forget(self._inbox)
                give_back = self._wants_acks and not self.options.leave_buffered and self.connection.is_connected
                # A finalizer runs anywhere, also where our locks are held: the work is done on another thread.
                self._engine.run_callback(_abandon, self._inbox, give_back)
            except Exception:  # the interpreter is going down
                pass

    def __repr__(self) -> str:
        state = "closed" if self._closed else "stopped" if self._stopped else "open"
        return f"<Messages of {self.source} {state} buffered={len(self._mailbox)}>"


def _cancelled(of: weakref.ref[Messages], token: Cancel) -> None:
    messages = of()
    if messages is not None:
        messages._fail(token.error())
        engine_of(messages.connection).clock.call_soon(messages.withdraw)


def _abandon(inbox: PullInbox, give_back: bool) -> None:
    left = inbox.settle(graceful=give_back)
    if give_back:
        nak_all(left, inbox.connection)
