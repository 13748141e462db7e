"""The rules of a publish: its limits, the meaning of each answer, and the errors that end it. No socket, no thread.

After a 503 ("no responders") the message is certainly not stored, so the client retries until a total deadline. The
election of a stream leader lasts 4 to 8 s, and nats.go's 2 x 250 ms give up long before. After a timeout or a lost
link the outcome is unknown. Then only a message id makes it safe to send again, within the stream's duplicate window.

A refusal means that one copy of a message was not stored, by the server that answered. It is the outcome of the publish
only without another copy, and only if no other server answers this copy.

Another copy may be stored, and its ack lost. The server may well refuse the second copy because the first one is
stored: 2.15.1, and 2.10.27 with replicas, check `expected_last_*` before the message id. Or someone may have sealed
the stream, or lowered its limits, in between.

For a moment after a partition, two servers may both assume that they lead a stream. Both get the message, and both
answer. The former leader answers with an error from its outdated knowledge, the other one with an ack.

`judge` distinguishes these cases. An `Inquiry` makes them certain as far as possible. It looks at the place in the
stream where the message would have to be.
"""

from __future__ import annotations

import datetime as dt
import enum
from abc import abstractmethod
from typing import Any, Final, Protocol

import attrs
import msgspec

from jsclient.durations import check_timeout, plain
from jsclient.errors import (
    ApiError,
    ConfigError,
    ConnectionLost,
    DuplicateInProcess,
    InvalidPubAck,
    JetStreamError,
    JsClientError,
    MaxSubscriptionsExceeded,
    MessageNotFound,
    NoResponders,
    NoStreamForSubject,
    NoStreamResponse,
    NotStored,
    PublishUnknown,
    RequestTimeout,
    UnknownOutcome,
    WrongLastSequence,
    api_error,
    brief,
    counted,
)
from jsclient.jetstream.api import headers as names
from jsclient.jetstream.api import model_base, stored_messages
from jsclient.jetstream.api.models import MessageResponse, PubAck, RawStreamMsg
from jsclient.jetstream.api.requests import check_error
from jsclient.jetstream.publishing.streams import FORBIDDEN, NONE, WINDOW_NOT_KNOWN, same_id_for
from jsclient.message import Msg, Payload
from jsclient.protocol import Headers, matches
from jsclient.protocol.errors import BAD_JSON, ProtocolError

PUBLISH_TIMEOUT: Final = 15.0
"""Seconds for the complete synchronous publish: twice the longest election measured (7.6 s)."""

ATTEMPT_TIMEOUT: Final = 5.0
"""Seconds without an ack after which a message with an id is sent again."""

RETRY_WAIT: Final = 0.25
"""Seconds between two attempts after a 503 (nats.go)."""

FORBIDDEN_ATTEMPTS: Final = 2
"""Retries after a 503 if this user has no permission to ask whether a stream exists (nats.go's number)."""

ASK_AFTER: Final = 2
"""The number of the 503 after which an asynchronous publish asks whether any stream takes the subject."""

TRIES: Final = 3
"""The number of the 503 from which on that answer counts: half a second after the first one, as long as nats.go tries.
So a stream that is just being created has time to appear. A synchronous publish asks only then."""

ACK_TIMEOUT: Final = 30.0
"""Seconds until the client gives up a message without an ack (async-nats)."""

SWEEP: Final = 0.5
"""Seconds between two looks at the pending messages, at most; a tenth of the ack timeout if that is less."""

HOLD_FOR: Final = 120.0
"""Seconds for which messages are held while the link is down, or as long as the stated window or the ack timeout."""

WINDOW_ENDED: Final = "no ack came, and its stream does not remember message ids for so long: it is not sent again"
"""The reason if the stream has forgotten the id of a message."""

FAILURES: Final = (NoResponders, RequestTimeout, ConnectionLost, UnknownOutcome, ApiError, MaxSubscriptionsExceeded)
"""The errors of an attempt after which the publish may continue."""

_MSG_ID_LINE: Final = f"\r\n{names.MSG_ID}: ".encode()

DUPLICATE_IN_PROCESS: Final = 10158

decode_fast: Final = msgspec.json.Decoder(PubAck).decode


@attrs.frozen
class Rules:
    """The rules of one publisher. By default they are the rules of `publish_async`."""

    ack_timeout: float = ACK_TIMEOUT
    """Seconds until the client gives up a message without an ack."""
    hold_for: float = HOLD_FOR
    """Seconds for which messages wait for the link."""
    resend_after: float = attrs.field()
    """Seconds of silence after which a message is sent again."""
    retry_wait: float = RETRY_WAIT
    """Seconds before the client sends a message again after a 503 or a temporary refusal."""
    retry_attempts: int | None = None
    """The number of these retries; None retries as long as a stream exists for the message."""
    ask_after: int = ASK_AFTER
    """The number of the 503 after which the client asks whether there is a stream."""
    tries: int = TRIES
    """The number of the 503 from which on that answer counts."""
    unasked_attempts: int = FORBIDDEN_ATTEMPTS
    """Number of retries of a message if this user has no permission to ask that."""
    copies_allowed: bool = False
    """True if a message without an id may be stored twice. It is sent again indefinitely, like one with an id."""
    looks_beyond_window: bool = True
    """True to look for a message whose id the stream has forgotten. If False, its outcome is unknown immediately."""

    @resend_after.default
    def _resend_after(self) -> float:
        return min(ATTEMPT_TIMEOUT, max(self.ack_timeout / 3, 2 * min(SWEEP, self.ack_timeout / 10)))

    @property
    def tick(self) -> float:
        """Seconds between two looks at the pending messages."""
        return min(SWEEP, self.ack_timeout / 10, self.resend_after / 2)


def retry_rules(attempts: int | None, wait: float | dt.timedelta) -> Rules:
    """The rules of a synchronous publish with these options. Raises ConfigError."""
    if attempts is not None and (isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 0):
        raise ConfigError(f"retry_attempts must be an int of 0 or more, or None, got {attempts!r}")
    seconds = plain(wait)
    check_timeout(seconds, "retry_wait")
    if seconds is None:
        raise ConfigError("retry_wait must be 0 or more seconds, not None")
    return Rules(retry_attempts=attempts, retry_wait=seconds, ask_after=TRIES)


def may_go_on(payload: bytes) -> bool:
    """True if another answer to a publish may follow this one: it is a refusal, by a server that leads no more."""
    return payload.startswith(b'{"error"') and isinstance(reply_error(payload), ApiError)


def decode_ack(payload: bytes) -> PubAck:
    """The PubAck in a reply. Raises the typed ApiError it holds instead, or InvalidPubAck."""
    try:
        ack = decode_fast(payload)
        if ack.seq:
            return ack
    except BAD_JSON:
        pass
    error = reply_error(payload)
    raise error


def reply_error(payload: bytes) -> JetStreamError:
    """The reason why a reply does not hold a PubAck."""
    try:
        plain = msgspec.json.decode(payload)
        if plain.get("seq") == 0 and plain.get("duplicate") and plain.get("stream"):
            # Replicated streams of 2.9 and 2.10: the id is noted; its message has no sequence yet, or never will.
            return DuplicateInProcess(503, DUPLICATE_IN_PROCESS, "the message with this id is not stored yet")
        found = plain["error"]
        return api_error(int(found.get("code", 0)), int(found.get("err_code", 0)), str(found.get("description", "")))
    except (*BAD_JSON, LookupError, TypeError, ValueError, AttributeError):
        return InvalidPubAck(f"something that is not a stream answered the publish: {payload[:120]!r}")


def has_id(block: bytes | None) -> bool:
    """True if an encoded header block holds a message id; only then is it safe to send again."""
    return block is not None and _MSG_ID_LINE in block


# --- the state of one publish -------------------------------------------------------------------------------------


class Publish(Protocol):
    """One publish: the message, and the copies of it."""

    _sends: int
    """The number of copies sent, less those that are certainly not stored."""
    _no_responders: int
    """The number of copies that were answered with 503."""

    @property
    def subject(self) -> str: ...

    @property
    def payload(self) -> Payload: ...

    @property
    def _block(self) -> bytes | None: ...


class Entry(msgspec.Struct, kw_only=True, gc=False, eq=False):
    """A message in flight, without an ack. Subclasses differ in how they keep the message."""

    _sends: int = 1
    _no_responders: int = 0
    _first: float = 0.0
    """When the sweep first saw it, or the first copy that may be stored was sent (`elapsed`); 0 if not yet."""
    _last: float = 0.0
    """When the last copy was sent."""
    _since: float = 0.0
    """The start of the wait for its ack; a reconnect starts it again."""
    _ack: PubAck | None = None
    _error: BaseException | None = None
    _watchers: list[Any] | None = None
    """Tickets and callbacks to notify when it ends."""

    @property
    @abstractmethod
    def _token(self) -> bytes:
        """The last token of its reply subject."""

    @property
    @abstractmethod
    def subject(self) -> str: ...

    @property
    @abstractmethod
    def payload(self) -> bytes: ...

    @property
    @abstractmethod
    def _block(self) -> bytes | None: ...

    def done(self) -> bool:
        """True once it is resolved."""
        return self._ack is not None or self._error is not None


def in_doubt(entry: Publish) -> bool:
    """True if some copy was sent that was not answered with 503."""
    return entry._sends > entry._no_responders


def others_in_doubt(entry: Publish) -> bool:
    """The same for the copies other than the one that was answered."""
    return entry._sends - entry._no_responders > 1


def asks_for_stream(entry: Publish, rules: Rules) -> bool:
    """True if the client asks after this 503 whether there is a stream."""
    return rules.retry_attempts is None and entry._no_responders >= rules.ask_after


def after_no_responders(entry: Publish, rules: Rules, answer: str) -> JsClientError | None:
    """The error that ends a publish after a 503; None if it goes out again. `answer` says whether there is a stream."""
    limit = rules.retry_attempts
    if limit is None:
        if answer == NONE and entry._no_responders >= rules.tries:
            return without_stream(entry)
        if answer == FORBIDDEN:
            limit = rules.unasked_attempts
    return no_stream(entry) if limit is not None and entry._no_responders > limit else None


def judge_refusal(entry: Publish, error: ApiError) -> Verdict:
    """Judge the refusal of a copy. After a reason that passes, that copy does not count any more."""
    published = Published.of(entry.subject, entry.payload, entry._block)
    verdict = judge(error, published, in_doubt=others_in_doubt(entry))
    if verdict is Verdict.AGAIN and not isinstance(error, DuplicateInProcess):
        entry._sends -= 1
    return verdict


def why_not_again(window: float | str, age: float) -> str:
    """The reason not to send an id again, `age` seconds after its first copy; empty if the stream remembers it."""
    if isinstance(window, str):
        return WINDOW_NOT_KNOWN
    return "" if age <= same_id_for(window) else WINDOW_ENDED


# --- the errors that end a publish --------------------------------------------------------------------------------


def unknown(entry: Publish, why: str) -> PublishUnknown:
    """The error for a message that may be stored."""
    return PublishUnknown(f"the message on {entry.subject!r} (sent {counted(entry._sends, 'time')}) got no ack: {why}")


def ended(entry: Publish, why: str) -> JsClientError:
    """The error for a message that is not sent again."""
    if in_doubt(entry):
        return unknown(entry, why)
    return NotStored(f"the message on {entry.subject!r} was not stored: {why}")


def out_of_time(entry: Publish, refusal: ApiError | None) -> JsClientError:
    """The error if the time is over after a refusal that passes, or after a 503 (None)."""
    if refusal is None:
        return no_stream(entry)
    return unknown(entry, brief(refusal)) if in_doubt(entry) else refusal


def no_stream(entry: Publish) -> JsClientError:
    """The error for a message that no stream took."""
    if in_doubt(entry):
        return unknown(entry, "nobody takes it now")
    return NoStreamResponse(
        f"nobody took the message on {entry.subject!r} in {counted(entry._sends, 'attempt')}: no stream, or no leader",
        entry.subject,
    )


def without_stream(entry: Publish) -> JsClientError:
    """The error for a message whose subject no stream has."""
    if in_doubt(entry):
        return unknown(entry, "no stream takes the subject now")
    return NoStreamForSubject(f"no stream takes messages on {entry.subject!r}", entry.subject)


# --- refusals -----------------------------------------------------------------------------------------------------

TEMPORARY: Final = frozenset({10008, 10158, 10163, 10167})
"""Errors that pass: no leader at the moment, duplicate in process, sequence check not possible yet, overload."""

PAUSES: Final = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 1.0)
"""Seconds between two looks, 3 in all: a former leader learns of its successor with the next heartbeat (1 s)."""


class Verdict(enum.Enum):
    """The way to handle a refusal."""

    REFUSED = "refused"  # Certainly not stored, so raise it.
    AGAIN = "again"  # This copy was not stored, for a reason that passes.
    LOOK = "look"  # As good as refused, but look if that is permitted.
    LISTEN = "listen"  # It comes from a former leader, and an ack may follow.
    DOUBT = "doubt"  # Another copy may be stored.


def passes(error: ApiError) -> bool:
    """True if a refused copy was not stored and may be tried again, for example without a leader or in overload.

    The raft layer's errors while a leader steps down ("raft: not leader", seen on 2.10) come without an err_code.
    """
    return error.err_code in TEMPORARY or (error.code == 503 and error.description.startswith("raft:"))


class Published(msgspec.Struct, frozen=True):
    """The facts about a message that are needed to judge an answer, and to find it in a stream."""

    subject: str
    payload: bytes = b""
    id_header: tuple[str, str] | None = None
    """The header that only this message has, and its value: the id of the message, or of its batch."""
    after: int | None = None
    """The expected last sequence of the stream."""
    after_on_subject: int | None = None
    """The expected last sequence of `expected_on`."""
    expected_on: str = ""
    """The subject or filter of that expectation."""

    @classmethod
    def of(cls, subject: str, payload: Payload, block: bytes | None) -> Published:
        """From a publish with an encoded header block."""
        raw = payload.encode() if isinstance(payload, str) else bytes(payload)
        found = Headers() if block is None else Headers.decode(block)
        msg_id = found.get(names.MSG_ID)
        return cls(
            subject,
            raw,
            None if msg_id is None else (names.MSG_ID, msg_id),
            _number(found.get(names.EXPECTED_LAST_SEQ)),
            _number(found.get(names.EXPECTED_LAST_SUBJECT_SEQ)),
            found.get(names.EXPECTED_LAST_SUBJECT_SEQ_SUBJECT) or subject,
        )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _is_text(subject: str) -> bool:
    try:
        subject.encode()
    except UnicodeEncodeError:
        return False
    return True


def judge(error: ApiError, published: Published, *, in_doubt: bool) -> Verdict:
    """Judge a refusal. `in_doubt` means that a copy other than the refused one may be stored."""
    if passes(error):
        return Verdict.AGAIN
    if in_doubt:
        return Verdict.DOUBT
    if not isinstance(error, WrongLastSequence):
        return Verdict.REFUSED
    last = error.last_sequence
    expected = [number for number in (published.after, published.after_on_subject) if number is not None]
    if last is None or any(last < number for number in expected):
        return Verdict.LISTEN  # It is behind the application's knowledge, or another writer writes at this moment.
        # A stream's sequence may run ahead of the stored messages; a subject's sequence always has a stored message.
        # With an id, the stored message may be this very one, if an application repeats an unknown publish.
    return Verdict.REFUSED if published.after is None and published.id_header is None else Verdict.LOOK


# --- looking ------------------------------------------------------------------------------------------------------


class LookResult(enum.Enum):
    """The message found in the place where ours would have to be."""

    OURS = "ours"
    TAKEN = "taken"  # Another message, so ours can never have got there.
    PASSED = "passed"  # Only a later message is left, or the place is not known.
    ALIKE = "alike"  # The same bytes without an id, so it may be ours.
    NOTHING = "nothing"


def position(published: Published) -> dict[str, Any]:
    """The request that shows the place: the message after the expected one, or else the subject's last one."""
    if published.after is not None:
        return {"seq": published.after + 1, "next_by_subj": ">"}
    if published.after_on_subject is not None and matches(published.expected_on, published.subject):
        return {"seq": published.after_on_subject + 1, "next_by_subj": published.expected_on}
    return {"last_by_subj": published.subject}


def look_result(published: Published, found: RawStreamMsg | None) -> LookResult:
    """The result of a look."""
    if found is None:
        return LookResult.NOTHING
    headers = names.readable(found)
    id_header = published.id_header
    if id_header is not None and headers.get(id_header[0]) == id_header[1]:
        return LookResult.OURS
    if id_header is None and found.subject == published.subject and found.data == published.payload:
        return LookResult.ALIKE
    request = position(published)
    first = request.get("seq")
    if first is None:
        return LookResult.PASSED
    follows = published.after is None and _number(headers.get(names.EXPECTED_LAST_SUBJECT_SEQ)) == first - 1
    return LookResult.TAKEN if found.seq == first or follows else LookResult.PASSED


class Inquiry:
    """Makes the outcome of one publish certain, or reports that it cannot.

    Ask `question`, send it as an API request, and pass the answer to `heard` (or call `forbidden`). Then wait for
    `pause` seconds while listening for another answer to the publish. Repeat this until there is a conclusion or no
    further pause. If no server refused it, but it must not be sent again, `why` has the reason.
    """

    def __init__(
        self, published: Published, stream: str, verdict: Verdict, refusal: ApiError | None = None, why: str = ""
    ) -> None:
        self.published = published
        self.stream = stream
        self.verdict: Verdict = verdict
        self.refusal = refusal
        self._why = why
        self.denied: int = 0
        """The number of ways to look, of two, that this user lacks permission for: by the leader, by any replica."""
        self._pauses = list(PAUSES)
        self._last: LookResult | None = None

    def question(self) -> tuple[str, dict[str, Any]] | None:
        """The API operation that looks, and its body; None if nobody, or not this user, can look."""
        if self._blind:
            return None
        return f"{'DIRECT' if self.denied else 'STREAM.MSG'}.GET.{self.stream}", position(self.published)

    def pause(self) -> float | None:
        """Seconds until the next look; None if it has lasted long enough, or if no result can come."""
        blind = self._blind and self.verdict is not Verdict.LISTEN
        return self._pauses.pop(0) if self._pauses and not blind else None

    @property
    def _blind(self) -> bool:
        return self.denied > 1 or self._unspeakable

    @property
    def _unspeakable(self) -> bool:
        """True if the subject holds bytes that JSON cannot hold: the answer would be about another subject."""
        wanted = position(self.published)
        return not _is_text(wanted.get("last_by_subj") or wanted["next_by_subj"])

    def link_lost(self) -> None:
        """The link is lost, and with it the answers that it would have brought."""
        self.verdict = Verdict.DOUBT

    def forbidden(self) -> None:
        """The question is not permitted. Any replica can also show the stored message."""
        self.denied += 1

    def unanswered(self) -> None:
        """No answer came, because the stream has no leader at the moment or no server serves direct gets."""
        self._last = None

    def heard(self, answer: Msg) -> PubAck | ApiError | None:
        """The conclusion from an answer: stored, refused, or None if it is not certain yet."""
        try:
            found = self._read(answer)
        except MessageNotFound:
            found = None
        except (JetStreamError, ProtocolError):
            self.unanswered()
            return None
        self._last = seen = look_result(self.published, found)
        if seen is LookResult.OURS:
            assert found is not None
            return PubAck(stream=self.stream, seq=found.seq, duplicate=True)
        return self.refusal if self._settled(seen) else None

    def _settled(self, seen: LookResult) -> bool:
        """True if the refusal is the outcome."""
        if seen is LookResult.TAKEN:
            return True
        if self.verdict is Verdict.DOUBT or seen is LookResult.ALIKE:
            return False
        if seen is LookResult.PASSED:
            # If ours had been stored before the later message, its ack would have come before. Unknown without a place.
            return self.verdict is Verdict.LOOK or "seq" in position(self.published)
        return self.verdict is Verdict.LOOK and self.published.after is None

    def _read(self, answer: Msg) -> RawStreamMsg:
        if self.denied:
            stored_messages.check_status(answer, self.stream)
            return stored_messages.stored_message(answer)
        response = model_base.from_wire(check_error(answer.data), MessageResponse)
        return stored_messages.from_response(response, self.stream)

    def end(self, in_time: bool = True) -> ApiError | PublishUnknown:
        """The conclusion if no look has decided it. `in_time` is False if the pauses were cut short."""
        refusal = self.refusal
        if refusal is not None and self._last is not LookResult.ALIKE:
            if self.verdict is Verdict.LOOK:
                return refusal
            if self.verdict is Verdict.LISTEN and self._last is not None and in_time:
                return refusal  # no ack within 3 s, and the stream does not have it
        return PublishUnknown(self._text())

    def _text(self) -> str:
        if self.refusal is None:
            reason = self._why
        elif self.verdict is Verdict.DOUBT:
            reason = f"a copy of it got no ack, and another one was refused ({self.refusal.description})"
        else:
            reason = f"it was refused by a server that may not lead the stream any more ({self.refusal.description})"
        shown = ""
        if self._unspeakable:
            shown = ", and nobody can ask for it, because its subject is not UTF-8"
        elif self._blind:
            shown = ", and this user may not look whether it is there"
        return f"the message on {self.published.subject!r} is not known to be stored: {reason}{shown}"


def stream_of(payload: bytes) -> str:
    """The stream that refused a publish."""
    try:
        return str(model_base.decode_json(payload)["stream"])
    except (JetStreamError, LookupError, TypeError):
        return ""
