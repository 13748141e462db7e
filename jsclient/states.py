"""The states of a connection and the events of its link, in the words of nats.go."""

from __future__ import annotations

import enum
from typing import Final


class ConnectionState(enum.Enum):
    """Where a Connection is in its life; read it through `Connection.state`."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"
    DRAINING_SUBSCRIPTIONS = "draining subscriptions"
    DRAINING_PUBLISHES = "draining publishes"
    CLOSED = "closed"


class LinkEvent(enum.Enum):
    """What happened to the link, told in order with the messages of an inbox and to sinks and listeners."""

    DISCONNECTED = "disconnected"
    RECONNECTED = "reconnected"
    CLOSED = "closed"
    SERVER_LEFT = "server left"
    """Another server of the cluster goes or is gone, by what ours says: told to listeners only."""


class Wake(enum.Enum):
    """The type of `WAKE`, which `Inbox.next` returns instead of waiting after `Inbox.wake()`."""

    WAKE = "wake"


WAKE: Final = Wake.WAKE
