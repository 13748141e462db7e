"""What becomes of asynchronous publishes whose ack does not simply come: 503s, silence, lost links, the end.

A message is in one of three places while it is pending: under way, in `retries` (the server said 503 or something
that passes; it will be sent again in a moment), or `held` (the link is down). It may be sent again when it is
certain that it was not stored, or when it has an id and the stream still remembers ids of its time.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from jsclient import waiting
from jsclient.errors import (
    ApiError,
    ConnectionClosed,
    ConnectionLost,
    DuplicateInProcess,
    JsClientError,
    NoStreamForSubject,
    NoStreamResponse,
    NotStored,
    PermissionViolation,
    PublishUnknown,
)
from jsclient.jetstream.publish import (
    ASK_AFTER,
    ASK_TIMEOUT,
    ATTEMPT_TIMEOUT,
    FORBIDDEN,
    FORBIDDEN_ATTEMPTS,
    NONE,
    has_id,
    names_answer,
    names_request,
    passes,
    reply_error,
)
from jsclient.jetstream.publish_future import PublishFuture
from jsclient.nuid import new_token
from jsclient.outbox import Unkept
from jsclient.states import LinkEvent

if TYPE_CHECKING:
    from jsclient.jetstream.publish_async import AsyncPublisher
    from jsclient.message import Msg

log = logging.getLogger("jsclient.jetstream")

SWEEP: Final = 0.5
"""Seconds between two looks at what is pending, at most; a tenth of the ack timeout if that is less."""

MARGIN: Final = 0.9
"""Share of the duplicate window in which a message is still sent again: it must also arrive within the window."""


class Recovery:
    """The slow paths of an AsyncPublisher. Its lock guards the places; nothing is sent or resolved under it."""

    def __init__(
        self,
        owner: AsyncPublisher,
        ack_timeout: float,
        duplicate_window: float,
        retry_attempts: int | None,
        retry_wait: float,
    ) -> None:
        self.owner = owner
        self.ticking = False
        self._nc = owner.nc
        self._ack_timeout = ack_timeout
        self._tick = min(SWEEP, ack_timeout / 10)
        self._resend_after = min(ATTEMPT_TIMEOUT, max(ack_timeout / 3, 2 * self._tick))
        self._same_id_for = duplicate_window * MARGIN
        self._hold_for = max(ack_timeout, duplicate_window)
        self._retry_attempts = retry_attempts
        self._retry_wait = retry_wait
        self._lock = waiting.new_lock()
        self.held: dict[bytes, PublishFuture] = {}
        self.retries: dict[bytes, PublishFuture] = {}
        self._retry_due = False
        self._questions: dict[bytes, str] = {}  # token of a STREAM.NAMES request -> the subject it asks about
        self._asked: dict[str, tuple[float, str]] = {}  # subject -> when, and what the answer was
        self._api_subject = owner.js.api.subject("STREAM.NAMES")

    def forked(self) -> None:
        """In a forked child: nothing of the parent's is under way here."""
        self._lock = waiting.new_lock()
        self.held.clear()
        self.retries.clear()

    def forget(self, token: bytes) -> None:
        """The message is resolved."""
        if self.held or self.retries:
            with self._lock:
                self.held.pop(token, None)
                self.retries.pop(token, None)

    # --- unusual answers: on the reader thread ------------------------------------------------------------------

    def unusual(self, token: bytes, message: Msg) -> None:
        """Anything but a PubAck."""
        future = self.owner.futures.get(token)
        if future is None:
            subject = self._questions.pop(token, None)
            if subject is not None:
                self._answered(subject, names_answer(message.payload) if message.payload else "")
            return
        status = message.status
        if status is not None and status.code == 503 and not message.payload:
            self._no_responders(future)
            return
        error = reply_error(message.payload)
        if isinstance(error, ApiError) and passes(error):
            if not isinstance(error, DuplicateInProcess):
                future._sends -= 1  # that copy is settled: not stored
            self._retry(future, error)
        else:
            self.owner.fail(future, error)

    def _no_responders(self, future: PublishFuture) -> None:
        future._no_responders += 1
        limit = self._retry_attempts
        if limit is None and future._no_responders >= ASK_AFTER:
            when, answer = self._asked.get(future.subject, (0.0, ""))
            if answer == FORBIDDEN:
                limit = FORBIDDEN_ATTEMPTS
            elif time.monotonic() - when > 2 * ASK_TIMEOUT:
                self._ask(future.subject)
            elif answer == NONE:
                self._fail_without_stream(future)
                return
        if limit is not None and future._no_responders > limit:
            self.owner.fail(future, self._no_stream(future))
        else:
            self._retry(future, self._no_stream(future))

    def _ask(self, subject: str) -> None:
        token = b"?" + new_token()
        self._questions[token] = subject
        self._asked[subject] = (time.monotonic(), "")
        reply = self.owner.inbox_start + token
        try:
            self._nc.post(Unkept(self._nc.encode(self._api_subject, names_request(subject), reply)))
        except JsClientError:
            self._questions.pop(token, None)  # the link is gone: the messages are held, and asked about later

    def _answered(self, subject: str, answer: str) -> None:
        self._asked[subject] = (time.monotonic(), answer)
        if answer == NONE:
            for future in list(self.retries.values()):
                if future.subject == subject and future._no_responders >= ASK_AFTER:
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
        if error.subject == self._api_subject:
            for token, subject in list(self._questions.items()):
                self._questions.pop(token, None)
                self._answered(subject, FORBIDDEN)
            return
        for future in list(self.owner.futures.values()):
            if future.subject == error.subject:
                self.owner.fail(future, error)

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
            self._nc.clock.call_later(self._retry_wait, self._send_retries)
        if future.done():
            self.forget(future._token)

    def _send_retries(self) -> None:
        with self._lock:
            batch, self.retries, self._retry_due = self.retries, {}, False
        self._send_all(batch)

    def hold(self, future: PublishFuture) -> None:
        """The link is down and nothing of the message was sent: it goes out when the link is back."""
        future._sends = 0
        with self._lock:
            self.held[future._token] = future
        if self._nc.is_connected:
            self._send_held()  # it came back before the message was among those held

    def _send_held(self) -> None:
        with self._lock:
            batch, self.held = self.held, {}
        now = time.monotonic()
        for future in batch.values():
            if future._first:
                future._since = now  # the wait for its ack begins anew
        self._send_all(batch)

    def _send_all(self, batch: dict[bytes, PublishFuture]) -> None:
        now = time.monotonic()
        for token, future in batch.items():
            if future.done():
                continue
            if _in_doubt(future) and future._first and now - future._first > self._same_id_for:
                self.owner.fail(future, self._unknown(future, "its duplicate window has ended"))
                continue
            if not self._send(future, now):
                with self._lock:
                    self.held[token] = future
            elif future.done():
                self.forget(token)

    def _send(self, future: PublishFuture, now: float) -> bool:
        """Send a message again; False when there is no link."""
        future._sends += 1
        future._last = now
        try:
            self._nc.post(self.owner.frame(future))
        except ConnectionLost:
            future._sends -= 1
            return False
        except ConnectionClosed as error:
            future._sends -= 1
            self._end(future, str(error))
        except JsClientError as error:
            log.debug("sending again on %r: %s", future.subject, error)
        return True

    # --- the link: on an internal thread ------------------------------------------------------------------------

    def link_event(self, event: LinkEvent) -> None:
        if event is LinkEvent.RECONNECTED:
            self._asked.clear()
            self._send_held()
        elif event is LinkEvent.DISCONNECTED:
            self._lost()
        else:
            self.abandon("the connection was closed")

    def withdrawn(self, frames: list[bytes]) -> None:
        """Frames of which no byte was sent: these messages can go out later, id or not."""
        start = self.owner.inbox_start
        for frame in frames:
            line, _, _ = frame.partition(b"\r\n")
            _, found, rest = line.partition(b" " + start)
            future = self.owner.futures.get(rest.partition(b" ")[0]) if found else None
            if future is not None and future._sends > 0:
                future._sends -= 1
                with self._lock:
                    self.held[future._token] = future

    def _lost(self) -> None:
        """The link is down: what was under way is held if it has an id, and unknown otherwise."""
        self._questions.clear()
        for token, future in list(self.owner.futures.items()):
            if token in self.held or token in self.retries:
                continue
            if has_id(future._block) or not _in_doubt(future):
                with self._lock:
                    self.held[token] = future
            else:
                self.owner.fail(future, self._unknown(future, "the link was lost before its ack came"))

    def abandon(self, why: str) -> None:
        """No ack can come any more: resolve everything."""
        for future in list(self.owner.futures.values()):
            self._end(future, why)

    def refused(self, error: BaseException) -> None:
        """The server refused the inbox of the acks."""
        self.abandon(f"the inbox for acks was refused: {error}")

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
        self._nc.clock.call_later(self._tick, self._sweep)

    def _sweep(self) -> None:
        owner = self.owner
        try:
            now = time.monotonic()
            for future in list(owner.futures.values()):
                if future._first:
                    self._look(future, now)
                else:
                    future._first = future._last = future._since = now
            if owner.window.parked:
                owner.window.unpark()  # a safety net: those woken may have gone away without publishing
        finally:
            with self._lock:
                # Publishers put their future in place first and look at `ticking` then.
                self.ticking = False
                self.ticking = bool(owner.futures or owner.window.parked)
            if self.ticking:
                self._nc.clock.call_later(self._tick, self._sweep)

    def _look(self, future: PublishFuture, now: float) -> None:
        """Give up, or send again, what has waited for too long."""
        token = future._token
        if token in self.held:
            if now - future._first > self._hold_for:
                self._end(future, f"the link did not come back within {self._hold_for:g} s")
        elif now - future._since >= self._ack_timeout:
            if token in self.retries and not _in_doubt(future):
                self.owner.fail(future, self._no_stream(future))
            else:
                self.owner.fail(future, self._unknown(future, f"no ack within {self._ack_timeout:g} s"))
        elif (
            token not in self.retries
            and now - future._last >= self._resend_after
            and now - future._first < self._same_id_for
            and has_id(future._block)
        ):
            self._send(future, now)

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
        return PublishUnknown(f"the message on {future.subject!r} (sent {future._sends} times) may be stored: {why}")


def _in_doubt(future: PublishFuture) -> bool:
    """Whether some copy was sent that nobody answered with 503."""
    return future._sends > future._no_responders
