"""The later steps of a synchronous publish whose first attempt brought no ack.

A message that may be stored already is sent again only with a message id, and only as long as the stream certainly
remembers that id. `outcome` judges every refusal. If the outcome is in doubt, the client looks into the stream.
"""

from __future__ import annotations

import contextlib
import inspect
import time
from typing import TYPE_CHECKING, Final

from jsclient.connection import engine_of
from jsclient.durations import Deadline, elapsed
from jsclient.errors import (
    ApiError,
    ConnectionLost,
    DuplicateInProcess,
    JetStreamError,
    MaxSubscriptionsExceeded,
    NoResponders,
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
    RETRY_WAIT,
    WINDOW_ENDED,
    Inquiry,
    Published,
    Rules,
    Verdict,
    after_no_responders,
    asks_for_stream,
    decode_ack,
    ended,
    has_id,
    in_doubt,
    judge_refusal,
    may_go_on,
    out_of_time,
    stream_of,
    unknown,
    why_not_again,
)
from jsclient.jetstream.publishing.streams import (
    ASK_TIMEOUT,
    UNAVAILABLE,
    ask_for_stream,
)

if TYPE_CHECKING:
    from jsclient.jetstream.publishing.base import PublishingBase
    from jsclient.message import Msg, Payload

LOOK_TIMEOUT: Final = 1.0
"""Seconds for one look into the stream."""


class PublishAttempts:
    """One publish: the message, its copies, and the time and the rules that it has. `began` is the reading of `elapsed`
    before the first attempt."""

    def __init__(
        self,
        js: PublishingBase,
        subject: str,
        payload: Payload,
        headers: bytes | None,
        deadline: Deadline,
        rules: Rules,
        began: float,
    ) -> None:
        self.js = js
        self.subject = subject
        self.payload = payload
        self.deadline = deadline
        self.rules = rules
        self.repeatable: bool = has_id(headers)  # harmless even if another copy is stored
        self.losses: int = 0
        self.stream: str = UNAVAILABLE  # whether there is one
        self._block = headers
        self._first = began
        self._sends: int = 1
        self._no_responders: int = 0

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
            if ack is None and in_doubt(self):
                ack = self._check_window(error)
            if ack is not None:
                return ack
            self._sends += 1
            reply = None
            try:
                reply = self.send()
                return decode_ack(reply.data)
            except FAILURES as again:
                error = again
            except (PermissionViolation, PayloadTooLarge) as refused:
                self._sends -= 1
                if in_doubt(self):
                    raise self._unknown(refused) from refused
                raise

    def send(self) -> Msg:
        """One attempt."""
        wait = self.deadline.at_most(ATTEMPT_TIMEOUT) if self.repeatable else self.deadline.remaining()
        request = engine_of(self.js.nc).request
        if self.js.nc.options.instrumentation is not None:
            request = inspect.unwrap(request)  # it sees all attempts as one publish
        return request(self.subject, self.payload, timeout=wait, headers=self._block, may_go_on=may_go_on)

    def judge(self, error: Exception, reply: Msg | None = None) -> PubAck | None:
        """Raise the error that ends the publish, or return None when another attempt is due; an ack if it came late."""
        if isinstance(error, ApiError):
            return self._refused(error, reply)
        if isinstance(error, NoResponders):
            self._after_no_responders(error)
        elif isinstance(error, (ConnectionLost, RequestTimeout)) and not error.sent:
            self._sends -= 1
            if self.deadline.expired():
                raise self._give_up(error) from error
            self._wait_for_link(error)
        else:
            return self._without_ack(error)
        return None

    def _without_ack(self, error: Exception) -> PubAck | None:
        """The message may be stored, and only an id makes another copy safe. Without an inbox no ack can come."""
        if not self.repeatable or self.deadline.expired() or isinstance(error, MaxSubscriptionsExceeded):
            raise self._unknown(error) from error
        self._wait_for_link(error)
        return None

    # --- refusals -------------------------------------------------------------------------------------------------

    def _refused(self, error: ApiError, reply: Msg | None) -> PubAck | None:
        verdict = judge_refusal(self, error)
        if verdict is Verdict.AGAIN:
            # No further answer follows if the other copy is not stored yet.
            return self._pause(error, None if isinstance(error, DuplicateInProcess) else reply)
        stream = "" if reply is None else stream_of(reply.data)
        if verdict is Verdict.REFUSED or (verdict is Verdict.LISTEN and self._has_one_leader(stream)):
            raise error
        published = Published.of(self.subject, self.payload, self._block)
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
                engine_of(self.js.nc).wait_connected(self.deadline.remaining())
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
            engine_of(self.js.nc).pause(seconds)
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
        why = why_not_again(window, elapsed() - self._first)
        if not why:
            return None
        facts = streams.facts(self.subject, time.monotonic()) if why == WINDOW_ENDED else None
        if facts is None:
            raise unknown(self, f"{brief(error)}; {why}") from error
        published = Published.of(self.subject, self.payload, self._block)
        return self._inquire(Inquiry(published, facts.name, Verdict.DOUBT, why=why), None)

    def _after_no_responders(self, error: NoResponders) -> None:
        self._no_responders += 1
        if asks_for_stream(self, self.rules) and self.stream == UNAVAILABLE:
            self.stream = ask_for_stream(self.js, self.subject, self.deadline.at_most(ASK_TIMEOUT))
        last = after_no_responders(self, self.rules, self.stream)
        if last is not None:
            raise last from error
        self._pause(error, None)

    def _pause(self, error: Exception, reply: Msg | None, least: float = 0.0) -> PubAck | None:
        """Wait before the next attempt; an ack for the refused copy may come meanwhile."""
        left, pause = self.deadline.remaining(), max(self.rules.retry_wait, least)
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
        if not engine_of(self.js.nc).wait_connected(self.deadline.remaining()):
            raise self._give_up(error) from error

    # --- errors ---------------------------------------------------------------------------------------------------

    def _give_up(self, error: Exception) -> Exception:
        """The error if the time is over, and the last attempt ended with `error`."""
        if in_doubt(self):
            return self._unknown(error)
        if isinstance(error, (NoResponders, ApiError)):
            return out_of_time(self, error if isinstance(error, ApiError) else None)
        return ended(self, f"it was not sent in its time ({brief(error)})")

    def _unknown(self, error: Exception) -> PublishUnknown:
        return unknown(self, brief(error))
