"""What happens to a connection, as events that an application can wait for in a thread of its own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from jsclient import errors, hints, waiting
from jsclient._engine.mailbox import Mailbox
from jsclient.durations import DEFAULT, Timeout, resolve

if TYPE_CHECKING:
    from jsclient._engine.engine import Engine
    from jsclient.connection import Connection

hints.wanted(globals(), "Connection", "Engine")

LIMIT: Final = 4_096
"""Events that may wait to be taken; later ones are dropped and counted."""

RESERVE: Final = 256
"""Places beyond that for events of the link: a flood of errors must not push them out."""

NEXT_TIMEOUT: Final = 30.0
"""Seconds that `next` waits unless told otherwise."""

Kind = Literal["connected", "disconnected", "reconnected", "closed", "discovered_servers", "lame_duck", "error"]


@attrs.frozen
class ConnectionEvent:
    """One thing that happened; the callback `on_<kind>` gets the same event.

    Attributes:
        kind: What happened.
        error: Why: of "error", "disconnected" and "closed" (None when the application closed it itself).
        subscription: The subscription that the error is about, if it is about one.
        servers: The URLs of "discovered_servers".
        time: When it was told: seconds since 1970 by the clock of this machine.
    """

    kind: Kind
    error: BaseException | None = None
    subscription: Any = None
    servers: tuple[str, ...] = ()
    time: float = attrs.field(factory=time.time, kw_only=True)


class ConnectionEvents:
    """What happens to a connection, in order: iterate it, or call `next`. Made by `Connection.events`.

    The last event is "closed"; then the iteration ends. Leaving its `with` block stops it. Threads that share it get
    each event once. A listener that falls 4,096 events behind misses errors, and 256 later also the events of the link:
    `dropped` counts them.

    Options of several methods:
        timeout: Seconds for the whole call; by default 5 for what a server answers. None waits indefinitely, 0 takes
            only what is there, and a negative number raises ConfigError. At the end the call raises a TimeoutError,
            or returns what has arrived if its text says that.
    """

    def __init__(self, connection: Connection, engine: Engine) -> None:
        self._connection: Connection = connection  # as long as somebody takes from here
        self._engine: Engine = engine
        self._mailbox: Mailbox = Mailbox()
        self.dropped: int = 0

    def put(self, event: ConnectionEvent) -> None:
        """From any thread of the engine; never waits. The end is never dropped."""
        limit = LIMIT if event.kind == "error" else LIMIT + RESERVE
        if len(self._mailbox) >= limit and event.kind != "closed":
            self.dropped += 1
        else:
            self._mailbox.put(event)

    def end(self, reason: BaseException) -> None:
        """Nothing comes any more: what takes from it gets `reason`."""
        self._mailbox.forked(reason)

    def next(self, timeout: Timeout = DEFAULT) -> ConnectionEvent:
        """The next event. Waits at most `timeout` seconds (30 by default, None: for ever, 0: only what is there).

        Raises TimedOut, and SubscriptionClosed after `close` or the last event.
        """
        seconds = resolve(timeout, NEXT_TIMEOUT)
        self._engine.check_process()
        if seconds != 0 and waiting.on_reader():
            raise errors.Reentered("next on the reader thread of a connection would wait for itself")
        event = self._mailbox.get(seconds)
        if event is None:
            raise errors.TimedOut(f"nothing happened to the connection within {seconds:g} s. Ask again.")
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
        """True once nothing more comes; what is there can still be taken."""
        return self._mailbox.closed is not None

    def close(self) -> None:
        """Take no further events; waiting threads are woken. Idempotent."""
        if not self.closed:
            self._mailbox.close(errors.SubscriptionClosed("these events of the connection are closed"))
            self._engine.telling.forget_events(self)

    def __enter__(self) -> ConnectionEvents:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return self._engine.refuse_pickle(self)
