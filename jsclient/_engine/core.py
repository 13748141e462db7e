"""The lower half of a Connection: its parts, the table of subscriptions, link events, errors of the server, figures.

The session calls it on its threads; the layers above (JetStream, buckets, services) use what is marked for them.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import attrs

import protocol
from jsclient import checks, errors, nuid, waiting
from jsclient._engine.callbacks import EventsThread
from jsclient._engine.dispatcher import Dispatcher
from jsclient._engine.flusher import Flusher
from jsclient._engine.link import Link
from jsclient._engine.mailbox import Mailbox
from jsclient._engine.outbox import AT_ONCE, Outbox, Unkept
from jsclient._engine.pings import WhenAnswered
from jsclient._engine.reading import Reading
from jsclient._engine.relay import Relay
from jsclient._engine.requests import Requests
from jsclient._engine.server_errors import ServerErr
from jsclient._engine.session import Session
from jsclient._engine.sinks import CANCEL_SLICE, BaseSubscription, Inbox, SinkSubscription
from jsclient._engine.strands import Strands
from jsclient._engine.takers import Takers
from jsclient.durations import Deadline
from jsclient.options import ConnectOptions
from jsclient.states import ConnectionState, LinkEvent

if TYPE_CHECKING:
    from jsclient._engine.engine import LiveEngine
    from jsclient.cancel import Cancel
    from jsclient.connection import Connection
    from jsclient.subscription import Subscription
    from protocol.frames import Frame

log = logging.getLogger("jsclient.connection")

MOST_SINKS: Final = 4
"""Subscriptions up to which the reader looks whether somebody waits, before it lends its right to read."""

_numbers = itertools.count(1)


@attrs.frozen
class Statistics:
    """Counters since the connection was made. Bytes are those of the wire."""

    messages_in: int
    bytes_in: int
    messages_out: int
    bytes_out: int
    reconnects: int
    subscriptions: int
    callbacks_dropped: int


@attrs.frozen
class Health:
    """What a probe wants to know; cheap, and safe from any thread. Ages are seconds."""

    state: ConnectionState
    server: str
    last_frame_age: float | None
    pings_outstanding: int
    buffered_bytes: int
    slow_consumers: int
    reconnects: int
    last_error: str


class EngineCore:
    """What a Connection is made of: its parts, its subscriptions, and what the session and the layers above use.

    Users see it as the lower half of `Connection`.

    No more than 30 attributes per instance: beyond that CPython keeps them in a dict of its own for each instance, and
    every look-up of every call gets slower. What hardly ever changes stands in the class until it does.
    """

    _fatal: BaseException | None = None
    _drain_asked = False
    _slow_consumers = 0

    def __init__(self, options: ConnectOptions, connection: Connection) -> None:
        self.connection = connection
        self.options = options
        self.number = next(_numbers)
        self.clock = Flusher(f"jsclient-flush-{self.number}")
        self.events = EventsThread(f"jsclient-events-{self.number}", self.clock.call_later)
        self.takers = Takers()
        self.strands = Strands(self._whole)
        self.outbox = Outbox(
            kick=self.clock.kick,
            broken=self._sender_failed,
            limit=options.pending_buffer,
            block_when_full=options.pending_block,
            write_timeout=options.write_timeout,
        )
        self.clock.outbox = self.outbox
        self.dispatcher = Dispatcher()
        self.session = Session(self._whole, options, self.outbox)
        self.relay = Relay(self.outbox, self.clock.kick)
        self.clock.relay = self.relay
        self.requests = Requests(self._open_request_inbox, self.relay)
        self._request_sid = b""
        self.reply_sids: set[bytes] = set()  # where answers come that are not held to max_payload
        self._answers = 0  # of requests, that the reader has taken note of
        self.woke_taker = False  # the reader did, with the chunk it has just delivered
        self._links = 0  # made so far
        self._sids = itertools.count(1)
        self.starts: dict[str, bytes] = {}  # subject, checked -> how its line begins
        self.max_payload = 1024 * 1024
        self.takes_headers = True  # the server, as far as it has told
        self.messages_out = 0
        self._link_listeners: list[Callable[[LinkEvent], None]] = []
        self._violation_listeners: list[Callable[[errors.PermissionViolation], None]] = []
        self.draining = False
        self.post = self.outbox.post
        self.post_core = self.outbox.post_core
        self.post_now = self.outbox.post_now
        self.flush_outbox = self.outbox.flush

    @property
    def dispatch(self) -> Callable[[list[Any], int], list[Any]]:
        """What the reader hands the events of a chunk to."""
        return self.dispatcher.dispatch

    def closed_error(self) -> errors.ConnectionClosed:
        """Why nothing works any more; `reason` is what ended the connection, if it was not the application."""
        if self._fatal is None:
            return errors.ConnectionClosed("the connection is closed")
        closed = errors.ConnectionClosed(f"the connection has ended: {self._fatal}")
        closed.reason = self._fatal
        return closed

    def __reduce__(self) -> NoReturn:
        self.refuse_pickle(self)

    def refuse_pickle(self, what: object) -> NoReturn:
        """Raises the TypeError for whoever tries to send a live object to another process."""
        raise TypeError(
            f"a {type(what).__name__} belongs to the live connection of this process and cannot be pickled. Send its "
            "ConnectOptions (connection.options) and call jsclient.shared(options) where it is needed"
        )

    @property
    def _whole(self) -> LiveEngine:
        """This object as what it always is: the upper half is its only subclass."""
        return cast("LiveEngine", self)

    # --- subscriptions -----------------------------------------------------------------------------------

    def _open_request_inbox(self, requests: Requests) -> bytes:
        prefix = f"{self.options.inbox_prefix}.{nuid.inbox_id()}."
        self._request_sid = self.open_sink(prefix + "*", requests).sid
        self.reply_sids.add(self._request_sid)
        return prefix.encode()

    def new_inbox(self) -> str:
        """A subject that nobody else can guess, for replies."""
        return f"{self.options.inbox_prefix}.{nuid.inbox_id()}"

    def open_inbox(self, subject: str | None = None, queue: str = "") -> Inbox:
        """For layers: a mailbox bounded by the credit that its owner grants; it also gets link events, in order."""
        inbox = Inbox(self._whole, self.next_sid(), subject or self.new_inbox(), queue, Mailbox())
        self.add(inbox)
        return inbox

    def open_sink(self, subject: str, sink: Any, queue: str = "") -> SinkSubscription:
        """For layers: messages go to `sink.deliver(messages, nbytes)` on the reader thread."""
        subscription = SinkSubscription(self._whole, self.next_sid(), subject, queue, sink)
        self.add(subscription)
        return subscription

    def next_sid(self) -> bytes:
        return b"%d" % next(self._sids)

    def add(self, subscription: BaseSubscription, deadline: Deadline = AT_ONCE) -> None:
        """Enter it and tell the server; the deadline is for sending what is queued, which is not necessary here."""
        frame = self._sub_frames(subscription)
        try:
            self.dispatcher.sinks[subscription.sid] = subscription
            self.check_usable()  # after it is in the table: close() ends what it finds there
            # While offline it is enough to be in the table: see `link_up`.
            if not self.outbox.offline:
                subscription.link = self._links
                self.outbox.frames.append(Unkept(frame))
            if self.outbox.frames and not self.outbox.offline and not self.outbox.drain(deadline):
                self.clock.kick()
            self.session.recall_reader()
        except BaseException:  # Ctrl-C: nobody will ever take from it
            self.remove_subscription(subscription, tell_server=True)
            raise

    @staticmethod
    def _sub_frames(subscription: BaseSubscription) -> bytes:
        raw = checks.filter_subject(subscription.subject)
        group = checks.queue_group(subscription.queue) if subscription.queue else b""
        try:
            frame = protocol.sub(raw, subscription.sid, group)
        except protocol.InvalidArgument as error:
            raise errors.InvalidSubject(str(error)) from None
        subscription.counted_from = subscription.received
        if subscription.max_messages is not None:
            frame += protocol.unsub(subscription.sid, max(1, subscription.max_messages - subscription.received))
        return frame

    def send_unsubscribe(self, subscription: BaseSubscription, max_messages: int | None = None) -> None:
        """Tell the server; while offline the next link's subscriptions do, see `link_up`."""
        while not self.outbox.offline:
            link = self._links
            # The server counts from the SUB of its link; once more if that was replaced just now.
            left = None if max_messages is None else max(1, max_messages - subscription.counted_from)
            self.outbox.frames.append(Unkept(protocol.unsub(subscription.sid, left)))
            if link == self._links:
                break
        if not self.outbox.ticking:
            self.clock.kick()

    def remove_subscription(
        self, subscription: BaseSubscription, tell_server: bool = False, keep_sink: bool = False
    ) -> None:
        """Forget a subscription; with `keep_sink` only the server does, what is on its way still arrives."""
        subscription.unsubscribed = True
        if not keep_sink:
            self.dispatcher.sinks.pop(subscription.sid, None)
        if tell_server:
            self.send_unsubscribe(subscription)

    def when_read(self, call: Callable[[], None]) -> None:
        """For layers: make a call on the flusher thread, once the server has read all that was sent so far, and what it
        had sent before is here; or the link is gone."""
        self.session.pings.send(WhenAnswered(lambda: self.clock.call_soon(call)))
        self.session.recall_reader()
        self.outbox.nudge()

    def lent_reading(self) -> Reading | None:
        """For who waits: where he may read for himself, or has to end the turn on top of which he runs."""
        link = self.session.link
        return link.reading if link is not None and (link.reading.lent or link.reading.is_ours()) else None

    def lends(self) -> bool:
        """Reader thread: the last chunk woke somebody, and nobody else waits for what comes next."""
        answers = self.requests.answers
        woken = self.woke_taker or answers != self._answers
        self.woke_taker, self._answers = False, answers
        return woken and self.nobody_waits()

    def nobody_waits(self) -> bool:
        """Nobody waits for what only the reader brings him; who is at work may read himself when he waits again."""
        sinks = self.dispatcher.sinks
        if len(sinks) > MOST_SINKS or self.session.pings.waiters or not self.requests.all_served():
            return False
        for sink in list(sinks.values()):
            if sink.__class__ is Inbox:
                if sink.mailbox._waiters:
                    return False
            elif sink.sid != self._request_sid:  # type: ignore[attr-defined]
                return False  # it has a thread of its own, or none: a callback, acks of asynchronous publishes
        return True

    def count_borrowed(self, reading: Reading) -> None:
        """Reader thread: add what callers have read themselves."""
        self.dispatcher.messages_in += reading.messages_in
        self.dispatcher.bytes_in += reading.bytes_in
        reading.messages_in = reading.bytes_in = 0

    # --- what the session tells us ----------------------------------------------------------------------

    def check_headers(self) -> None:
        """For layers, when `takes_headers` is False: raises HeadersNotSupported."""
        if not self.takes_headers:
            raise errors.HeadersNotSupported(
                f"{self.connected_url or 'the server'} takes no headers (no_header_support), and this message has "
                "some: nothing was sent"
            )

    def set_max_payload(self, value: int) -> None:
        if value > 0:
            self.max_payload = value

    def link_up(self, link: Link, first: bool) -> None:
        """Connector thread: subscribe everything on the new link, before anything that was kept.

        Without a lock (see the rule in `waiting`): a subscription enters the table, or is marked as ended, and then
        looks whether we are online; this goes online and then looks at the table once more. So one of the two tells
        the server, or both do: it takes a second SUB of one sid, or an UNSUB of none, for nothing.
        """
        self._links += 1
        live = self._not_subscribed()
        limits = {sub: sub.max_messages for sub in live}
        frames = [self._sub_frames(sub) for sub in live]
        refused = self.outbox.attach(link.stream, [b"".join(frames)] if frames else [], self.takes_headers)
        if refused:
            self.report_error(
                errors.HeadersNotSupported(
                    f"{refused} messages with headers were kept while there was no link, and {link.server.url} takes "
                    "no headers (no_header_support): they were not sent"
                ),
                None,
            )
        late = self._not_subscribed()
        self.outbox.frames.extend([Unkept(self._sub_frames(sub)) for sub in late])
        for sub, limit in limits.items():
            if sub.unsubscribed:
                self.send_unsubscribe(sub)
            elif sub.max_messages != limit:
                self.send_unsubscribe(sub, sub.max_messages)
        self._tell_link_listeners(LinkEvent.RECONNECTED, live + late)

    def _not_subscribed(self) -> list[BaseSubscription]:
        """The subscriptions that the present link has not been told of; it is told of them now."""
        found = [
            sub
            for sub in list(self.dispatcher.sinks.values())
            if isinstance(sub, BaseSubscription) and not sub.unsubscribed and sub.link != self._links
        ]
        for sub in found:
            sub.link = self._links
        return found

    def link_announced(self, first: bool) -> None:
        if not first:
            self._callback(self.options.on_reconnected)

    def link_lost(
        self, make: Callable[[], BaseException], reason: BaseException | None, withdrawn: list[Frame]
    ) -> None:
        """Reader thread: whoever waits for an answer over the dead link learns it now.

        `withdrawn`: frames of which no byte was sent, so that their owners need not call the outcome unknown.
        """
        for subscription in list(self.dispatcher.sinks.values()) if withdrawn else ():
            if isinstance(subscription, SinkSubscription):
                guarded(subscription.withdrawn, withdrawn)
        self.requests.fail(make)
        self._tell_link_listeners(LinkEvent.DISCONNECTED, list(self.dispatcher.sinks.values()))
        self._callback(self.options.on_disconnected, reason)

    def link_left(self, withdrawn: list[Frame]) -> None:
        """Connector thread: the link is given up for one that stands already. The application is told nothing, and the
        requests under way stay under way: their answers come over the new link, too."""
        for subscription in self.subscribed() if withdrawn else ():
            if isinstance(subscription, SinkSubscription):
                guarded(subscription.withdrawn, withdrawn)
        self._tell_link_listeners(LinkEvent.DISCONNECTED, list(self.dispatcher.sinks.values()))

    def subscribed(self) -> list[BaseSubscription]:
        """All subscriptions that the server knows of."""
        sinks = list(self.dispatcher.sinks.values())
        return [sub for sub in sinks if isinstance(sub, BaseSubscription) and not sub.unsubscribed]

    def _tell_link_listeners(self, event: LinkEvent, subscriptions: list[Any] | None = None) -> None:
        for subscription in subscriptions or ():
            guarded(subscription.link_event, event)
        for listener in list(self._link_listeners):
            guarded(listener, event)

    def connect_attempt_failed(self, url: str, error: BaseException, tell: bool) -> None:
        """`tell`: nobody else hears of it, neither who calls `connect` nor who learns that this was the last one."""
        log.info("cannot connect to %s: %s", url, error)
        if tell:
            self._callback(self.options.on_error, error, None)

    def server_left(self) -> None:
        """Reader thread: another server of the cluster goes or is gone."""
        self._tell_link_listeners(LinkEvent.SERVER_LEFT)

    def servers_discovered(self, urls: list[str]) -> None:
        self._callback(self.options.on_discovered_servers, urls)

    def lame_duck(self) -> None:
        log.warning("%s is in lame duck mode", self.connected_url)
        self._callback(self.options.on_lame_duck)

    def operation_refused(self, err: ServerErr) -> None:
        """Reader thread: a permission error reaches the call that waits for it, and `on_error`."""
        error = err.error
        subscription: BaseSubscription | None = None
        if isinstance(error, errors.PermissionViolation):
            if err.operation == "subscribe":
                subscription = self._refused_subscription(err)
            else:
                self.requests.fail(lambda: _same_violation(error), err.subject)
            for listener in list(self._violation_listeners):
                listener(error)
        self.report_error(error, subscription)

    def _refused_subscription(self, err: ServerErr) -> BaseSubscription | None:
        for subscription in list(self.dispatcher.sinks.values()):
            if not isinstance(subscription, BaseSubscription):
                continue
            same = subscription.subject == err.subject and subscription.queue == err.queue
            if subscription.sid == err.sid or (err.sid is None and same):
                subscription.fail(err.error)
                if isinstance(subscription, SinkSubscription) and subscription.sink is self.requests:
                    self.requests.refuse(lambda: _same_violation(err.error))
                return subscription
        return None

    def _sender_failed(self, stream: Any, error: BaseException) -> None:
        self.session.sender_failed(stream, error)

    # --- for the layers above ---------------------------------------------------------------------------

    def add_link_listener(self, listener: Callable[[LinkEvent], None]) -> None:
        """`listener(event)` runs on an internal thread when the link goes down, comes back, or is closed; quick!"""
        self._link_listeners.append(listener)

    def remove_link_listener(self, listener: Callable[[LinkEvent], None]) -> None:
        if listener in self._link_listeners:
            self._link_listeners.remove(listener)

    def add_violation_listener(self, listener: Callable[[errors.PermissionViolation], None]) -> None:
        """`listener(error)` runs on the reader thread when the server refuses a subject; quick!"""
        self._violation_listeners.append(listener)

    def remove_violation_listener(self, listener: Callable[[errors.PermissionViolation], None]) -> None:
        if listener in self._violation_listeners:
            self._violation_listeners.remove(listener)

    def run_callback(self, call: Callable[..., Any], *args: Any) -> None:
        """Queue user code for the events thread: serial, bounded, what it raises is logged."""
        self.events.run(call, *args)

    def run_last_callback(self, call: Callable[..., Any], *args: Any) -> None:
        """The same for what comes once in a life, its end: never dropped, however many others wait."""
        self.events.run(call, *args, always=True)

    def _callback(self, call: Callable[..., Any] | None, *args: Any) -> None:
        if call is not None:
            self.events.run(call, self.connection, *args)

    def report_error(self, error: BaseException, subscription: Any) -> None:
        """To `on_error`, or to the log when there is none."""
        if self.options.on_error is not None:
            self._callback(self.options.on_error, error, subscription)
        else:
            log.error("%s%s", error, f" (subscription {subscription.subject!r})" if subscription is not None else "")

    def report_slow_consumer(self, subscription: Subscription) -> None:
        self._slow_consumers += 1
        error = errors.SlowConsumer(
            f"messages on {subscription.subject!r} are dropped: {subscription.pending} wait to be taken. Take them "
            "faster, in more threads, or raise pending_messages and pending_bytes",
            subscription.subject,
            subscription.dropped,
        )
        self.report_error(error, subscription)

    def report_beyond_credit(self, inbox: Inbox) -> None:
        """Reader thread: a server sends far more than was asked for."""
        error = errors.SlowConsumer(
            f"messages on {inbox.subject!r} are dropped: the server sends far more than was asked for "
            f"({len(inbox)} wait). It is broken or hostile; acknowledged messages will come again",
            inbox.subject,
            inbox.mailbox.dropped,
        )
        self.report_error(error, inbox)

    def check_usable(self) -> None:
        """Raises ConnectionClosed (in a forked child: ForkedConnection)."""
        if self.session.closing.is_set():
            raise self.closed_error()

    def check_process(self) -> None:
        """For layers: raises ForkedConnection in a forked child, where nothing comes that one could wait for."""

    def check_draining(self) -> None:
        """For layers, when `draining` is set: raises ConnectionDraining once nothing new is taken, ConnectionClosed."""
        self.check_usable()
        if self.draining and self.session.state is not ConnectionState.DRAINING_SUBSCRIPTIONS:
            raise errors.ConnectionDraining("the connection drains: it takes nothing new")

    def check_takes(self) -> None:
        """For layers: raises ConnectionDraining or ConnectionClosed where nothing new may begin to take messages."""
        self.check_usable()
        if self.draining:
            raise errors.ConnectionDraining("the connection drains: nothing new can begin to take messages from it")

    def _wait_connected(
        self,
        deadline: Deadline,
        late: type[errors.TimedOut] = errors.RequestTimeout,
        cancel: Cancel | None = None,
    ) -> None:
        self.check_usable()
        if self.outbox.offline:
            connected = self.session.connected
            while cancel is not None and not connected.wait(deadline.at_most(CANCEL_SLICE)) and not deadline.expired():
                cancel.check()
            if not connected.wait(deadline.remaining()):
                error = self.session.last_error
                raise late(f"not connected in time, nothing was sent (last error: {error})")
            self.check_usable()

    def _not_on_reader(self, what: str) -> None:
        if waiting.on_reader():
            raise errors.Reentered(f"{what} on the reader thread of a connection would wait for itself")

    # --- looking at it ----------------------------------------------------------------------------------

    @property
    def state(self) -> ConnectionState:
        return self.session.state

    @property
    def closed(self) -> bool:
        return self.session.closing.is_set()

    @property
    def is_connected(self) -> bool:
        return self.session.link is not None and not self.closed

    @property
    def is_draining(self) -> bool:
        return self.draining

    @property
    def server_info(self) -> protocol.ServerInfo:
        """The last INFO of the server."""
        return self.session.info

    @property
    def round_trip(self) -> float:
        """For layers: seconds to the server and back, the shortest seen on this link; 0.0 without a link."""
        link = self.session.link
        return 0.0 if link is None else link.round_trip

    @property
    def connected_url(self) -> str:
        """The server we are connected to, without user information; "" when there is none."""
        link = self.session.link
        return "" if link is None else link.server.url

    @property
    def servers(self) -> list[str]:
        """The URLs in the pool, discovered ones included, without user information."""
        return [server.url for server in self.session.pool.servers()]

    @property
    def client_id(self) -> int:
        return self.session.info.client_id

    @property
    def last_error(self) -> BaseException | None:
        """Why the last link or attempt failed."""
        return self.session.last_error

    def set_servers(self, servers: str | list[str]) -> None:
        """Use these servers from the next connect on; raises ConfigError."""
        self.session.pool.replace(servers)

    def stats(self) -> Statistics:
        link = self.session.link
        return Statistics(
            messages_in=self.dispatcher.messages_in + (0 if link is None else link.reading.messages_in),
            bytes_in=self.dispatcher.bytes_in + (0 if link is None else link.reading.bytes_in),
            messages_out=self.messages_out,
            bytes_out=self.outbox.bytes_out,
            reconnects=self.session.reconnects,
            subscriptions=len(self.dispatcher.sinks),
            callbacks_dropped=self.events.dropped,
        )

    def health(self) -> Health:
        link = self.session.link
        error = self.session.last_error
        return Health(
            state=self.session.state,
            server=self.connected_url,
            last_frame_age=None if link is None else time.monotonic() - link.reading.last_frame,
            pings_outstanding=self.session.pings_out,
            buffered_bytes=self.outbox.size + self.outbox.unsent,
            slow_consumers=self._slow_consumers,
            reconnects=self.session.reconnects,
            last_error="" if error is None else str(error),
        )


def guarded(tell: Callable[[Any], None], what: Any) -> None:
    """A bug in a layer must not keep the session from reconnecting or closing."""
    try:
        tell(what)
    except Exception:
        log.exception("a link listener failed")


def _same_violation(error: Any) -> errors.PermissionViolation:
    """One of its own for each waiting call: an exception that several threads raise collects all their tracebacks."""
    return errors.PermissionViolation(str(error), error.subject, error.operation)
