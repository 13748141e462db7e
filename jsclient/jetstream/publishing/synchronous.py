"""The later steps of a synchronous publish whose first attempt brought no ack.

A message that may be stored already is sent again only with a message id, and only as long as the stream certainly
remembers that id. `verdict` judges every refusal. If the outcome is in doubt, the client looks into the stream.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import inspect
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from jsclient import waiting
from jsclient.connection import engine_of
from jsclient.durations import Deadline, elapsed, plain
from jsclient.errors import (
    ApiError,
    ConnectionLost,
    DuplicateInProcess,
    JetStreamError,
    JsClientError,
    MaxSubscriptionsExceeded,
    NoResponders,
    NoStreamForSubject,
    NoStreamResponse,
    NotStored,
    PayloadTooLarge,
    PermissionViolation,
    PublishUnknown,
    RequestTimeout,
    brief,
)
from jsclient.jetstream.api.models import PubAck
from jsclient.jetstream.publishing.outcome import (
    ATTEMPT_TIMEOUT,
    FAILURES,
    FORBIDDEN_ATTEMPTS,
    RETRY_WAIT,
    TRIES,
    WINDOW_ENDED,
    Inquiry,
    Published,
    Verdict,
    check_retries,
    decode_ack,
    has_id,
    judge,
    may_go_on,
    stream_of,
)
from jsclient.jetstream.publishing.streams import (
    ASK_TIMEOUT,
    FORBIDDEN,
    NONE,
    UNAVAILABLE,
    WINDOW_NOT_KNOWN,
    ask_for_stream,
    same_id_for,
)
from jsclient.states import LinkEvent

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.jetstream.context import JetStream
    from jsclient.message import Msg, Payload

LOOK_TIMEOUT: Final = 1.0
"""Seconds for one look into the stream."""


class PublishAttempts:
    """One publish: the message, what may be stored, and how long it may take. `began` is the reading of `elapsed`
    before the first attempt."""

    tries = TRIES
    unasked_attempts = FORBIDDEN_ATTEMPTS

    def __init__(
        self,
        js: JetStream,
        subject: str,
        payload: Payload,
        headers: bytes | None,
        deadline: Deadline,
        retry_attempts: int | None,
        retry_wait: float | dt.timedelta,
        began: float,
    ) -> None:
        check_retries(retry_attempts, retry_wait)
        self.retry_wait: float = plain(retry_wait)
        self.js = js
        self.subject = subject
        self.payload = payload
        self.headers = headers
        self.has_id: bool = has_id(headers)
        self.deadline = deadline
        self.retry_attempts = retry_attempts
        self.began = began
        self.no_responders: int = 0
        self.attempts: int = 1
        self.losses: int = 0
        self.in_doubt: bool = False  # some attempt may have stored it
        self.stream: str = UNAVAILABLE

    def run(self) -> PubAck:
        """Make the first attempt, and continue as far as its outcome requires."""
        reply = None
        try:
            reply = self.send()
            return decode_ack(reply.data)
        except FAILURES as error:
            return self.persist(error, reply)

    def persist(self, error: Exception, reply: Msg | None) -> PubAck:
        """Judge the failure (`reply` is the answer that reported it), wait as long as it needs, and try again."""
        while True:
            try:
                ack = self.judge(error, reply)
            finally:
                if reply is not None:
                    engine_of(self.js.nc).forget_reply(reply)
            if ack is None and self.in_doubt:
                ack = self._check_window(error)
            if ack is not None:
                return ack
            self.attempts += 1
            reply = None
            try:
                reply = self.send()
                return decode_ack(reply.data)
            except FAILURES as again:
                error = again
            except (PermissionViolation, PayloadTooLarge) as refused:
                if self.in_doubt:
                    raise self._unknown(refused) from refused
                raise

    def send(self) -> Msg:
        """One attempt."""
        wait = self.deadline.at_most(ATTEMPT_TIMEOUT) if self.has_id else self.deadline.remaining()
        request = engine_of(self.js.nc).request
        if self.js.nc.options.instrumentation is not None:
            request = inspect.unwrap(request)  # it sees all attempts as one publish
        return request(self.subject, self.payload, timeout=wait, headers=self.headers, may_go_on=may_go_on)

    def judge(self, error: Exception, reply: Msg | None = None) -> PubAck | None:
        """Raise the error that ends the publish, or return None when another attempt is due; an ack if it came late."""
        if isinstance(error, ApiError):
            return self._refused(error, reply)
        if isinstance(error, NoResponders):
            self._after_no_responders(error)
        elif isinstance(error, (ConnectionLost, RequestTimeout)) and not error.sent:
            if self.deadline.expired():
                raise self._give_up(error) from error
            self._wait_for_link(error)
        else:
            self.in_doubt = True
            return self._without_ack(error)
        return None

    def _without_ack(self, error: Exception) -> PubAck | None:
        """The message may be stored, and only an id makes another copy safe. Without an inbox no ack can come."""
        if not self.has_id or self.deadline.expired() or isinstance(error, MaxSubscriptionsExceeded):
            raise self._unknown(error) from error
        self._wait_for_link(error)
        return None

    # --- refusals -------------------------------------------------------------------------------------------------

    def _refused(self, error: ApiError, reply: Msg | None) -> PubAck | None:
        published = Published.of(self.subject, self.payload, self.headers)
        verdict = judge(error, published, in_doubt=self.in_doubt)
        if verdict is Verdict.AGAIN:
            if isinstance(error, DuplicateInProcess):
                self.in_doubt = True  # the other copy may still be stored
                reply = None  # no further answer will follow
            return self._pause(error, reply)
        stream = "" if reply is None else stream_of(reply.data)
        if verdict is Verdict.REFUSED or (verdict is Verdict.LISTEN and self._has_one_leader(stream)):
            raise error
        return self._inquire(Inquiry(published, stream, verdict, error), reply)

    def _has_one_leader(self, stream: str) -> bool:
        streams = self.js.publish_streams
        if streams.replicas(stream, time.monotonic()) is None:
            streams.ask_about(self.js, stream, self.deadline.at_most(ASK_TIMEOUT))
        return streams.replicas(stream, time.monotonic()) == 1

    def _inquire(self, inquiry: Inquiry, reply: Msg | None) -> PubAck:
        """Look at the stream, and meanwhile listen for another answer, until the outcome is certain."""
        inquiry.denied = self.js.publish_streams.denied(inquiry.stream, time.monotonic())
        while True:
            found = self._look(inquiry)
            if isinstance(found, PubAck):
                return found
            if found is not None:
                raise found
            pause = inquiry.pause()
            if pause is None or self.deadline.at_most(pause) < pause:
                end = inquiry.end(in_time=pause is None)
                raise end from (None if end is inquiry.refusal else inquiry.refusal)
            try:
                ack = self._listen(reply, pause)
            except ConnectionLost:
                inquiry.link_lost()
                reply = None
                wait_connected(self.js.nc, self.deadline.remaining())
            else:
                if ack is not None:
                    return ack

    def _look(self, inquiry: Inquiry) -> PubAck | ApiError | None:
        while (question := inquiry.question()) is not None:
            operation, body = question
            try:
                answer = self.js.api.request_raw(operation, body, timeout=self.deadline.at_most(LOOK_TIMEOUT))
            except PermissionViolation:
                inquiry.forbidden()
                self.js.publish_streams.deny(inquiry.stream, inquiry.denied, time.monotonic())
            except (NoResponders, RequestTimeout, ConnectionLost):
                inquiry.unanswered()
                return None
            else:
                return inquiry.heard(answer)
        return None

    def _listen(self, reply: Msg | None, seconds: float) -> PubAck | None:
        """Return an ack that follows a refused copy. Raises ConnectionLost, ConnectionClosed."""
        deadline = Deadline(seconds)
        if reply is None:
            wait_for_event(self.js.nc, (LinkEvent.CLOSED,), seconds, lambda: False)
        while reply is not None and not deadline.expired():
            late = engine_of(self.js.nc).later_reply(reply, deadline.remaining())
            if late is not None:
                with contextlib.suppress(JetStreamError):
                    return decode_ack(late.data)
        return None

    # --- sending again --------------------------------------------------------------------------------------------

    def _check_window(self, error: Exception) -> PubAck | None:
        """Allow another copy only while the stream remembers the id of the first; otherwise return the ack if found."""
        streams = self.js.publish_streams
        while (window := streams.window(self.subject, time.monotonic())) is None:
            streams.ask(self.js, self.subject, self.deadline.at_most(ASK_TIMEOUT))
            if streams.window(self.subject, time.monotonic()) is None:
                self._pause(error, None, RETRY_WAIT)
        if isinstance(window, str):
            raise PublishUnknown(
                f"no ack for the message on {self.subject!r} ({brief(error)}): {WINDOW_NOT_KNOWN}"
            ) from error
        if elapsed() - self.began <= same_id_for(window):
            return None
        facts = streams.facts(self.subject, time.monotonic())
        published = Published.of(self.subject, self.payload, self.headers)
        inquiry = Inquiry(published, "" if facts is None else facts.name, Verdict.DOUBT, why=WINDOW_ENDED)
        if facts is None:
            raise inquiry.end()
        return self._inquire(inquiry, None)

    def _after_no_responders(self, error: NoResponders) -> None:
        self.no_responders += 1
        limit = self.retry_attempts
        if limit is None:
            if self.no_responders >= self.tries and self.stream == UNAVAILABLE:
                self.stream = ask_for_stream(self.js, self.subject, self.deadline.at_most(ASK_TIMEOUT))
                if self.stream == NONE and not self.in_doubt:
                    raise NoStreamForSubject(f"no stream takes messages on {self.subject!r}", self.subject) from error
            if self.stream == FORBIDDEN:
                limit = self.unasked_attempts
        if limit is not None and self.no_responders > limit:
            raise self._no_stream(error) from error
        self._pause(error, None)

    def _pause(self, error: Exception, reply: Msg | None, least: float = 0.0) -> PubAck | None:
        """Wait before the next attempt; an ack for the refused copy may come meanwhile."""
        left, pause = self.deadline.remaining(), max(self.retry_wait, least)
        if left is not None and left <= pause:
            raise self._give_up(error) from error
        try:
            return self._listen(reply, pause)
        except ConnectionLost:
            return None

    def _wait_for_link(self, error: Exception) -> None:
        self.losses += 1
        if self.losses > 1:
            self._pause(error, None)  # links come and go: do not run along with them
        if not wait_connected(self.js.nc, self.deadline.remaining()):
            raise self._give_up(error) from error

    # --- errors ---------------------------------------------------------------------------------------------------

    def _give_up(self, error: Exception) -> Exception:
        if self.in_doubt:
            return self._unknown(error)
        if isinstance(error, NoResponders):
            return self._no_stream(error)
        if isinstance(error, ApiError):
            return error
        return NotStored(f"the message on {self.subject!r} was not sent in its time: {brief(error)}")

    def _no_stream(self, error: Exception) -> Exception:
        if self.in_doubt:
            return self._unknown(error)
        return NoStreamResponse(
            f"nobody took the message on {self.subject!r} in {self.attempts} attempts: no stream for it, or no leader",
            self.subject,
        )

    def _unknown(self, error: JsClientError | Exception) -> PublishUnknown:
        return PublishUnknown(
            f"no ack for the message on {self.subject!r} ({self.attempts} attempts, last: {brief(error)})"
        )


def wait_connected(nc: Connection, timeout: float | None) -> bool:
    """Wait for the link to come back; False after `timeout` seconds. Raises ConnectionClosed."""
    deadline = Deadline(timeout)
    while not nc.is_connected:  # it may come and go
        if deadline.expired():
            return False
        events = LinkEvent.RECONNECTED, LinkEvent.CLOSED
        wait_for_event(nc, events, deadline.remaining(), lambda: nc.is_connected)
    return True


def wait_for_event(
    nc: Connection,
    events: tuple[LinkEvent, ...],
    timeout: float | None,
    done: Callable[[], bool],
) -> None:
    """Wait for one of the events, or `timeout` seconds; raises ConnectionClosed."""
    happened = waiting.Gate()

    def listener(event: LinkEvent) -> None:
        if event in events:
            happened.set()

    engine_of(nc).add_link_listener(listener)
    try:
        engine_of(nc).check_usable()
        if not done():
            happened.wait(timeout)
        engine_of(nc).check_usable()
    finally:
        engine_of(nc).remove_link_listener(listener)
