"""The iterator of a pull consumer, endless and pre-buffered: `Messages` and consumes take from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jsclient import errors
from jsclient.connection import engine_of
from jsclient.durations import Deadline
from jsclient.jetstream.consuming.iterator import MessageIterator
from jsclient.jetstream.consuming.pull_inboxes import FLUSH_TIMEOUT, PullInbox
from jsclient.jetstream.consuming.pull_options import PullOptions
from jsclient.jetstream.consuming.pump import WindowPump
from jsclient.jetstream.consuming.run_out import RunOut
from jsclient.jetstream.consuming.sources import PullSource
from jsclient.jetstream.consuming.typed import Values
from jsclient.jetstream.message import M


class PullMessages(MessageIterator[M]):
    """The iterator of a pull consumer.

    It raises errors that no pull survives (consumer deleted, request refused), and reports the rest to `on_error`. It
    survives reconnects, leader changes and missing heartbeats.
    """

    _running_out: RunOut | None = None

    def __init__(self, source: PullSource, options: PullOptions, values: Values[Any] | None = None) -> None:
        engine_of(source.nc).check_usable()
        if options.cancel is not None:
            options.cancel.check()
        self._pump = WindowPump(source, options.terms(), options.state(PullInbox.numbers))
        super().__init__(source, options, self._pump, options.cancel, values)

    # --- a drain without acks -------------------------------------------------------------------------------

    @property
    def runs_out(self) -> bool:  # type: ignore[override]
        """Its consumer does not redeliver messages that are on their way during a drain, see `run_out`."""
        return not self._wants_acks

    def ask_no_more(self) -> None:
        if self._wants_acks:
            self.withdraw()
            return
        with self._lock:
            self._draining = True
            if self._running_out is None:
                self._running_out = RunOut(self._pump)
                self._popleft = self._running_out.popleft

    def run_out(self, deadline: Deadline) -> None:
        if self._running_out is not None and not self._stopped:
            self._report(self._running_out.run(deadline))

    def resize(self, max_messages: int, threshold_messages: int) -> None:
        """Set the window from the next pull on; pulls under way stay. A WorkerPool adjusts it to its free workers."""
        self._pump.resize(max_messages, threshold_messages)

    @property
    def _wants_acks(self) -> bool:
        return not self.source.ack_none


def each(messages: PullMessages[M], most: int, deadline: Deadline) -> Iterator[M]:
    """Messages until the deadline, from an iterator that stops after `most` messages; closes it at the end."""
    try:
        while messages.delivered < most:
            try:
                message = messages.next(deadline.remaining())
            except errors.NoMessages:
                return
            except errors.IteratorClosed:
                if messages.delivered < most:
                    raise
                return  # the last ones were left out: they could not be decoded
            yield message
    finally:
        messages.close(deadline.at_most(FLUSH_TIMEOUT))
