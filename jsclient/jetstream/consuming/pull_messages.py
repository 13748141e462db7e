"""The iterator of a pull consumer, endless and pre-buffered, and the end of its pulls in a drain.

`Messages` and consumes take from the iterator.

A consumer with ack policy none counts a message as delivered when it has passed it to its server's queue. Messages that
still wait there at the end of the subscription are lost. No request takes a pull back; only the end of its subscription
does. So the client requests nothing more, and keeps the subscription until all requested messages have come. Then there
is nothing to lose.

That can take too long, if few messages come, or none. The subscription then ends while a pull is open, if possible at a
quiet moment. The server may send a message in just that moment. So the client compares the deliveries that the consumer
reports with the received messages, and reports the missing ones.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors, waiting
from jsclient.connection import engine_of
from jsclient.durations import Deadline
from jsclient.jetstream.consuming.iterator import MessageIterator
from jsclient.jetstream.consuming.pull_inboxes import FLUSH_TIMEOUT, PullInbox
from jsclient.jetstream.consuming.pull_options import PullOptions
from jsclient.jetstream.consuming.pump import WindowPump
from jsclient.jetstream.consuming.sources import PullSource
from jsclient.jetstream.consuming.typed import Values
from jsclient.jetstream.message import M, consumer_position

if TYPE_CHECKING:
    from jsclient.jetstream.api.models import ConsumerInfo

LONGEST: Final = 5.0
"""Seconds to wait for all requested messages. A window that has grown holds the messages of a shorter time. A longer
wait means a flow so thin that hardly any message is within the server at any time.
"""

SHARE: Final = 0.75
"""Share of the time of the drain; the rest is for the round trips behind it."""

RUN_OUT: Final = LONGEST / SHARE
"""The most seconds of a drain that this needs."""

QUIET: Final = 0.1
"""Seconds without a frame after which the client asks the consumer if messages are on their way."""

LONGEST_SILENCE: Final = 0.8
"""The client asks after 0.1, 0.2, 0.4, 0.8 seconds; after that it expects no more messages."""

SETTLE: Final = 0.02
"""Seconds of the shortest look, even if all was quiet before."""

LOOK: Final = 0.25
"""Seconds after which the rate shows if all messages can come in time."""

PAUSE: Final = 0.002
"""Seconds between two looks, or four times the duration of a look, because a look goes through all waiting messages."""

KEPT: Final = 64
"""The number of last taken messages to keep, because threads that share an iterator may take them out of order."""


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
        """Its consumer does not redeliver messages that are on their way during a drain, see `RunOut`."""
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


class RunOut:
    """The end of the pulls of one pump.

    All messages taken from now on pass `popleft`, which keeps the last ones. Only they show how far the deliveries have
    come.
    """

    def __init__(self, pump: WindowPump) -> None:
        """Under the lock of the pump: from here on it requests nothing more."""
        self._pump = pump
        self._items = pump.mailbox.items
        self._taken: deque[Any] = deque(maxlen=KEPT)
        self._asked: ConsumerInfo | None = None
        self._runner = 0  # the thread that waits for it
        self._over = waiting.Gate()
        pump.halted = True
        pump.mailbox.popleft = self.popleft

    def popleft(self) -> Any:
        # Kept before it leaves the mailbox, or for a moment it would be in neither place. Raises IndexError.
        first = self._items[0]
        self._taken.append(first)
        item = self._items.popleft()
        if item is not first:  # another thread was faster
            self._taken.append(item)
        return item

    def run(self, deadline: Deadline) -> errors.DrainIncomplete | None:
        """Wait for the requested messages, then UNSUB and wait for the rest.

        One of the draining threads gets a report of messages that are missing afterwards. The other threads only wait.
        """
        me = threading.get_ident()
        with self._pump.lock:
            first = not self._runner
            if first:
                self._runner = me
        if not first:
            if self._runner != me:  # else this is a signal handler on top of the thread for which it would wait
                self._over.wait(deadline.remaining())
            return None
        try:
            return self._run(deadline)
        finally:
            self._pump.mailbox.popleft = self._items.popleft
            self._over.set()

    def _run(self, deadline: Deadline) -> errors.DrainIncomplete | None:
        pump = self._pump
        all_came = self._wait(deadline)
        if self._cut_short:
            return None
        pump.withdraw()
        with suppress(errors.JsClientError):  # a lost link delivers nothing more
            if pump.connection.is_connected:
                pump.connection.flush(deadline.at_most(FLUSH_TIMEOUT))
                return None if all_came else self._missing(deadline)
        return None

    @property
    def _cut_short(self) -> bool:
        """It was stopped or closed meanwhile: no thread takes messages any more."""
        mailbox = self._pump.mailbox
        return mailbox.woken or mailbox.closed is not None or self._pump.connection.closed

    def _wait(self, deadline: Deadline) -> bool:
        """True if all requested messages have come; False if the wait must end before."""
        pump, pause = self._pump, waiting.Gate()
        begun = time.monotonic()
        end = begun + SHARE * deadline.at_most(RUN_OUT)
        received, ask_at, silence = pump.inbox.inbox.received, begun + SETTLE, QUIET
        while True:
            now = time.monotonic()
            came = pump.inbox.inbox.received - received
            left = pump.on_its_way()
            if not left:
                return not pump.doubtful
            in_vain = now - begun > LOOK and left * (now - begun) > came * (end - now)
            if now >= end or (in_vain and came) or self._cut_short or not pump.connection.is_connected:
                return False
            if now >= max(ask_at, pump.mailbox.last_frame + QUIET):
                if silence > LONGEST_SILENCE or self._nothing_comes(deadline):
                    return False
                ask_at, silence = time.monotonic() + (SETTLE if self._last() is None else silence), 2 * silence
            pause.wait(max(PAUSE, 4 * (time.monotonic() - now)))

    def _nothing_comes(self, deadline: Deadline) -> bool:
        """It is quiet. True unless the consumer reports that messages are on their way."""
        before, self._asked = self._asked, self._ask(deadline)
        if self._asked is None or self._asked.num_waiting > len(self._pump.state.open):
            return True  # other clients pull, too: their messages look the same as ours
        last = self._last()
        if last is None:  # our own position is unknown: ask the consumer again
            return before is not None and before.delivered.consumer_seq == self._asked.delivered.consumer_seq
        return self._asked.delivered.consumer_seq <= last

    def _ask(self, deadline: Deadline) -> ConsumerInfo | None:
        return self._pump.source.ask_position(deadline.at_most(FLUSH_TIMEOUT))

    def _missing(self, deadline: Deadline) -> errors.DrainIncomplete | None:
        """Compare the received messages with the consumer's report.

        None without a proof: the consumer does not answer, or other clients take from it.
        """
        info, came = self._ask(deadline), self._positions()
        if came and came[-1] - came[0] >= len(came):
            return None  # other clients got the messages in between
        last = came[-1] if came else self._asked.delivered.consumer_seq if self._asked is not None else None
        if info is None or last is None or info.num_waiting or info.delivered.consumer_seq <= last:
            return None
        return errors.DrainIncomplete(
            f"the server sent {errors.counted(info.delivered.consumer_seq - last, 'message')} of {self._pump.source} "
            "that had not come when the drain ended"
        )

    def _positions(self) -> list[int]:
        """The consumer sequences of the last taken messages and of the waiting ones, in order."""
        found: set[int] = set()
        there = waiting.copy_of(self._items)  # first: a message taken meanwhile appears twice, but none is missed
        for item in (*there, *waiting.copy_of(self._taken)):
            with suppress(AttributeError, errors.NotJetStreamMessage):  # a link event, a status
                found.add(consumer_position(item.raw_reply)[1])
        return sorted(found)

    def _last(self) -> int | None:
        came = self._positions()
        return came[-1] if came else None
