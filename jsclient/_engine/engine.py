"""The engine of a Connection: what it does with one session to a NATS system, from any number of threads.

Threads (all daemons): a reader per live link, a connector per dial, one flusher, one events thread for callbacks,
workers for the callbacks of subscriptions. design: reader -> Dispatcher -> mailboxes; callers -> Outbox -> socket. A
caller that is the only one to wait reads the socket itself: see `reading`.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from jsclient import checks, errors, waiting
from jsclient._engine.core import EngineCore, guarded
from jsclient._engine.link import Link
from jsclient._engine.outbox import Unkept
from jsclient._engine.requests import MOST_REPLIES, Replies
from jsclient._engine.session import CLOSE_FLUSH, JOIN_TIMEOUT, NO_THREAD_PAUSE
from jsclient._engine.sinks import (
    BaseSubscription,
)
from jsclient._engine.taking import read_reply
from jsclient.cancel import Cancel
from jsclient.durations import DEFAULT, Deadline, Timeout, check_timeout, resolve
from jsclient.message import HeadersLike, Msg, Payload
from jsclient.states import ConnectionState, LinkEvent
from protocol.errors import LineTooLong
from protocol.frames import hpub, pub, pub_start, with_reply

log = logging.getLogger("jsclient.connection")

KNOWN_SUBJECTS: Final = 4096
"""Validated subjects that a connection remembers: a check costs 1 us, a dictionary look-up 40 ns."""

LAST_FLUSH: Final = 0.1
"""Seconds that a drain whose time is up gives the server to read what was sent."""

NO_STATUS: Final = b"NATS/1.0 503"

_live: weakref.WeakValueDictionary[int, LiveEngine] = weakref.WeakValueDictionary()


class LiveEngine(EngineCore):
    """The engine of one Connection, which outlives its links. See `jsclient._engine.Engine` for what layers use of it.

    In a forked child it becomes a ForkedEngine: every use of it but `close` raises ForkedConnection.
    """

    # --- opening and closing ----------------------------------------------------------------------------

    def open(self) -> None:
        """Connect; called once by `jsclient.connect`."""
        _live[self.number] = self
        try:
            self.clock.start()
            self.session.start()
        except BaseException:
            self.close_now(wait=False)
            raise

    def close(self, wait: bool = True) -> None:
        """Send what is buffered (at most 2 s), then end everything; blocked calls get ConnectionClosed. Idempotent.

        `wait=False` only asks for it and returns at once: safe in signal handlers and `__del__`.
        """
        if wait:
            self.close_now()
        elif not self.session.closing.is_set():
            self.clock.call_soon(self.close_now)

    def close_now(self, wait: bool = True, error: BaseException | None = None, flush: float = CLOSE_FLUSH) -> None:
        session = self.session
        with session.lock:
            first = not session.closing.is_set()
            session.closing.set()
        if not first:
            if wait and threading.current_thread() is not self.clock.thread:
                session.closed.wait(CLOSE_FLUSH + 2 * JOIN_TIMEOUT)
            return
        self._fatal = error
        link = session.link
        try:
            session.begin_close()
            self._let_go()
            if link is not None and error is None:
                session.final_flush(link, flush, self._hand_back)
        finally:  # also after a Ctrl-C
            self._finish_close(link)

    def _let_go(self) -> None:
        """Whatever waits for a reply, a message or room in a window learns that nothing comes; no handler starts."""
        self.requests.fail(self.closed_error)
        for taker in self.takers.all():
            guarded(taker.end, self.closed_error())
        for subscription in list(self.dispatcher.sinks.values()):
            if isinstance(subscription, BaseSubscription):
                guarded(subscription.end, self.closed_error())
        self._tell_link_listeners(LinkEvent.CLOSED)

    def _hand_back(self) -> list[bytes]:
        """What came and is not taken any more, for the server to deliver elsewhere: the last frames to be sent."""
        frames: list[bytes] = []
        for taker in self.takers.all():
            guarded(lambda taker: frames.extend(taker.hand_back()), taker)
        return [*frames, *self.takers.left]

    def _finish_close(self, link: Link | None) -> None:
        left = self.outbox.close(self.closed_error)
        if left:
            log.warning("connection %d was closed with %d messages unsent", self.number, left)
        self.requests.fail(self.closed_error)  # those that began meanwhile
        try:
            self.session.end_close(link)
        finally:  # it waits for threads, and Ctrl-C ends that
            self.dispatcher.sinks.clear()
            self.clock.stop()
            self.strands.stop()
            if self.options.on_closed is not None:
                self.run_last_callback(self.options.on_closed, self.connection)
            self.events.stop()
            _live.pop(self.number, None)
        if self.clock.thread.is_alive() and threading.current_thread() is not self.clock.thread:
            self.clock.thread.join(JOIN_TIMEOUT)

    def fail(self, error: BaseException) -> None:
        """The session has ended for good (called by it, on one of its threads)."""
        log.error("connection %d ends: %s", self.number, error)
        self.report_error(error, None)
        self.close_now(wait=False, error=error)

    def drain(self, timeout: Timeout = DEFAULT, wait: bool = True) -> None:
        """Stop receiving, let the application finish what it has, send what is buffered, close.

        Subscriptions, `consume` and services finish what they have received, a WorkerPool finishes what it handles
        and gives back the rest, iterators give back what the application does not come for. 30 seconds by default
        (`drain_timeout`); then, and when the link is lost and what is buffered cannot be sent, DrainTimeout, after
        closing all the same. `wait=False` only asks for it: safe in signal handlers; in a handler or callback it is
        never waited for, because it waits for that handler.
        """
        seconds = resolve(timeout, self.options.drain_timeout)
        if wait and not self.takers.run_here():
            self._drain(seconds)
        elif not self._drain_asked and not self.closed:
            self._drain_asked = True
            self.clock.call_soon(lambda: self._drain_in_background(seconds))

    def _drain_in_background(self, seconds: float | None) -> None:
        name = f"jsclient-worker-drain-{self.number}"
        try:
            threading.Thread(target=self._drain_quietly, args=(seconds,), name=name, daemon=True).start()
        except RuntimeError as error:
            log.error("no thread to drain connection %d with, trying again: %s", self.number, error)
            self.clock.call_later(NO_THREAD_PAUSE, lambda: self._drain_in_background(seconds))

    def _drain_quietly(self, seconds: float | None) -> None:
        try:
            self._drain(seconds, quiet=True)
        except errors.JsClientError as error:
            self.report_error(error, None)

    def _drain(self, seconds: float | None, quiet: bool = False) -> None:
        if self.closed:
            return
        deadline = Deadline(seconds)
        session = self.session
        with session.lock:
            first = not self.draining
            self.draining = True
            if first and not self.closed:
                session.state = ConnectionState.DRAINING_SUBSCRIPTIONS
        if not first:
            # Another thread drains: closing now would throw away what it waits for.
            if not session.closed.wait(deadline.remaining()):
                raise errors.DrainTimeout("another thread still drains this connection")
            return
        problem: errors.DrainTimeout | None = None
        try:
            problem = self._drain_in_order(deadline)
            if problem is not None and quiet:
                self.report_error(problem, None)  # now: closing ends the events thread
        finally:  # also after a Ctrl-C
            self.close_now(flush=max(deadline.at_most(CLOSE_FLUSH), LAST_FLUSH))
        if problem is not None and not quiet:
            raise problem

    def _drain_in_order(self, deadline: Deadline) -> errors.DrainTimeout | None:
        """Receive nothing more, let the application finish, publish nothing more, and see that all of it arrives."""
        problem: errors.DrainTimeout | None = None
        takers = self.takers.all()
        for taker in takers:
            taker.begin_drain()
        # Without a link nothing is on its way, and what a new one brings is not subscribed to any more.
        late = self._flush_draining(deadline.remaining()) if takers and self.is_connected else None
        for taker in takers:
            taker.all_received()
        for taker in takers:
            try:
                taker.finish_drain(deadline)
            except errors.DrainTimeout as error:
                problem = problem or error
        self.session.drain_publishes()
        if not self.is_connected and not self.closed and not self.outbox.keeps():
            return problem  # nothing was kept that a new link would be needed for
        unsent = self._flush_draining(deadline.at_most(CLOSE_FLUSH) if problem or late else deadline.remaining())
        return problem or unsent

    def _flush_draining(self, timeout: float | None) -> errors.DrainTimeout | None:
        try:
            self.flush(timeout)
        except (errors.TimedOut, errors.NatsConnectionError) as error:
            kept = len(self.outbox.frames)
            lost = f", {kept} messages or acks that were kept are thrown away" if kept else ""
            return errors.DrainTimeout(f"draining ended before everything was sent{lost}: {error}")
        return None

    def force_reconnect(self) -> None:
        """Leave the present server and dial again, as after a link loss."""
        self.check_usable()
        self.session.force_reconnect()

    def __repr__(self) -> str:
        return f"<jsclient.Connection {self.number} {self.state.value} {self.connected_url or '-'}>"

    # --- publishing -------------------------------------------------------------------------------------

    def encode(
        self,
        subject: str,
        payload: Payload = b"",
        reply: str | bytes = b"",
        headers: HeadersLike | bytes | None = None,
    ) -> bytes:
        """One validated PUB or HPUB frame. For layers: `reply` as bytes and `headers` as an encoded block are
        taken as they are."""
        start = self.pub_start(subject, reply)
        if payload.__class__ is not bytes:
            payload = as_bytes(payload)
        size = len(payload)
        if headers is None:
            if size > self.max_payload:
                raise self.too_large(size)
            return pub(start, payload)
        if not self.takes_headers:
            self.check_headers()
        block = headers if headers.__class__ is bytes else checks.header_block(headers)  # type: ignore[arg-type]
        size += len(block)
        if size > self.max_payload:
            raise self.too_large(size)
        return hpub(start, block, payload)

    def pub_start(self, subject: str, reply: str | bytes = b"") -> bytes:
        """For layers: how the line of a message begins (see `protocol.frames`), validated as in `encode`."""
        try:
            start = self.starts[subject]
        except (KeyError, TypeError):  # new, or no str at all
            start = self.learn_subject(subject)
        if not reply:
            return start
        try:
            return with_reply(start, reply if isinstance(reply, bytes) else checks.subject(reply, "reply"))
        except LineTooLong as error:
            raise errors.InvalidSubject(str(error)) from None

    def learn_subject(self, subject: str) -> bytes:
        with_filter = isinstance(subject, checks.FilterInSubject)
        raw = checks.filter_subject(subject) if with_filter else checks.subject(subject)
        try:
            start = pub_start(raw)
        except LineTooLong as error:
            raise errors.InvalidSubject(str(error)) from None
        if with_filter:
            return start  # not remembered, or a plain str that is equal to it would pass
        if len(self.starts) >= KNOWN_SUBJECTS:
            self.starts.clear()
        self.starts[subject] = start
        return start

    def too_large(self, size: int) -> errors.PayloadTooLarge:
        return errors.PayloadTooLarge(
            f"headers and payload have {size} bytes, the server takes {self.max_payload} (max_payload): nothing was "
            "sent. Split it, use an object store, or raise the server's limit"
        )

    def flush(self, timeout: Timeout = DEFAULT, *, cancel: Cancel | None = None) -> None:
        """Wait until the server has read everything sent so far. Waits for a reconnect within its time.

        5 seconds by default. Raises FlushTimeout, ConnectionLost if the link went down meanwhile, ConnectionClosed.
        """
        self.rtt(timeout, cancel=cancel)

    def rtt(self, timeout: Timeout = DEFAULT, *, cancel: Cancel | None = None) -> float:
        """Seconds that a PING took to come back, after everything sent before it. Raises as `flush` does."""
        self._not_on_reader("flush")
        deadline = Deadline.of(timeout, self.options.request_timeout)
        if cancel is not None:
            cancel.check()
        self._wait_connected(deadline, errors.FlushTimeout, cancel)
        ticket: waiting.Ticket[Any] = waiting.Ticket()
        start = time.monotonic()
        self.session.pings.send(ticket)
        self.session.recall_reader()
        self.outbox.nudge()
        try:
            if cancel is not None:
                cancel.enter(ticket, partial(_put_error, ticket, cancel))
            error = waiting.get(ticket, deadline.remaining())
        except queue.Empty:
            raise errors.FlushTimeout("the server did not confirm in time that it has read what was sent") from None
        finally:
            if cancel is not None:
                cancel.leave(ticket)
        if error is not None:
            if isinstance(error, errors.ConnectionLost) and not error.sent and self.session.moving:
                return self.rtt(deadline)
            raise error
        return time.monotonic() - start

    # --- requests ---------------------------------------------------------------------------------------

    def request(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: Timeout = DEFAULT,
        headers: HeadersLike | bytes | None = None,
        cancel: Cancel | None = None,
        may_go_on: Callable[[bytes], bool] | None = None,
    ) -> Msg:
        """Publish with a reply inbox and wait for one reply: 5 seconds by default (`request_timeout`).

        Raises NoResponders at once when nobody listens, RequestTimeout, PermissionViolation, ConnectionLost when
        the link went down after sending (it may have been handled), ConnectionClosed, Cancelled by its `cancel`
        token. `may_go_on` is for layers: see `later_reply`.
        """
        if timeout.__class__ is Deadline:
            deadline = timeout
        else:
            deadline = Deadline(self.options.request_timeout if timeout is DEFAULT else resolve(timeout, None))
        if waiting.on_reader():
            self._not_on_reader("request")
        if cancel is not None:
            cancel.check()
        if self.outbox.offline or self.draining:
            self._prepare_request(deadline, cancel)
        requests, relay = self.requests, self.relay
        if not requests.is_open:
            self.encode(subject, payload, b"x", headers)  # bad input fails before the inbox is subscribed
        token, reply, ticket = requests.new()
        under_way = requests.waiting
        frame = Unkept(self.encode(subject, payload, reply, headers))
        try:
            under_way[token] = (ticket, subject)
            requests.check_open()
            if cancel is not None:
                cancel.enter(ticket, partial(_put_error, ticket, cancel))
            if relay.running:
                relay.leave(frame, deadline)
            else:
                self.post_now(frame, deadline)
            self.messages_out += 1
            reading = self.lent_reading()
            message: Any = None
            if reading is not None:
                message = read_reply(reading, self._request_sid, reply, ticket, deadline)
            if message is None:
                message = waiting.get(ticket, deadline.remaining())
            if may_go_on is not None and message.__class__ is Msg and may_go_on(message.payload):
                requests.keep(message, ticket)  # before the token goes: nothing is lost between
        except queue.Empty:
            under_way.pop(token, None)
            relay.forget(ticket)
            if self.outbox.withdraw(frame):
                raise _unsent(subject, deadline.seconds) from None
            raise errors.RequestTimeout(f"no reply from {subject!r} within {deadline.seconds:g} s") from None
        except errors.BufferFull:
            raise _unsent(subject, deadline.seconds) from None
        except errors.ConnectionLost as lost:
            if lost.sent or not self.session.moving:
                raise
            message = lost
        finally:
            if cancel is not None:
                cancel.leave(ticket)
            try:
                if relay.running or relay.answered or len(under_way) > 1:
                    self._after_wait(token, ticket)
                else:  # nobody counts on us: who enters from now on looks for itself who reads
                    under_way.pop(token, None)
            except BaseException:  # Ctrl-C in there: others count on it
                self._after_wait(token, ticket)
                raise
        if message.__class__ is not Msg:
            if message.__class__ is errors.ConnectionLost and not message.sent and self.session.moving:
                # It was not sent, because the connection moves to another server just now: that takes a moment.
                return self.request(subject, payload, timeout=deadline, headers=headers, may_go_on=may_go_on)
            raise message
        if message.raw_headers is not None and message.raw_headers.startswith(NO_STATUS) and not message.payload:
            raise no_responders(subject)
        message.connection = self.connection
        return message

    def later_reply(self, reply: Msg, timeout: float | None) -> Msg | None:
        """For layers: another reply to a request whose first one `may_go_on`; None when none came in time.

        Until `forget_reply`. Raises ConnectionLost, ConnectionClosed: then no other one comes.
        """
        ticket = self.requests.kept.get(reply.raw_subject)
        if ticket is None:
            raise errors.ConnectionLost("the replies to this request are not heard any more")
        self.session.recall_reader()
        try:
            message: Any = waiting.get(ticket, timeout)
        except queue.Empty:
            return None
        if message.__class__ is not Msg:
            raise message
        late: Msg = message
        return late

    def forget_reply(self, reply: Msg) -> None:
        """For layers: no further replies are wanted. Does nothing where none are heard."""
        self.requests.kept.pop(reply.raw_subject, None)

    def _after_wait(self, token: bytes, ticket: waiting.Ticket[Any]) -> None:
        """A request has ended: hand on what its thread may hold, and take it out of the books."""
        relay = self.relay
        if relay.running or relay.answered:
            relay.step(ticket)  # first of all: another thread was answered and waits for this
        under_way = self.requests.waiting
        under_way.pop(token, None)
        if under_way:
            link = self.session.link
            if link is not None and (link.reading.lent or link.reading.is_ours()):
                link.reading.recall()  # it may be ours to read, and they count on it

    def _prepare_request(self, deadline: Deadline, cancel: Cancel | None = None) -> None:
        self._not_on_reader("request")
        if self.session.state is ConnectionState.DRAINING_PUBLISHES:
            self.check_draining()
        self._wait_connected(deadline, cancel=cancel)

    def request_repeatedly(self, subject: str, payload: bytes, *, timeout: Timeout, every: float) -> Msg:
        """For layers: as `request`, and sent again every so many seconds until an answer to any of them comes. Only for
        what may be done twice."""
        deadline = Deadline.of(timeout, self.options.request_timeout)
        self._prepare_request(deadline)
        token, reply, ticket = self.requests.new()
        under_way = self.requests.waiting
        frame = self.encode(subject, payload, reply)
        try:
            under_way[token] = (ticket, subject)
            self.requests.check_open()
            while True:
                self.post_now(Unkept(frame), deadline)
                self.messages_out += 1
                self.session.recall_reader()
                try:
                    message: Any = waiting.get(ticket, deadline.at_most(every))
                    break
                except queue.Empty:
                    if deadline.expired():
                        raise errors.RequestTimeout(
                            f"no reply from {subject!r} within {deadline.seconds:g} s, asked every {every:g} s"
                        ) from None
        finally:
            try:
                self._after_wait(token, ticket)
            except BaseException:
                self._after_wait(token, ticket)
                raise
        if message.__class__ is not Msg:
            raise message
        if message.raw_headers is not None and message.raw_headers.startswith(NO_STATUS) and not message.payload:
            raise no_responders(subject)
        message.connection = self.connection
        return message

    def request_each(
        self, subjects: list[bytes], payload: bytes, deadline: Deadline
    ) -> tuple[dict[int, Msg], BaseException | None]:
        """For layers: one request to each subject (validated), one write, one wait. Only for what may be done twice:
        frames that a lost link has not taken go out on the next.

        Returns the replies by number, those within the deadline, and what has ended the wait before that, if anything.
        """
        if waiting.on_reader():
            self._not_on_reader("request")
        if self.outbox.offline or self.draining:
            self._prepare_request(deadline)
        self.messages_out += len(subjects)
        return self.requests.ask_each(subjects, payload, deadline, self.post_now, self.session.recall_reader)

    def request_many(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: Timeout = DEFAULT,
        max_messages: int | None = None,
        stall: float | None = None,
        sentinel: Callable[[Msg], bool] | None = None,
        headers: HeadersLike | None = None,
    ) -> Iterator[Msg]:
        """One request, many replies (ADR-47), as they come.

        Ends after `max_messages`, when `stall` seconds pass after a reply without another one, when `sentinel`
        returns True for a reply (that one is not delivered; `jsclient.empty_payload` is the usual one), or after
        the total `timeout` (5 s). Raises NoResponders if nobody listens; no reply at all is an empty iteration.
        """
        seconds = resolve(timeout, self.options.request_timeout)
        if max_messages is not None and max_messages <= 0:
            raise errors.ConfigError(f"max_messages must be positive, got {max_messages}")
        check_timeout(stall, "stall")
        frame_of = self.encode(subject, payload, b"x", headers)  # bad input fails here, not at the first next()
        del frame_of
        return self._request_many(subject, payload, seconds, max_messages, stall, sentinel, headers)

    def _request_many(
        self,
        subject: str,
        payload: Payload,
        seconds: float | None,
        max_messages: int | None,
        stall: float | None,
        sentinel: Callable[[Msg], bool] | None,
        headers: HeadersLike | None,
    ) -> Iterator[Msg]:
        deadline = Deadline(seconds)
        self._prepare_request(deadline)
        token, reply, ticket = self.requests.new()
        under_way = self.requests.waiting
        count = 0
        try:
            replies = self.requests.many[token] = Replies()
            under_way[token] = (ticket, subject)
            self.requests.check_open()
            self.post_now(Unkept(self.encode(subject, payload, reply, headers)), deadline)
            self.messages_out += 1
            self.session.recall_reader()
            while max_messages is None or count < max_messages:
                wait = deadline.remaining() if stall is None or not count else deadline.at_most(stall)
                try:
                    message = waiting.get(ticket, wait)
                except queue.Empty:
                    return
                if message.__class__ is not Msg:
                    raise message
                replies.take(message)
                if replies.dropped:
                    raise errors.SlowConsumer(
                        f"replies to {subject!r} were dropped: {MOST_REPLIES} bytes of them waited to be taken",
                        subject,
                        replies.dropped,
                    )
                status = message.status
                if status is not None and status.code == 503 and not count:
                    raise no_responders(subject)
                if sentinel is not None and sentinel(message):
                    return
                message.connection = self.connection
                count += 1
                yield message
        finally:
            try:
                self._after_wait(token, ticket)
                self.requests.many.pop(token, None)
            except BaseException:
                self._after_wait(token, ticket)
                self.requests.many.pop(token, None)
                raise


def _put_error(ticket: waiting.Ticket[Any], cancel: Cancel) -> None:
    ticket.put(cancel.error())


def no_responders(subject: str) -> errors.NoResponders:
    return errors.NoResponders(f"nobody listens on {subject!r}: the request was certainly not delivered", subject)


def _unsent(subject: str, seconds: float | None) -> errors.RequestTimeout:
    return errors.RequestTimeout(
        f"the server takes no data: the request to {subject!r} could not be sent in its time of {seconds} s", sent=False
    )


def as_bytes(payload: Any) -> bytes:
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return bytes(payload)
    raise errors.ConfigError(f"a payload is bytes or str, not {type(payload).__name__}; encode it first")


def live_engines() -> list[LiveEngine]:
    """Those of this process that are not closed."""
    return list(_live.values())


def forget_engines() -> None:
    """In a forked child: they are the parent's."""
    _live.clear()
