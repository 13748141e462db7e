"""The states of a connection and the events of its link, in the words of nats.go."""

from __future__ import annotations

import enum
from typing import Final


class ConnectionState(enum.Enum):
    """Where a Connection is in its life; read it through `Connection.state`.

    Values:
        CONNECTING: The first link is being made.
        CONNECTED: A link stands.
        RECONNECTING: The link was lost, and a new one is being made; publishes are kept meanwhile.
        DRAINING_SUBSCRIPTIONS: drain() was called: what was received is being handled.
        DRAINING_PUBLISHES: Everything is handled; what is left to send is being sent.
        CLOSED: It has ended, and every call raises ConnectionClosed.
    """

    CONNECTING = "connecting"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"
    DRAINING_SUBSCRIPTIONS = "draining subscriptions"
    DRAINING_PUBLISHES = "draining publishes"
    CLOSED = "closed"


class LinkEvent(enum.Enum):
    """What happened to the link, told in order with the messages of an inbox and to sinks and listeners.

    Values:
        DISCONNECTED: The link was lost.
        RECONNECTED: A new link stands, with every subscription renewed.
        CLOSED: The connection was closed: no further event follows.
        SERVER_LEFT: Another server of the cluster goes or is gone, by what ours says: told to listeners only.
    """

    DISCONNECTED = "disconnected"
    RECONNECTED = "reconnected"
    CLOSED = "closed"
    SERVER_LEFT = "server left"


class Wake(enum.Enum):
    """The type of `WAKE`, which `Inbox.next` returns instead of waiting after `Inbox.wake()`."""

    WAKE = "wake"


WAKE: Final = Wake.WAKE
