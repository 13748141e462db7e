"""Atomic batches (nats-server 2.12, ADR-50): all messages are stored together, or none.

The server counts the messages by header and stores them when the message with the commit header arrives. The batch
therefore holds back its newest message until the next message or the end shows whether it is the last.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from jsclient import kinds
from jsclient._connection import LinkFrame
from jsclient.codecs import payload_of
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Deadline, Timeout
from jsclient.errors import (
    ApiError,
    BatchTooLarge,
    BufferFull,
    ConfigError,
    ConnectionLost,
    JsClientError,
    MaxSubscriptionsExceeded,
    NoResponders,
    NoStreamResponse,
    NotStored,
    PublishUnknown,
    RequestTimeout,
    brief,
    counted,
)
from jsclient.jetstream.api import headers as names
from jsclient.jetstream.api.models import PubAck
from jsclient.jetstream.api.requests import API_TIMEOUT
from jsclient.jetstream.publishing.batches import PublishBatch
from jsclient.jetstream.publishing.options import HeadersLike, PublishOptions, V, build_headers
from jsclient.jetstream.publishing.outcome import (
    FAILURES,
    RETRY_WAIT,
    Inquiry,
    Published,
    Verdict,
    judge,
    others_in_doubt,
    passes,
    reply_error,
    retry_rules,
    stream_of,
)
from jsclient.jetstream.publishing.streams import ASK_TIMEOUT
from jsclient.jetstream.publishing.synchronous import PublishAttempts
from jsclient.message import Msg, Payload
from jsclient.protocol import Headers

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from jsclient.jetstream.publishing.base import PublishingBase


MAX_MESSAGES: Final = 1_000
"""Messages in one batch (server default, `max_msgs`)."""

ACK_EVERY: Final = 100
"""After this many messages the client waits until the server has taken them, so the server cannot fall behind."""


class AtomicBatch(PublishBatch[V]):
    """A batch that is stored completely or not at all; the stream needs `allow_atomic`. Not for several threads.

        with js.atomic_batch() as batch:
            batch.add("ORDERS.1", b"one")
            batch.add("ORDERS.2", b"two")
        print(batch.ack)           # PubAck of the last message, with batch and count

    Leaving the `with` block commits; an exception in the block discards. The server forgets a batch that gets no
    message for 10 s. `timeout` bounds each call that has no timeout argument (15 s by default). With `ack_every=0` the
    batch waits for the server only at the first message and the commit. More than `max_messages` (1,000, the server's
    default) raise BatchTooLarge. If an error comes before the commit (NotStored, ApiError), nothing is stored. A
    commit without an answer raises PublishUnknown.

    Attributes:
        id: Its id on the server.
        ack: The ack of the last message, with `batch` and `count`. It is None before the commit.

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
        timeout: Timeout = DEFAULT,
        ack_every: int = ACK_EVERY,
        max_messages: int = MAX_MESSAGES,
    ) -> None:
        kinds.check(int, ack_every=ack_every, max_messages=max_messages)
        if ack_every < 0 or max_messages < 1:
            raise ConfigError("ack_every must be 0 or more, max_messages 1 or more")
        super().__init__(js, timeout)
        self.ack: PubAck | None = None
        self._ack_every = ack_every
        self._max = max_messages
        self._held: tuple[str, Payload, Headers] | None = None
        self._expected: int | None = None  # the highest sequence that any message expects

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
        """Add a message; returns its number in the batch, from 1. `options` are the fields of `PublishOptions`.

        This sends the message that was added before. For the first one and every `ack_every` messages it waits for the
        server. A timeout ends the batch, and none of it is stored.

        Only the first message may have `expected_last_seq`. A subject may be expected once, before it is written to.
        Raises BatchClosed, BatchTooLarge, NotSupported, and the errors of the first message: NoStreamForSubject,
        BatchRefused.
        """
        self._check_open()
        if self._size >= self._max:
            raise BatchTooLarge(f"a batch has at most {self._max} messages")
        deadline = Deadline.of(timeout, self._timeout)
        message = self._prepare(subject, payload_of(self._js.codec, payload), headers, msg_id, options, deadline)
        for name in (names.EXPECTED_LAST_SEQ, names.EXPECTED_LAST_SUBJECT_SEQ):
            expected = message[2].get(name) or ""
            if expected.isdigit():
                self._expected = max(self._expected or 0, int(expected))
        self._send_held(deadline, timeout is not DEFAULT)
        self._size += 1
        self._held = message
        return self._size

    def commit(self, *, timeout: Timeout = DEFAULT) -> PubAck:
        """Store the complete batch. Raises the server's refusal or NotStored (nothing is stored), or PublishUnknown."""
        self._check_open()
        if self._held is None:
            raise ConfigError("the batch is empty: add a message first, or leave commit out")
        deadline = Deadline.of(timeout, self._timeout)
        subject, payload, headers = self._held
        headers[names.BATCH_COMMIT] = names.BATCH_COMMIT_FINAL
        block = self._block(headers, self._size, deadline)
        self._held = None
        self._closed = "has failed"
        commit = _Commit(self._js, subject, payload, block, deadline, self.id, self._size, self._expected)
        try:
            ack = commit.run()
        except PublishUnknown as error:
            text = (
                f"batch {self.id}: {brief(error)}. Its {counted(self._size, 'message')} went in completely or not at "
                "all. Look at the stream before you repeat it."
            )
            raise PublishUnknown(text) from error
        self._closed = "was committed"
        self.ack = ack if ack.batch else msgspec.structs.replace(ack, batch=self.id, count=self._size)
        return self.ack

    def discard(self) -> None:
        """Give the batch up; none of it is stored. Idempotent."""
        self._held = None
        self._closed = self._closed or "was discarded"

    # --- inner --------------------------------------------------------------------------------------------------

    def _prepare(
        self,
        subject: str,
        payload: Payload,
        headers: HeadersLike | None,
        msg_id: str | None,
        options: Mapping[str, Any],
        deadline: Deadline,
    ) -> tuple[str, Payload, Headers]:
        built = build_headers(headers, msg_id, options) or Headers()
        for name in (names.BATCH_ID, names.BATCH_SEQUENCE, names.BATCH_COMMIT):
            if name in built:
                raise ConfigError(f"the header {name} is set by the batch itself")
        self._engine.encode(
            subject, payload, b"", self._block(built, self._size + 1, deadline)
        )  # errors in the message show here
        # A message goes out when the next one comes. Its buffer is copied now, because the caller may reuse it.
        return subject, payload if isinstance(payload, str) else bytes(payload), built

    def _block(self, headers: Headers, number: int, deadline: Deadline) -> bytes:
        headers[names.BATCH_ID] = self.id
        headers[names.BATCH_SEQUENCE] = str(number)
        block = self._js.header_check.encode(headers, deadline.at_most(API_TIMEOUT))
        del headers[names.BATCH_ID]
        del headers[names.BATCH_SEQUENCE]
        return block

    def _send_held(self, deadline: Deadline, stated: bool) -> None:
        if self._held is None:
            return
        (subject, payload, headers), self._held = self._held, None
        block = self._block(headers, self._size, deadline)
        closed, self._closed = self._closed, "has failed"
        if self._size == 1:
            _check_taken(self._request_first(subject, payload, block, deadline))
        elif self._ack_every and self._size % self._ack_every == 0:
            _check_taken(self._request(subject, payload, block, deadline))
        else:
            self._enqueue(subject, payload, block, deadline if stated else None)
        self._closed = closed

    def _request_first(self, subject: str, payload: Payload, block: bytes, deadline: Deadline) -> bytes:
        """The first message finds the stream, and 503s are retried by the rules of `publish`."""
        first = _First(self._js, subject, payload, block, deadline)
        while True:
            try:
                reply = first.send()
                _check_taken(reply.data)
                return reply.data
            except FAILURES as error:
                try:
                    first.judge(error)
                except PublishUnknown as unknown:
                    raise self._not_stored(unknown) from error
                first._sends += 1

    def _request(self, subject: str, payload: Payload, block: bytes, deadline: Deadline) -> bytes:
        try:
            return self._engine.request(subject, payload, headers=block, timeout=deadline).data
        except (NoResponders, RequestTimeout, ConnectionLost, MaxSubscriptionsExceeded) as error:
            raise self._not_stored(error) from error

    def _enqueue(self, subject: str, payload: Payload, block: bytes, deadline: Deadline | None) -> None:
        frame = LinkFrame(self._engine.encode(subject, payload, b"", block))
        try:
            if deadline is None:
                self._engine.enqueue(frame)
            else:
                self._engine.enqueue_now(frame, deadline)
        except (ConnectionLost, BufferFull) as error:
            raise self._not_stored(error) from error

    def _not_stored(self, error: JsClientError) -> NotStored:
        return NotStored(
            f"batch {self.id} failed before its commit: {brief(error)}. Nothing of it is stored. Publish the "
            "batch again."
        )


class _First(PublishAttempts):
    """The first message of a batch, which is not stored before the commit. Every refusal ends the batch."""

    def __init__(self, js: PublishingBase, subject: str, payload: Payload, block: bytes, deadline: Deadline) -> None:
        super().__init__(js, subject, payload, block, deadline, retry_rules(None, RETRY_WAIT), 0.0)
        self.repeatable = False  # a message of a batch must not be sent twice

    def _refused(self, error: ApiError, reply: Msg | None) -> PubAck | None:
        if not passes(error):
            raise error
        self._sends -= 1
        return self._pause(error, None)


class _Commit(PublishAttempts):
    """The message that stores a batch. It is sent once; the batch's id shows whether it is stored."""

    def __init__(
        self,
        js: PublishingBase,
        subject: str,
        payload: Payload,
        block: bytes,
        deadline: Deadline,
        batch: str,
        size: int,
        expected: int | None,
    ) -> None:
        super().__init__(js, subject, payload, block, deadline, retry_rules(None, RETRY_WAIT), 0.0)
        self.repeatable = False
        self._single = size == 1
        self._published = Published(subject, b"", (names.BATCH_ID, batch))
        self._expectation = Published(
            subject, b"", (names.BATCH_ID, batch), after_on_subject=expected, expected_on=subject
        )

    def judge(self, error: Exception, reply: Msg | None = None) -> PubAck | None:
        if isinstance(error, (ConnectionLost, RequestTimeout)) and not error.sent and not self._single:
            raise NotStored(
                f"the commit of the batch was not sent ({brief(error)}). Nothing of it is stored. Publish the "
                "batch again."
            ) from error
        return super().judge(error, reply)

    def _refused(self, error: ApiError, reply: Msg | None) -> PubAck | None:
        verdict = judge(error, self._expectation, in_doubt=others_in_doubt(self))
        if verdict is Verdict.AGAIN and self._single:
            self._sends -= 1
            return self._pause(error, reply)
        stream = "" if reply is None else stream_of(reply.data)
        listen = verdict is Verdict.LISTEN and not self._has_one_leader(stream)
        if listen or verdict is Verdict.DOUBT:
            return self._inquire(Inquiry(self._published, stream, verdict, error), reply)
        raise error

    def _without_ack(self, error: Exception) -> PubAck | None:
        streams, deadline = self.js.publish_streams, self.deadline
        if not deadline.expired() and engine_of(self.js.nc).wait_connected(deadline.remaining()):
            streams.ask(self.js, self.subject, deadline.at_most(ASK_TIMEOUT))
            facts = streams.facts(self.subject, time.monotonic())
            if facts is not None:
                why = f"no answer to its commit ({brief(error)})"
                return self._inquire(Inquiry(self._published, facts.name, Verdict.DOUBT, why=why), None)
        raise self._unknown(error) from error

    def _after_no_responders(self, error: NoResponders) -> None:
        if self._single:
            super()._after_no_responders(error)
            return
        # The leader that has the other messages would have taken it.
        raise NoStreamResponse(
            "nobody took the commit (503). Nothing of the batch is stored. Publish it again.", self.subject
        ) from error


def _check_taken(payload: bytes) -> None:
    """The answer to a message inside a batch is empty. Any other answer is the reason why the batch failed."""
    if payload:
        raise reply_error(payload)
