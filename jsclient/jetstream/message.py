"""A message that a consumer delivered: the ack family and the metadata of the ack subject.

Hot path: a fetch of 1,000 makes 1,000 of these. So a message is a Struct outside the garbage collector around the wire
message (51 ns). It decodes everything else on demand. The guard against acking twice costs nothing until it is used.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Final, NoReturn
from typing import TypeVar as _TypeVar

import msgspec

from jsclient import checks, codecs, protocol, waiting
from jsclient.connection import Connection, engine_of
from jsclient.durations import DEFAULT, NANOSECONDS, Timeout
from jsclient.errors import ConfigError, MsgAlreadyAcked, MsgNoReply, NotJetStreamMessage, NotSupported
from jsclient.jetstream.api.ack_and_nak import ACK, IN_PROGRESS, TERM, nak_body
from jsclient.jetstream.api.capabilities import server_at_least
from jsclient.jetstream.consuming.stale_acks import confirmed_ack
from jsclient.jetstream.without_payload import lacks_payload, missing
from jsclient.message import Msg
from jsclient.protocol.frames import pub, pub_start, pub_to
from jsclient.waiting import GIL

_ACK_PREFIX: Final = b"$JS.ACK."
_ACK: Final = pub_to(ACK)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_DIGITS: Final = 20  # of the largest number of 64 bits
_TERM_REASON_SINCE: Final = (2, 10, 4)


class Metadata(msgspec.Struct, frozen=True, gc=False, eq=False):
    """The information in the ack subject of a delivered message, decoded at each access.

    Most programs use one or two of the eight parts. Metadata is a value: compared, hashed and pickled by its parts.
    """

    _tokens: list[bytes]  # nine: $JS ACK <stream> <consumer> <delivered> <sseq> <cseq> <ts> <pending>
    _domain: bytes = b""

    @property
    def stream(self) -> str:
        """Name of the stream."""
        try:
            return self._tokens[2].decode()
        except ValueError:
            raise _not_of_a_consumer(self._tokens) from None

    @property
    def consumer(self) -> str:
        """Name of the consumer."""
        try:
            return self._tokens[3].decode()
        except ValueError:
            raise _not_of_a_consumer(self._tokens) from None

    @property
    def stream_seq(self) -> int:
        """Sequence of the message in the stream."""
        return _number_in(self._tokens, 5)

    @property
    def consumer_seq(self) -> int:
        """Number of this delivery, as the consumer counts deliveries."""
        return _number_in(self._tokens, 6)

    @property
    def num_delivered(self) -> int:
        """1 for the first delivery."""
        return _number_in(self._tokens, 4)

    @property
    def num_pending(self) -> int:
        """Messages that the consumer had still to deliver when it sent this one."""
        return _number_in(self._tokens, 8)

    @property
    def timestamp_ns(self) -> int:
        """The exact time at which the stream stored the message, in nanoseconds since 1970."""
        return _number_in(self._tokens, 7)

    @property
    def timestamp(self) -> dt.datetime:
        """The time at which the stream stored the message, as an aware UTC datetime cut to microseconds."""
        return _EPOCH + dt.timedelta(microseconds=self.timestamp_ns // 1000)

    @property
    def domain(self) -> str:
        """The JetStream domain; "" if there is none."""
        try:
            return self._domain.decode()
        except ValueError:
            raise _not_of_a_consumer(self._tokens) from None

    def _values(self) -> dict[str, str | int]:
        names = ("stream", "consumer", "stream_seq", "consumer_seq", "num_delivered", "num_pending", "timestamp_ns")
        return {name: getattr(self, name) for name in (*names, "domain")}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Metadata) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(tuple(self._values().values()))

    def __repr__(self) -> str:
        return f"Metadata({', '.join(f'{name}={value!r}' for name, value in self._values().items())})"


def _number_in(tokens: list[bytes], place: int) -> int:
    token = tokens[place]
    if token.isdigit() and len(token) <= _DIGITS:  # `int` takes "+1", "1_0" and " 1", too
        return int(token)
    raise _not_of_a_consumer(tokens)


def _not_of_a_consumer(reply: object) -> NotJetStreamMessage:
    return NotJetStreamMessage(f"not a message of a JetStream consumer: its reply is {reply!r}")


def parse_ack_subject(raw: bytes | None) -> Metadata:
    """Metadata from the reply of a delivered message; raises NotJetStreamMessage for any other subject.

    v1 has 9 tokens, `$JS.ACK.<stream>.<consumer>.<delivered>.<sseq>.<cseq>.<ts>.<pending>`. v2 (server 2.14 with its
    feature flag) has 11 or more, with domain (`_` for none) and account hash before the stream. Tokens after the
    eleventh belong to the server. ADR-15 and the parser of nats.go agree that 10 tokens are neither. A number is
    checked at its first access, which then raises the same error.
    """
    if raw is not None and raw.startswith(_ACK_PREFIX):
        tokens = raw.split(b".")
        count = len(tokens)
        if count == 9:
            return Metadata(tokens)
        if count >= 11:
            return Metadata(tokens[2:11], b"" if tokens[2] == b"_" else tokens[2])
    raise _not_of_a_consumer(raw)


def consumer_position(raw: bytes | None) -> tuple[bytes, int, int]:
    """(consumer, consumer sequence, stream sequence) of an ack subject, which ordered consumers check."""
    if raw is not None:
        tokens = raw.split(b".", 10)
        count = len(tokens)
        if count == 9:
            return tokens[3], _number_in(tokens, 6), _number_in(tokens, 5)
        if count == 11:
            return tokens[5], _number_in(tokens, 8), _number_in(tokens, 7)
    raise _not_of_a_consumer(raw) from None


class JetStreamMsg(msgspec.Struct, gc=False, eq=False):
    """One delivered message. Any thread may ack it; of several threads exactly one succeeds.

        msg = consumer.next(timeout=1)
        try:
            handle(msg.data)
            msg.ack()
        except OSError:
            msg.nak(delay=10)  # the server redelivers it after 10 s

    `ack`, `nak`, `term` and `in_progress` are coalesced publishes. They return immediately and leave with the next
    write: within three milliseconds, and before any call of the client that waits. They survive a lost connection. Only
    `double_ack`, `double_nak` and `double_term` wait until the server confirms. Even a confirmed ack can be lost if the
    server crashes, so a message may be redelivered: make processing idempotent.

    Attributes:
        msg: The underlying wire message.
        connection: The connection over which it came, and over which its acks go.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """

    msg: Msg
    connection: Connection
    _open: bool = True
    _metadata: Metadata | None = None

    # --- what it holds ----------------------------------------------------------------------------------

    @property
    def subject(self) -> str:
        """The subject under which it was published."""
        return self.msg.subject

    @property
    def reply(self) -> str:
        """The ack subject."""
        return self.msg.reply

    @property
    def data(self) -> bytes:
        """The payload."""
        return self.msg.data

    def json(self) -> Any:
        """The payload as JSON: dict, list, str, number ...

        Raises DecodeFailed, and PayloadMissing if the consumer has `headers_only`.
        """
        if not self.msg.data and lacks_payload(self.msg):
            raise missing(self.subject)
        return codecs.from_json(self.msg.data, self.subject, sequence_of(self))

    @property
    def headers(self) -> protocol.Headers:
        """The headers, decoded at every access; empty if the message has none."""
        return self.msg.headers

    @property
    def metadata(self) -> Metadata:
        """Parsed once. Raises NotJetStreamMessage if an account import rewrote the ack subject; acks still work."""
        known = self._metadata
        if known is None:
            known = self._metadata = parse_ack_subject(self.msg.raw_reply)
        return known

    @property
    def stream_seq(self) -> int:
        """`metadata.stream_seq`, at a third of the cost of the metadata."""
        raw = self.msg.raw_reply
        if raw is not None and raw.startswith(_ACK_PREFIX):
            tokens = raw.split(b".", 9)
            if len(tokens) == 9 and tokens[5].isdigit():
                return _number_in(tokens, 5)
        return self.metadata.stream_seq

    @property
    def num_delivered(self) -> int:
        """`metadata.num_delivered`, as cheap as `stream_seq`: 1 for the first delivery."""
        raw = self.msg.raw_reply
        if raw is not None and raw.startswith(_ACK_PREFIX):
            tokens = raw.split(b".", 9)
            if len(tokens) == 9 and tokens[4].isdigit():
                return _number_in(tokens, 4)
        return self.metadata.num_delivered

    @property
    def size(self) -> int:
        """Bytes as the server counts them against max_bytes: subject, reply, headers, payload."""
        msg = self.msg
        return len(msg.raw_subject) + len(msg.raw_reply or b"") + len(msg.raw_headers or b"") + len(msg.data)

    @property
    def is_acked(self) -> bool:
        """True after an ack, nak or term through this object."""
        return not hasattr(self, "_open")

    # --- the ack family ---------------------------------------------------------------------------------

    def ack(self) -> None:
        """Done: the server must not redeliver it. Raises MsgAlreadyAcked, MsgNoReply, ConnectionClosed."""
        reply = self.msg.raw_reply
        if not reply:
            _no_reply()
        try:
            if GIL:
                del self._open  # one step, which fails if the slot is empty
            else:
                _take_open(self)
        except AttributeError:
            _already()
        try:
            engine_of(self.connection).enqueue(_ACK(reply))
        except BaseException:
            self._open = True
            raise

    def double_ack(self, timeout: Timeout = DEFAULT) -> None:
        """Ack and wait (5 s by default) until the server confirms it.

        Raises RequestTimeout if no confirmation came: the message may or may not be acked, and you may ack it again.
        Raises NoResponders if no server takes the ack: the consumer was deleted, or has no leader at the moment. Raises
        StaleDelivery if the server has crashed since and forgotten that it delivered this copy.
        """
        self._confirm(ACK, timeout)

    def nak(self, delay: float | dt.timedelta | None = None) -> None:
        """Not done: redeliver it immediately, or after `delay` seconds. A consumer's backoff does not apply."""
        self._finish(nak_body(delay))

    def double_nak(self, delay: float | dt.timedelta | None = None, *, timeout: Timeout = DEFAULT) -> None:
        """`nak`, and wait until the server confirms it; raises as `double_ack` does."""
        self._confirm(nak_body(delay), timeout)

    def term(self, reason: str | None = None) -> None:
        """Give up: never deliver it again. A reason goes into the advisory.

        A reason needs server 2.10.4. An older one would ignore the complete ack, so the call raises NotSupported.
        """
        self._finish(self._term_body(reason))

    def double_term(self, reason: str | None = None, *, timeout: Timeout = DEFAULT) -> None:
        """`term`, and wait until the server confirms it; raises as `double_ack` does."""
        self._confirm(self._term_body(reason), timeout)

    def in_progress(self) -> None:
        """Still working: restart the server's ack_wait clock. You can call it repeatedly."""
        if not hasattr(self, "_open"):
            _already()
        self._enqueue(IN_PROGRESS)

    def ack_next(self, timeout: Timeout = DEFAULT) -> JetStreamMsg:
        """Ack and ask for the next message in one frame; waits at most `timeout` seconds (30 by default) for it.

        Raises NoMessages if none came in time. If the server did not answer at all, you may ack this message again. For
        consumers that have one message in flight.
        """
        from jsclient.jetstream.consuming.fetch import next_after

        self.claim()
        return next_after(self, timeout)

    # --- helpers ----------------------------------------------------------------------------------------

    def claim(self) -> None:
        """For layers above: reserve the only ack; `release` undoes it. Raises MsgAlreadyAcked, MsgNoReply."""
        if not self.msg.raw_reply:
            _no_reply()
        try:
            _take_open(self)
        except AttributeError:
            _already()

    def release(self) -> None:
        """Allow another ack after one with an unknown outcome. For layers above."""
        self._open = True

    def _term_body(self, reason: str | None) -> bytes:
        if reason is None:
            return TERM
        if not server_at_least(self.connection, _TERM_REASON_SINCE):
            raise NotSupported(
                "term(reason) needs nats-server 2.10.4: an older one ignores such an ack. Nothing was sent. Use term() "
                "without a reason."
            )
        return TERM + b" " + checks.utf8(reason, "a reason", "")

    def _confirm(self, body: bytes, timeout: Timeout) -> None:
        self.claim()
        try:
            confirmed_ack(self, body, timeout)
        except BaseException:
            self._open = True
            raise

    def _finish(self, body: bytes) -> None:
        self.claim()
        try:
            self._enqueue(body)
        except BaseException:
            self._open = True
            raise

    def _enqueue(self, body: bytes) -> None:
        reply = self.msg.raw_reply
        if not reply:
            _no_reply()
        engine_of(self.connection).enqueue(pub(pub_start(reply), body))

    def __repr__(self) -> str:
        state = "" if hasattr(self, "_open") else " acked"
        return f"<JetStreamMsg {self.subject!r} {len(self.msg.data)} bytes reply={self.reply!r}{state}>"

    def __reduce__(self) -> Any:
        return engine_of(self.connection).refuse_pickle(self)


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    M = TypeVar("M", bound=JetStreamMsg, covariant=True, default=JetStreamMsg)
else:
    M = _TypeVar("M", covariant=True)


def sequence_of(message: JetStreamMsg) -> int | None:
    """Its sequence in the stream; None if an account import rewrote the ack subject."""
    try:
        return message.stream_seq
    except NotJetStreamMessage:
        return None


_taking: Any = waiting.new_lock()


def _take_open(message: JetStreamMsg) -> None:
    """Of many threads one succeeds, the others get AttributeError. Without the interpreter lock that takes a lock."""
    with _taking:
        del message._open


def _already() -> NoReturn:
    raise MsgAlreadyAcked("the message was already acked, naked or terminated") from None


def _no_reply() -> NoReturn:
    raise MsgNoReply("the message has no reply subject: no consumer waits for an ack of it")


def timestamp_ns(moment: dt.datetime) -> int:
    """An aware datetime as nanoseconds since 1970, without the rounding of a float."""
    if moment.tzinfo is None:
        raise ConfigError(f"the time has no time zone: {moment!r}")
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * NANOSECONDS + since.microseconds * 1_000
