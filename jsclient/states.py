"""The states of a connection and the events of its link, in the words of nats.go."""

from __future__ import annotations

import enum
from typing import Final

from protocol.described import described


@described
class ConnectionState(enum.Enum):
    """Where a Connection is in its life; read it through `Connection.state`."""

    CONNECTING = "connecting"
    """The first link is being made."""
    CONNECTED = "connected"
    """A link stands."""
    RECONNECTING = "reconnecting"
    """The link was lost, and a new one is being made; publishes are kept meanwhile."""
    DRAINING_SUBSCRIPTIONS = "draining subscriptions"
    """drain() was called: what was received is being handled."""
    DRAINING_PUBLISHES = "draining publishes"
    """Everything is handled; what is left to send is being sent."""
    CLOSED = "closed"
    """It has ended, and every call raises ConnectionClosed."""


@described
class LinkEvent(enum.Enum):
    """What happened to the link, told in order with the messages of an inbox and to sinks and listeners."""

    DISCONNECTED = "disconnected"
    """The link was lost."""
    RECONNECTED = "reconnected"
    """A new link stands, with every subscription renewed."""
    CLOSED = "closed"
    """The connection was closed: no further event follows."""
    SERVER_LEFT = "server left"
    """Another server of the cluster goes or is gone, by what ours says: told to listeners only."""


class Wake(enum.Enum):
    """The type of `WAKE`, which `Inbox.next` returns instead of waiting after `Inbox.wake()`."""

    WAKE = "wake"


WAKE: Final = Wake.WAKE
