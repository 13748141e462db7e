"""Calls that wait for an answer of the server or of another client: flush, request and its kinds."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from jsclient import checks, errors, handlers, waiting
from jsclient._engine.encoding import as_bytes
from jsclient._engine.requests import MOST_REPLIES, Replies
from jsclient._engine.sinks import CANCEL_SLICE
from jsclient._engine.taking import read_replies, read_reply
from jsclient._engine.unkept import Unkept
from jsclient.durations import DEFAULT, Deadline, Timeout, check_timeout, resolve
from jsclient.message import HeadersLike, Msg, Payload
from jsclient.states import ConnectionState
from protocol.frames import Frame, pub, with_reply

if TYPE_CHECKING:
    from jsclient._engine.engine import Engine
    from jsclient._engine.requests import Collector
    from jsclient.cancel import Cancel

NO_STATUS: Final = b"NATS/1.0 503"


class Asker:
    """The calls of a connection that wait for an answer. What waits stands in `requests`, by its token."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._timeout = engine.options.request_timeout
        self._outbox = engine.outbox
        self._session = engine.session
        self._requests = engine.requests
        self._relay = engine.relay
        self._encode = engine.encode
        self._post_now = engine.post_now

    def rtt(self, timeout: Timeout = DEFAULT, *, cancel: Cancel | None = None) -> float:
        """Seconds that a PING took to come back, after everything sent before it. Raises as `flush` does."""
        self._not_on_reader("flush")
        deadline = Deadline.of(timeout, self._timeout)
        if cancel is not None:
            cancel.check()
        self._outbox.check_wait()
        self._wait_connected(deadline, errors.FlushTimeout, cancel)
        if not self._outbox.has_room(deadline):
            raise errors.FlushTimeout("the server takes no data, so that nothing more was sent to be confirmed")
        ticket: waiting.Ticket[Any] = waiting.Ticket()
        start = time.monotonic()
        self._session.pings.send(ticket)
        self._session.recall_reader()
        self._outbox.nudge()
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
            if _unsent_by_loss(error):
                return self.rtt(deadline, cancel=cancel)
            raise error
        took = time.monotonic() - start
        if self._engine.telling.refusals.settling:
            self.rtt(deadline, cancel=cancel)  # by then the refused subscription has ended
        return took

    def request(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: Timeout = DEFAULT,
        headers: HeadersLike | bytes | None = None,
        cancel: Cancel | None = None,
        may_go_on: Callable[[bytes], bool] | None = None,
        start: bytes | None = None,
    ) -> Msg:
        """Publish with a reply inbox and wait for one reply: 5 seconds by default (`request_timeout`).

        Raises NoResponders at once when nobody listens, RequestTimeout, PermissionViolation, ConnectionLost when
        the link went down after sending (it may have been handled), ConnectionClosed, Cancelled by its `cancel`
        token. `may_go_on`: see `later_reply`. `start`: how the line begins (see `protocol.frames`), where the subject
        needs no check because it came over the wire.
        """
        if timeout.__class__ is Deadline:
            deadline = timeout
        else:
            deadline = Deadline(self._timeout if timeout is DEFAULT else resolve(timeout, None))
        if get_ident() in waiting.readers:
            self._not_on_reader("request")
        if cancel is not None:
            cancel.check()
        engine = self._engine
        if engine.draining or self._outbox.offline:  # the engine first: in a forked child it refuses
            self._prepare_request(deadline, cancel)
        requests, relay = self._requests, self._relay
        if requests.prefix is None:
            self._encode(subject, payload, b"x", headers)  # bad input fails before the inbox is subscribed
        token, reply, ticket = requests.new()
        under_way = requests.waiting
        if start is None:
            frame = Unkept(self._encode(subject, payload, reply, headers))
        else:
            body = payload if payload.__class__ is bytes else as_bytes(payload)
            frame = Unkept(pub(with_reply(start, reply), body))
        try:
            under_way[token] = (ticket, subject)
            if requests.prefix is None:
                requests.check_open()
            if cancel is not None:
                cancel.enter(ticket, partial(_put_error, ticket, cancel))
            if relay.running:
                relay.leave(frame, deadline)
            else:
                self._post_now(frame, deadline)
            engine.messages_out += 1
            reading = engine.lent_reading()
            message: Any = None
            if reading is not None:
                message = read_reply(reading, engine.request_sid, reply, ticket, deadline)
            if message is None:
                message = waiting.get(ticket, deadline.remaining())
            if may_go_on is not None and message.__class__ is Msg and may_go_on(message.data):
                requests.keep(message, ticket)  # before the token goes: nothing is lost between
        except queue.Empty:
            under_way.pop(token, None)
            relay.forget(ticket)
            if self._take_back(frame):
                raise _unsent(subject, deadline.seconds) from None
            raise errors.RequestTimeout(f"no reply from {subject!r} within {deadline.seconds:g} s") from None
        except errors.BufferFull:
            raise _unsent(subject, deadline.seconds) from None
        except errors.ConnectionLost as lost:
            if lost.sent:
                raise
            message = lost
            engine.messages_out += 1  # until the line below
        except BaseException:  # Ctrl-C: what was not sent goes with it
            self._take_back(frame)
            raise
        finally:
            if cancel is not None:
                cancel.leave(ticket)
            try:
                if relay.running or relay.answered or len(under_way) > 1:
                    self._after_wait(token, ticket)
                else:  # nothing counts on us: a thread that enters from now on looks for itself which thread reads
                    under_way.pop(token, None)
            except BaseException:  # Ctrl-C in there: others count on it
                self._after_wait(token, ticket)
                raise
        if message.__class__ is not Msg:
            self._take_back(frame, message)  # it may be cancelled before it was sent
            if _unsent_by_loss(message):
                return self.request(
                    subject, payload, timeout=deadline, headers=headers, cancel=cancel, may_go_on=may_go_on, start=start
                )
            raise message
        if message.raw_headers is not None and message.raw_headers.startswith(NO_STATUS) and not message.data:
            raise no_responders(subject)
        message.connection = engine.connection
        return message

    def later_reply(self, reply: Msg, timeout: float | None) -> Msg | None:
        """Another reply to a request after a first one that `may_go_on`; None when none came in time.

        Until `forget_reply`. Raises ConnectionLost, ConnectionClosed: then no other one comes.
        """
        ticket = self._requests.kept.get(reply.raw_subject)
        if ticket is None:
            raise errors.ConnectionLost("the replies to this request are not heard any more")
        self._session.recall_reader()
        try:
            message: Any = waiting.get(ticket, timeout)
        except queue.Empty:
            return None
        if message.__class__ is not Msg:
            raise message
        late: Msg = message
        return late

    def forget_reply(self, reply: Msg) -> None:
        """No further replies are wanted. Does nothing where none are heard."""
        self._requests.kept.pop(reply.raw_subject, None)

    def _take_back(self, frame: Frame, ended: BaseException | None = None) -> bool:
        """True if the frame has not left: it was still queued, or the link was lost before (`ended`)."""
        unsent = self._outbox.withdraw(frame) or (isinstance(ended, errors.ConnectionLost) and not ended.sent)
        if unsent:
            self._engine.messages_out -= 1
        return unsent

    def _after_wait(self, token: bytes, ticket: waiting.Ticket[Any]) -> None:
        """A request has ended: hand on what its thread may hold, and take it out of the books."""
        relay = self._relay
        if relay.running or relay.answered:
            relay.step(ticket)  # first of all: another thread was answered and waits for this
        under_way = self._requests.waiting
        under_way.pop(token, None)
        if under_way:
            link = self._session.link
            if link is not None and (link.reading.lent or link.reading.lock._is_owned()):
                link.reading.recall()  # it may be ours to read, and they count on it

    def _prepare_request(self, deadline: Deadline, cancel: Cancel | None = None) -> None:
        self._not_on_reader("request")
        if self._session.state is ConnectionState.DRAINING_PUBLISHES:
            self._engine.check_draining()
        self._wait_connected(deadline, cancel=cancel)

    def request_repeatedly(self, subject: str, payload: bytes, *, timeout: Timeout, every: float) -> Msg:
        """As `request`, and sent again every so many seconds until an answer to any of them comes. Only for
        what may be done twice."""
        deadline = Deadline.of(timeout, self._timeout)
        self._prepare_request(deadline)
        token, reply, ticket = self._requests.new()
        under_way = self._requests.waiting
        frame = Unkept(self._encode(subject, payload, reply))
        message: Any = None
        sent = False
        try:
            under_way[token] = (ticket, subject)
            self._requests.check_open()
            while message.__class__ is not Msg:
                self._post_now(frame, deadline)
                self._engine.messages_out += 1
                self._session.recall_reader()
                try:
                    message = waiting.get(ticket, deadline.at_most(every))
                except queue.Empty:
                    sent = not self._take_back(frame) or sent
                    if deadline.expired():
                        raise (
                            _unanswered(subject, deadline, every) if sent else _unsent(subject, deadline.seconds)
                        ) from None
                    continue
                if message.__class__ is not Msg:
                    if not _unsent_by_loss(message):
                        raise message
                    self._wait_connected(deadline)
        except errors.BufferFull:
            raise _unanswered(subject, deadline, every) if sent else _unsent(subject, deadline.seconds) from None
        finally:
            try:
                if message.__class__ is not Msg:
                    self._take_back(frame)
                self._after_wait(token, ticket)
            except BaseException:
                self._after_wait(token, ticket)
                raise
        if message.raw_headers is not None and message.raw_headers.startswith(NO_STATUS) and not message.data:
            raise no_responders(subject)
        message.connection = self._engine.connection
        found: Msg = message
        return found

    def request_each(
        self, subjects: list[bytes], payload: bytes, deadline: Deadline
    ) -> tuple[dict[int, Msg], BaseException | None]:
        """One request to each subject (validated), one write, one wait. Only for what may be done twice:
        frames that a lost link has not taken go out on the next.

        Returns the replies by number, those within the deadline, and what has ended the wait before that, if anything.
        """
        if waiting.on_reader():
            self._not_on_reader("request")
        if self._engine.draining or self._outbox.offline:
            self._prepare_request(deadline)
        answers = self._requests.ask_each(subjects, payload, deadline, self._post_now, self._read_replies)
        self._engine.messages_out += len(subjects)
        return answers

    def _read_replies(self, collector: Collector, deadline: Deadline) -> None:
        reading = self._engine.lent_reading()
        if reading is not None:
            read_replies(reading, self._engine.request_sid, collector, deadline)

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
        the total `timeout` (5 s). Raises NoResponders if nobody listens; no reply at all is an empty iteration, or
        RequestTimeout if the request could not even be sent.
        """
        seconds = resolve(timeout, self._timeout)
        if max_messages is not None:
            checks.positive(max_messages, "max_messages")
        check_timeout(stall, "stall")
        handlers.check(sentinel, "sentinel")
        self._encode(subject, payload, b"x", headers)  # bad input fails here, not at the first next()
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
        token, reply, ticket = self._requests.new()
        under_way = self._requests.waiting
        frame = Unkept(self._encode(subject, payload, reply, headers))
        count = 0
        try:
            replies = self._requests.many[token] = Replies()
            under_way[token] = (ticket, subject)
            self._requests.check_open()
            self._post_now(frame, deadline)
            self._engine.messages_out += 1
            self._session.recall_reader()
            while max_messages is None or count < max_messages:
                wait = deadline.remaining() if stall is None or not count else deadline.at_most(stall)
                try:
                    message = waiting.get(ticket, wait)
                except queue.Empty:
                    if self._take_back(frame):
                        raise _unsent(subject, deadline.seconds) from None
                    return
                if message.__class__ is not Msg:
                    if count or not _unsent_by_loss(message):
                        raise message
                    self._wait_connected(deadline)
                    self._post_now(frame, deadline)
                    continue
                self._account(replies, message, subject)
                if not count and message.status is not None and message.status.code == 503:
                    raise no_responders(subject)
                if sentinel is not None and handlers.ran(sentinel(message)):
                    return
                message.connection = self._engine.connection
                count += 1
                yield message
        except errors.BufferFull:
            raise _unsent(subject, deadline.seconds) from None
        finally:
            try:
                if not count:
                    self._take_back(frame)
                self._after_wait(token, ticket)
                self._requests.many.pop(token, None)
            except BaseException:
                self._after_wait(token, ticket)
                self._requests.many.pop(token, None)
                raise

    @staticmethod
    def _account(replies: Replies, message: Msg, subject: str) -> None:
        """A reply was taken. Raises SlowConsumer if others were dropped."""
        replies.take(message)
        if replies.dropped:
            raise errors.SlowConsumer(
                f"replies to {subject!r} were dropped: {MOST_REPLIES} bytes of them waited. They do "
                "not come again. Take them faster, or ask for fewer.",
                subject,
                replies.dropped,
            )

    def _wait_connected(
        self,
        deadline: Deadline,
        late: type[errors.TimedOut] = errors.RequestTimeout,
        cancel: Cancel | None = None,
    ) -> None:
        self._engine.check_usable()
        if self._outbox.offline:
            connected = self._session.connected
            while cancel is not None and not connected.wait(deadline.at_most(CANCEL_SLICE)) and not deadline.expired():
                cancel.check()
            if not connected.wait(deadline.remaining()):
                error = self._session.last_error
                why = "" if error is None else f" (last error: {errors.brief(error)})"
                raise late(f"not connected in time{why}. Nothing was sent. It is tried again: give it more time.")
            self._engine.check_usable()

    def _not_on_reader(self, what: str) -> None:
        if waiting.on_reader():
            raise errors.Reentered(f"{what} on the reader thread of a connection would wait for itself")


def _put_error(ticket: waiting.Ticket[Any], cancel: Cancel) -> None:
    ticket.put(cancel.error())


def no_responders(subject: str) -> errors.NoResponders:
    return errors.NoResponders(f"nobody listens on {subject!r}", subject)


def _unsent_by_loss(ended: BaseException) -> bool:
    """The link was lost before anything was sent: the call waits for the next one, and sends it then."""
    return isinstance(ended, errors.ConnectionLost) and not ended.sent


def _unanswered(subject: str, deadline: Deadline, every: float) -> errors.RequestTimeout:
    return errors.RequestTimeout(f"no reply from {subject!r} within {deadline.seconds:g} s, asked every {every:g} s")


def _unsent(subject: str, seconds: float | None) -> errors.RequestTimeout:
    return errors.RequestTimeout(
        f"the server takes no data: the request to {subject!r} could not be sent in its time of {seconds} s", sent=False
    )


def same_violation(error: Any) -> errors.PermissionViolation:
    """One of its own for each waiting call: an exception that several threads raise collects all their tracebacks."""
    return errors.PermissionViolation(error.what, error.subject, error.operation)
