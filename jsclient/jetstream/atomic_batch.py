"""Atomic batches (nats-server 2.12, ADR-50): all messages are stored together, or none.

The server counts the messages by header and stores them when the one with the commit header arrives. The batch
therefore holds its newest message back until the next one or the end shows whether it is the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from jsclient import nuid
from jsclient.durations import DEFAULT, Deadline, Timeout, resolve
from jsclient.errors import (
    BatchClosed,
    BatchTooLarge,
    ConfigError,
    ConnectionLost,
    JsClientError,
    NoResponders,
    NoStreamResponse,
    NotStored,
    PublishUnknown,
    RequestTimeout,
)
from jsclient.jetstream import headers as names
from jsclient.jetstream.models import PubAck
from jsclient.jetstream.publish import FAILURES, PUBLISH_TIMEOUT, RETRY_WAIT, Delivery, decode_ack, reply_error
from jsclient.jetstream.publish_options import HeadersLike, PublishOptions, build_headers
from jsclient.outbox import Unkept
from protocol import Headers

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from jsclient.jetstream.context import JetStream
    from jsclient.jetstream.publish_future import PubMsg
    from jsclient.message import Msg

MAX_MESSAGES: Final = 1_000
"""Messages in one batch (server default, `max_msgs`)."""

ACK_EVERY: Final = 100
"""After this many messages we wait for the server to have taken them, so that it cannot fall behind."""


class AtomicBatch:
    """A batch that is stored whole or not at all; the stream needs `allow_atomic`. Not for several threads.

        with js.atomic_batch() as batch:
            batch.add("ORDERS.1", b"one")
            batch.add("ORDERS.2", b"two")
        print(batch.ack)           # PubAck of the last message, with batch and count

    Leaving the `with` block commits, an exception in it discards. The server forgets a batch that gets no message
    for 10 s. `timeout` is for each step that waits (15 s by default), `ack_every=0` waits at the first message and
    the commit only. Errors before the commit (NotStored, ApiError) mean that nothing is stored; a commit without an
    answer is PublishUnknown.
    """

    def __init__(
        self,
        js: JetStream,
        *,
        timeout: Timeout = DEFAULT,
        ack_every: int = ACK_EVERY,
        max_messages: int = MAX_MESSAGES,
    ) -> None:
        if ack_every < 0 or max_messages < 1:
            raise ConfigError("ack_every must be 0 or more, max_messages 1 or more")
        self.id = nuid.next_nuid()
        self.ack: PubAck | None = None
        self._js = js
        self._nc = js.nc
        self._timeout = resolve(timeout, PUBLISH_TIMEOUT)
        self._ack_every = ack_every
        self._max = max_messages
        self._size = 0
        self._held: tuple[str, bytes | str, Headers] | None = None
        self._closed = ""

    def __len__(self) -> int:
        return self._size

    @property
    def closed(self) -> bool:
        """True once it is committed, discarded or failed."""
        return bool(self._closed)

    def add(
        self,
        subject: str,
        payload: bytes | str = b"",
        *,
        headers: HeadersLike | None = None,
        **options: Unpack[PublishOptions],
    ) -> int:
        """Add a message; returns its number in the batch, from 1. `options` are those of `PublishOptions`.

        `expected_last_seq` is for the first message only; a subject may be expected once, before it is written to.
        Raises BatchClosed, BatchTooLarge, NotSupported, and what the first message raised: NoStreamForSubject,
        BatchRefused.
        """
        self._check_open()
        if self._size >= self._max:
            raise BatchTooLarge(f"a batch has at most {self._max} messages; commit this one and begin another")
        message = self._prepare(subject, payload, headers, options)
        self._send_held()
        self._size += 1
        self._held = message
        return self._size

    def add_msg(self, msg: PubMsg | Msg, **options: Any) -> int:
        """Add a message object."""
        return self.add(msg.subject, msg.data, headers=msg.headers, **options)

    def commit(self) -> PubAck:
        """Store all of it. Raises the server's refusal (nothing is stored) or PublishUnknown."""
        self._check_open()
        if self._held is None:
            raise ConfigError("the batch is empty: there is nothing to commit")
        subject, payload, headers = self._held
        headers[names.BATCH_COMMIT] = names.BATCH_COMMIT_FINAL
        block = self._block(headers, self._size)
        self._held = None
        self._closed = "has failed"
        if self._size == 1:
            self.ack = decode_ack(self._request_first(subject, payload, block))
        else:
            self.ack = self._commit(subject, payload, block)
        self._closed = "was committed"
        return self.ack

    def _commit(self, subject: str, payload: bytes | str, block: bytes) -> PubAck:
        try:
            return decode_ack(self._nc.request(subject, payload, headers=block, timeout=self._timeout).payload)
        except NoResponders as error:
            raise NoStreamResponse("nobody took the commit (503): the batch is not stored", subject) from error
        except (RequestTimeout, ConnectionLost) as error:
            raise PublishUnknown(
                f"no answer to the commit of batch {self.id} ({error}): its {self._size} messages are all stored or "
                "none of them is"
            ) from error

    def discard(self) -> None:
        """Give the batch up; nothing of it is stored. Idempotent."""
        self._held = None
        self._closed = self._closed or "was discarded"

    # --- inner --------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise BatchClosed(f"the batch {self._closed}: begin another one")

    def _prepare(
        self, subject: str, payload: bytes | str, headers: HeadersLike | None, options: Mapping[str, Any]
    ) -> tuple[str, bytes | str, Headers]:
        built = build_headers(headers, None, options) or Headers()
        for name in (names.BATCH_ID, names.BATCH_SEQUENCE, names.BATCH_COMMIT):
            if name in built:
                raise ConfigError(f"the header {name} is set by the batch itself")
        self._nc.encode(subject, payload, b"", self._block(built, self._size + 1))  # what is wrong fails here
        return subject, payload, built

    def _block(self, headers: Headers, number: int) -> bytes:
        headers[names.BATCH_ID] = self.id
        headers[names.BATCH_SEQUENCE] = str(number)
        block = self._js.header_check.encode(headers)
        del headers[names.BATCH_ID]
        del headers[names.BATCH_SEQUENCE]
        return block

    def _send_held(self) -> None:
        if self._held is None:
            return
        (subject, payload, headers), self._held = self._held, None
        block = self._block(headers, self._size)
        closed, self._closed = self._closed, "has failed"
        if self._size == 1:
            _check_taken(self._request_first(subject, payload, block))
        elif self._ack_every and self._size % self._ack_every == 0:
            _check_taken(self._request(subject, payload, block))
        else:
            self._post(subject, payload, block)
        self._closed = closed

    def _request_first(self, subject: str, payload: bytes | str, block: bytes) -> bytes:
        """The first message finds the stream: 503s are retried by the rules of `publish`."""
        deadline = Deadline(self._timeout)
        commits = names.BATCH_COMMIT in Headers.decode(block)
        delivery = Delivery(self._js, subject, payload, block, deadline, None, RETRY_WAIT)
        delivery.has_id = False  # a message of a batch must not be sent twice
        while True:
            try:
                reply = self._nc.request(subject, payload, headers=block, timeout=deadline.remaining())
                if not commits:
                    _check_taken(reply.payload)
                return reply.payload
            except FAILURES as error:
                try:
                    delivery.judge(error)
                except PublishUnknown as unknown:
                    if commits:
                        raise
                    raise self._not_stored(unknown) from error
                delivery.attempts += 1

    def _request(self, subject: str, payload: bytes | str, block: bytes) -> bytes:
        try:
            return self._nc.request(subject, payload, headers=block, timeout=self._timeout).payload
        except (NoResponders, RequestTimeout, ConnectionLost) as error:
            raise self._not_stored(error) from error

    def _post(self, subject: str, payload: bytes | str, block: bytes) -> None:
        try:
            self._nc.post(Unkept(self._nc.encode(subject, payload, b"", block)))
        except ConnectionLost as error:
            raise self._not_stored(error) from error

    def _not_stored(self, error: JsClientError) -> NotStored:
        return NotStored(f"batch {self.id} failed before its commit, nothing of it is stored: {error}")

    def __enter__(self) -> AtomicBatch:
        return self

    def __exit__(self, kind: Any, *exc: object) -> None:
        if self._closed:
            return
        if kind is None and self._size:
            self.commit()
        else:
            self.discard()

    def __repr__(self) -> str:
        return f"<AtomicBatch {self.id} size={self._size} {self._closed or 'open'}>"

    def __reduce__(self) -> Any:
        return self._nc.refuse_pickle(self)


def _check_taken(payload: bytes) -> None:
    """The answer to a message inside a batch is empty; anything else is the reason why the batch failed."""
    if payload:
        raise reply_error(payload)
