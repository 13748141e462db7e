"""What the application and the layers above are told: callbacks of the options, listeners, errors."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from jsclient import errors, handlers, instruments
from jsclient._engine.callbacks import EventsThread
from jsclient._engine.happenings import ConnectionEvent, ConnectionEvents
from jsclient._engine.outage import Outage
from jsclient._engine.refusals import Refusals
from jsclient._engine.sinks import Inbox
from jsclient.instruments import End, Instrumentation
from jsclient.options import CallbacksDict
from jsclient.states import LinkEvent

if TYPE_CHECKING:
    from jsclient._engine.engine import Engine
    from jsclient._engine.sinks import AppSubscription, BaseSubscription
    from jsclient.connection import Connection

log = logging.getLogger("jsclient.connection")


class Telling:
    """Callbacks of the application run on the events thread; listeners of layers on the thread that tells them."""

    def __init__(self, engine: Engine, events: EventsThread) -> None:
        self._engine = engine
        self._callbacks = {name: getattr(engine.options, name) for name in CallbacksDict.__annotations__}
        self._streams: list[weakref.ref[ConnectionEvents]] = []
        self._events = events
        self._instrument: Instrumentation | None = None
        self._reconnect: list[End] = []  # how to tell it of the end of the outage, on the events thread
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
        """To these subscriptions, then to the listeners."""
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
        """From now on these; None: nothing is called."""
        wrong = sorted(name for name in callbacks if name not in self._callbacks)
        if wrong:
            raise errors.ConfigError(f"a connection has no callback {', '.join(wrong)}: {', '.join(self._callbacks)}")
        for name, call in callbacks.items():
            handlers.check(call, name)
        self._callbacks.update(callbacks)

    def open_events(self, connection: Connection) -> ConnectionEvents:
        """Whatever is told from now on. Held weakly: what nobody takes from is not filled."""
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
        """This is a forked child: nothing is told any more."""
        for events in self._open_streams():
            events.end(reason)

    def instrument(self, instrument: Instrumentation) -> None:
        """Tell it of outages and slow consumers."""
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
        """To the streams of events, then to the callback of that name, with the connection before its arguments."""
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
        """To `on_error` and the streams of events, or to the log when there is neither."""
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
        """Reader thread: a server sends far more than was asked for."""
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
