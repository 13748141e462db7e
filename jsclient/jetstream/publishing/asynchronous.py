"""Asynchronous publish: many messages in flight, one future for each, one wildcard inbox for all acks.

The hot path takes no lock and makes three objects: token, frame and future. These alternatives were measured with
128-byte payloads, in ns. The frame takes 206 through `%` and 153 through `join`. The token takes 197 from `b"%d" % n`
and 88 from a C iterator of pairs of characters. The future takes 226 as a class with __slots__ and 85 as a Struct.

Reading the clock for every message costs 80, so the sweep stamps the futures instead. To decide by `in` whether an
ack is an error takes 323, to decode it takes 278.

A publish then costs 1.1 µs, matching its ack 0.3 and parsing the ack 0.8. With sockets and threads it is 3.5 to
4.5 µs, where nats-py 2.16 needs 22 to 25 µs. With a window of 1000, in interleaved rounds, jsclient needs 5.3x to 5.6x
less CPU at 2.9x to 3.3x the rate (5.5x less with ids, 5.3x with headers). 64 threads cost 1.9 times the CPU of one.

`in_flight` has the pending messages, the inbox of the acks, and the ways in which a message ends. Every future
resolves exactly once.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from jsclient import checks, handlers, kinds, waiting
from jsclient._connection import LargeLinkFrame, LinkFrame
from jsclient.codecs import payload_of
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Timeout, check_timeout, plain, plain_or_none, resolve
from jsclient.errors import (
    AsyncPublishReplySet,
    ConfigError,
    ConnectionLost,
    PayloadTooLarge,
    TimedOut,
    TooManyStalledMessages,
    counted,
)
from jsclient.jetstream.api.requests import API_TIMEOUT
from jsclient.jetstream.publishing.future import PublishFuture, PubMsg
from jsclient.jetstream.publishing.in_flight import InFlight, Window
from jsclient.jetstream.publishing.options import HeaderCheck, HeadersLike, PublishAsyncDict, PublishOptions
from jsclient.jetstream.publishing.outcome import ACK_TIMEOUT, HOLD_FOR, RETRY_WAIT, Rules
from jsclient.jetstream.publishing.streams import Streams, check_window
from jsclient.message import Msg, Payload
from jsclient.nuid import new_token
from jsclient.protocol.frames import LARGE_PAYLOAD, Frame, hpub, hpub_parts, pub_end, pub_parts

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from jsclient.connection import Connection
    from jsclient.jetstream.publishing.base import PublishingBase
    from jsclient.jetstream.publishing.outcome import Entry
    from jsclient.jetstream.publishing.recovery import Recovery


WINDOW_MESSAGES: Final = 4_000
"""Unacknowledged messages at most (nats.go), in addition to the messages in flight on a long line."""

FAR_MESSAGES: Final = 32_000
"""The same limit over a long line: 160,000 messages a second over 200 ms."""

WINDOW_BYTES: Final = 64 << 20
"""Bytes of unacknowledged messages at most; a single larger message is sent alone."""

log: logging.Logger = logging.getLogger("jsclient.jetstream")

OnAck = Callable[[PublishFuture], Any]
OnError = Callable[[PublishFuture, BaseException], Any]


class AsyncPublisher:
    """The asynchronous publishing side of a JetStream context. Thread-safe; has its own inbox and window.

    `JetStream.publish_async` uses one that has the context's `publish_async_*` options. Make another one for other
    settings. Leaving its `with` block waits until every message is resolved.

    `max_pending` and `max_pending_bytes` (64 MiB) bound the unacknowledged messages. Each publishing thread may exceed
    the number by one message. Without `max_pending` the limit is 4,000 messages. Over a long line it grows up to
    32,000: 4,000 plus the messages that the stream acknowledges in one round trip. If the window is full, `publish`
    waits for room: `stall_wait` seconds, None (default) without a limit, 0 not at all. After that it raises
    TooManyStalledMessages.

    A message without an ack resolves as PublishUnknown after `ack_timeout` seconds, measured to a tenth of that value.
    Time does not count while the messages before it still get their acks, because on a slow line many may wait for
    each other. `retry_attempts` and `retry_wait` (seconds) apply to 503s, as in `publish`.

    `duplicate_window` is the number of seconds for which the stream remembers message ids. Within it the client may
    send a message with an id again. With None (default) the client asks the stream when it needs to know. State it if
    the user has no permission for STREAM.NAMES and STREAM.INFO; otherwise the client sends nothing again there, and a
    lost ack becomes PublishUnknown.

    `on_ack(future)` and `on_error(future, error)` run on the connection's events thread. `capabilities` is for layers.

    Attributes:
        js: The JetStream object that it was made with.
        nc: Its connection.

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
        publish: see `PublishOptions`.
        publish_msg: see `PublishAsyncDict`.
    """

    def __init__(
        self,
        js: PublishingBase,
        capabilities: HeaderCheck | None = None,
        *,
        max_pending: int | None = None,
        max_pending_bytes: int = WINDOW_BYTES,
        ack_timeout: float | dt.timedelta = ACK_TIMEOUT,
        stall_wait: float | dt.timedelta | None = None,
        retry_attempts: int | None = None,
        retry_wait: float | dt.timedelta = RETRY_WAIT,
        duplicate_window: float | dt.timedelta | None = None,
        on_ack: OnAck | None = None,
        on_error: OnError | None = None,
    ) -> None:
        kinds.check(int, None, max_pending=max_pending, retry_attempts=retry_attempts)
        kinds.check(int, max_pending_bytes=max_pending_bytes)
        kinds.check(float, dt.timedelta, ack_timeout=ack_timeout, retry_wait=retry_wait)
        kinds.check(float, dt.timedelta, None, stall_wait=stall_wait, duplicate_window=duplicate_window)
        kinds.check(Callable, None, on_ack=on_ack, on_error=on_error)
        if retry_attempts is not None and retry_attempts < 0:
            raise ConfigError(f"retry_attempts must be 0 or more, or None, got {retry_attempts}")
        if (max_pending is not None and max_pending < 1) or max_pending_bytes < 1:
            raise ConfigError("max_pending and max_pending_bytes must be at least 1")
        ack_timeout, stall_wait, retry_wait = plain(ack_timeout), plain_or_none(stall_wait), plain(retry_wait)
        if not ack_timeout > 0:
            raise ConfigError(f"ack_timeout must be more than 0 seconds, got {ack_timeout!r}")
        for name, seconds in (("stall_wait", stall_wait), ("retry_wait", retry_wait)):
            check_timeout(seconds, name)
        self.js = js
        self.nc: Connection = js.nc
        self._engine = engine_of(self.nc)
        if max_pending is None:
            self.window: Window = Window(WINDOW_MESSAGES, max_pending_bytes, FAR_MESSAGES)
        else:
            self.window = Window(max_pending, max_pending_bytes)
        self.futures: dict[bytes, Entry] = self.window.pending
        """For layers."""
        stated = check_window(duplicate_window)
        rules = Rules(
            ack_timeout=ack_timeout,
            hold_for=max(ack_timeout, HOLD_FOR if stated is None else stated),
            retry_attempts=retry_attempts,
            retry_wait=retry_wait,
        )
        self.in_flight: InFlight = InFlight(
            js, self, self.window, rules, js.publish_streams if stated is None else Streams(stated)
        )
        """For layers."""
        self.recovery: Recovery = self.in_flight.recovery
        """For layers."""
        self._capabilities = capabilities or js.header_check
        self._stall_wait = stall_wait
        self._ask_timeout = API_TIMEOUT if stall_wait is None else min(stall_wait, API_TIMEOUT)
        self._on_ack = on_ack
        self.wants_acks: bool = on_ack is not None
        """For layers."""
        self.keeps_frames = False
        """For layers."""
        self._on_error = on_error
        self._enqueue = engine_of(js.nc).enqueue
        self._codec = js.codec

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

        `options` are the fields of `PublishOptions`. A message with an id survives a lost link or leader: the client
        sends it again as long as the stream remembers the id. Without an id, a lost link resolves the future as
        PublishUnknown. Raises TooManyStalledMessages, NotStored after `close`, ConnectionClosed, ConnectionDraining,
        NotSupported, InvalidSubject, PayloadTooLarge, PermissionViolation (of the inbox for acks).
        """
        if self._engine.draining:
            self._engine.check_draining()
        if not headers and msg_id is None and not options:
            block = None
        else:
            block = self._capabilities.block(headers, msg_id, options, self._ask_timeout)
        if type(payload) is not bytes:
            payload = check_payload(payload_of(self._codec, payload), self.in_flight.max_payload)
        in_flight = self.in_flight
        try:
            start = in_flight.starts.get(subject)
        except TypeError:  # a list, say
            start = None
        if start is None:
            in_flight.check_open(subject)
            start = in_flight.start(subject, self._ask_timeout)
        window = self.window
        futures = self.futures
        token = new_token()
        if block is None:
            size = len(payload)
            if size < LARGE_PAYLOAD:
                frame: Frame = LinkFrame(b"".join((start, token, pub_end(size), payload, b"\r\n")))
            else:
                frame = LargeLinkFrame(pub_parts(start + token, payload))
        else:
            if not self._engine.takes_headers:
                self._engine.check_headers()
            size = len(payload) + len(block)
            if size < LARGE_PAYLOAD:
                frame = LinkFrame(hpub(start + token, block, payload))
            else:
                frame = LargeLinkFrame(hpub_parts(start + token, block, payload))
        if size > in_flight.small:
            self._admit_large(token, payload, size)
        elif len(futures) >= window.limit:
            self._make_room(size)
        future = PublishFuture(self, token, subject, payload, block)
        futures[token] = future
        if in_flight.closed:
            in_flight.take(token)
            in_flight.check_open(subject)
        try:
            if not self.recovery.calm and self.recovery.admit(future):
                return future
            self._enqueue(frame)
        except ConnectionLost:
            self.recovery.hold(future)
        except Exception:
            in_flight.take(token)
            raise
        return future

    def publish_msg(self, msg: PubMsg | Msg, **options: Unpack[PublishAsyncDict]) -> PublishFuture:
        """Publish a message object: its subject, headers and data. The reply must be empty; the ack uses it."""
        kinds.check(PubMsg, Msg, msg=msg)
        if msg.reply:
            raise AsyncPublishReplySet(f"the message on {msg.subject!r} has a reply subject; publish_async needs it")
        return self.publish(msg.subject, msg.data, headers=msg.headers, **options)

    def _admit_large(self, token: bytes, payload: bytes, size: int) -> None:
        check_payload(payload, self.in_flight.max_payload, size - len(payload))
        if not self.window.has_room(size):
            self._make_room(size)
        self.in_flight.charge(token, size)

    def _make_room(self, size: int) -> None:
        """Back-pressure."""
        bound, wait = self._engine.bound(), self._stall_wait
        if bound is not None:
            wait = bound.remaining() if wait is None else bound.at_most(wait)
        if not self.in_flight.make_room(size, wait):
            raise TooManyStalledMessages(
                f"no ack came in {wait:g} s for {counted(len(self.futures), 'message')} of this publisher"
            )

    # --- resolving ------------------------------------------------------------------------------------------------

    def frame(self, future: PublishFuture) -> Frame:
        """The frame of a message that will be sent again."""
        reply = self.in_flight.inbox_start + future._token
        return LinkFrame(self._engine.encode(future.subject, future.payload, reply, future._block))

    def acked(self, futures: list[PublishFuture]) -> None:
        """These messages were acknowledged."""
        for future in futures:
            self.wake(future)
        self._engine.run_callback(self._tell_acked, futures)

    def failed(self, future: PublishFuture, error: BaseException) -> None:
        """The outcome of a message is an error."""
        self.wake(future)
        if self._on_error is not None:
            self._engine.run_callback(self._on_error, future, error)

    def _tell_acked(self, futures: list[PublishFuture]) -> None:
        assert self._on_ack is not None
        for future in futures:
            try:
                handlers.ran(self._on_ack(future))
            except BaseException:  # also SystemExit: the others were acknowledged, too
                log.exception("on_ack failed")

    def watch(self, future: PublishFuture, watcher: Any) -> None:
        """Notify `watcher` (a ticket, or a callback for the events thread) when the future is resolved."""
        with self.in_flight.lock:
            if future._watchers is None:
                future._watchers = []
            future._watchers.append(watcher)
        # This check must come after the watcher is in place, because `wake` runs after resolving.
        if future.done():
            self.wake(future)

    def unwatch(self, future: PublishFuture, watcher: Any) -> None:
        """For layers: remove a watcher of the future."""
        with self.in_flight.lock:
            if future._watchers is not None and watcher in future._watchers:
                future._watchers.remove(watcher)

    def wake(self, future: PublishFuture) -> None:
        """Notify every watcher of the future, once."""
        if future._watchers is None:
            return
        with self.in_flight.lock:
            watchers, future._watchers = future._watchers, None
        # After the end there is no thread for callbacks, and no need of a limit: a late one is called immediately.
        call = self._engine.run_last_callback if self.nc.closed else self._engine.run_callback
        for watcher in watchers or ():
            if isinstance(watcher, waiting.Ticket):
                watcher.put(None)
            else:
                call(watcher, future)

    # --- all of them ------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send the coalesced messages."""
        self._engine.flush_outbox()

    def pending(self) -> int:
        """The number of messages that are not resolved yet."""
        return len(self.futures)

    def complete(self, timeout: Timeout = DEFAULT) -> None:
        """Wait until every message published so far is resolved. Errors are raised by `future.result()`, not here.

        By default this waits as long as necessary; the ack timeout bounds it. Raises TimedOut after `timeout` seconds.
        """
        seconds = resolve(timeout, None)
        self._engine.flush_outbox()
        if not self.window.wait_empty(seconds):
            raise TimedOut(
                f"{counted(len(self.futures), 'published message')} got no ack in {seconds:g} s. Each may be stored. "
                "Wait on: the futures say what became of them."
            )

    def close(self, timeout: Timeout = DEFAULT) -> None:
        """Wait like `complete`, then close the inbox; messages that are left resolve as PublishUnknown."""
        resolve(timeout, None)  # a wrong value raises while the publisher is open
        try:
            self.complete(timeout)
        finally:
            self.in_flight.close()

    def __enter__(self) -> AsyncPublisher:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None or issubclass(kind, Exception):
            self.close()
        else:
            self.in_flight.close()  # Ctrl-C: the user does not want to wait now

    def __repr__(self) -> str:
        return f"<AsyncPublisher pending={len(self.futures)} of {self.window.limit}>"

    def __reduce__(self) -> Any:
        return self._engine.refuse_pickle(self)


def check_payload(payload: Any, limit: int, headers: int = 0) -> bytes:
    """The payload as bytes, no larger than the server accepts together with the headers."""
    raw = checks.payload(payload)
    if len(raw) + headers > limit:
        raise PayloadTooLarge(
            f"headers and payload have {len(raw) + headers} bytes, the server takes {limit} (max_payload): nothing was "
            "sent. Split it, use an object store, or raise the server's limit"
        )
    return raw
