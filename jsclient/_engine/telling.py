"""What the application and the layers above are told: callbacks of the options, listeners, errors."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jsclient import errors
from jsclient._engine.callbacks import EventsThread
from jsclient._engine.sinks import Inbox
from jsclient.options import ConnectOptions
from jsclient.states import LinkEvent

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.subscription import Subscription

log = logging.getLogger("jsclient.connection")


class Telling:
    """Callbacks of the application run on the events thread; listeners of layers on the thread that tells them."""

    def __init__(self, connection: Connection, options: ConnectOptions, events: EventsThread) -> None:
        self._connection = connection
        self._options = options
        self._events = events
        self._link_listeners: list[Callable[[LinkEvent], None]] = []
        self._violation_listeners: list[Callable[[errors.PermissionViolation], None]] = []
        self.slow_consumers = 0

    # --- listeners ----------------------------------------------------------------------------------------

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

    def link_event(self, event: LinkEvent, subscriptions: list[Any] | None = None) -> None:
        """To these subscriptions, then to the listeners."""
        for subscription in subscriptions or ():
            guarded(subscription.link_event, event)
        for listener in list(self._link_listeners):
            guarded(listener, event)

    def violation(self, error: errors.PermissionViolation) -> None:
        """Reader thread: the server has refused a subject."""
        for listener in list(self._violation_listeners):
            listener(error)

    # --- the application ----------------------------------------------------------------------------------

    def callback(self, call: Callable[..., Any] | None, *args: Any) -> None:
        """One of the options, with the connection before its arguments; None means that nothing is called."""
        if call is not None:
            self._events.run(call, self._connection, *args)

    def report_error(self, error: BaseException, subscription: Any) -> None:
        """To `on_error`, or to the log when there is none."""
        if self._options.on_error is not None:
            self.callback(self._options.on_error, error, subscription)
        else:
            log.error("%s%s", error, f" (subscription {subscription.subject!r})" if subscription is not None else "")

    def report_slow_consumer(self, subscription: Subscription) -> None:
        self.slow_consumers += 1
        error = errors.SlowConsumer(
            f"messages on {subscription.subject!r} are dropped: {subscription.pending} wait to be taken",
            subscription.subject,
            subscription.dropped,
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
