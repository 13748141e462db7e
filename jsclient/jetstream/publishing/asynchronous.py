"""Asynchronous publish: many messages under way, one future each, one wildcard inbox for all acks.

The hot path takes no lock and makes three objects: token, frame, future. What was tried (128 B, ns): the frame
through `%` 206, through `join` 153; the token from `b"%d" % n` 197, from a C iterator of pairs of characters 88;
the future as a class with __slots__ 226, as a Struct 85; reading the clock for every message 80, so the sweep stamps
the futures instead; deciding by `in` whether an ack is an error 323, decoding it 278. A publish then costs 1.1 us,
matching its ack 0.3, parsing that 0.8; with sockets and threads 3.5 to 4.5 us, where nats-py 2.16 needs 22 to 25
(window 1000, interleaved rounds: 5.3x to 5.6x less CPU, 2.9x to 3.3x the rate; with ids 5.5x, with headers 5.3x;
64 threads cost 1.9 times the CPU of one).

Every future resolves: by its ack, by an error of the stream, or by the sweep that runs while anything is pending.
The thread that takes a future out of `futures` resolves it, so that it happens once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from jsclient import waiting
from jsclient._engine import Unkept, UnkeptLarge
from jsclient.codecs import payload_of
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Timeout, check_timeout, resolve
from jsclient.errors import (
    AsyncPublishReplySet,
    ConfigError,
    ConnectionLost,
    TimedOut,
    TooManyStalledMessages,
)
from jsclient.jetstream.api.requests import API_TIMEOUT
from jsclient.jetstream.publishing.attempts import RETRY_WAIT, check_payload, decode_fast
from jsclient.jetstream.publishing.draining import Unacknowledged
from jsclient.jetstream.publishing.future import PublishFuture, PubMsg
from jsclient.jetstream.publishing.options import Capabilities, HeadersLike, PublishOptions
from jsclient.jetstream.publishing.recovery import Recovery
from jsclient.jetstream.publishing.streams import check_window
from jsclient.jetstream.publishing.window import Window
from jsclient.nuid import TOKEN_LENGTH, new_token
from jsclient.states import LinkEvent
from protocol.errors import BAD_JSON
from protocol.frames import LARGE_PAYLOAD, PUB_ENDS, Frame, hpub, hpub_parts, pub_parts

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from jsclient.jetstream.api.models import PubAck
    from jsclient.jetstream.context import JetStream
    from jsclient.jetstream.publishing.keywords import PublishAsyncDict
    from jsclient.message import Msg, Payload

WINDOW_MESSAGES: Final = 4_000
"""Unacknowledged messages at most (nats.go), besides those that are under way on a long line."""

FAR_MESSAGES: Final = 32_000
"""The same over a long line: 160,000 messages a second over 200 ms."""

WINDOW_BYTES: Final = 64 << 20
"""Bytes of unacknowledged messages at most; a single larger message goes out alone."""

ACK_TIMEOUT: Final = 30.0
"""Seconds until a message without an ack is given up (async-nats)."""

INBOX_TIMEOUT: Final = 1.0
"""Seconds to hear whether the inbox for acks is permitted; a server that is slower is published to all the same."""

MAX_CACHED: Final = 10_000
"""Subjects whose checked beginning of a PUB line is kept; then the cache starts anew."""

OnAck = Callable[[PublishFuture], Any]
OnError = Callable[[PublishFuture, BaseException], Any]


class AsyncPublisher:
    """The asynchronous publishing side of a JetStream context. Thread-safe; has its own inbox and window.

    `JetStream.publish_async` uses one made with the context's `publish_async_*` options. Make another for other
    settings; leaving its `with` block waits until everything is resolved.

    `max_pending` and `max_pending_bytes` (64 MiB) bound what is not acknowledged (the number may be exceeded by one
    message per publishing thread). Without `max_pending` these are 4,000 messages, and over a long line up to 32,000:
    4,000 and what the stream acknowledges in one round trip. When the window is full, `publish` waits for room:
    `stall_wait` seconds, None (default) as long as it takes, 0 not at all; then it raises TooManyStalledMessages.

    `ack_timeout`: seconds until a message without an ack resolves as PublishUnknown, seen to a tenth of it.
    `duplicate_window`: seconds for which the stream remembers message ids, and so a message with an id may be sent
    again; None (default): asked of the stream when that is needed. State it where the user may not ask
    (STREAM.NAMES, STREAM.INFO); otherwise nothing is sent again there, and a lost ack is PublishUnknown.
    `retry_attempts` and `retry_wait` are about 503s, as in `publish`.
    `on_ack(future)` and `on_error(future, error)` run on the connection's events thread.
    """

    def __init__(
        self,
        js: JetStream,
        capabilities: Capabilities | None = None,
        *,
        max_pending: int | None = None,
        max_pending_bytes: int = WINDOW_BYTES,
        ack_timeout: float = ACK_TIMEOUT,
        stall_wait: float | None = None,
        retry_attempts: int | None = None,
        retry_wait: float = RETRY_WAIT,
        duplicate_window: float | None = None,
        on_ack: OnAck | None = None,
        on_error: OnError | None = None,
    ) -> None:
        if (max_pending is not None and max_pending < 1) or max_pending_bytes < 1:
            raise ConfigError("max_pending and max_pending_bytes must be at least 1")
        if not ack_timeout > 0:
            raise ConfigError(f"ack_timeout must be more than 0 seconds, got {ack_timeout!r}")
        for name, seconds in (("stall_wait", stall_wait), ("retry_wait", retry_wait)):
            check_timeout(seconds, name)
        self.js = js
        self.nc = js.nc
        self._engine = engine_of(self.nc)
        if max_pending is None:
            self.window = Window(WINDOW_MESSAGES, max_pending_bytes, FAR_MESSAGES)
        else:
            self.window = Window(max_pending, max_pending_bytes)
        self.futures = self.window.pending
        self._unacknowledged = Unacknowledged(self.window)
        self.recovery = Recovery(self, ack_timeout, check_window(duplicate_window), retry_attempts, retry_wait)
        self._capabilities = capabilities or js.header_check
        self._stall_wait = stall_wait
        self._ask_timeout = API_TIMEOUT if stall_wait is None else min(stall_wait, API_TIMEOUT)
        self._on_ack = on_ack
        self._on_error = on_error
        self._lock = waiting.new_lock()
        self._post = engine_of(js.nc).post
        self._codec = js.codec
        self._starts: dict[str, bytes] = {}  # subject -> "PUB subject inbox."
        self._inbox: Any = None
        self._permitted = False  # as far as we have heard
        self._refusal: BaseException | None = None
        self._cut = 0
        self._limits()

    def _limits(self) -> None:
        self._max_payload = self.nc.max_payload
        self._small = min(self.window.share, self._max_payload)

    # --- publishing ---------------------------------------------------------------------------------------------

    def publish(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        **options: Unpack[PublishOptions],
    ) -> PublishFuture:
        """Send a message and return the future of its ack; waits only while the window is full.

        `options` are those of `PublishOptions`. A message with an id survives a lost link or leader: it is sent
        again as long as the stream remembers the id. Without one a lost link resolves the future as PublishUnknown.
        Raises TooManyStalledMessages, ConnectionClosed, ConnectionDraining, NotSupported, InvalidSubject,
        PayloadTooLarge, PermissionViolation (of the inbox for acks).
        """
        if self._engine.draining:
            self._engine.check_draining()
        if not headers and msg_id is None and not options:
            block = None
        else:
            block = self._capabilities.block(headers, msg_id, options, self._ask_timeout)
        if type(payload) is not bytes:
            payload = check_payload(payload_of(self._codec, payload), self._max_payload)
        start = self._starts.get(subject)
        if start is None:
            start = self._start(subject)
        window = self.window
        futures = self.futures
        token = new_token()
        if block is None:
            size = len(payload)
            if size < LARGE_PAYLOAD:
                frame: Frame = Unkept(b"".join((start, token, PUB_ENDS[size], payload, b"\r\n")))
            else:
                frame = UnkeptLarge(pub_parts(start + token, payload))
        else:
            if not self._engine.takes_headers:
                self._engine.check_headers()
            size = len(payload) + len(block)
            if size < LARGE_PAYLOAD:
                frame = Unkept(hpub(start + token, block, payload))
            else:
                frame = UnkeptLarge(hpub_parts(start + token, block, payload))
        if size > self._small:
            self._admit_large(token, payload, size)
        elif len(futures) >= window.limit:
            self._make_room(size)
        future = PublishFuture(self, token, subject, payload, block)
        futures[token] = future
        try:
            if not self.recovery.calm and self.recovery.admit(future):
                return future
            self._post(frame)
        except ConnectionLost:
            self.recovery.hold(future)
        except Exception:
            self.take(token)
            raise
        return future

    def publish_msg(self, msg: PubMsg | Msg, **options: Unpack[PublishAsyncDict]) -> PublishFuture:
        """Publish a message object: its subject, headers and data. Its reply must be empty: it carries the ack."""
        if msg.reply:
            raise AsyncPublishReplySet(f"the message on {msg.subject!r} has a reply subject; publish_async needs it")
        return self.publish(msg.subject, msg.data, headers=msg.headers, **options)

    def frame(self, future: PublishFuture) -> bytes:
        """The frame of a message that is to be sent again."""
        reply = self._inbox_start + future._token
        return Unkept(self._engine.encode(future.subject, future.payload, reply, future._block))

    def _start(self, subject: str) -> bytes:
        """Check a subject and make the beginning of its PUB line; opens the inbox at first use."""
        if not self._permitted:
            self._open_inbox()
        start = self._engine.pub_start(subject, self._inbox_start + new_token())  # checks the length of all of it
        if len(self._starts) >= MAX_CACHED:
            self._starts.clear()
        start = self._starts[subject] = start[:-TOKEN_LENGTH]
        return start

    def _open_inbox(self) -> None:
        inbox = self.nc.new_inbox()  # before the lock, which a forked child may find held for ever: it is refused here
        with self._lock:
            if self._inbox is None:
                self._inbox_start = inbox.encode() + b"."
                self._cut = len(self._inbox_start)
                self._refusal = None
                self._inbox = self._engine.open_sink(inbox + ".*", self)
                self._engine.takers.enter(self._unacknowledged)
                self._engine.add_violation_listener(self.recovery.refused_publish)
        if self.nc.is_connected:
            # One round trip, once: a refusal is known before a message depends on acks that cannot come.
            with contextlib.suppress(TimedOut, ConnectionLost):
                self.nc.flush(min(INBOX_TIMEOUT, self._ask_timeout))
        refusal = self._refusal
        if refusal is not None:
            self._forget_inbox()  # once more: `failed` may have come before the inbox was there to be forgotten
            raise refusal
        self._permitted = True

    def _forget_inbox(self) -> None:
        """Without the lock: the reader does this too, and the holder may be waiting for the server."""
        self._engine.remove_violation_listener(self.recovery.refused_publish)
        self._permitted = False
        self._inbox = None
        self._starts.clear()

    @property
    def inbox_start(self) -> bytes:
        """The reply subjects of all messages, up to the token."""
        if not self._permitted:
            self._open_inbox()
        return self._inbox_start

    def _admit_large(self, token: bytes, payload: bytes, size: int) -> None:
        check_payload(payload, self._max_payload, size - len(payload))
        if not self.window.has_room(size):
            self._make_room(size)
        if size > self.window.share:
            self.window.charge(token, size)

    def _make_room(self, size: int) -> None:
        """Back-pressure: what is coalesced leaves first, because its acks make the room."""
        self._engine.flush_outbox()
        if self.window.fit(time.monotonic(), self._engine.round_trip):
            self._limits()
        wait = self._stall_wait
        if not self.window.wait_for_room(size, wait):
            raise TooManyStalledMessages(
                f"{len(self.futures)} messages are not acknowledged and none was in {wait:g} s"
            )

    # --- acks: on the reader thread -------------------------------------------------------------------------------

    def deliver(self, messages: list[Msg], nbytes: int) -> None:
        """Match a chunk of acks with their futures."""
        pop = self.futures.pop
        cut = self._cut
        decode = decode_fast
        window = self.window
        acked: list[PublishFuture] | None = None if self._on_ack is None else []
        for message in messages:
            if message.raw_headers is None:
                try:
                    ack = decode(message.payload)
                except BAD_JSON:
                    ack = None
                if ack is not None and ack.seq:
                    token = message.raw_subject[cut:]
                    future = pop(token, None)
                    if future is not None:
                        future._ack = ack
                        if future._sends != 1 or window.large:
                            self._forget(token)
                        if future._watchers is not None:
                            self.wake(future)
                        if acked is not None:
                            acked.append(future)
                    continue
            self.recovery.unusual(message.raw_subject[cut:], message)
        window.answers += len(messages)
        if window.parked:
            window.unpark()
        if acked:
            self._engine.run_callback(self._tell_acked, acked)

    def link_event(self, event: LinkEvent) -> None:
        """The link went down, came back, or the connection was closed."""
        if event is LinkEvent.RECONNECTED:
            self._limits()
        self.recovery.link_event(event)

    def under_way(self) -> list[bytes]:
        """The tokens of messages without an ack."""
        return list(self.futures)

    def withdrawn(self, frames: list[Frame]) -> None:
        """Frames that were queued when the link went down, and of which no byte was sent."""
        self.recovery.withdrawn(frames)

    def forked(self) -> None:
        """In a forked child: threads that the child does not have may hold these locks; every call then raises."""
        self._lock = waiting.new_lock()
        self.futures.clear()
        self.window.forked()
        self.recovery.forked()

    def failed(self, error: BaseException) -> None:
        """The server refused the inbox: no ack can come. The next publish asks for one again."""
        self._refusal = error
        self._forget_inbox()
        self.recovery.refused(error)

    # --- resolving ------------------------------------------------------------------------------------------------

    def take(self, token: bytes) -> PublishFuture | None:
        """Take a future out of the window; the caller that gets it resolves it."""
        future = self.futures.pop(token, None)
        if future is not None:
            self._forget(token)
            if self.window.parked:
                self.window.unpark()
        return future

    def succeed(self, future: PublishFuture, ack: PubAck) -> None:
        """Resolve a future whose message was found in the stream, unless it is resolved already."""
        if self.take(future._token) is None:
            return
        future._ack = ack
        if future._watchers is not None:
            self.wake(future)
        if self._on_ack is not None:
            self._engine.run_callback(self._on_ack, future)

    def fail(self, future: PublishFuture, error: BaseException) -> None:
        """Resolve a future with an error, unless it is resolved already."""
        if self.take(future._token) is None:
            return
        future._error = error
        if future._watchers is not None:
            self.wake(future)
        if self._on_error is not None:
            self._engine.run_callback(self._on_error, future, error)

    def _forget(self, token: bytes) -> None:
        self.recovery.forget(token)
        if token in self.window.large:
            self.window.release(token)

    def _tell_acked(self, futures: list[PublishFuture]) -> None:
        assert self._on_ack is not None
        for future in futures:
            self._on_ack(future)

    def watch(self, future: PublishFuture, watcher: Any) -> None:
        """Tell `watcher` (a ticket, or a callback for the events thread) when the future is resolved."""
        with self._lock:
            if future._watchers is None:
                future._watchers = []
            future._watchers.append(watcher)
        # Looked at after the watcher is in place: the resolving thread looks for watchers after resolving.
        if future.done():
            self.wake(future)

    def unwatch(self, future: PublishFuture, watcher: Any) -> None:
        """For layers: take a watcher of the future away."""
        with self._lock:
            if future._watchers is not None and watcher in future._watchers:
                future._watchers.remove(watcher)

    def wake(self, future: PublishFuture) -> None:
        """Tell every watcher of the future; once."""
        with self._lock:
            watchers, future._watchers = future._watchers, None
        for watcher in watchers or ():
            if isinstance(watcher, waiting.Ticket):
                watcher.put(None)
            else:
                self._engine.run_callback(watcher, future)

    # --- all of them ------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send what is coalesced."""
        self._engine.flush_outbox()

    def pending(self) -> int:
        """How many messages are not resolved yet."""
        return len(self.futures)

    def complete(self, timeout: Timeout = DEFAULT) -> None:
        """Wait until every message published so far is resolved; their futures tell how.

        By default as long as it takes, which the ack timeout bounds. Raises TimedOut after `timeout` seconds.
        """
        seconds = resolve(timeout, None)
        self._engine.flush_outbox()
        if not self.window.wait_empty(seconds):
            raise TimedOut(
                f"{len(self.futures)} published messages are not acknowledged after {seconds:g} s. Each may be "
                "stored. Wait on: their futures say what became of them."
            )

    def close(self, timeout: Timeout = DEFAULT) -> None:
        """Wait like `complete`, then close the inbox; what is left resolves as PublishUnknown."""
        try:
            self.complete(timeout)
        finally:
            self._close_inbox()

    def _close_inbox(self) -> None:
        self.recovery.abandon("the publisher was closed")
        with self._lock:
            inbox = self._inbox
            self._forget_inbox()
        if inbox is not None:
            inbox.close()

    def __enter__(self) -> AsyncPublisher:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None or issubclass(kind, Exception):
            self.close()
        else:
            self._close_inbox()  # Ctrl-C: nobody wants to wait now

    def __repr__(self) -> str:
        return f"<AsyncPublisher pending={len(self.futures)} of {self.window.limit}>"

    def __reduce__(self) -> Any:
        return self._engine.refuse_pickle(self)
