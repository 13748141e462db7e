"""What becomes of asynchronous publishes whose ack does not simply come: 503s, silence, lost links, the end.

A message is in one of four places while it is pending: under way, in `retries` (the server said 503 or something
that passes; it will be sent again in a moment), `held` (the link is down), or in `questions.inquiries` (it was refused,
and that may not be the outcome). It may be sent again when it is certain that it was not stored, or when it has an id
and the stream is known to remember ids of its time.

While anything is held, what is published goes behind it: a lost link does not change the order.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from jsclient import waiting
from jsclient.connection import engine_of
from jsclient.errors import (
    ApiError,
    BufferFull,
    ConnectionClosed,
    ConnectionLost,
    DuplicateInProcess,
    HeadersNotSupported,
    JsClientError,
    NoStreamForSubject,
    NoStreamResponse,
    NotStored,
    PayloadTooLarge,
    PermissionViolation,
    PublishUnknown,
    brief,
)
from jsclient.jetstream.publishing.attempts import (
    ASK_AFTER,
    ATTEMPT_TIMEOUT,
    FORBIDDEN_ATTEMPTS,
    TRIES,
    has_id,
    reply_error,
)
from jsclient.jetstream.publishing.future import PublishFuture
from jsclient.jetstream.publishing.questions import Questions
from jsclient.jetstream.publishing.streams import (
    ASK_TIMEOUT,
    FORBIDDEN,
    NONE,
    WINDOW_NOT_KNOWN,
    Streams,
    names_answer,
    names_request,
    same_id_for,
)
from jsclient.jetstream.publishing.verdict import WINDOW_ENDED, Published, Verdict, judge, stream_of
from jsclient.states import LinkEvent
from protocol.frames import Frame, reply_of

if TYPE_CHECKING:
    from jsclient.jetstream.publishing.asynchronous import AsyncPublisher
    from jsclient.message import Msg

log = logging.getLogger("jsclient.jetstream")

SWEEP: Final = 0.5
"""Seconds between two looks at what is pending, at most; a tenth of the ack timeout if that is less."""

HOLD_FOR: Final = 120.0
"""Seconds for which messages are held while the link is down, or as long as the stated window or the ack timeout."""

HELD_UP: Final = 2.0
"""Seconds for which messages wait behind one that must not go out before its stream's window is known."""

REFUSALS: Final = (PayloadTooLarge, PermissionViolation, HeadersNotSupported)
"""What the present server would not take: certainly not sent."""


class Recovery:
    """The slow paths of an AsyncPublisher. Its lock guards the places; nothing is sent or resolved under it."""

    def __init__(
        self,
        owner: AsyncPublisher,
        ack_timeout: float,
        duplicate_window: float | None,
        retry_attempts: int | None,
        retry_wait: float,
    ) -> None:
        self.owner = owner
        self.ticking = False
        self.calm = False  # the sweep runs and nothing is held: a publish needs nothing from here
        self._nc = owner.nc
        self._engine = engine_of(self._nc)
        self._ack_timeout = ack_timeout
        self._tick = min(SWEEP, ack_timeout / 10)
        self._resend_after = min(ATTEMPT_TIMEOUT, max(ack_timeout / 3, 2 * self._tick))
        self._hold_for = max(ack_timeout, HOLD_FOR if duplicate_window is None else duplicate_window)
        self._retry_attempts = retry_attempts
        self._retry_wait = retry_wait
        self._lock = waiting.new_lock()
        self.held: dict[bytes, PublishFuture] = {}
        self.retries: dict[bytes, PublishFuture] = {}
        streams = owner.js.publish_streams if duplicate_window is None else Streams(duplicate_window)
        self.questions = Questions(owner, streams)
        self._retry_due = False
        self._sending = False  # some thread sends what was held; those that come meanwhile are its, too
        self._send_more = False
        self._swept = 0.0  # when the last sweep began: what it has not seen was published later
        self._link_since = 0.0
        self._asked: dict[str, tuple[float, str]] = {}  # subject -> when, and what the answer was

    def forked(self) -> None:
        """In a forked child: nothing of the parent's is under way here."""
        self._lock = waiting.new_lock()
        self.held.clear()
        self.retries.clear()
        self.questions.inquiries.clear()

    def forget(self, token: bytes) -> None:
        """The message is resolved."""
        if self.held or self.retries:
            with self._lock:
                self.held.pop(token, None)
                self.retries.pop(token, None)
        self.questions.inquiries.pop(token, None)

    def admit(self, future: PublishFuture) -> bool:
        """A publish that is not `calm`; True when it is held behind others and will be sent with them."""
        if not self.ticking:
            self.start()
        if self.held or self._sending:
            self._engine.check_usable()
            with self._lock:
                if self.held or self._sending:
                    future._sends = 0
                    self.held[future._token] = future
                    return True
        with self._lock:
            self.calm = self.ticking and not self.held and not self._sending
        return False

    # --- unusual answers: on the reader thread ------------------------------------------------------------------

    def unusual(self, token: bytes, message: Msg) -> None:
        """Anything but a PubAck."""
        future = self.owner.futures.get(token)
        if future is None:
            self.questions.answered(token, message)
            return
        status = message.status
        if status is not None and status.code == 503 and not message.payload:
            self._no_responders(future)
            return
        error = reply_error(message.payload)
        if isinstance(error, ApiError):
            self._refused(future, error, message.payload)
        else:
            self.owner.fail(future, error)

    def _refused(self, future: PublishFuture, error: ApiError, payload: bytes) -> None:
        if future._token in self.questions.inquiries:
            return  # another copy, or another server: what is being found out says it all
        others = future._sends - future._no_responders > 1
        verdict = judge(error, Published.of(future.subject, future.payload, future._block), in_doubt=others)
        if verdict is Verdict.AGAIN:
            if not isinstance(error, DuplicateInProcess):
                future._sends -= 1  # that copy is settled: not stored
            self._retry(future, error)
        elif verdict is Verdict.REFUSED:
            self.owner.fail(future, error)
        else:
            self.questions.inquire(future, stream_of(payload), verdict, error)

    def _no_responders(self, future: PublishFuture) -> None:
        future._no_responders += 1
        limit = self._retry_attempts
        if limit is None and future._no_responders >= ASK_AFTER:
            when, answer = self._asked.get(future.subject, (0.0, ""))
            if answer == FORBIDDEN:
                limit = FORBIDDEN_ATTEMPTS
            elif time.monotonic() - when > 2 * ASK_TIMEOUT:
                self._ask(future.subject)
            elif answer == NONE and future._no_responders >= TRIES:
                self._fail_without_stream(future)
                return
        if limit is not None and future._no_responders > limit:
            self.owner.fail(future, self._no_stream(future))
        else:
            self._retry(future, self._no_stream(future))

    def _ask(self, subject: str) -> None:
        self._asked[subject] = (time.monotonic(), "")

        def told(answer: Msg | None) -> None:
            self._answered(subject, FORBIDDEN if answer is None else names_answer(answer.payload))

        self.questions.ask("STREAM.NAMES", names_request(subject), told)

    def _answered(self, subject: str, answer: str) -> None:
        self._asked[subject] = (time.monotonic(), answer)
        if answer == NONE:
            for future in list(self.retries.values()):
                if future.subject == subject and future._no_responders >= TRIES:
                    self._fail_without_stream(future)

    def _fail_without_stream(self, future: PublishFuture) -> None:
        if _in_doubt(future):
            self.owner.fail(future, self._unknown(future, "no stream takes the subject now"))
        else:
            error = NoStreamForSubject(f"no stream takes messages on {future.subject!r}", future.subject)
            self.owner.fail(future, error)

    def refused_publish(self, error: PermissionViolation) -> None:
        """The server does not permit this user to publish on a subject: certainly not stored."""
        if error.operation == "subscribe":
            return
        if self.questions.refused(error):
            return
        for future in list(self.owner.futures.values()):
            if future.subject == error.subject:
                others = future._sends - future._no_responders > 1
                self.owner.fail(future, self._unknown(future, brief(error)) if others else error)

    # --- sending again ------------------------------------------------------------------------------------------

    def _retry(self, future: PublishFuture, error: JsClientError) -> None:
        """Send it again after `retry_wait`, or fail when that is too late; what is retried together keeps its order."""
        if future._since and time.monotonic() + self._retry_wait - future._since >= self._ack_timeout:
            self.owner.fail(future, error)
            return
        with self._lock:
            self.retries[future._token] = future
            start, self._retry_due = not self._retry_due, True
        if start:
            self._engine.clock.call_later(self._retry_wait, self._send_retries)
        if future.done():
            self.forget(future._token)

    def _send_retries(self) -> None:
        with self._lock:
            batch, self.retries, self._retry_due = self.retries, {}, False
        self._keep(self._send_all(batch))

    def _keep(self, left: dict[bytes, PublishFuture]) -> None:
        """Hold what could not be sent now."""
        if left:
            with self._lock:
                self.held.update(left)
                self.calm = False

    def hold(self, future: PublishFuture) -> None:
        """The link is down and nothing of the message was sent: it goes out when the link is back."""
        future._sends = 0
        self._keep({future._token: future})
        if self._nc.is_connected:
            self.send_held()  # it came back before the message was among those held

    def send_held(self) -> None:
        """Send what is held, in the order of publishing; what is published meanwhile goes behind it."""
        with self._lock:
            if self._sending:
                self._send_more = True  # for the thread that sends
                return
            self._sending = True
        left: dict[bytes, PublishFuture] = {}
        try:
            while not self._all_sent(left):
                left = self._send_all(self._take_held(), held=True)
                self._keep(left)
        except BaseException:
            self._sending = False
            raise

    def _all_sent(self, left: dict[bytes, PublishFuture]) -> bool:
        """Whether the thread that sends what is held is done; decided together with letting others in."""
        with self._lock:
            if self._send_more or (self.held and not left):
                self._send_more = False
                return False
            self._sending = False
            self.calm = self.ticking and not self.held
            return True

    def _take_held(self) -> dict[bytes, PublishFuture]:
        order = list(self.owner.futures)
        with self._lock:
            held, self.held = self.held, {}
        return {token: held[token] for token in order if token in held}

    def _send_all(self, batch: dict[bytes, PublishFuture], held: bool = False) -> dict[bytes, PublishFuture]:
        """Send these in order; returns what is to be held: there is no link, or a window must be known first."""
        now = time.monotonic()
        left: dict[bytes, PublishFuture] = {}
        for token, future in batch.items():
            if future.done():
                continue
            may = self._may_send(future, now)
            if may is False:
                continue
            asking = self.questions.asking_since
            behind = left and asking is not None and now - asking < HELD_UP
            if may is None or behind or not self._send(future, now):
                left[token] = future
            elif held:
                future._since = now  # the wait for its ack begins anew
        return left

    def _may_send(self, future: PublishFuture, now: float) -> bool | None:
        """Whether it may be sent again; None: not before the window of its stream is known. Resolves it if never."""
        if not _in_doubt(future):
            return True
        if not has_id(future._block):
            self.owner.fail(future, self._unknown(future, "it has no message id, so it is not sent again"))
            return False
        window = self.questions.window(future.subject, now)
        if window is None:
            return None
        if isinstance(window, str):
            self.owner.fail(future, self._unknown(future, WINDOW_NOT_KNOWN))
            return False
        if now - (future._first or self._swept) <= same_id_for(window):
            return True
        facts = self.questions.streams.facts(future.subject, now)
        if facts is None:
            self.owner.fail(future, self._unknown(future, WINDOW_ENDED))
        else:
            self.questions.inquire(future, facts.name, Verdict.DOUBT, why=WINDOW_ENDED)
        return False

    def _send(self, future: PublishFuture, now: float) -> bool:
        """Send a message again; False when there is no link, or no room in its queue."""
        if not _in_doubt(future):
            future._first = now  # this is the first copy that may be stored
            future._since = future._since or now
        future._sends += 1
        future._last = now
        try:
            self._engine.post(self.owner.frame(future))
        except (ConnectionLost, BufferFull):
            future._sends -= 1
            return False
        except JsClientError as error:
            future._sends -= 1
            self._cannot_send(future, error)
        return True

    def _cannot_send(self, future: PublishFuture, error: JsClientError) -> None:
        """Nothing of this copy was sent, and none will be: the connection is closed, the server takes less now."""
        if isinstance(error, ConnectionClosed) or not isinstance(error, REFUSALS):
            self._end(future, brief(error))
        elif _in_doubt(future):
            self.owner.fail(future, self._unknown(future, f"it cannot be sent again: {brief(error)}"))
        else:
            self.owner.fail(future, error)

    # --- the link: on an internal thread ------------------------------------------------------------------------

    def link_event(self, event: LinkEvent) -> None:
        if event is LinkEvent.RECONNECTED:
            self._asked.clear()
            self._link_since = time.monotonic()
            self.send_held()
        elif event is LinkEvent.DISCONNECTED:
            self._lost()
        else:
            self.abandon("the connection was closed")

    def withdrawn(self, frames: list[Frame]) -> None:
        """Frames of which no byte was sent: these messages can go out later, id or not."""
        start = self.owner.inbox_start
        for frame in frames:
            reply = reply_of(frame)
            future = self.owner.futures.get(reply[len(start) :]) if reply.startswith(start) else None
            if future is not None and future._sends > 0:
                future._sends -= 1
                self._keep({future._token: future})

    def _lost(self) -> None:
        """The link is down: what was under way is held if it has an id, and unknown otherwise."""
        self.questions.clear()
        for token, future in list(self.owner.futures.items()):
            inquiry = self.questions.inquiries.get(token)
            if inquiry is not None:
                inquiry.link_lost()
            if inquiry is not None or token in self.held or token in self.retries:
                continue
            if has_id(future._block) or not _in_doubt(future):
                self._keep({token: future})
            else:
                self.owner.fail(future, self._unknown(future, "the link was lost before its ack came"))

    def abandon(self, why: str) -> None:
        """No ack can come any more: resolve everything."""
        for future in list(self.owner.futures.values()):
            self._end(future, why)

    def refused(self, error: BaseException) -> None:
        """The server refused the inbox of the acks."""
        self.abandon(f"the inbox for acks was refused: {brief(error)}")

    def _end(self, future: PublishFuture, why: str) -> None:
        if _in_doubt(future):
            self.owner.fail(future, self._unknown(future, why))
        else:
            self.owner.fail(future, NotStored(f"the message on {future.subject!r} was not stored: {why}"))

    # --- the clock: on the flusher thread -----------------------------------------------------------------------

    def start(self) -> None:
        """Sweep from now on, until nothing is pending."""
        with self._lock:
            if self.ticking:
                return
            self.ticking = True
            self._swept = time.monotonic()
        self._engine.clock.call_later(self._tick, self._sweep)

    def _sweep(self) -> None:
        owner = self.owner
        try:
            before, self._swept = self._swept, time.monotonic()
            now = self._swept
            for future in list(owner.futures.values()):
                if future._first:
                    self._look(future, now)
                else:
                    future._first, future._last, future._since = before, now, now
            if self.held and self._nc.is_connected:
                self.send_held()  # what waits for a window that nobody told
            if owner.window.parked:
                owner.window.unpark()  # a safety net: those woken may have gone away without publishing
        finally:
            with self._lock:
                # Publishers put their future in place first and look at `ticking` then.
                self.ticking = self.calm = False
                self.ticking = bool(owner.futures or owner.window.parked)
                self.calm = self.ticking and not self.held and not self._sending
            if self.ticking:
                self._engine.clock.call_later(self._tick, self._sweep)

    def _look(self, future: PublishFuture, now: float) -> None:
        """Give up, or send again, what has waited for too long."""
        token = future._token
        inquiry = self.questions.inquiries.get(token)
        waited = now - future._since
        if token in self.held:
            self._look_at_held(future, now)
        elif inquiry is not None:
            if waited >= self._ack_timeout:
                self.owner.fail(future, inquiry.end(in_time=False))
        elif waited >= self._ack_timeout:
            if token in self.retries and not _in_doubt(future):
                self.owner.fail(future, self._no_stream(future))
            else:
                self.owner.fail(future, self._unknown(future, f"no ack within {self._ack_timeout:g} s"))
        elif token not in self.retries and now - future._last >= self._resend_after and has_id(future._block):
            window = self.questions.window(future.subject, now)
            if isinstance(window, float) and now - future._first <= same_id_for(window):
                self._send(future, now)

    def _look_at_held(self, future: PublishFuture, now: float) -> None:
        if now - future._first > self._hold_for:
            self._end(future, f"the link did not come back within {self._hold_for:g} s")
        elif self._nc.is_connected and now - max(future._first, self._link_since) > self._ack_timeout:
            self._end(future, "the duplicate window of its stream could not be learned")

    # --- errors -------------------------------------------------------------------------------------------------

    def _no_stream(self, future: PublishFuture) -> JsClientError:
        if _in_doubt(future):
            return self._unknown(future, "nobody takes it now")
        return NoStreamResponse(
            f"nobody took the message on {future.subject!r} in {future._sends} attempts: no stream, or no leader",
            future.subject,
        )

    @staticmethod
    def _unknown(future: PublishFuture, why: str) -> PublishUnknown:
        return PublishUnknown(f"the message on {future.subject!r} (sent {future._sends} times) got no ack: {why}")


def _in_doubt(future: PublishFuture) -> bool:
    """Whether some copy was sent that nobody answered with 503."""
    return future._sends > future._no_responders
