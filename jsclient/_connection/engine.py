"""The engine of a Connection: its parts, and the calls between them.

    callers -> Requests, Encoder -> Outbox -> socket        Session: connecting, the reader, reconnecting
    socket -> reader -> Subscriptions -> mailboxes, sinks   Subscriptions: the table, SUB and UNSUB
    Events: callbacks, listeners, errors                  Shutdown: drain and close

All threads are daemons. There is one reader per live link, one connector per connection attempt, one flusher, one
events thread for callbacks, and workers for the callbacks of subscriptions. A caller that is the only one to wait
reads the socket itself: see `reading`.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn

from jsclient import errors, instruments, nuid, waiting
from jsclient._connection.callback_pool import CallbackPool, OrderedCallback
from jsclient._connection.callbacks import EventsThread
from jsclient._connection.drainable import Drainables
from jsclient._connection.encoding import Encoder
from jsclient._connection.events import ConnectionEvent, Events, guarded
from jsclient._connection.figures import Health, LinkInfo, Statistics
from jsclient._connection.flusher import Flusher
from jsclient._connection.link import Link
from jsclient._connection.mailbox import Mailbox
from jsclient._connection.outbox import Outbox
from jsclient._connection.pings import WhenAnswered
from jsclient._connection.reading import Reading
from jsclient._connection.requests import Requests
from jsclient._connection.session import Session
from jsclient._connection.shutdown import Shutdown
from jsclient._connection.sinks import BaseSubscription, Inbox, MessageSink, ReplySink, SinkSubscription
from jsclient._connection.subscriptions import Subscriptions
from jsclient._connection.wake_chain import WakeChain
from jsclient.durations import Deadline
from jsclient.instruments import Instrumentation
from jsclient.message import Msg
from jsclient.options import ConnectOptions
from jsclient.protocol.frames import Frame, has_headers, size_of
from jsclient.states import ConnectionState, LinkEvent

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from jsclient.connection import Connection

log = logging.getLogger("jsclient.connection")

MOST_SINKS: Final = 4
"""Number of subscriptions up to which the reader checks whether a thread waits, before it lends its right to read."""

_next_number = waiting.numbers()
_live: dict[int, weakref.ref[Engine]] = {}


class Engine:
    """One session with a NATS system that outlives its links. A Connection and the layers above it are built on it.

    In a forked child it becomes a ForkedEngine: every use of it but `close` raises ForkedConnection.

    Keep it at 29 attributes per instance or fewer. Beyond that CPython keeps a separate dict for each instance, and
    every look-up of every call gets slower.
    """

    def __init__(self, options: ConnectOptions, connection: Connection) -> None:
        # Its finalizer ends the connection: see `Shutdown.abandon`.
        self._connection: weakref.ref[Connection] = weakref.ref(connection)
        self.options = options
        self.number: int = _next_number()
        self.draining = False
        self.messages_out: int = 0
        self._counting = waiting.new_lock()  # of `messages_out`, without the interpreter lock
        self.clock: Flusher = Flusher(f"jsclient-flush-{self.number}")
        self.events_thread: EventsThread = EventsThread(f"jsclient-events-{self.number}", self.clock.call_later)
        self.events: Events = Events(self, self.events_thread)
        self.drainables: Drainables = Drainables()
        self.callback_pool: CallbackPool = CallbackPool(self)
        self.outbox: Outbox = Outbox(
            kick=self.clock.kick,
            broken=lambda stream, error: self.session.sender_failed(stream, error),
            limit=options.pending_buffer,
            block_when_full=options.pending_block,
            write_timeout=options.write_timeout,
        )
        self.clock.outbox = self.outbox
        self.session: Session = Session(self, options, self.outbox)
        self.subscriptions: Subscriptions = Subscriptions(self)
        self.wake_chain: WakeChain = WakeChain(self.outbox, self.clock.kick)
        self.clock.wake_chain = self.wake_chain
        self._answers = 0  # answers to requests, as of the reader's last look
        self.woke_taker: bool = False  # the reader woke a thread with the chunk it has just delivered
        self.encoder: Encoder = Encoder(lambda: self.connected_url)
        # Calls made for every message: an attribute here saves a call in between.
        self.encode: Callable[..., bytes] = self.encoder.encode
        self.enqueue: Callable[..., None] = self.outbox.enqueue
        self.enqueue_core: Callable[[Frame], None] = self.outbox.enqueue_core
        self.enqueue_now: Callable[..., None] = self.outbox.enqueue_now
        self.enqueue_at_once: Callable[[Frame], None] = self.outbox.enqueue_at_once
        self.flush_outbox: Callable[[], None] = self.outbox.flush
        self.requests: Requests = Requests(self)
        self.request: Callable[..., Msg] = self.requests.request
        self.shutdown: Shutdown = Shutdown(self)
        if options.instrumentation is not None:
            self._instrument(options.instrumentation)

    @property
    def connection(self) -> Connection:
        """The Connection that holds it. If the garbage collector took it, callbacks get another one."""
        alive = self._connection()
        if alive is not None:
            return alive
        made: Connection = import_module("jsclient.connection").another(self)
        return made

    def open(self) -> None:
        """Connect; called once, for `jsclient.connect`."""
        _live[self.number] = weakref.ref(self, partial(_live.pop, self.number))
        try:
            self.clock.start()
            self.session.connector.start()
        except BaseException:
            self.shutdown.close_now(wait=False)
            raise

    def _instrument(self, instrument: Instrumentation) -> None:
        """Replace the calls that run for every message. An engine without an instrument pays nothing."""
        self.request = instruments.sending(instrument, "request", self.request)
        self.enqueue = instruments.enqueuing(instrument, self.enqueue)
        self.events.instrument(instrument)

    def gone(self) -> None:
        """It has ended: a fork or the exit of the interpreter can ignore it."""
        _live.pop(self.number, None)

    def __repr__(self) -> str:
        return f"<jsclient.Connection {self.number} {self.session.state.value} {self.connected_url or '-'}>"

    def __reduce__(self) -> NoReturn:
        self.refuse_pickle(self)

    def refuse_pickle(self, what: object) -> NoReturn:
        """Raises the TypeError of an attempt to send a live object to another process."""
        raise TypeError(
            f"a {type(what).__name__} belongs to the live connection of this process and cannot be pickled. Send its "
            "ConnectOptions (connection.options) and call jsclient.shared(options) where it is needed"
        )

    # --- the end: see `shutdown`  ----------------------------------------------------------------------------

    def close(self, wait: bool = True) -> None:
        """Send buffered data, then end everything; see `Shutdown.close`."""
        self.shutdown.close(wait)

    def closed_error(self) -> errors.ConnectionClosed:
        """The end of the connection, as an error; its `reason` is None when the application has closed it."""
        return self.shutdown.closed_error()

    # --- sending, requests: see `encoding` and `requests` ---------------------------------------------------

    @property
    def takes_headers(self) -> bool:
        """False if the server has announced that it takes no headers; then `check_headers` raises."""
        return self.encoder.takes_headers

    def check_headers(self) -> None:
        """Raises HeadersNotSupported when the server takes no headers."""
        self.encoder.check_headers()

    def pub_start(self, subject: str, reply: str | bytes = b"") -> bytes:
        """The beginning of the line of a message, validated as in `encode`; see `protocol.frames`."""
        return self.encoder.pub_start(subject, reply)

    def count_out(self, messages: int) -> None:
        """Count messages that leave; below 0, messages that did not leave after all."""
        if waiting.GIL:
            self.messages_out += messages
            return
        with self._counting:
            self.messages_out += messages

    def later_reply(self, reply: Msg, timeout: float | None) -> Msg | None:
        """Another reply to a request after a first one that `may_go_on`; None when none came in time.

        Until `forget_reply`. Raises ConnectionLost, ConnectionClosed: then no other one comes.
        """
        return self.requests.later_reply(reply, timeout)

    def forget_reply(self, reply: Msg) -> None:
        """Wait for no further replies. Does nothing if none are awaited."""
        self.requests.forget_reply(reply)

    def request_each(
        self, subjects: list[bytes], payload: bytes, deadline: Deadline
    ) -> tuple[dict[int, Msg], BaseException | None]:
        """One request to each (validated) subject, with one write and one wait.

        Use it only for requests that are safe to repeat: frames that a lost link has not sent go out on the next link.

        Returns the replies that came within the deadline, by number, and the error that ended the wait early, if any.
        """
        return self.requests.request_each(subjects, payload, deadline)

    def when_read(self, call: Callable[[], None]) -> None:
        """Make a call on the flusher thread once the server has read everything sent so far.

        By then everything that the server had sent before has arrived. The call is also made when the link is gone.
        """
        self.session.pings.send(WhenAnswered(lambda: self.clock.call_soon(call)))
        self.session.recall_reader()
        self.outbox.nudge()

    # --- subscriptions: see `subscriptions` -------------------------------------------------------------------------

    def new_inbox(self) -> str:
        """A subject for replies that no one else can guess."""
        return f"{self.options.inbox_prefix}.{nuid.inbox_id()}"

    def open_inbox(self, subject: str | None = None, queue: str = "") -> Inbox:
        """A mailbox bounded by the credit that its owner grants; it also gets link events, in order."""
        inbox = Inbox(self, self.subscriptions.next_sid(), subject or self.new_inbox(), queue, Mailbox())
        self.subscriptions.add(inbox)
        return inbox

    def open_sink(self, subject: str, sink: MessageSink, queue: str = "") -> SinkSubscription:
        """Messages go to `sink.deliver(messages, nbytes)` on the reader thread."""
        subscription = SinkSubscription(self, self.subscriptions.next_sid(), subject, queue, sink)
        self.subscriptions.add(subscription)
        return subscription

    def callbacks_at_work(self) -> list[OrderedCallback]:
        """The callbacks that have not handled all their messages yet. They include callbacks of ended subscriptions,
        which the table no longer has."""
        found = (getattr(drainable, "ordered_callback", None) for drainable in self.drainables.all())
        return [callback for callback in found if callback is not None and not callback.is_idle]

    def remove_subscription(
        self, subscription: BaseSubscription, tell_server: bool = False, keep_sink: bool = False
    ) -> None:
        """Forget a subscription. With `keep_sink` only the server does, and messages on their way still arrive."""
        self.subscriptions.remove(subscription, tell_server, keep_sink)

    def sends_within(self, deadline: Deadline) -> AbstractContextManager[None]:
        """In the body, a send of this thread waits for room until the deadline at most, instead of `write_timeout`."""
        return self.outbox.sends_within(deadline)

    def bound(self) -> Deadline | None:
        """The deadline of `sends_within` that this thread is in; its other waits end then, too."""
        return self.outbox.bound()

    # --- the right to read: see `reading` -------------------------------------------------------------------

    def lent_reading(self) -> Reading | None:
        """Called before a wait: a thread that may read does so. A signal handler on top of a turn first ends it."""
        link = self.session.link
        if link is None:
            return None
        reading = link.reading
        # `is_ours` looks at the lock, too; every request is here, and as a rule this saves that call.
        return reading if reading.lent or (reading.lock._is_owned() and reading.is_ours()) else None

    def lends(self) -> bool:
        """Reader thread: the last chunk woke a thread, and no other thread waits for the next one."""
        answers = self.requests.answers
        woken = self.woke_taker or answers != self._answers
        self.woke_taker, self._answers = False, answers
        return woken and self.nobody_waits()

    def nobody_waits(self) -> bool:
        """True when no thread is blocked on data that only the reader can deliver. The others may read themselves."""
        sinks = self.subscriptions.sinks
        if len(sinks) > MOST_SINKS or self.session.pings.waiters or not self.requests.all_served():
            return False
        for sink in list(sinks.values()):
            if sink.__class__ is Inbox:
                if sink.mailbox._waiters:
                    return False
            elif sink.sid != self.requests.sid:
                return False  # it has its own thread, or none: a callback, acks of asynchronous publishes
        return True

    def count_borrowed(self, reading: Reading) -> None:
        """Reader thread: add the messages that callers have read themselves."""
        self.subscriptions.messages_in += reading.messages_in
        self.subscriptions.bytes_in += reading.bytes_in
        reading.messages_in = reading.bytes_in = 0

    # --- reports of the session, on the reader or the connector thread: none of these may wait ------------

    def messages_in(self) -> int:
        """The number of messages received so far, over all links."""
        link = self.session.link
        return self.subscriptions.messages_in + (0 if link is None else link.reading.messages_in)

    def server_takes(self, max_payload: int, headers: bool) -> None:
        """The server has announced its limits."""
        if max_payload > 0:
            self.encoder.max_payload = max_payload
        self.encoder.takes_headers = headers

    def _server_would_take(self, frame: Frame) -> bool:
        """True if a frame that was encoded for another link or server is within the limits of this one."""
        limit = self.encoder.max_payload
        return (self.takes_headers or not has_headers(frame)) and (len(frame) <= limit or size_of(frame) <= limit)

    def link_up(self, link: Link) -> None:
        """Connector thread: send all subscriptions over the new link, and go online."""
        refused, subscribed = self.subscriptions.link_up(link.stream, self._server_would_take)
        self.count_out(-len(refused))
        kept, limit = "kept while there was no link:", self.encoder.max_payload
        if headed := 0 if self.takes_headers else sum(map(has_headers, refused)):
            text = f"did not send {errors.counted(headed, 'message')} with headers, {kept} {link.server.url} takes none"
            self.report_error(errors.HeadersNotSupported(f"{text} (no_header_support)"), None)
        if large := len(refused) - headed:
            text = f"did not send {errors.counted(large, 'message')}, {kept} {link.server.url} takes only {limit} bytes"
            self.report_error(errors.PayloadTooLarge(f"{text} (max_payload)"), None)
        self.events.link_event(LinkEvent.RECONNECTED, subscribed)

    def link_lost(
        self, make: Callable[[], BaseException], reason: BaseException | None, withdrawn: list[Frame]
    ) -> None:
        """Reader thread: fail the calls that wait for an answer over the dead link.

        `withdrawn`: frames of which no byte was sent, so their owners need not report an unknown outcome.
        """
        for subscription in list(self.subscriptions.sinks.values()) if withdrawn else ():
            if isinstance(subscription, SinkSubscription) and isinstance(subscription.sink, ReplySink):
                guarded(subscription.sink.withdrawn, withdrawn)
        self.requests.fail(make)
        self.events.link_event(LinkEvent.DISCONNECTED, list(self.subscriptions.sinks.values()))
        self.events.tell(ConnectionEvent("disconnected", reason), reason)

    def link_left(self, withdrawn: list[Frame]) -> None:
        """Connector thread: give up the link for another one that is already up.

        The application gets no event. Requests in progress continue: their answers can come over the new link, too.
        """
        for subscription in self.subscriptions.subscribed() if withdrawn else ():
            if isinstance(subscription, SinkSubscription) and isinstance(subscription.sink, ReplySink):
                guarded(subscription.sink.withdrawn, withdrawn)
        self.events.link_event(LinkEvent.DISCONNECTED, list(self.subscriptions.sinks.values()))

    # --- events, errors: see `events` - -----------------------------------------------------------------------------

    def add_link_listener(self, listener: Callable[[LinkEvent], None]) -> None:
        """`listener(event)` runs on an internal thread when the link goes down, comes back, or is closed; quick!"""
        self.events.add_link_listener(listener)

    def remove_link_listener(self, listener: Callable[[LinkEvent], None]) -> None:
        """Remove a listener. Unknown listeners are ignored."""
        self.events.remove_link_listener(listener)

    def add_violation_listener(self, listener: Callable[[errors.PermissionViolation], None]) -> None:
        """`listener(error)` runs on the reader thread when the server refuses a subject; quick!"""
        self.events.add_violation_listener(listener)

    def remove_violation_listener(self, listener: Callable[[errors.PermissionViolation], None]) -> None:
        """Remove a listener. Unknown listeners are ignored."""
        self.events.remove_violation_listener(listener)

    def run_callback(self, call: Callable[..., Any], *args: Any) -> None:
        """Queue user code for the events thread, which runs it serially and logs its exceptions. The queue is
        bounded."""
        self.events_thread.run(call, *args)

    def run_last_callback(self, call: Callable[..., Any], *args: Any) -> None:
        """The same for an event that comes only once, such as the end: never dropped, even if the queue is full."""
        self.events_thread.run(call, *args, always=True)

    def report_error(self, error: BaseException, subscription: Any) -> None:
        """To `on_error`, or to the log when there is none."""
        self.events.report_error(error, subscription)

    # --- may it be used? ------------------------------------------------------------------------------------

    def check_usable(self) -> None:
        """Raises ConnectionClosed (in a forked child: ForkedConnection)."""
        if self.session.closing.is_set():
            raise self.closed_error()

    def wait_connected(self, timeout: float | None) -> bool:
        """Wait for a link; False after `timeout` seconds. Raises ConnectionClosed."""
        self.check_usable()
        connected = self.is_connected or self.session.connected.wait(timeout)
        self.check_usable()
        return connected

    def pause(self, seconds: float) -> None:
        """Wait for the given time. Raises ConnectionClosed as soon as the connection is closed."""
        self.check_usable()
        self.session.closing.wait(seconds)
        self.check_usable()

    def check_process(self) -> None:
        """Raises ForkedConnection in a forked child, where a wait could never end."""

    def check_draining(self) -> None:
        """Raises ConnectionDraining once a drain accepts nothing new, and ConnectionClosed."""
        self.check_usable()
        if self.draining and self.session.state is not ConnectionState.DRAINING_SUBSCRIPTIONS:
            raise errors.ConnectionDraining("the connection drains")

    def check_takes(self) -> None:
        """Raises ConnectionDraining or ConnectionClosed if no new consumer of messages may start."""
        self.check_usable()
        if self.draining:
            raise errors.ConnectionDraining("the connection drains")

    # --- looking at it ----------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """True once its end has begun."""
        return self.session.closing.is_set()

    @property
    def is_connected(self) -> bool:
        """True while a link is up."""
        return self.session.link is not None and not self.session.closing.is_set()

    @property
    def round_trip(self) -> float:
        """Seconds to the server and back, the shortest seen on this link; 0.0 without a link."""
        link = self.session.link
        return 0.0 if link is None else link.round_trip

    @property
    def connected_url(self) -> str:
        """The server we are connected to, without user information; "" when there is none."""
        link = self.session.link
        return "" if link is None else link.server.url

    @property
    def link_info(self) -> LinkInfo | None:
        """The current link, as the application sees it; None when there is none."""
        link = self.session.link
        if link is None:
            return None
        local, peer = link.stream.addresses
        return LinkInfo(
            url=link.server.url,
            local_address=local,
            peer_address=peer,
            tls=link.stream.tls,
            client_id=link.info.client_id,
            round_trip=link.round_trip,
        )

    def stats(self) -> Statistics:
        """Counters since the connection was made."""
        link = self.session.link
        return Statistics(
            messages_in=self.messages_in(),
            bytes_in=self.subscriptions.bytes_in + (0 if link is None else link.reading.bytes_in),
            messages_out=self.messages_out,
            bytes_out=self.outbox.bytes_sent(),
            reconnects=self.session.reconnects,
            subscriptions=len(self.subscriptions.sinks),
            callbacks_dropped=self.events_thread.dropped,
        )

    def health(self) -> Health:
        """See `Connection.health`."""
        link = self.session.link
        error = self.session.last_error
        return Health(
            state=self.session.state,
            server=self.connected_url,
            last_frame_age=None if link is None else time.monotonic() - link.reading.last_frame,
            pings_outstanding=self.session.pings_out,
            buffered_bytes=self.outbox.size + self.outbox.unsent,
            slow_consumers=self.events.slow_consumers,
            reconnects=self.session.reconnects,
            last_error="" if error is None else errors.brief(error),
            outage=self.events.outage.seconds,
            failed_attempts=self.events.outage.failed_attempts,
        )


def live_engines() -> list[Engine]:
    """The engines of this process that are not closed."""
    return [engine for known in list(_live.values()) if (engine := known()) is not None]


def forget_engines() -> None:
    """For a forked child: the engines belong to the parent."""
    _live.clear()
