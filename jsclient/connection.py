"""The Connection: one session with a NATS system, for any number of threads of an application."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, overload

from jsclient import checks, errors, handlers, kinds, protocol
from jsclient._connection.callback_pool import BARRIER_TIMEOUT, barrier
from jsclient._connection.engine import Engine, live_engines
from jsclient._connection.events import ConnectionEvents
from jsclient._connection.figures import Health, LinkInfo, Statistics
from jsclient._connection.mailbox import Mailbox
from jsclient._connection.session import CLOSE_FLUSH
from jsclient._connection.sinks import AppSubscription
from jsclient.cancel import Cancel, check_cancel
from jsclient.durations import DEFAULT, Deadline, Timeout, plain_or_none
from jsclient.instruments import handling, sending
from jsclient.message import HeadersLike, Msg, Payload
from jsclient.options import CallbacksDict, ConnectOptions
from jsclient.protocol.frames import (
    LARGE_PAYLOAD,
    NAMES_ROOM,
    Frame,
    LargeFrame,
    header_size,
    pub,
    pub_end,
    pub_parts,
    pub_start,
)
from jsclient.protocol.headers import encode_plain
from jsclient.states import ConnectionState
from jsclient.subscription import PENDING_BYTES, PENDING_MESSAGES, Subscription, check_limits
from jsclient.waiting import GIL

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from jsclient.codecs import Codec
    from jsclient.jetstream import JetStream
    from jsclient.jetstream.publishing.options import JetStreamDict


class Connection:
    """One session with a NATS system that outlives its links. Thread-safe; made by `jsclient.connect`.

        with jsclient.connect("nats://127.0.0.1:4222") as nc:
            sub = nc.subscribe("greet")
            nc.publish("greet", b"hello")
            print(sub.next(timeout=1).data)

    The end of its `with` block sends buffered data and closes it, without a drain. A connection of `jsclient.shared`
    stays open. It cannot be pickled, and in a forked child every call but `close` raises ForkedConnection.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
        cancel: A Cancel. Its `cancel()`, called from another thread, ends the wait, and the call raises Cancelled.
        payload: The body: bytes, bytearray, memoryview or text (UTF-8), by default empty. A body larger than the
            server accepts raises PayloadTooLarge before anything is sent.
        headers: Headers, or a mapping of names to one value or several. An invalid header raises InvalidHeader before
            anything is sent.
        pending_messages: Messages that may wait for the handler. The client drops more and reports SlowConsumer.
        pending_bytes: Bytes that may wait for the handler. The client drops more and reports SlowConsumer.

    Further options:
        jetstream: see `JetStreamDict`.
        set_callbacks: see `CallbacksDict`.
    """

    # The engine does all the work. Only the code of `publish` is here as well, because the call of another function
    # would be a large part of its cost.

    def __init__(self, options: ConnectOptions) -> None:
        self._engine = Engine(options, self)
        self._shared = False  # with other users in this process: the end of a `with` block does not close it
        if options.instrumentation is not None:
            self.publish = sending(options.instrumentation, "publish", self.publish)  # type: ignore[method-assign]
            self._respond = self._publish_answer  # type: ignore[method-assign]

    # --- ending -----------------------------------------------------------------------------------------

    def close(self, wait: bool = True) -> None:
        """Send buffered data (at most 2 s), then end everything; blocked calls raise ConnectionClosed. Idempotent.

        `wait=False` only requests the close and returns immediately, which is safe in signal handlers and `__del__`.
        """
        kinds.check(bool, wait=wait)
        self._engine.close(wait)

    def drain(self, timeout: Timeout = DEFAULT, wait: bool = True) -> None:
        """Stop receiving, let the application finish its messages, send buffered data, and close.

        Subscriptions, `consume` and services finish the messages they have received. A WorkerPool finishes its messages
        in progress and returns the rest to the server; iterators return the messages that the application does not
        fetch. Messages of `publish_async` are acknowledged. With ack policy none, it waits up to 5 s for the messages
        that a pull has requested (see Messages.drain). A push consumer loses messages not sent to it yet.

        Raises DrainTimeout after `timeout`, by default 30 seconds (`drain_timeout`), or if the link is lost with unsent
        data; it closes even then. `wait=False` only requests the drain, which is safe in signal handlers. In a handler
        or callback it never waits, because the drain waits for that handler.
        """
        kinds.check(bool, wait=wait)
        self._engine.shutdown.drain(timeout, wait)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exc: object) -> None:
        if not self._shared or self.closed:  # a forked child is here, too
            self._engine.close()
        elif self.is_connected:
            with contextlib.suppress(errors.JsClientError):  # unsent data stays buffered
                self._engine.requests.rtt(CLOSE_FLUSH)

    def __del__(self) -> None:
        engine: Engine | None = getattr(self, "_engine", None)
        if engine is not None and not engine.closed:
            engine.shutdown.abandon(self)

    def __repr__(self) -> str:
        return repr(self._engine)

    def __reduce__(self) -> Any:
        self._engine.refuse_pickle(self)

    # --- publishing -------------------------------------------------------------------------------------

    def publish(
        self, subject: str, payload: Payload = b"", *, reply: str = "", headers: HeadersLike | None = None
    ) -> None:
        """Publish a message. It leaves together with others within about two milliseconds.

        Call `flush` to wait until the server has read it. Delivery is at most once: a message on its way may be lost
        when a link breaks. While disconnected, the client buffers up to `pending_buffer` bytes. If the server reads too
        slowly, the call waits up to `write_timeout` seconds. Beyond these limits it raises BufferFull, and nothing of
        the message is sent. Raises InvalidSubject, InvalidHeader, PayloadTooLarge before sending.

        `reply`: a subject for answers; by default none.
        """
        engine = self._engine
        if engine.draining:
            engine.check_draining()
        if reply or payload.__class__ is not bytes:
            if isinstance(reply, bytes):  # the engine does not check bytes
                raise errors.InvalidSubject("reply is a str, not bytes")
            frame: Frame = engine.encode(subject, payload, reply, headers and checks.headers(headers))
        else:
            encoder = engine.encoder
            # A copy of `encode` for the usual cases: its call and its checks are a tenth of the cost of a publish.
            try:
                start = encoder.starts[subject]
            except (KeyError, TypeError):  # new, or no str at all
                start = encoder.learn_subject(subject)
            size = len(payload)
            if not headers:
                if size > encoder.max_payload:
                    raise encoder.too_large(size)
                if size < LARGE_PAYLOAD:
                    frame = b"".join((start, pub_end(size), payload, b"\r\n"))
                else:
                    frame = LargeFrame(pub_parts(start, payload))
            else:
                if not encoder.takes_headers:
                    encoder.check_headers()
                block = encode_plain(headers) if headers.__class__ is dict else None
                if block is None:
                    block = checks.header_block(headers)
                length = len(block)
                size += length
                if size > encoder.max_payload:
                    raise encoder.too_large(size)
                frame = b"".join((b"H", start, header_size(length), pub_end(size), block, payload, b"\r\n"))
        engine.enqueue_core(frame)
        if GIL:
            engine.messages_out += 1
        else:
            engine.count_out(1)

    def _respond(self, message: Msg, payload: Payload, headers: HeadersLike | None) -> None:
        """For `Msg.respond`. The reply subject came over the wire, so without wildcards it needs no check. Each is
        different, so it is not worth remembering."""
        reply, engine = message.raw_reply or b"", self._engine
        plain = payload.__class__ is bytes and not headers and len(reply) <= NAMES_ROOM
        fits = plain and len(payload) < LARGE_PAYLOAD and len(payload) <= engine.encoder.max_payload
        if engine.draining or not fits or b"*" in reply or b">" in reply:
            self._publish_answer(message, payload, headers)
            return
        engine.enqueue_core(pub(pub_start(reply), payload))  # type: ignore[arg-type]
        if GIL:
            engine.messages_out += 1
        else:
            engine.count_out(1)

    def _publish_answer(self, message: Msg, payload: Payload, headers: HeadersLike | None) -> None:
        self.publish(message.reply, payload, headers=headers)

    def flush(self, timeout: Timeout = DEFAULT, *, cancel: Cancel | None = None) -> None:
        """Wait until the server has read everything sent so far. Waits for a reconnect within its time.

        `timeout` is 5 seconds by default. Raises FlushTimeout, ConnectionClosed, or ConnectionLost if the link went
        down meanwhile.
        """
        if cancel is not None:
            check_cancel(cancel)
        self._engine.requests.rtt(timeout, cancel=cancel)

    def rtt(self, timeout: Timeout = DEFAULT, *, cancel: Cancel | None = None) -> float:
        """Seconds from a PING to its PONG, after everything sent before it. Raises the same errors as `flush`."""
        if cancel is not None:
            check_cancel(cancel)
        return self._engine.requests.rtt(timeout, cancel=cancel)

    # --- JetStream --------------------------------------------------------------------------------------

    @overload
    def jetstream(self, **options: Unpack[JetStreamDict]) -> JetStream: ...

    @overload
    def jetstream(self, *, codec: Codec | None, **options: Unpack[JetStreamDict]) -> JetStream[Any]: ...

    def jetstream(self, *, codec: Codec | None = None, **options: Unpack[JetStreamDict]) -> JetStream[Any]:
        """JetStream of this connection's account, of a `domain` or an `api_prefix`; see JetStream for the options.

        It costs nothing, and is the same as `JetStream(nc, **options)`. With a `codec` it publishes and reads values.
        """
        # The connection does not depend on the layers above it, so this import waits for the first call.
        return import_module("jsclient.jetstream").JetStream(self, codec=codec, **options)  # type: ignore[no-any-return]

    # --- requests ---------------------------------------------------------------------------------------

    def request(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: Timeout = DEFAULT,
        headers: HeadersLike | None = None,
        cancel: Cancel | None = None,
    ) -> Msg:
        """Publish with a reply inbox and wait for one reply, by default 5 seconds (`request_timeout`).

        Raises NoResponders immediately if there is no subscriber. Raises ConnectionLost if the link went down after
        sending; the request may have been handled then. Other errors are RequestTimeout, PermissionViolation,
        ConnectionClosed, and Cancelled by its `cancel` token.
        """
        if headers is not None:
            headers = checks.headers(headers)
        if cancel is not None:
            check_cancel(cancel)
        return self._engine.request(subject, payload, timeout=timeout, headers=headers, cancel=cancel)

    def request_many(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: Timeout = DEFAULT,
        max_messages: int | None = None,
        stall: float | dt.timedelta | None = None,
        sentinel: Callable[[Msg], bool] | None = None,
        headers: HeadersLike | None = None,
        cancel: Cancel | None = None,
    ) -> Iterator[Msg]:
        """One request, many replies (ADR-47), as they arrive.

        It ends after `max_messages`, or after the total `timeout` (5 s by default). It also ends when `stall` seconds
        pass after a reply without another one, or when `sentinel` returns True for a reply. That reply is not
        delivered; `jsclient.empty_payload` is the usual sentinel. Raises NoResponders if there is no subscriber, and
        Cancelled by its `cancel` token. If no reply arrives, the iteration is empty.
        """
        if cancel is not None:
            check_cancel(cancel)
        replies = self._engine.requests.request_many(
            subject,
            payload,
            timeout=timeout,
            max_messages=max_messages,
            stall=plain_or_none(stall),
            sentinel=sentinel,
            headers=None if headers is None else checks.headers(headers),
            cancel=cancel,
        )
        return _holding(self, replies)

    def new_inbox(self) -> str:
        """A subject for replies that no one else can guess."""
        return self._engine.new_inbox()

    # --- subscribing ------------------------------------------------------------------------------------

    def subscribe(
        self,
        subject: str,
        callback: Callable[[Msg], Any] | None = None,
        *,
        queue: str = "",
        max_messages: int | None = None,
        pending_messages: int = PENDING_MESSAGES,
        pending_bytes: int = PENDING_BYTES,
        thread: Literal["shared", "own"] = "shared",
    ) -> Subscription:
        """Subscribe to a subject, `*` and `>` allowed; members of one `queue` group share the messages.

        Iterate, call `next`, or give a callback, which gets one message at a time. The callbacks of the connection
        share threads, as many as there are callbacks that block, so two messages may come on different threads.
        `thread="own"` gives the subscription its own thread, for data bound to a thread (database handles,
        `threading.local`). Exceptions of the callback go to `on_error`. `max_messages` ends the subscription after that
        number. Permission errors go to `on_error`, and `next` raises PermissionViolation.
        """
        engine = self._engine
        engine.check_takes()
        handlers.check(callback, "callback")
        check_limits(pending_messages, pending_bytes)
        if max_messages is not None:
            checks.positive(max_messages, "max_messages")
        if thread not in ("shared", "own"):
            raise errors.ConfigError(f'thread is "shared" or "own", not {thread!r}')
        if thread == "own" and callback is None:
            raise errors.ConfigError('thread="own" is for a callback, and there is none: give one, or iterate')
        if callback is not None:
            callback = handling(engine.options.instrumentation, callback)
        mailbox = Mailbox(pending_messages, pending_bytes, awaited=callback is None)
        table = engine.subscriptions
        core = AppSubscription(engine, table.next_sid(), subject, queue, mailbox)
        core.max_messages = max_messages
        subscription = Subscription(self, core, callback, thread == "own")
        table.add(core)
        engine.drainables.enter(core)
        return subscription

    def barrier(self, call: Callable[[], Any] | None = None, *, timeout: Timeout = DEFAULT) -> None:
        """Wait until the callbacks of subscriptions, also ended ones, have handled every message received so far.

        Raises TimedOut after `timeout`, by default 30 seconds, and Reentered in such a callback, which would wait for
        itself. With `call` it does not wait, but runs `call` on the events thread once the callbacks are done, or
        when the connection has ended. After `flush` it covers all messages that the server had sent.
        """
        handlers.check(call, "call")
        barrier(self._engine, call, Deadline.of(timeout, BARRIER_TIMEOUT))

    # --- its servers ------------------------------------------------------------------------------------

    def force_reconnect(self) -> None:
        """Leave the current server and connect again, as after a link loss."""
        self._engine.check_usable()
        self._engine.session.force_reconnect()

    def set_servers(self, servers: str | list[str]) -> None:
        """Use these servers from the next connect on; raises ConfigError."""
        kinds.check(str, kinds.TEXTS, servers=servers)
        self._engine.session.pool.replace(servers)

    @property
    def servers(self) -> list[str]:
        """The URLs in the pool, discovered ones included, without user information."""
        return [server.url for server in self._engine.session.pool.servers()]

    @property
    def discovered_servers(self) -> list[str]:
        """The URLs in the pool that the cluster has named."""
        return [server.url for server in self._engine.session.pool.servers() if not server.explicit]

    @property
    def connected_url(self) -> str:
        """The URL of the connected server, without user information; "" when there is none."""
        return self._engine.connected_url

    @property
    def server_info(self) -> protocol.ServerInfo:
        """The last INFO of the server."""
        return self._engine.session.info

    @property
    def client_id(self) -> int:
        """The number that the server has given to the current link."""
        return self._engine.session.info.client_id

    @property
    def max_payload(self) -> int:
        """Most bytes for headers and payload of a message; the server may change it at any time."""
        return self._engine.encoder.max_payload

    # --- events and callbacks ---------------------------------------------------------------------------

    def events(self) -> ConnectionEvents:
        """The events of the connection from now on, to iterate over: see ConnectionEvents. Callbacks get them, too."""
        self._engine.check_usable()
        events = self._engine.events.open_events(self)
        try:
            self._engine.check_usable()  # again: a connection closed just before has already reported its end
        except errors.JsClientError:
            events.close()
            raise
        return events

    def set_callbacks(self, **callbacks: Unpack[CallbacksDict]) -> None:
        """Replace these callbacks of the options from now on; None removes one.

        Events reported before do not reach the new callbacks. Raises ConfigError for other names.
        """
        self._engine.events.set_callbacks(callbacks)  # type: ignore[arg-type]

    # --- looking at it ----------------------------------------------------------------------------------

    @property
    def options(self) -> ConnectOptions:
        """The options of this connection."""
        return self._engine.options

    @property
    def state(self) -> ConnectionState:
        """The state of the connection."""
        return self._engine.session.state

    @property
    def is_connected(self) -> bool:
        """True while a link is up. Without one, calls wait for the next, within their timeouts."""
        return self._engine.is_connected

    @property
    def is_draining(self) -> bool:
        """True once `drain` has begun."""
        return self._engine.draining

    @property
    def closed(self) -> bool:
        """True once it has ended, by `close`, or for good."""
        return self._engine.closed

    @property
    def link(self) -> LinkInfo | None:
        """The current link with the addresses of both ends and TLS; None when there is none."""
        return self._engine.link_info

    @property
    def last_error(self) -> BaseException | None:
        """Why the last link or attempt failed."""
        return self._engine.session.last_error

    def stats(self) -> Statistics:
        """Counters since the connection was made."""
        return self._engine.stats()

    def health(self) -> Health:
        """The data for a health probe."""
        return self._engine.health()


def _holding(_: Connection, replies: Iterator[Msg]) -> Iterator[Msg]:
    """The same replies, and the connection stays alive as long as the iterator is in use."""
    yield from replies


def another(engine: Engine) -> Connection:
    """Another Connection for an engine whose Connection was collected."""
    made = Connection.__new__(Connection)
    made._engine, made._shared = engine, False
    return made


def engine_of(connection: Connection) -> Engine:
    """The engine of a connection, which the layers above use in addition to the public methods. Not part of the API."""
    return connection._engine


def live_connections() -> list[Connection]:
    """The connections of this process that are not closed."""
    return [engine.connection for engine in live_engines()]
