"""`drain` of the connection waits for the acks of asynchronous publishes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jsclient._connection import Taker
from jsclient.errors import DrainTimeout

if TYPE_CHECKING:
    from jsclient.durations import Deadline
    from jsclient.jetstream.publishing.window import Window


class Unacknowledged(Taker):
    """The messages of one window. The drain waits for them when every handler has ended and no one can publish."""

    publishes = True

    def __init__(self, window: Window) -> None:
        self._window = window

    def finish_drain(self, deadline: Deadline) -> None:
        if not self._window.wait_empty(deadline.remaining()):
            raise DrainTimeout(
                f"{len(self._window.pending)} published messages were not acknowledged while the connection drained. "
                "Each may be stored: its future resolves as PublishUnknown, which says what to do."
            )
