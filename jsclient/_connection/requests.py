"""Questions that wait for an answer: flush, `request` and its kinds. All requests are made of one thing, a `Call`.

A connection has one wildcard inbox for answers, and a call has a token in it. Every responder sees the prefix of the
inbox, so a token is random and serves one call: a responder to one can forge no other.

The thread that waits enters its token into `waiting` and takes it out again, inside one `try`. Both are single calls
into C, so a Ctrl-C cannot leave it there.
"""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from jsclient import checks, errors, handlers, nuid, waiting
from jsclient._connection.calls import Call, EachCall, ManyCall, put_further
from jsclient._connection.reading import read_replies, read_reply
from jsclient._connection.sender import LinkFrame
from jsclient._connection.sinks import CANCEL_SLICE, ReplySink
from jsclient._connection.wake_chain import CHAINS
from jsclient.durations import DEFAULT, Deadline, Timeout, check_timeout, resolve
from jsclient.message import HeadersLike, Msg, Payload
from jsclient.protocol.frames import Frame, pub_each, reply_of, with_reply
from jsclient.states import ConnectionState, LinkEvent

if TYPE_CHECKING:
    from jsclient._connection.engine import Engine
    from jsclient.cancel import Cancel

NO_STATUS: Final = b"NATS/1.0 503"

MOST_FURTHER: Final = 1_024
"""Answered requests that may get a further reply. Beyond that the oldest is forgotten."""

EACH_WRITE: Final = 256
"""Requests of `request_each` that are joined before they are queued: about 32 KiB."""


class Requests(ReplySink):
    """What waits for answers, by token: asked by callers, a sink on the reader thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._timeout = engine.options.request_timeout
        self._outbox = engine.outbox
        self._chain = engine.wake_chain
        self._encoder = engine.encoder
        self._enqueue_now = engine.outbox.enqueue_now
        self._lock = waiting.new_lock()
        self.waiting: dict[bytes, Call] = {}
        self.further: dict[bytes, waiting.Ticket[Any]] = {}
        """The tickets of answered requests that may get a further reply, by the subject of the first one."""
        self.prefix: bytes | None = None
        """How the subject of each reply begins; None until the wildcard inbox is subscribed."""
        self.sid: bytes = b""  # of the inbox
        self.sids: set[bytes] = set()  # the same, for the parser: answers are not held to max_payload
        self.answers: int = 0
        self._served = b""  # the token of the call that was answered last
        self._cut = 0
        self._refusal: Callable[[], BaseException] | None = None

    # --- asking: any thread -------------------------------------------------------------------------------

    def rtt(self, timeout: Timeout = DEFAULT, *, cancel: Cancel | None = None) -> float:
        """Seconds that a PING took to come back, after everything sent before it. Raises as `flush` does."""
        _not_on_reader("flush")
        deadline = Deadline.of(timeout, self._timeout)
        if cancel is not None:
            cancel.check()
        self._outbox.check_wait()
        took: float | None = None
        while True:
            self._wait_connected(deadline, cancel, flush=True)
            if not self._outbox.has_room(deadline):
                raise errors.FlushTimeout("the server takes no data: nothing more was sent to be confirmed")
            start = time.monotonic()
            error = self._ping(deadline, cancel)
            if error is None:
                took = time.monotonic() - start if took is None else took
                if not self._engine.events.refusals.settling:
                    return took
                # Once more: by then the refused subscription has ended.
            elif not _unsent_by_loss(error):
                raise error

    def _ping(self, deadline: Deadline, cancel: Cancel | None) -> BaseException | None:
        session = self._engine.session
        ticket: waiting.Ticket[Any] = waiting.Ticket()
        session.pings.send(ticket)
        session.recall_reader()
        self._outbox.nudge()
        try:
            if cancel is not None:
                cancel.enter(ticket, partial(ticket.put, cancel.error()))
            return waiting.get(ticket, deadline.remaining())  # type: ignore[no-any-return]
        except queue.Empty:
            raise errors.FlushTimeout("the server did not confirm in time that it has read what was sent") from None
        finally:
            if cancel is not None:
                cancel.leave(ticket)

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
        every: float | None = None,
    ) -> Msg:
        """Publish with a reply inbox and wait for one reply: 5 seconds by default (`request_timeout`).

        Raises NoResponders at once when nobody listens, RequestTimeout, PermissionViolation, ConnectionLost when
        the link went down after sending (it may have been handled), ConnectionClosed, Cancelled by its `cancel`
        token. `may_go_on`: see `later_reply`. `start`: how the line begins (see `protocol.frames`), where the subject
        needs no check because it came over the wire. `every`: it is sent again after so many seconds, until an answer
        to any of them comes; only for what may be done twice.
        """
        if timeout.__class__ is Deadline:
            deadline = timeout
        else:
            deadline = Deadline(self._timeout if timeout is DEFAULT else resolve(timeout, None))
        if get_ident() in waiting.readers:
            _not_on_reader("request")
        if cancel is not None:
            cancel.check()
        engine = self._engine
        if engine.draining or self._outbox.offline:  # the engine first: in a forked child it refuses
            self._prepare(deadline, cancel)
        prefix = self.prefix
        if prefix is None:
            self._encoder.encode(subject, payload, b"x", headers)  # bad input fails before the inbox is subscribed
            prefix = self._open_inbox()
        call = Call(prefix, subject)
        if may_go_on is not None:
            call.several = True
        start = self._encoder.pub_start(subject, call.reply) if start is None else with_reply(start, call.reply)
        call.frame = LinkFrame(self._encoder.frame(start, payload, headers))
        try:
            message = self._answer(call, deadline, cancel, every)
            call.answered = True
            if may_go_on is not None and may_go_on(message.data):
                self._keep(message, call.ticket)
        finally:
            try:
                self._end(call, cancel)
            except BaseException:  # Ctrl-C in there: others count on it
                self._end(call, cancel)
                raise
        if message.raw_headers is not None and message.raw_headers.startswith(NO_STATUS) and not message.data:
            raise no_responders(subject)
        message.connection = engine.connection
        return message

    def later_reply(self, reply: Msg, timeout: float | None) -> Msg | None:
        """Another reply to a request after a first one that `may_go_on`; None when none came in time.

        Until `forget_reply`. Raises ConnectionLost, ConnectionClosed: then no other one comes.
        """
        ticket = self.further.get(reply.raw_subject)
        if ticket is None:
            raise errors.ConnectionLost("the replies to this request are not heard any more")
        self._engine.session.recall_reader()
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
        self.further.pop(reply.raw_subject, None)

    def _keep(self, reply: Msg, ticket: waiting.Ticket[Any]) -> None:
        """Hear further replies. The call still waits here, so the reader misses none in between."""
        while len(self.further) >= MOST_FURTHER:
            self.further.pop(next(iter(list(self.further)), b""), None)
        self.further[reply.raw_subject] = ticket

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
        cancel: Cancel | None = None,
    ) -> Iterator[Msg]:
        """See `Connection.request_many`. RequestTimeout if the request could not even be sent."""
        seconds = resolve(timeout, self._timeout)
        if max_messages is not None:
            checks.positive(max_messages, "max_messages")
        check_timeout(stall, "stall")
        handlers.check(sentinel, "sentinel")
        self._encoder.encode(subject, payload, b"x", headers)  # bad input fails here, not at the first next()

        def replies() -> Iterator[Msg]:
            deadline = Deadline(seconds)
            if cancel is not None:
                cancel.check()
            self._prepare(deadline, cancel)
            call = ManyCall(self.prefix or self._open_inbox(), subject)
            call.frame = LinkFrame(self._encoder.encode(subject, payload, call.reply, headers))
            count = 0
            try:
                try:
                    message: Msg | None = self._answer(call, deadline, cancel)
                except errors.RequestTimeout as silence:
                    if silence.sent:
                        return
                    raise
                while True:
                    if message is None:
                        return
                    if not count and message.status is not None and message.status.code == 503:
                        raise no_responders(subject)
                    call.took(message)
                    if sentinel is not None and handlers.ran(sentinel(message)):
                        return
                    message.connection = self._engine.connection
                    count += 1
                    yield message
                    if count == max_messages:
                        return
                    message = _next(call, deadline.remaining() if stall is None else deadline.at_most(stall))
            finally:
                call.answered = call.answered or count > 0
                try:
                    self._end(call, cancel)
                except BaseException:
                    self._end(call, cancel)
                    raise

        return replies()

    def request_each(
        self, subjects: list[bytes], payload: bytes, deadline: Deadline
    ) -> tuple[dict[int, Msg], BaseException | None]:
        """One request to each subject (validated), one write, one wait. Only for what may be done twice:
        frames that a lost link has not taken go out on the next.

        Returns the replies by number, those within the deadline, and what has ended the wait before that, if anything.
        """
        self._prepare(deadline)
        prefix = self.prefix or self._open_inbox()
        call = EachCall(prefix, len(subjects))
        tokens = list(call.numbers)
        frames = pub_each(subjects, prefix, tokens, payload)
        try:
            self.waiting.update(zip(tokens, repeat(call)))
            self._check_open(call)
            for first in range(0, len(frames), EACH_WRITE):
                self._enqueue_now(b"".join(frames[first : first + EACH_WRITE]), deadline)
            self._engine.count_out(len(subjects))
            reading = self._engine.lent_reading()
            ended: Any = None if reading is None else read_replies(reading, self.sid, call, deadline)
            if ended is None:
                ended = waiting.get(call.ticket, deadline.remaining())
        except queue.Empty:
            ended = None
        finally:
            try:
                self._forget(tokens)
            except BaseException:
                self._forget(tokens)
                raise
        return call.replies.copy(), None if ended.__class__ is Msg else ended  # a copy: more may just come in

    # --- the steps of a call ------------------------------------------------------------------------------

    def _prepare(self, deadline: Deadline, cancel: Cancel | None = None) -> None:
        _not_on_reader("request")
        if self._engine.session.state is ConnectionState.DRAINING_PUBLISHES:
            self._engine.check_draining()
        self._wait_connected(deadline, cancel)

    def _wait_connected(
        self, deadline: Deadline, cancel: Cancel | None = None, flush: bool = False, sent: bool = False
    ) -> None:
        self._engine.check_usable()
        if self._outbox.offline:
            connected = self._engine.session.connected
            while cancel is not None and not connected.wait(deadline.at_most(CANCEL_SLICE)) and not deadline.expired():
                cancel.check()
            if not connected.wait(deadline.remaining()):
                error = self._engine.session.last_error
                why = "" if error is None else f" (last error: {errors.brief(error)})"
                text = f"not connected in time{why}"
                raise errors.FlushTimeout(f"{text}. Nothing was sent.") if flush else errors.RequestTimeout(text, sent)
            self._engine.check_usable()

    def _answer(self, call: Call, deadline: Deadline, cancel: Cancel | None, every: float | None = None) -> Msg:
        """Send a call and wait for its first reply, over as many links as that takes within the deadline."""
        sent = False
        try:
            while True:
                try:
                    self._send(call, deadline, cancel)
                    until = deadline if every is None else Deadline(deadline.at_most(every))
                    message: Any = None
                    reading = self._engine.lent_reading()
                    if reading is not None and not call.borrows:
                        reading.recall()
                    elif reading is not None:
                        message = read_reply(reading, self.sid, call.reply, call.ticket, until)
                    if message is None:
                        message = waiting.get(call.ticket, until.remaining())
                    if message.__class__ is not Msg:
                        raise message
                    return message
                except queue.Empty:
                    self._chain.forget(call.ticket)
                    sent = not self._take_back(call) or sent
                    if every is None or deadline.expired():
                        call.answered = True  # too late for it, and taken back as far as possible
                        raise _unanswered(call.subject, deadline, every, sent) from None
                except errors.ConnectionLost as lost:
                    if lost.sent:
                        raise
                    self._wait_for_next_link(call, deadline, cancel, sent)
        except errors.BufferFull:
            raise _unanswered(call.subject, deadline, every, sent) from None

    def _send(self, call: Call, deadline: Deadline, cancel: Cancel | None) -> None:
        self.waiting[call.token] = call
        if call.prefix is not self.prefix:
            self._check_open(call)
        if cancel is not None:
            cancel.enter(call, partial(call.ticket.put, cancel.error()))
        call.counted = False
        chain = self._chain
        if chain.running:
            chain.leave(call.frame, deadline)
        else:
            self._enqueue_now(call.frame, deadline)
        self._engine.count_out(1)
        call.counted = True

    def _take_back(self, call: Call) -> bool:
        """True if its frame has not left."""
        unsent = self._outbox.withdraw(call.frame)
        if unsent:
            self._uncount(call)
        return unsent

    def _uncount(self, call: Call) -> None:
        """The copy sent last has not left. Earlier ones have, and stay in the count."""
        self._engine.count_out(-call.counted)
        call.counted = False

    def _wait_for_next_link(self, call: Call, deadline: Deadline, cancel: Cancel | None, sent: bool) -> None:
        """The link was lost before the frame was sent; `sent`: an earlier copy was."""
        self._uncount(call)
        self._wait_connected(deadline, cancel, sent=sent)
        call.ticket = waiting.Ticket()  # another one: what ends all calls of the old link is in this one

    def _end(self, call: Call, cancel: Cancel | None) -> None:
        """Hand on what its thread may hold, and take it out of the books."""
        chain, under_way = self._chain, self.waiting
        if chain.running or chain.answered:
            chain.step(call.ticket)  # first of all: another thread was answered and waits for this
        if cancel is not None:
            cancel.leave(call)
        under_way.pop(call.token, None)
        if not call.answered:
            self._take_back(call)  # it may have ended before it was sent
        if under_way:
            link = self._engine.session.link
            if link is not None and (link.reading.lent or link.reading.lock._is_owned()):
                link.reading.recall()  # it may be ours to read, and they count on it

    def _forget(self, tokens: list[bytes]) -> None:
        deque(map(self.waiting.pop, tokens, repeat(None)), 0)
        if self.waiting:
            self._engine.session.recall_reader()  # as in `_end`

    # --- the inbox ----------------------------------------------------------------------------------------

    def _open_inbox(self) -> bytes:
        with self._lock:
            prefix = self.prefix
            if prefix is None:
                refusal = self._refusal
                self.sids.discard(self.sid)  # of one that the server has refused: each request opens another
                text = f"{self._engine.options.inbox_prefix}.{nuid.inbox_id()}."
                self.sid = self._engine.open_sink(text + "*", self).sid
                self.sids.add(self.sid)
                prefix = text.encode()
                self._cut = len(prefix)
                self.prefix = prefix
                if self._refusal is not refusal:  # it came before the line above
                    self.prefix = None
            return prefix

    def _check_open(self, call: Call) -> None:
        """Called right after a token was entered: raises the refusal of its inbox if it came before that. Another
        inbox may be open by now."""
        if call.prefix is not self.prefix and self._refusal is not None:
            raise self._refusal()

    def refuse(self, make: Callable[[], BaseException]) -> None:
        """The server does not permit the inbox: all waiting requests end, and the next request opens another inbox."""
        # Without the lock: this is the reader, and the holder of the lock may be waiting for the server.
        self._refusal = make
        self.prefix = None
        self.fail(make)

    # --- the reader ---------------------------------------------------------------------------------------

    def deliver(self, messages: list[Msg], nbytes: int) -> None:
        under_way, answered = self.waiting, self._chain.answered
        alone = not CHAINS or (len(messages) == 1 and not self._chain.running)
        for message in messages:
            token = message.raw_subject[self._cut :]
            call = under_way.get(token) or self._rewritten(message)
            if call is None or not call.take(token, message):
                if call is None and self.further:
                    self._deliver_further(message)
                continue
            self.answers += 1
            if call.answered:
                self._served = call.token
            if alone or call.__class__ is not Call:
                call.ticket.put(message)
            else:
                call.ticket.put_closed(message)
                answered.append(call.ticket)
        if answered:
            self._chain.start()

    def _rewritten(self, message: Msg) -> Call | None:
        """An import may rewrite the reply subject: with one request under way it can only be meant for that one."""
        if message.raw_subject.startswith(self.prefix or b""):
            return None
        open_ = [call for call in list(self.waiting.values()) if not call.answered]
        return open_[0] if len(open_) == 1 and open_[0].__class__ is not EachCall else None

    def _deliver_further(self, message: Msg) -> None:
        ticket = self.further.get(message.raw_subject)
        if ticket is not None:
            put_further(ticket, message)

    def all_served(self) -> bool:
        """Nobody waits but the request that was answered last, and may not have noticed yet."""
        return all(call.token == self._served for call in list(self.waiting.values()))

    def under_way(self) -> list[bytes]:
        """The tokens of the requests that have no answer yet."""
        return [token for token, call in waiting.items_of(self.waiting) if call.under_way]

    def withdrawn(self, frames: list[Frame]) -> None:
        """The link went down before a byte of these was sent; told before `fail`, so that the waiter hears it first."""
        prefix = self.prefix
        for frame in frames if prefix else ():
            reply = reply_of(frame)
            call = self.waiting.get(reply[self._cut :]) if reply.startswith(prefix or b"") else None
            if call is not None:
                call.ticket.put(errors.ConnectionLost("the link went down", sent=False))

    def link_event(self, event: LinkEvent) -> None:
        """Requests end by `fail`; link events alone say nothing to them."""

    def fail(self, make: Callable[[], BaseException], subject: str | None = None) -> None:
        """End the waits (of all requests, or of those to one subject) with an exception each."""
        for call in list(self.waiting.values()):
            if subject is None or call.subject == subject:
                call.ticket.put(make())
        for ticket in list(self.further.values()) if subject is None else ():
            ticket.put(make())


def _next(call: Call, timeout: float | None) -> Msg | None:
    """A later reply of a call for many; None when none came in time."""
    try:
        message: Any = waiting.get(call.ticket, timeout)
    except queue.Empty:
        return None
    if message.__class__ is not Msg:
        raise message
    return message


def _not_on_reader(what: str) -> None:
    if waiting.on_reader():
        raise errors.Reentered(f"{what} on the reader thread of a connection would wait for itself")


def no_responders(subject: str) -> errors.NoResponders:
    return errors.NoResponders(f"nobody listens on {subject!r}", subject)


def _unsent_by_loss(ended: BaseException) -> bool:
    """The link was lost before anything was sent: the call waits for the next one, and sends it then."""
    return isinstance(ended, errors.ConnectionLost) and not ended.sent


def _unanswered(subject: str, deadline: Deadline, every: float | None, sent: bool) -> errors.RequestTimeout:
    if not sent:
        text = f"the server takes no data: the request to {subject!r} could not be sent in its time of"
        return errors.RequestTimeout(f"{text} {deadline.seconds} s", sent=False)
    asked = "" if every is None else f", asked every {every:g} s"
    return errors.RequestTimeout(f"no reply from {subject!r} within {deadline.seconds:g} s{asked}")
