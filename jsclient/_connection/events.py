"""Reports what happens to a connection through events, the callbacks of the options, listeners and the log."""

from __future__ import annotations

import contextlib
import logging
import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from jsclient import errors, handlers, instruments, waiting
from jsclient._connection.callbacks import EventsThread
from jsclient._connection.mailbox import Mailbox
from jsclient._connection.refusals import Refusals
from jsclient._connection.sinks import Inbox
from jsclient.durations import DEFAULT, Timeout, resolve
from jsclient.instruments import End, Instrumentation
from jsclient.options import CallbacksDict
from jsclient.states import LinkEvent

if TYPE_CHECKING:
    from jsclient._connection.engine import Engine
    from jsclient._connection.sinks import AppSubscription, BaseSubscription
    from jsclient.connection import Connection

log = logging.getLogger("jsclient.connection")


LIMIT: Final = 4_096
"""Number of events that may wait; the client drops and counts later ones."""

RESERVE: Final = 256
"""Further places for events of the link, which a flood of errors must not push out."""

NEXT_TIMEOUT: Final = 30.0
"""Seconds that `next` waits by default."""

Kind = Literal["connected", "disconnected", "reconnected", "closed", "discovered_servers", "lame_duck", "error"]


class ConnectionEvent(msgspec.Struct, frozen=True):
    """One thing that happened; the callback `on_<kind>` gets the same event.

    Attributes:
        kind: The kind of event.
        error: The reason, for "error", "disconnected" and "closed" (None when the application closed it itself).
        subscription: The subscription that the error is about, if it is about one.
        servers: The URLs of "discovered_servers".
        time: The time of the report, in seconds since 1970 by the clock of this machine.
    """

    kind: Kind
    error: BaseException | None = None
    subscription: Any = None
    servers: tuple[str, ...] = ()
    time: float = msgspec.field(default_factory=time.time)


class ConnectionEvents:
    """The events of a connection, in order. Iterate over it, or call `next`. Made by `Connection.events`.

    The iteration ends after the last event, "closed", or when its `with` block ends. Threads that share it get each
    event once. If a listener falls 4,096 events behind, it misses errors. After 256 more events it also misses those
    about the link. `dropped` counts the missed events.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """

    def __init__(self, connection: Connection, engine: Engine) -> None:
        self._connection: Connection = connection  # held as long as these events are in use
        self._engine: Engine = engine
        self._mailbox: Mailbox = Mailbox()
        self.dropped: int = 0

    def put(self, event: ConnectionEvent) -> None:
        """Add an event, from any thread of the engine; never waits. The end is never dropped."""
        limit = LIMIT if event.kind == "error" else LIMIT + RESERVE
        if len(self._mailbox) >= limit and event.kind != "closed":
            self.dropped += 1
        else:
            self._mailbox.put(event)

    def end(self, reason: BaseException) -> None:
        """No more events come: callers of `next` get `reason`."""
        self._mailbox.forked(reason)

    def next(self, timeout: Timeout = DEFAULT) -> ConnectionEvent:
        """The next event. Waits at most `timeout` seconds, by default 30.

        With None it waits indefinitely, and with 0 it returns only an event that has already arrived.

        Raises TimedOut, and SubscriptionClosed after `close` or the last event.
        """
        seconds = resolve(timeout, NEXT_TIMEOUT)
        self._engine.check_process()
        if seconds != 0 and waiting.on_reader():
            raise errors.Reentered("next on the reader thread of a connection would wait for itself")
        event = self._mailbox.get(seconds)
        if event is None:
            raise errors.TimedOut(f"nothing happened to the connection within {seconds:g} s")
        return event  # type: ignore[no-any-return]

    def __iter__(self) -> ConnectionEvents:
        return self

    def __next__(self) -> ConnectionEvent:
        try:
            return self.next(None)
        except errors.SubscriptionClosed:
            raise StopIteration from None

    @property
    def closed(self) -> bool:
        """True once no more events come. You can still take the events that have arrived."""
        return self._mailbox.closed is not None

    def close(self) -> None:
        """Take no further events; waiting threads are woken. Idempotent."""
        if not self.closed:
            self._mailbox.close(errors.SubscriptionClosed("these events of the connection are closed"))
            self._engine.events.forget_events(self)

    def __enter__(self) -> ConnectionEvents:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return self._engine.refuse_pickle(self)


EVERY: Final = 10
"""An outage logs its first failed attempt and each tenth, because an outage of a night must not fill the log."""


class Outage:
    """Logs the loss of a link, the attempts that fail, and the next link. It does so on the events thread, because a
    log handler is user code and may wait for data that only the reader delivers."""

    def __init__(self, number: int, events: EventsThread) -> None:
        self._number = number
        self._events = events
        self._began: float | None = time.monotonic()
        self.failed_attempts: int = 0

    @property
    def seconds(self) -> float | None:
        """Seconds since the last link was lost; None while one is up."""
        began = self._began
        return None if began is None else time.monotonic() - began

    def begin(self, url: str, reason: BaseException | None) -> None:
        """The link is lost. Without a reason the application has closed the connection."""
        self._began, self.failed_attempts = time.monotonic(), 0
        if reason is not None:
            self._log(logging.WARNING, "lost its link to %s: %s", url, errors.brief(reason))

    def attempt_failed(self, url: str, error: BaseException, quiet: bool) -> None:
        """`quiet`: the call of `connect` raises the error, or the connection is being closed."""
        self.failed_attempts += 1
        count = self.failed_attempts
        level = logging.WARNING if not quiet and (count == 1 or count % EVERY == 0) else logging.INFO
        self._log(level, "cannot connect to %s (attempt %d): %s", url, count, errors.brief(error))

    def end(self, url: str, first: bool) -> None:
        """A link is up. It may replace another one that was still up."""
        seconds, failed = self.seconds, self.failed_attempts
        self._began, self.failed_attempts = None, 0
        if seconds is not None and not first:
            self._log(logging.WARNING, "is connected again after %.1f s, to %s", seconds, url)
        elif failed:
            self._log(logging.WARNING, "is connected to %s after %d failed attempts", url, failed)

    def _log(self, level: int, text: str, *args: Any) -> None:
        if log.isEnabledFor(level):
            self._events.run(log.log, level, f"connection %d {text}", self._number, *args, rare=True)


class Events:
    """Callbacks of the application run on the events thread. Listeners of layers run on the reporting thread."""

    def __init__(self, engine: Engine, events: EventsThread) -> None:
        self._engine = engine
        self._callbacks = {name: getattr(engine.options, name) for name in CallbacksDict.__annotations__}
        self._streams: list[weakref.ref[ConnectionEvents]] = []
        self._events = events
        self._instrument: Instrumentation | None = None
        self._reconnect: list[End] = []  # reports the end of the outage to it, on the events thread
        self.link_listeners: list[Callable[[LinkEvent], None]] = []
        self._violation_listeners: list[Callable[[errors.PermissionViolation], None]] = []
        self.slow_consumers: int = 0
        self.refusals: Refusals = Refusals(engine)
        self.outage: Outage = Outage(engine.number, events)

    # --- listeners ----------------------------------------------------------------------------------------

    def add_link_listener(self, listener: Callable[[LinkEvent], None]) -> None:
        """`listener(event)` runs on an internal thread when the link goes down, comes back, or is closed; quick!"""
        self.link_listeners.append(listener)

    def remove_link_listener(self, listener: Callable[[LinkEvent], None]) -> None:
        if listener in self.link_listeners:
            self.link_listeners.remove(listener)

    def add_violation_listener(self, listener: Callable[[errors.PermissionViolation], None]) -> None:
        """`listener(error)` runs on the reader thread when the server refuses a subject; quick!"""
        self._violation_listeners.append(listener)

    def remove_violation_listener(self, listener: Callable[[errors.PermissionViolation], None]) -> None:
        if listener in self._violation_listeners:
            self._violation_listeners.remove(listener)

    def link_event(self, event: LinkEvent, subscriptions: list[Any] | None = None) -> None:
        """Report to these subscriptions, then to the listeners."""
        for subscription in subscriptions or ():
            guarded(subscription.link_event, event)
        for listener in list(self.link_listeners):
            guarded(listener, event)

    def violation(self, error: errors.PermissionViolation) -> None:
        """Reader thread: the server has refused a subject."""
        for listener in list(self._violation_listeners):
            listener(error)

    # --- the application ----------------------------------------------------------------------------------

    def set_callbacks(self, callbacks: Mapping[str, Callable[..., Any] | None]) -> None:
        """Use these callbacks from now on; None calls nothing."""
        wrong = sorted(name for name in callbacks if name not in self._callbacks)
        if wrong:
            raise errors.ConfigError(f"a connection has no callback {', '.join(wrong)}: {', '.join(self._callbacks)}")
        for name, call in callbacks.items():
            handlers.check(call, name)
        self._callbacks.update(callbacks)

    def open_events(self, connection: Connection) -> ConnectionEvents:
        """All events from now on. The engine holds the object weakly and stops filling it when it is no longer
        used."""
        events = ConnectionEvents(connection, self._engine)
        self._streams.append(weakref.ref(events, self._dropped))
        return events

    def forget_events(self, events: ConnectionEvents) -> None:
        """They are closed."""
        self._dropped(weakref.ref(events))

    def _dropped(self, known: weakref.ref[ConnectionEvents]) -> None:
        with contextlib.suppress(ValueError):
            self._streams.remove(known)

    def _open_streams(self) -> list[ConnectionEvents]:
        return [events for known in list(self._streams) if (events := known()) is not None]

    def forked(self, reason: BaseException) -> None:
        """This is a forked child: it reports no more events."""
        for events in self._open_streams():
            events.end(reason)

    def instrument(self, instrument: Instrumentation) -> None:
        """Report outages and slow consumers to `instrument`."""
        self._instrument = instrument

    def _measure(self, event: ConnectionEvent) -> None:
        """Events thread: outages and slow consumers, as an instrument sees them."""
        assert self._instrument is not None
        if event.kind == "disconnected":
            operation = instruments.Operation("reconnect", detail=str(event.error or ""))
            self._reconnect.append(instruments.begin(self._instrument, operation))
        elif event.kind in ("reconnected", "closed"):
            while self._reconnect:
                instruments.finish(self._reconnect.pop(), event.error)
        elif isinstance(event.error, errors.SlowConsumer):
            operation = instruments.Operation("slow consumer", event.error.subject)
            instruments.told(self._instrument, operation, event.error)

    def tell(self, event: ConnectionEvent, *args: Any, last: bool = False) -> None:
        """Report to the streams of events, then to the callback of that name, which gets the connection before its
        arguments."""
        rare = event.kind != "error"
        for events in self._open_streams():
            events.put(event)
        if self._instrument is not None:
            self._events.run(self._measure, event, rare=rare, always=last)
        call = self._callbacks["on_" + event.kind]
        if call is not None:
            self._events.run(call, self._engine.connection, *args, rare=rare, always=last)
        for events in self._open_streams() if last else ():
            events.close()

    def report_error(self, error: BaseException, subscription: BaseSubscription | None) -> None:
        """Report to `on_error` and the streams of events, or to the log when there is neither."""
        heard = self._callbacks["on_error"] is not None or self._streams
        if heard or self._instrument is not None:
            public = None if subscription is None else subscription.public()
            self.tell(ConnectionEvent("error", error, public), error, public)
        if not heard:
            where = f" (subscription {subscription.subject!r})" if subscription is not None else ""
            log.error("%s%s", errors.brief(error), where, exc_info=error)

    def report_slow_consumer(self, subscription: AppSubscription) -> None:
        self.slow_consumers += 1
        error = errors.SlowConsumer(
            f"messages on {subscription.subject!r} are dropped: {len(subscription)} wait to be taken",
            subscription.subject,
            subscription.mailbox.dropped,
        )
        self.report_error(error, subscription)

    def report_beyond_credit(self, inbox: Inbox) -> None:
        """Reader thread: a server sends far more than the requested number of messages."""
        error = errors.SlowConsumer(
            f"messages on {inbox.subject!r} are dropped: the server sends far more than was asked for "
            f"({len(inbox)} wait). It is broken or hostile. Messages that want an ack come again.",
            inbox.subject,
            inbox.mailbox.dropped,
        )
        self.report_error(error, inbox)


def guarded(tell: Callable[[Any], None], what: Any) -> None:
    """A bug in a layer must not keep the session from reconnecting or closing."""
    try:
        tell(what)
    except Exception:
        log.exception("a link listener failed")
