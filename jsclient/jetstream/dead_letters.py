"""Dead letters: a message that cannot be handled is stored elsewhere, with its reason, before it is given up."""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from jsclient import errors, waiting
from jsclient.durations import DEFAULT, Deadline, Timeout
from jsclient.jetstream.api.access import Access
from jsclient.jetstream.api.headers import MSG_ID, readable
from jsclient.jetstream.api.models import PubAck
from jsclient.jetstream.api.requests import Api
from jsclient.jetstream.api.stored_messages import from_leader
from jsclient.jetstream.message import timestamp_ns
from jsclient.jetstream.missing_payloads import payload_of
from jsclient.nuid import next_nuid
from jsclient.protocol import Headers
from jsclient.threads import Thread

if TYPE_CHECKING:
    from jsclient.jetstream.message import JetStreamMsg

PREFIX: Final = "Dead-Letter-"
REASON: Final = "Dead-Letter-Reason"
SUBJECT: Final = "Dead-Letter-Subject"
STREAM: Final = "Dead-Letter-Stream"
CONSUMER: Final = "Dead-Letter-Consumer"
SEQUENCE: Final = "Dead-Letter-Sequence"
DELIVERIES: Final = "Dead-Letter-Deliveries"
TIME: Final = "Dead-Letter-Time"

_DROPPED: Final = "Nats-"
"""Headers with this prefix mean something to the server that stores the dead letter (ids, TTL, expectations)."""

LOST: Final = "Dead-Letter-Lost"
"""Marks a letter without payload: the message was gone before the letter could be stored."""

MAX_REASON: Final = 500

ORIGIN: Final = (SUBJECT, STREAM, CONSUMER, SEQUENCE, TIME)
"""Headers that two letters of one message have in common; reason and deliveries differ with each attempt."""

PATIENCE: Final = 10.0
"""Seconds in which a pool stores a letter, or a message for later."""

LOOK: Final = 3.0
"""Seconds for the look at the stored message after an ack with `duplicate`."""


def one_line(text: str) -> str:
    """Text that fits into a header."""
    return "".join(char if char.isprintable() else " " for char in text)


class Publisher(Access, Protocol):
    """The JetStream object that stores letters."""

    publish_timeout: float | None

    @property
    def publish(self) -> Callable[..., PubAck]:
        """See `JetStream.publish`."""


def header_of(subject: str) -> str:
    """A subject as a header value: unchanged, to let a replay use it, unless it has a NUL."""
    return one_line(subject) if "\0" in subject else subject


def letter_of(js: Access, message: JetStreamMsg, reason: str, deliveries: int) -> tuple[Headers, str | None]:
    """The headers and the message id of its dead letter; see `origin_id`. `js` received the message."""
    headers = Headers(headers_of(message))
    headers[REASON] = one_line(reason)[:MAX_REASON]
    headers[SUBJECT] = header_of(message.subject)
    if deliveries_of(message) is not None:
        headers[DELIVERIES] = str(deliveries)
    try:
        meta = message.metadata
        seq, time_ns = meta.stream_seq, meta.timestamp_ns
    except errors.NotJetStreamMessage:
        return headers, None  # an account import rewrote the ack subject: its origin is unknown
    headers[STREAM] = meta.stream
    headers[CONSUMER] = meta.consumer
    headers[SEQUENCE] = str(seq)
    headers[TIME] = meta.timestamp.isoformat()
    domain = meta.domain or domain_of(js)
    return headers, origin_id(domain, meta.stream, meta.consumer, seq, time_ns // 1000)


def deliveries_of(message: JetStreamMsg) -> int | None:
    """Its number of deliveries; None if an account import rewrote the ack subject."""
    try:
        return message.num_delivered
    except errors.NotJetStreamMessage:
        return None


# --- which message it is --------------------------------------------------------------------------------------


def domain_of(js: Access) -> str:
    """The domain that `js` reaches, `_` if there is none; for an API of another account its prefix."""
    prefix = js.api.prefix[:-1]
    if prefix == "$JS.API":
        return js.nc.server_info.domain or "_"
    return prefix.removeprefix("$JS.").removesuffix(".API")


def api_of_domain(js: Access, domain: str) -> Api:
    """The API for the streams of a domain that a server has named."""
    known = not domain or js.api.is_imported or domain == domain_of(js)
    return js.api if known else js.nc.jetstream(domain=domain).api


def origin_id(domain: str, stream: str, consumer: str, sequence: int, stored: int | str) -> str:
    """The message id of what is stored because of one message: the same for each attempt, different for others.

    Streams of two domains may have the same name, and a re-created stream counts from 1. So the domain and
    the time at which the message was `stored` (in microseconds) belong to the id.
    """
    return f"{domain}.{stream}.{consumer}.{sequence}.{stored}"


def microseconds(moment: dt.datetime | None) -> int:
    """A server's time as a part of an id; 0 if the server does not give one."""
    return 0 if moment is None else timestamp_ns(moment) // 1000


# --- storing --------------------------------------------------------------------------------------------------


def store(
    js: Publisher, subject: str, data: bytes, headers: Headers, message_id: str | None, timeout: Timeout = DEFAULT
) -> PubAck:
    """Store a letter and wait for the PubAck; raises what `publish` raises.

    An ack with `duplicate` only means that the stream has seen the id. Unless the stored message is this letter, the
    letter is stored again under another id.
    """
    deadline = Deadline.of(timeout, js.publish_timeout)
    ack = js.publish(subject, data, headers=headers, msg_id=message_id, timeout=deadline)
    if not ack.duplicate or message_id is None or is_letter(js, ack, data, headers, message_id, deadline):
        return ack
    return js.publish(subject, data, headers=headers, msg_id=another_id(message_id), timeout=deadline)


def publish(js: Publisher, subject: str, message: JetStreamMsg, reason: str, deliveries: int) -> PubAck:
    """Store the letter of a message that a pool gives up, and wait for the PubAck; raises what `publish` raises.

    A message that came without its payload is read from its stream. If the stream no longer has it, the letter gets the
    header `LOST`. Raises PayloadMissing.
    """
    deadline = Deadline(PATIENCE)
    headers, message_id = letter_of(js, message, reason, deliveries)
    try:
        data = payload_of(js, message, deadline)
    except errors.MessageNotFound:
        data = b""
        headers[LOST] = "true"
    return store(js, subject, data, headers, message_id, deadline)


def another_id(message_id: str) -> str:
    """An id that nothing else has, for a letter if the stream has seen its first one."""
    return f"{message_id}.{next_nuid()}"


def is_letter(
    js: Access, ack: PubAck, data: bytes, headers: Headers, message_id: str, timeout: Timeout = DEFAULT
) -> bool:
    """True if the message that an ack with `duplicate` names is this letter; False if the look fails."""
    try:
        return is_stored(js, ack, data, headers, message_id, ORIGIN, timeout)
    except errors.ConnectionClosed:
        raise
    except errors.JsClientError:
        return False


def is_stored(
    js: Access,
    ack: PubAck,
    data: bytes,
    headers: Headers,
    message_id: str,
    compared: Any,
    timeout: Timeout = DEFAULT,
) -> bool:
    """True if the message that an ack with `duplicate` names has the same id, payload and `compared` headers.

    Raises MessageNotFound if it is gone, and what `get_msg` raises.
    """
    deadline = Deadline.of(timeout, js.api.timeout)
    api = api_of_domain(js, ack.domain)
    stored = from_leader(api, ack.stream, {"seq": ack.seq}, deadline.at_most(LOOK))
    found = readable(stored)
    same = stored.data == data and found.get(MSG_ID) == message_id
    return same and all(found.get(name) == headers.get(name) for name in compared)


class Looks:
    """Calls that wait for servers, one at a time on a separate thread: for callbacks, which must not wait."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self._lock = waiting.new_lock()
        self._running = False

    def add(self, call: Callable[[], None]) -> None:
        """Call it soon; raises NoThread or MemoryError if that is impossible."""
        with self._lock:
            self._calls.append(call)
            if self._running:
                return
            self._running = True
        try:
            Thread("jsclient-dead-letters", self._run).start()
        except BaseException:
            with self._lock:
                self._running = False
                self._calls.remove(call)
            raise

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._calls:
                    self._running = False
                    return
                call = self._calls.popleft()
            call()


# --- headers --------------------------------------------------------------------------------------------------


def headers_of(message: JetStreamMsg) -> list[tuple[str, str]]:
    """The publisher's headers that can be published again. Broken headers must not prevent a dead letter."""
    try:
        pairs = message.headers.sendable().items()
    except Exception:
        return []
    return [pair for pair in pairs if not pair[0].startswith(_DROPPED)]
