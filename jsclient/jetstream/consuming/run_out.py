"""How the pulls of a consumer with ack policy none end in a drain, so that nothing is lost.

Such a consumer counts a message as delivered when it has handed it to its server's queue, and what still waits there
when the subscription goes is gone. No request takes a pull back, only the end of its subscription does. So nothing
more is asked for, and the subscription stays until all that was asked for has come: then there is nothing to lose.

Where that takes too long (few messages come, or none) the subscription goes while a pull is open, at a moment when
nothing has come for a while if there is one. A message may be sent in just that moment: what the consumer says it has
delivered is compared with what has come, and what is missing is reported.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors, waiting
from jsclient.jetstream.consuming.pull_inboxes import FLUSH_TIMEOUT
from jsclient.jetstream.message import consumer_position

if TYPE_CHECKING:
    from jsclient.durations import Deadline
    from jsclient.jetstream.api.models import ConsumerInfo
    from jsclient.jetstream.consuming.pump import WindowPump

LONGEST: Final = 5.0
"""Seconds to wait for all that was asked for. A window that has grown holds what comes in less; what needs longer is
a flow so thin that hardly anything is within the server at any time."""

SHARE: Final = 0.75
"""Of the time of the drain; the rest is for the round trips behind it."""

RUN_OUT: Final = LONGEST / SHARE
"""Seconds of a drain of which no more are needed for it."""

QUIET: Final = 0.1
"""Seconds without a frame after which the consumer is asked whether anything is on its way."""

LONGEST_SILENCE: Final = 0.8
"""Asked after 0.1, 0.2, 0.4, 0.8 seconds; what has not come then does not come."""

SETTLE: Final = 0.02
"""The shortest look, also where all was quiet before."""

LOOK: Final = 0.25
"""Seconds after which the rate tells whether all can come in time."""

PAUSE: Final = 0.002
"""Seconds between two looks, or four times as many as a look takes: it goes through all that waits."""

KEPT: Final = 64
"""Messages taken last: threads that share an iterator may take them out of order."""


class RunOut:
    """The end of the pulls of one pump. What is taken from now on passes by `popleft`, which remembers the last ones:
    only they tell how far the deliveries have come."""

    def __init__(self, pump: WindowPump) -> None:
        """Under the lock of the pump: from here on it asks for nothing more."""
        self._pump = pump
        self._items = pump.mailbox.items
        self._taken: deque[Any] = deque(maxlen=KEPT)
        self._asked: ConsumerInfo | None = None
        self._runner = 0  # the thread that waits for it
        self._over = waiting.Gate()
        pump.halted = True
        pump.mailbox.popleft = self.popleft

    def popleft(self) -> Any:
        # Remembered before it is taken, or it would for a moment be neither here nor there. Raises IndexError.
        first = self._items[0]
        self._taken.append(first)
        item = self._items.popleft()
        if item is not first:  # another thread was faster
            self._taken.append(item)
        return item

    def run(self, deadline: Deadline) -> errors.DrainIncomplete | None:
        """Wait for what was asked for, then UNSUB and wait for the rest. What is missing afterwards is returned, to one
        of those who drain: the others only wait."""
        me = threading.get_ident()
        with self._pump.lock:
            first = not self._runner
            if first:
                self._runner = me
        if not first:
            if self._runner != me:  # else a signal handler on top of the thread that it would wait for
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
        with suppress(errors.JsClientError):  # nothing more can come over a link that is gone
            if pump.connection.is_connected:
                pump.connection.flush(deadline.at_most(FLUSH_TIMEOUT))
                return None if all_came else self._missing(deadline)
        return None

    @property
    def _cut_short(self) -> bool:
        """It was stopped or closed meanwhile: nobody takes what comes."""
        mailbox = self._pump.mailbox
        return mailbox.woken or mailbox.closed is not None or self._pump.connection.closed

    def _wait(self, deadline: Deadline) -> bool:
        """Whether all that was asked for has come; False when it is not to be waited for any longer."""
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
        """It is quiet. Whether the consumer, too, says that nothing is on its way, or does not say that anything is."""
        before, self._asked = self._asked, self._ask(deadline)
        if self._asked is None or self._asked.num_waiting > len(self._pump.state.open):
            return True  # others pull, too: what they are sent is not told from what we are
        last = self._last()
        if last is None:  # nothing tells how far we have come: the consumer is asked again
            return before is not None and before.delivered.consumer_seq == self._asked.delivered.consumer_seq
        return self._asked.delivered.consumer_seq <= last

    def _ask(self, deadline: Deadline) -> ConsumerInfo | None:
        return self._pump.source.ask_position(deadline.at_most(FLUSH_TIMEOUT))

    def _missing(self, deadline: Deadline) -> errors.DrainIncomplete | None:
        """Compare what has come with what the consumer says. None where that proves nothing: it cannot be asked, or
        others take from it."""
        info, came = self._ask(deadline), self._positions()
        if came and came[-1] - came[0] >= len(came):
            return None  # others got what lies between
        last = came[-1] if came else self._asked.delivered.consumer_seq if self._asked is not None else None
        if info is None or last is None or info.num_waiting or info.delivered.consumer_seq <= last:
            return None
        return errors.DrainIncomplete(
            f"{info.delivered.consumer_seq - last} messages of {self._pump.source} were sent and had not come when the "
            "drain ended"
        )

    def _positions(self) -> list[int]:
        """The consumer sequences of what was taken last and of what is there, in order."""
        found: set[int] = set()
        there = tuple(self._items)  # first: what is taken meanwhile is seen twice, and not missed
        for item in (*there, *tuple(self._taken)):
            with suppress(AttributeError, errors.NotJetStreamMessage):  # a link event, a status
                found.add(consumer_position(item.raw_reply)[1])
        return sorted(found)

    def _last(self) -> int | None:
        came = self._positions()
        return came[-1] if came else None
