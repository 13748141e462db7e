"""Refusals of the server over a link that stays: each ends a subscription or a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors
from jsclient._connection.pings import WhenAnswered
from jsclient._connection.sinks import BaseSubscription, SinkSubscription

if TYPE_CHECKING:
    from jsclient._connection.engine import Engine
    from jsclient._connection.server_errors import ServerErr

ROUNDS: Final = 8
"""PINGs until one is not sent just while another thread subscribes."""


class Refusals:
    """Runs on the reader thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._full: _Full | None = None

    @property
    def settling(self) -> bool:
        """True while the server has refused a subscription and its name is still open."""
        return self._full is not None

    def came(self, err: ServerErr) -> None:
        """A permission error reaches the call that waits for it, a refused subscription ends; `on_error` hears all."""
        error, engine = err.error, self._engine
        if isinstance(error, errors.MaxSubscriptionsExceeded):
            self._no_room(error)
            return
        subscription: BaseSubscription | None = None
        if isinstance(error, errors.PermissionViolation):
            if err.operation == "subscribe":
                subscription = self._named(err)
            else:
                engine.requests.fail(lambda: same_violation(error), err.subject)
            if subscription is not None:
                self._end(subscription, error, lambda: same_violation(error))
            engine.events.violation(error)
        engine.report_error(error, subscription)

    def _named(self, err: ServerErr) -> BaseSubscription | None:
        for subscription in list(self._engine.subscriptions.sinks.values()):
            same = subscription.subject == err.subject and subscription.queue == err.queue
            if subscription.sid == err.sid or (err.sid is None and same):
                return subscription
        return None

    def _end(self, subscription: BaseSubscription, error: BaseException, make: Callable[[], BaseException]) -> None:
        subscription.fail(error)
        if isinstance(subscription, SinkSubscription) and subscription.sink is self._engine.requests:
            self._engine.requests.refuse(make)

    # --- no room for a subscription: the server does not say which --------------------------------------------

    def _no_room(self, error: errors.MaxSubscriptionsExceeded) -> None:
        """Send a PING. Its PONG shows that all refusals of earlier frames have arrived."""
        full = self._full
        if full is None:
            full = self._full = _Full(self._answered, error)
            self._ask(full)
        full.refused += 1

    def _ask(self, full: _Full) -> None:
        table = self._engine.subscriptions
        full.rounds += 1
        full.told = table.told()
        self._engine.session.pings.send(full)
        if full.told != table.told():
            full.told = []  # another thread has subscribed meanwhile: before the PING, or behind it?
        self._engine.outbox.nudge()

    def _answered(self, full: _Full, answered: bool) -> None:
        if answered and not full.told and full.rounds < ROUNDS:
            self._ask(full)
            return
        try:
            self._settle(full, answered)
        finally:
            self._full = None  # not before: a flush waits for this

    def _settle(self, full: _Full, answered: bool) -> None:
        engine, table = self._engine, self._engine.subscriptions
        refused = table.beyond_the_limit(full.told, full.refused) if answered else []
        for subscription in refused or ():
            error = _no_room_for(subscription.subject, full.error)
            self._end(subscription, error, lambda: _no_answers("has", full.error))
            engine.report_error(error, subscription)
        if not refused:
            engine.report_error(full.error, None)
        if refused is None:  # it may be that one
            inbox = table.sinks.get(engine.requests.sid)
            if inbox is not None:
                engine.remove_subscription(inbox, tell_server=True)
            engine.requests.refuse(lambda: _no_answers("may have", full.error))


def same_violation(error: Any) -> errors.PermissionViolation:
    """A copy for each waiting call: an exception that several threads raise collects all their tracebacks."""
    return errors.PermissionViolation(error.what, error.subject, error.operation)


class _Full(WhenAnswered):
    """Replaces the ticket of that PING."""

    def __init__(self, answered: Callable[[_Full, bool], None], error: errors.MaxSubscriptionsExceeded) -> None:
        self._answered = answered
        self.error = error
        self.told: list[bytes] = []  # before that PING
        self.refused = self.rounds = 0

    def put(self, item: Any) -> None:
        self._answered(self, item is None)


def _no_room_for(subject: str, error: errors.MaxSubscriptionsExceeded) -> errors.MaxSubscriptionsExceeded:
    return errors.MaxSubscriptionsExceeded(f"the server has no room for the subscription to {subject!r}: {error.what}")


def _no_answers(has: str, error: errors.MaxSubscriptionsExceeded) -> errors.MaxSubscriptionsExceeded:
    return errors.MaxSubscriptionsExceeded(
        f"the server {has} refused the inbox for answers, so what was asked may have been done: {error.what}"
    )
