"""The states of a connection and the events of its link, named as in nats.go."""

from __future__ import annotations

import enum
from typing import Final


class ConnectionState(enum.Enum):
    """The state of a Connection; read it through `Connection.state`.

    Values:
        CONNECTING: The client makes the first link.
        CONNECTED: A link is up.
        RECONNECTING: The link was lost. The client makes a new one, and buffers publishes meanwhile.
        DRAINING_SUBSCRIPTIONS: drain() was called, and the application handles the received messages.
        DRAINING_PUBLISHES: All messages are handled, and the client sends the buffered data.
        CLOSED: It has ended, and every call raises ConnectionClosed.
    """

    CONNECTING = "connecting"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"
    DRAINING_SUBSCRIPTIONS = "draining subscriptions"
    DRAINING_PUBLISHES = "draining publishes"
    CLOSED = "closed"


class LinkEvent(enum.Enum):
    """An event of the link. Inboxes get it in order with their messages; sinks and listeners get it, too.

    Values:
        DISCONNECTED: The link was lost.
        RECONNECTED: A new link is up, with every subscription renewed.
        CLOSED: The connection was closed, and no further event follows.
        SERVER_LEFT: Our server reports that another server of the cluster leaves or has left. Only listeners get it.
    """

    DISCONNECTED = "disconnected"
    RECONNECTED = "reconnected"
    CLOSED = "closed"
    SERVER_LEFT = "server left"


class Wake(enum.Enum):
    """The type of `WAKE`, which `Inbox.next` returns instead of waiting after `Inbox.wake()`."""

    WAKE = "wake"


WAKE: Final = Wake.WAKE
