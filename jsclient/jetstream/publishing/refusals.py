"""The meaning of a refusal for a message in flight: no stream, a stream that refuses it, or a missing permission.

`recovery` sends a message again after a temporary refusal. `questions` examines a refusal that may not be the outcome.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from jsclient.errors import ApiError, DuplicateInProcess, NoStreamForSubject, PermissionViolation, brief
from jsclient.jetstream.publishing.attempts import reply_error
from jsclient.jetstream.publishing.entries import in_doubt, no_stream, unknown
from jsclient.jetstream.publishing.streams import ASK_TIMEOUT, FORBIDDEN, NONE, names_answer, names_request
from jsclient.jetstream.publishing.verdict import Published, Verdict, judge, stream_of

if TYPE_CHECKING:
    from jsclient.jetstream.publishing.entries import Entry
    from jsclient.jetstream.publishing.recovery import Recovery
    from jsclient.jetstream.publishing.rules import Rules
    from jsclient.jetstream.publishing.unacked import Unacked
    from jsclient.message import Msg


class Refusals:
    """The unusual answers to the messages of one publisher. On the reader thread; its code never waits or sends."""

    def __init__(self, owner: Unacked, recovery: Recovery, rules: Rules) -> None:
        self._owner = owner
        self._recovery = recovery
        self._rules = rules
        self._asked: dict[str, tuple[float, str]] = {}  # time of the question and its answer, by subject

    def forget_answers(self) -> None:
        """There is a new link: subjects without a stream may have one now."""
        self._asked.clear()

    def unusual(self, token: bytes, message: Msg) -> None:
        """Handle any message other than a PubAck."""
        entry = self._owner.look_up(token)
        if entry is None:
            self._recovery.questions.answered(token, message)
            return
        status = message.status
        if status is not None and status.code == 503 and not message.data:
            self._no_responders(entry)
            return
        error = reply_error(message.data)
        if isinstance(error, ApiError):
            self._refused(entry, error, message.data)
        else:
            self._owner.fail(entry, error)

    def _refused(self, entry: Entry, error: ApiError, payload: bytes) -> None:
        if entry._token in self._recovery.questions.inquiries:
            return  # another copy, or another server: the inquiry that is running decides
        others = entry._sends - entry._no_responders > 1
        verdict = judge(error, Published.of(entry.subject, entry.payload, entry._block), in_doubt=others)
        if verdict is Verdict.AGAIN:
            if not isinstance(error, DuplicateInProcess):
                entry._sends -= 1  # that copy is settled: not stored
            self._recovery.retry(entry, error)
        elif verdict is Verdict.REFUSED:
            self._owner.fail(entry, error)
        else:
            self._recovery.questions.inquire(entry, stream_of(payload), verdict, error)

    def _no_responders(self, entry: Entry) -> None:
        entry._no_responders += 1
        limit = self._rules.retry_attempts
        if limit is None and entry._no_responders >= self._rules.ask_after:
            when, answer = self._asked.get(entry.subject, (0.0, ""))
            if answer == FORBIDDEN:
                limit = self._rules.unasked_attempts
            elif time.monotonic() - when > 2 * ASK_TIMEOUT:
                self._ask(entry.subject)
            elif answer == NONE and entry._no_responders >= self._rules.tries:
                self._fail_without_stream(entry)
                return
        if limit is not None and entry._no_responders > limit:
            self._owner.fail(entry, no_stream(entry))
        else:
            self._recovery.retry(entry, no_stream(entry))

    def _ask(self, subject: str) -> None:
        self._asked[subject] = (time.monotonic(), "")

        def told(answer: Msg | None) -> None:
            self._answered(subject, FORBIDDEN if answer is None else names_answer(answer.data))

        self._recovery.questions.ask("STREAM.NAMES", names_request(subject), told)

    def _answered(self, subject: str, answer: str) -> None:
        self._asked[subject] = (time.monotonic(), answer)
        if answer == NONE:
            for entry in list(self._recovery.retries.values()):
                if entry.subject == subject and entry._no_responders >= self._rules.tries:
                    self._fail_without_stream(entry)

    def _fail_without_stream(self, entry: Entry) -> None:
        if in_doubt(entry):
            self._owner.fail(entry, unknown(entry, "no stream takes the subject now"))
        else:
            error = NoStreamForSubject(f"no stream takes messages on {entry.subject!r}", entry.subject)
            self._owner.fail(entry, error)

    def refused_publish(self, error: PermissionViolation) -> None:
        """The server denies this user a publish on a subject, so the message was certainly not stored."""
        if error.operation == "subscribe":
            return
        if self._recovery.questions.refused(error):
            return
        for entry in self._owner.entries():
            if entry.subject == error.subject:
                others = entry._sends - entry._no_responders > 1
                self._owner.fail(entry, unknown(entry, brief(error)) if others else error)
