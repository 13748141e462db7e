"""The Connection: what an application does with one session to a NATS system, from any number of threads."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, overload

from jsclient import checks, errors, handlers, hints, protocol
from jsclient._engine.callback_pool import BARRIER_TIMEOUT, barrier
from jsclient._engine.engine import Engine, live_engines
from jsclient._engine.events import ConnectionEvents
from jsclient._engine.figures import Health, LinkInfo, Statistics
from jsclient._engine.mailbox import Mailbox
from jsclient._engine.session import CLOSE_FLUSH
from jsclient._engine.sinks import AppSubscription
from jsclient.cancel import Cancel, check_cancel
from jsclient.declared import arguments
from jsclient.durations import DEFAULT, Deadline, Timeout, plain_or_none
from jsclient.hints import Unpack
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

if TYPE_CHECKING:
    from jsclient.codecs import Codec
    from jsclient.jetstream import JetStream
    from jsclient.jetstream.publishing.keywords import JetStreamDict

hints.wanted(globals(), "Codec", "JetStream", "JetStreamDict")


class Connection:
    """One session with a NATS system that outlives its links. Thread-safe; made by `jsclient.connect`.

    Leaving its `with` block drains nothing but sends what is buffered and closes; one of `jsclient.shared` stays open.
    It cannot be pickled, and in a forked child every call but `close` raises ForkedConnection.

    Options of several methods:
        timeout: Seconds for the whole call; by default 5 for what a server answers. None waits indefinitely, 0 takes
            only what is there, and a negative number raises ConfigError. At the end the call raises a TimeoutError,
            or returns what has arrived if its text says that.
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

    # All that it does is done by its engine. Only what costs as much as the call of another function, `publish`,
    # stands here as well.

    def __init__(self, options: ConnectOptions) -> None:
        self._engine = Engine(options, self)
        self._shared = False  # with others of this process: the end of a block does not close it
        if options.instrumentation is not None:
            self.publish = sending(options.instrumentation, "publish", self.publish)  # type: ignore[method-assign]
            self._respond = self._publish_answer  # type: ignore[method-assign]

    # --- ending -----------------------------------------------------------------------------------------

    @arguments
    def close(self, wait: bool = True) -> None:
        """Send what is buffered (at most 2 s), then end everything; blocked calls get ConnectionClosed. Idempotent.

        `wait=False` only asks for it and returns at once: safe in signal handlers and `__del__`.
        """
        self._engine.close(wait)

    @arguments
    def drain(self, timeout: Timeout = DEFAULT, wait: bool = True) -> None:
        """Stop receiving, let the application finish what it has, send what is buffered, close.

        Subscriptions, `consume` and services finish what they have received, a WorkerPool finishes what it handles
        and gives back the rest, iterators give back what the application does not come for; messages of `publish_async`
        are acknowledged. 30 seconds by default (`drain_timeout`); then, and when the link is lost and what is buffered
        cannot be sent, DrainTimeout, after closing all the same. `wait=False` only asks for it: safe in signal
        handlers; in a handler or callback it is never waited for, because it waits for that handler.
        Of a pull consumer with ack policy none it waits, up to 5 s, for all that was asked for (`drain` of iterators).
        A push consumer with ack policy none loses what the server is about to send.
        """
        self._engine.shutdown.drain(timeout, wait)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exc: object) -> None:
        if not self._shared or self.closed:  # a forked child is here, too
            self._engine.close()
        elif self.is_connected:
            with contextlib.suppress(errors.JsClientError):  # what is not sent stays buffered
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
        """Publish; leaves with others within about two milliseconds (`flush` waits for the server to have read it).

        At most once: what is on its way when a link breaks may be lost. While disconnected up to `pending_buffer`
        bytes are kept; for a server that takes too little it waits up to `write_timeout`. Then BufferFull: nothing of
        the message is sent. Raises InvalidSubject, InvalidHeader, PayloadTooLarge before sending.

        `reply`: a subject for answers; by default none.
        """
        engine = self._engine
        if engine.draining:
            engine.check_draining()
        if reply or payload.__class__ is not bytes:
            if isinstance(reply, bytes):  # the engine takes such unchecked
                raise errors.InvalidSubject("reply is a str, not bytes")
            frame: Frame = engine.encode(subject, payload, reply, headers and checks.headers(headers))
        else:
            encoder = engine.encoder
            # `encode` once more for the usual cases: its call and its questions are a tenth of what a publish costs.
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
        engine.post_core(frame)
        engine.messages_out += 1

    def _respond(self, message: Msg, payload: Payload, headers: HeadersLike | None) -> None:
        """For `Msg.respond`. The reply subject came over the wire: one without wildcards needs no check, and each is
        another one, which is not worth remembering."""
        reply, engine = message.raw_reply or b"", self._engine
        plain = payload.__class__ is bytes and not headers and len(payload) < LARGE_PAYLOAD
        fits = len(payload) <= engine.encoder.max_payload and len(reply) <= NAMES_ROOM
        if engine.draining or not (plain and fits) or b"*" in reply or b">" in reply:
            self._publish_answer(message, payload, headers)
            return
        engine.post_core(pub(pub_start(reply), payload))  # type: ignore[arg-type]
        engine.messages_out += 1

    def _publish_answer(self, message: Msg, payload: Payload, headers: HeadersLike | None) -> None:
        self.publish(message.reply, payload, headers=headers)

    @arguments
    def flush(self, timeout: Timeout = DEFAULT, *, cancel: Cancel | None = None) -> None:
        """Wait until the server has read everything sent so far. Waits for a reconnect within its time.

        5 seconds by default. Raises FlushTimeout, ConnectionLost if the link went down meanwhile, ConnectionClosed.
        """
        self._engine.requests.rtt(timeout, cancel=cancel)

    @arguments
    def rtt(self, timeout: Timeout = DEFAULT, *, cancel: Cancel | None = None) -> float:
        """Seconds that a PING took to come back, after everything sent before it. Raises as `flush` does."""
        return self._engine.requests.rtt(timeout, cancel=cancel)

    # --- JetStream --------------------------------------------------------------------------------------

    @overload
    def jetstream(self, **options: Unpack[JetStreamDict]) -> JetStream: ...

    @overload
    def jetstream(self, *, codec: Codec | None, **options: Unpack[JetStreamDict]) -> JetStream[Any]: ...

    def jetstream(self, *, codec: Codec | None = None, **options: Unpack[JetStreamDict]) -> JetStream[Any]:
        """JetStream of this connection's account, of a `domain` or an `api_prefix`; see JetStream for the options.

        Costs nothing to make; the same as `JetStream(nc, **options)`. With a `codec` it publishes and reads values.
        """
        # The connection knows nothing of what is built on it, so the import is made when somebody asks for it.
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
        """Publish with a reply inbox and wait for one reply: 5 seconds by default (`request_timeout`).

        Raises NoResponders at once when nobody listens, RequestTimeout, PermissionViolation, ConnectionLost when
        the link went down after sending (it may have been handled), ConnectionClosed, Cancelled by its `cancel`
        token.
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
        """One request, many replies (ADR-47), as they come.

        Ends after `max_messages`, when `stall` seconds pass after a reply without another one, when `sentinel`
        returns True for a reply (that one is not delivered; `jsclient.empty_payload` is the usual one), or after
        the total `timeout` (5 s). Raises NoResponders if nobody listens, Cancelled by its `cancel` token; no reply at
        all is an empty iteration.
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
        """A subject that nobody else can guess, for replies."""
        return self._engine.new_inbox()

    # --- subscribing ------------------------------------------------------------------------------------

    @arguments
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

        With a callback, messages go to it one after another, on threads that the callbacks of the connection share:
        there are as many as callbacks that block. Two messages of a subscription may come on different threads;
        `thread="own"` gives it one for all its life, for what is bound to a thread (database handles,
        `threading.local`). What it raises goes to `on_error`. Otherwise iterate, or call `next`. `max_messages` ends
        it after that many. Permission errors reach the subscription (`next` raises PermissionViolation) and
        `on_error`.
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
        engine.takers.enter(core)
        return subscription

    @arguments
    def barrier(self, call: Callable[[], Any] | None = None, *, timeout: Timeout = DEFAULT) -> None:
        """Wait until the callbacks of subscriptions, also ended ones, have handled every message that has come so far.

        30 seconds by default; then TimedOut, and Reentered in such a callback, which would wait for itself. With `call`
        it does not wait: that is called on the events thread then. After `flush` it covers what the server had sent.
        """
        handlers.check(call, "call")
        barrier(self._engine, call, Deadline.of(timeout, BARRIER_TIMEOUT))

    # --- its servers ------------------------------------------------------------------------------------

    def force_reconnect(self) -> None:
        """Leave the present server and dial again, as after a link loss."""
        self._engine.check_usable()
        self._engine.session.force_reconnect()

    @arguments
    def set_servers(self, servers: str | list[str]) -> None:
        """Use these servers from the next connect on; raises ConfigError."""
        self._engine.session.pool.replace(servers)

    @property
    def servers(self) -> list[str]:
        """The URLs in the pool, discovered ones included, without user information."""
        return [server.url for server in self._engine.session.pool.servers()]

    @property
    def discovered_servers(self) -> list[str]:
        """Those of the pool that the cluster has named."""
        return [server.url for server in self._engine.session.pool.servers() if not server.explicit]

    @property
    def connected_url(self) -> str:
        """The server we are connected to, without user information; "" when there is none."""
        return self._engine.connected_url

    @property
    def server_info(self) -> protocol.ServerInfo:
        """The last INFO of the server."""
        return self._engine.session.info

    @property
    def client_id(self) -> int:
        """The number that the server has given to the present link."""
        return self._engine.session.info.client_id

    @property
    def max_payload(self) -> int:
        """Bytes that headers and payload of a message may have; the server may change it at any time."""
        return self._engine.encoder.max_payload

    # --- being told -------------------------------------------------------------------------------------

    def events(self) -> ConnectionEvents:
        """What happens to the connection from now on, to be iterated: see ConnectionEvents. Beside the callbacks."""
        self._engine.check_usable()
        events = self._engine.events.open_events(self)
        try:
            self._engine.check_usable()  # once more: what was closed just before has told its end already
        except errors.JsClientError:
            events.close()
            raise
        return events

    def set_callbacks(self, **callbacks: Unpack[CallbacksDict]) -> None:
        """Replace these callbacks of the options from now on; None takes one away.

        Those of events that have been told already are not called for them. Raises ConfigError for other names.
        """
        self._engine.events.set_callbacks(callbacks)  # type: ignore[arg-type]

    # --- looking at it ----------------------------------------------------------------------------------

    @property
    def options(self) -> ConnectOptions:
        """What it was made with."""
        return self._engine.options

    @property
    def state(self) -> ConnectionState:
        """Where it is in its life."""
        return self._engine.session.state

    @property
    def is_connected(self) -> bool:
        """True while a link stands; without one calls wait for the next, within their timeouts."""
        return self._engine.is_connected

    @property
    def is_draining(self) -> bool:
        """True from the beginning of `drain` on."""
        return self._engine.draining

    @property
    def closed(self) -> bool:
        """True once it has ended, by `close`, or for good."""
        return self._engine.closed

    @property
    def link(self) -> LinkInfo | None:
        """The link that stands now: addresses of both ends, TLS; None when there is none."""
        return self._engine.link_info

    @property
    def last_error(self) -> BaseException | None:
        """Why the last link or attempt failed."""
        return self._engine.session.last_error

    def stats(self) -> Statistics:
        """Counters since the connection was made."""
        return self._engine.stats()

    def health(self) -> Health:
        """What a probe wants to know."""
        return self._engine.health()


hints.given(Connection)


def _holding(_: Connection, replies: Iterator[Msg]) -> Iterator[Msg]:
    """The same, and the connection stays as long as somebody takes from it."""
    yield from replies


def another(engine: Engine) -> Connection:
    """One more for an engine whose Connection is collected."""
    made = Connection.__new__(Connection)
    made._engine, made._shared = engine, False
    return made


def engine_of(connection: Connection) -> Engine:
    """What the layers above use of a connection beside its public face. Not part of the API."""
    return connection._engine


def live_connections() -> list[Connection]:
    """The connections of this process that are not closed."""
    return [engine.connection for engine in live_engines()]
