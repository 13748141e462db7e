"""Fast batches (nats-server 2.14, ADR-50): a stream of messages with few acks, stored as they come. Not a transaction.

Every message carries a reply subject `<inbox>.<flow>.<gap mode>.<number>.<operation>.$FI`. The server answers there
about every `flow` messages, and slows the publisher down by asking for more answers. The thread that uses the batch
also drives it; the batch starts no thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from jsclient import checks, kinds
from jsclient._connection import LinkFrame
from jsclient.codecs import payload_of
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Deadline, Timeout
from jsclient.errors import (
    ApiError,
    BatchGap,
    BufferFull,
    ConfigError,
    ConnectionLost,
    InvalidPubAck,
    JetStreamError,
    JsClientError,
    NoResponders,
    NotStored,
    PublishUnknown,
    brief,
)
from jsclient.jetstream.api.models import PubAck
from jsclient.jetstream.api.requests import API_TIMEOUT, error_of
from jsclient.jetstream.publishing.batches import PublishBatch
from jsclient.jetstream.publishing.options import LEVEL_FAST_BATCH, HeadersLike, PublishOptions, V
from jsclient.jetstream.publishing.outcome import RETRY_WAIT, decode_fast, retry_rules
from jsclient.jetstream.publishing.synchronous import PublishAttempts
from jsclient.message import Payload
from jsclient.protocol.errors import BAD_JSON
from jsclient.states import LinkEvent

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from jsclient.jetstream.publishing.base import PublishingBase


FLOW: Final = 100
"""Messages per answer that the client asks for (ADR-50); the server may lower it."""

MAX_OUTSTANDING: Final = 2
"""Answers that may be outstanding before `add` waits (ADR-50)."""

START, APPEND, COMMIT, COMMIT_END, PING = range(5)


class FlowReply(msgspec.Struct):
    """An answer of the server while the batch continues."""

    type: str = ""
    seq: int = 0
    msgs: int = 0
    last_seq: int = 0
    error: dict[str, Any] | None = None


_decode_flow: Final = msgspec.json.Decoder(FlowReply).decode


class FastBatch(PublishBatch[V]):
    """Many messages to one stream (`allow_batched`), each stored as it arrives. Not for several threads.

        with js.fast_batch() as batch:
            for row in rows:
                batch.add("ROWS.1", row)
        print(batch.ack.count)     # PubAck of the end of the batch

    If a message is lost on the way or refused, `gap="fail"` (default) ends the batch with BatchGap or the error.
    `gap="ok"` continues, and collects the numbers in `gaps` and `errors`. The server has confirmed all messages up to
    `acked`; with "ok" this number and `ack.count` include those in `gaps` and `errors`.

    `timeout` bounds each call without a timeout (15 s by default). The server answers every `flow` messages (100, or
    less if it asks for that), and `add` waits while `max_outstanding` (2) answers are missing. The server forgets a
    batch without messages for 10 s.

    Attributes:
        id: Its id on the server.
        ack: The ack of the end, also if a lost or refused message ended the batch. It is None before the end.
        acked: The server has confirmed the messages up to this number.
        gaps: Numbers of messages that were lost on the way, with `gap="ok"`.
        errors: The error of each refused message by its number, with `gap="ok"`.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
        payload: The body: bytes, bytearray, memoryview or text (UTF-8), by default empty. A body larger than the
            server accepts raises PayloadTooLarge before anything is sent.
        headers: Headers, or a mapping of names to one value or several. An invalid header raises InvalidHeader before
            anything is sent.
        msg_id: The message id. Within its duplicate window (2 minutes by default) a stream stores one message of each
            id.

    Further options:
        add, add_msg: see `PublishOptions`.
    """

    def __init__(
        self,
        js: PublishingBase[V],
        *,
        gap: Literal["fail", "ok"] = "fail",
        flow: int = FLOW,
        max_outstanding: int = MAX_OUTSTANDING,
        timeout: Timeout = DEFAULT,
    ) -> None:
        kinds.check(int, flow=flow, max_outstanding=max_outstanding)
        if gap not in ("fail", "ok"):
            raise ConfigError(f'gap must be "fail" or "ok", got {gap!r}')
        if not 1 <= flow <= 65_535 or max_outstanding < 1:
            raise ConfigError("flow must be between 1 and 65535, max_outstanding at least 1")
        super().__init__(js, timeout)
        self.ack: PubAck | None = None
        self.acked: int = 0
        self.gaps: list[range] = []
        self.errors: dict[int, ApiError] = {}
        self._enqueue = engine_of(js.nc).enqueue
        self._encode = engine_of(js.nc).encode
        self._check = js.header_check
        self._gap = gap
        self._flow = self._asked_flow = flow
        self._outstanding = max_outstanding
        self._started = False
        self._subject = ""
        self._inbox: Any = None
        self._start = b""

    # --- messages -----------------------------------------------------------------------------------------------

    def add(
        self,
        subject: str,
        payload: Payload | V = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        timeout: Timeout = DEFAULT,
        **options: Unpack[PublishOptions],
    ) -> int:
        """Publish a message; returns its number in the batch, from 1. Waits when the server asks to slow down.

        The first one waits for the server's answer, so a missing or unsuitable stream shows immediately. While there
        is no link, it waits for one.

        Raises BatchClosed, BatchGap, ApiError (the server refused a message), NoStreamForSubject, NotSupported. Raises
        PublishUnknown if no answer came in time, the link was lost or the server ended the batch; messages beyond
        `acked` may be stored. Raises NotStored if this message could not be sent, and all before it are confirmed.
        """
        if self._closed:
            self._check_open()
        data: Any = payload if payload.__class__ is bytes else payload_of(self._js.codec, payload)
        # A message that only joins the queue needs no clock, unless the caller gave a timeout.
        deadline = None if timeout is DEFAULT else Deadline.of(timeout, None)
        if headers is None and msg_id is None and not options:
            block = None
        else:
            block = self._check.block(
                headers, msg_id, options, (deadline or Deadline(self._timeout)).at_most(API_TIMEOUT)
            )
        if self._inbox is None:
            checks.subject(subject)
            self._open(deadline or Deadline(self._timeout))
        number = self._size + 1
        if number == 1:
            self._begin(subject, self._frame(subject, data, block, number, START), deadline)
        else:
            # This is `_frame` and `_send` in line, because a message then costs 2.8 µs of CPU instead of 7.
            try:
                frame = LinkFrame(self._encode(subject, data, b"%b%d.1.$FI" % (self._start, number), block))
                if deadline is None:
                    self._enqueue(frame)
                else:
                    self._engine.enqueue_now(frame, deadline)
            except ConnectionLost as error:
                raise self._lost(error, number) from error
        self._size = number
        self._subject = subject
        if len(self._inbox):
            self._take_replies(deadline)
        if self.acked + self._flow * self._outstanding <= number:
            self._wait_until(lambda: self.acked + self._flow * self._outstanding > number, deadline)
        return number

    def commit(
        self,
        subject: str | None = None,
        payload: Payload | V = b"",
        *,
        headers: HeadersLike | None = None,
        timeout: Timeout = DEFAULT,
    ) -> PubAck:
        """End the batch, with a last message if a subject is given, and wait until all messages are stored."""
        self._check_open()
        deadline = Deadline.of(timeout, self._timeout)
        if not self._size and subject is None:
            raise ConfigError("the batch is empty: add a message first, or leave commit out")
        if not self._size and subject is not None:
            self.add(subject, payload, headers=headers, timeout=deadline)
            subject = None
        block = None
        if subject is not None:
            block = self._check.block(headers, None, {}, deadline.at_most(API_TIMEOUT))
        data: Any = b"" if subject is None else payload_of(self._js.codec, payload)
        operation = COMMIT_END if subject is None else COMMIT
        number = self._size + 1
        frame = self._frame(subject or self._subject, data, block, number, operation)
        self._send(frame, deadline, 0 if subject is None else number)
        if subject is not None:
            self._size = number
        self._wait_until(lambda: self.ack is not None, deadline)
        assert self.ack is not None
        if self._gap == "fail" and self.ack.count != self._size:
            raise self._unknown(f"the server counted {self.ack.count} of {self._size} messages")
        return self.ack

    def discard(self) -> None:
        """Stop here without a commit. The messages that were added stay stored. Idempotent."""
        self._end("was given up")

    # --- sending ------------------------------------------------------------------------------------------------

    def _open(self, deadline: Deadline) -> None:
        self._check.require(LEVEL_FAST_BATCH, "a fast batch", deadline.at_most(API_TIMEOUT))
        # The batch id is the last token of the inbox.
        subject = f"{self._nc.new_inbox()}.{self.id}"
        self._inbox = self._engine.open_inbox(subject + ".>")
        self._start = b"%b.%d.%b." % (subject.encode(), self._asked_flow, self._gap.encode())

    def _frame(self, subject: str, payload: Payload, block: bytes | None, number: int, operation: int) -> bytes:
        reply = b"%b%d.%d.$FI" % (self._start, number, operation)
        return LinkFrame(self._engine.encode(subject, payload, reply, block))

    def _send(self, frame: bytes, deadline: Deadline, number: int = 0) -> None:
        """Send a frame. `number` is the number of the message in it, or 0 without a message."""
        try:
            self._engine.enqueue_now(frame, deadline)
        except ConnectionLost as error:
            raise self._lost(error, number) from error

    def _begin(self, subject: str, frame: bytes, deadline: Deadline | None) -> None:
        """The first message finds the stream, by the rules of `publish`. It waits for a link, and is sent again after
        a 503."""
        deadline = deadline or Deadline(self._timeout)
        delivery = PublishAttempts(self._js, subject, b"", None, deadline, retry_rules(None, RETRY_WAIT), 0.0)
        self._size = 1
        try:
            while not self._is_taken(frame, deadline, delivery):
                delivery._sends += 1
        except JsClientError:
            self._end("has failed")
            raise

    def _is_taken(self, frame: bytes, deadline: Deadline, delivery: PublishAttempts) -> bool:
        """Send the first message; False if it is certainly not stored and should be sent once more."""
        while self._inbox.take() is not None:
            pass  # no message is in flight, so a link that was lost and came back does not matter
        try:
            self._engine.enqueue_now(frame, deadline)
            self._wait_until(lambda: self._started, deadline, ping=False)
            return True
        except BufferFull as error:
            raise NotStored(f"the first message of the batch was not sent: {brief(error)}") from error
        except (ConnectionLost, NoResponders) as error:
            delivery.judge(error)
        return False

    # --- answers ------------------------------------------------------------------------------------------------

    def _wait_until(self, done: Callable[[], bool], deadline: Deadline | None, ping: bool = True) -> None:
        """Take answers until `done()`. After a third of the time a ping asks for a lost answer."""
        deadline = deadline or Deadline(self._timeout)
        third = None if deadline.seconds is None else deadline.seconds / 3
        self._engine.flush_outbox()
        while not done():
            wait = deadline.remaining() if third is None else deadline.at_most(third)
            item = self._inbox.next(wait)
            if item is not None:
                self._handle(item, deadline)
                if self._closed and not done():
                    self._check_open()
            elif deadline.expired():
                self._end("has failed")
                raise self._unknown(f"no answer within {deadline.seconds:g} s")
            elif ping:
                self._send(self._frame(self._subject, b"", None, self._size, PING), deadline)

    def _take_replies(self, deadline: Deadline | None) -> None:
        while not self._closed and (item := self._inbox.take()) is not None:
            self._handle(item, deadline)

    def _handle(self, item: Any, deadline: Deadline | None) -> None:
        if isinstance(item, LinkEvent):
            if item is not LinkEvent.RECONNECTED:
                raise self._lost(item.value)
            return
        status = item.status
        if status is not None and status.code == 503:
            if self._started:
                self._end("has lost its stream")
                raise self._unknown("nobody takes messages any more (503)")
            raise NoResponders("nobody takes the message (503)", self._subject)
        payload = item.data
        try:
            reply = _decode_flow(payload)
            if reply.type == "ack":
                self._started = True
                self.acked = max(self.acked, reply.seq)
                self._flow = reply.msgs or self._flow
            elif reply.type == "gap":
                self._on_gap(range(reply.last_seq, reply.seq), deadline)
            elif reply.error is not None:
                self._on_error(reply.seq if reply.type == "err" else 0, error_of(reply.error), deadline)
            else:
                self._on_end(decode_fast(payload))
        except BAD_JSON as error:
            self._end("has failed")
            raise InvalidPubAck(
                f"something that is not a stream answered the batch: {payload[:120]!r}. {self._standing()}"
            ) from error

    def _on_gap(self, lost: range, deadline: Deadline | None) -> None:
        self.gaps.append(lost)
        if self._gap == "fail":
            try:
                self._take_last_ack(deadline)
            finally:
                self._end("has lost messages")
            raise BatchGap(
                f"messages {lost.start} to {lost.stop - 1} of the batch were lost on their way: they and those after "
                f"them are not stored. {self._standing(lost.start - 1)}",
                lost,
            )

    def _on_error(self, number: int, error: ApiError, deadline: Deadline | None) -> None:
        if number and self._gap == "ok":
            self.errors[number] = error  # the batch continues without this message
            return
        try:
            if number and self._started:
                self._take_last_ack(deadline)
        finally:
            self._end("was refused by the server")
        if not self._started:
            raise error.told_as(f"{brief(error)}. Nothing of the batch is stored. {error.advice}")
        if not number:
            raise self._unknown(f"the server ended the batch ({brief(error)})") from error
        raise error.told_as(
            f"the server refused message {number} of the batch ({brief(error)}). It and those after it are not stored. "
            f"{self._standing(number - 1)}"
        )

    def _take_last_ack(self, deadline: Deadline | None) -> None:
        """The server has ended the batch: wait for the ack that counts what it stored. It follows immediately."""
        deadline = Deadline((deadline or Deadline(self._timeout)).at_most(API_TIMEOUT))
        while self.ack is None and (item := self._inbox.next(deadline.remaining())) is not None:
            if isinstance(item, LinkEvent):
                if item is not LinkEvent.RECONNECTED:
                    return
                continue
            reply = _decode_flow(item.data)
            if not reply.type and reply.error is None:
                self.ack = decode_fast(item.data)
                self.acked = max(self.acked, self.ack.count)

    def _on_end(self, ack: PubAck) -> None:
        self.ack = ack
        self.acked = max(self.acked, ack.count)
        self._end("was committed")

    def _lost(self, why: ConnectionLost | str, number: int = 0) -> JetStreamError:
        """The error for a lost connection. `number` is the number of the message that met it."""
        self._end("has lost its connection")
        if isinstance(why, str):
            return self._unknown(f"the link was lost ({why})")
        if number and not why.sent and self.acked >= number - 1:
            return NotStored(
                f"message {number} of the batch was not sent ({brief(why)}). {self._standing(number - 1)} Begin "
                f"another batch with message {number}."
            )
        return self._unknown(f"the link was lost ({brief(why)})")

    def _unknown(self, why: str) -> PublishUnknown:
        return PublishUnknown(f"{why}. {self._standing()}")

    def _standing(self, last: int | None = None) -> str:
        """A sentence about the messages up to `last`, by default all of them."""
        last = self._size if last is None else last
        if not last:
            return "Nothing of the batch is stored."
        but = "" if self._gap == "fail" else ", without those in `gaps` and `errors`"
        if self.acked >= last:
            return f"The server has confirmed all messages up to {last}{but}."
        return (
            f"It is acknowledged up to message {self.acked} of {last}{but}; those after it may be stored. Look at the "
            "stream before you repeat them."
        )

    def _end(self, how: str) -> None:
        self._closed = self._closed or how
        if self._inbox is not None:
            self._inbox.close()

    def __repr__(self) -> str:
        return f"<FastBatch {self.id} size={self._size} acked={self.acked} {self._closed or 'open'}>"
