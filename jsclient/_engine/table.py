"""The subscriptions of a connection: a table by sid, and what the server of the present link knows of them."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from itertools import filterfalse
from typing import Any, Final

import protocol
from jsclient import checks, errors
from jsclient._engine.dispatcher import Dispatcher, Sink
from jsclient._engine.outbox import Outbox
from jsclient._engine.sinks import BaseSubscription
from jsclient._engine.unkept import Unkept
from jsclient._transport import Transport
from protocol.frames import Frame

MOST_TOLD: Final = 1_024
"""SUBs and UNSUBs that are remembered. The server refuses a SUB within a round trip, long before."""

UNSUB: Final = b""


class Told(Unkept):
    """A SUB or UNSUB frame."""

    sid: bytes = UNSUB  # of a SUB


class Subscriptions:
    """Made for the reader, which looks up the sink of each message in `sinks`, without a lock."""

    def __init__(
        self, outbox: Outbox, kick: Callable[[], None], check_usable: Callable[[], None], recall: Callable[[], None]
    ) -> None:
        self.dispatcher: Dispatcher = Dispatcher()
        self.sinks: dict[bytes, Sink] = self.dispatcher.sinks
        self._outbox = outbox
        self._kick = kick
        self._check_usable = check_usable
        self._recall_reader = recall
        self._links = 0  # made so far
        self._told: deque[Told] = deque(maxlen=MOST_TOLD)  # in the order in which they were queued
        self._sids = itertools.count(1)

    def next_sid(self) -> bytes:
        return b"%d" % next(self._sids)

    def add(self, subscription: BaseSubscription) -> None:
        """Enter it and tell the server, without waiting for a link that takes nothing. Raises BufferFull where far too
        much waits for such a link."""
        frame = self._sub_frames(subscription)
        self._outbox.check_control()
        try:
            self.sinks[subscription.sid] = subscription
            self._check_usable()  # after it is in the table: close() ends what it finds there
            # While offline it is enough to be in the table: see `link_up`.
            if not self._outbox.offline:
                subscription.link = self._links
                self._tell(frame, subscription.sid)
            self._outbox.nudge()
            self._recall_reader()
        except BaseException:  # Ctrl-C: nobody will ever take from it
            self.remove(subscription, tell_server=True)
            raise

    @staticmethod
    def _sub_frames(subscription: BaseSubscription) -> bytes:
        raw = checks.filter_subject(subscription.subject)
        group = checks.queue_group(subscription.queue) if subscription.queue else b""
        try:
            frame = protocol.sub(raw, subscription.sid, group)
        except protocol.InvalidArgument as error:
            raise errors.InvalidSubject(error.what) from None
        subscription.counted_from = subscription.received
        if subscription.max_messages is not None:
            frame += protocol.unsub(subscription.sid, max(1, subscription.max_messages - subscription.received))
        return frame

    def tell_unsubscribed(self, subscription: BaseSubscription, max_messages: int | None = None) -> None:
        """Tell the server; while offline the next link's subscriptions do, see `link_up`."""
        if max_messages is None and self._outbox.is_full() and self._withdraw(subscription):
            return
        while not self._outbox.offline:
            link = self._links
            # The server counts from the SUB of its link; once more if that was replaced just now.
            left = None if max_messages is None else max(1, max_messages - subscription.counted_from)
            self._tell(protocol.unsub(subscription.sid, left), UNSUB)
            if link == self._links:
                break
        if not self._outbox.ticking:
            self._kick()

    def _withdraw(self, subscription: BaseSubscription) -> bool:
        """Take back the SUB of a loop that subscribes and ends on a link that takes nothing; False if it was sent."""
        withdrawn = self._outbox.withdraw(Unkept(self._sub_frames(subscription)))
        if withdrawn:
            self._told.append(Told())  # no count holds across it
        return withdrawn

    def _tell(self, frame: bytes, sid: bytes) -> None:
        told = _told(frame, sid)
        # Into both queues in one call into C: they have the same order.
        both: Iterator[Any] = filterfalse(self._told.append, (told,))
        self._outbox.frames.extend(both)
        size = len(frame)
        self._outbox.size += size

    def remove(self, subscription: BaseSubscription, tell_server: bool = False, keep_sink: bool = False) -> None:
        """Forget a subscription; with `keep_sink` only the server does, what is on its way still arrives."""
        subscription.unsubscribed = True
        if not keep_sink:
            self.sinks.pop(subscription.sid, None)
        if tell_server:
            self.tell_unsubscribed(subscription)

    def link_up(self, stream: Transport, takes: Callable[[Frame], bool]) -> tuple[list[Frame], list[BaseSubscription]]:
        """Connector thread: subscribe everything on the new link, before anything that was kept. Returns the messages
        that were kept and that this server does not take, and the subscriptions.

        Without a lock (see the rule in `waiting`): a subscription enters the table, or is marked as ended, and then
        looks whether we are online; this goes online and then looks at the table once more. So one of the two tells
        the server, or both do: it takes a second SUB of one sid, or an UNSUB of none, for nothing.
        """
        self._links += 1
        live = self._not_subscribed()
        limits = {sub: sub.max_messages for sub in live}
        frames = [self._sub_frames(sub) for sub in live]
        self._told.clear()
        self._told.extend(_told(frame, sub.sid) for frame, sub in zip(frames, live, strict=True))
        refused = self._outbox.attach(stream, [b"".join(frames)] if frames else [], takes)
        late = self._not_subscribed()
        for sub in late:
            self._tell(self._sub_frames(sub), sub.sid)
        for sub, limit in limits.items():
            if sub.unsubscribed:
                self.tell_unsubscribed(sub)
            elif sub.max_messages != limit:
                self.tell_unsubscribed(sub, sub.max_messages)
        return refused, live + late

    def told(self) -> list[bytes]:
        """The sids of the last SUBs of this link in their order, and `UNSUB` for each UNSUB between them."""
        return [told.sid for told in self._told.copy()]

    def beyond_the_limit(self, told: list[bytes], refused: int) -> list[BaseSubscription] | None:
        """The subscriptions that a server had no room for: the last ones of those `told`. None if an UNSUB has made
        room between them."""
        last = told[-refused:]
        if len(last) < refused or UNSUB in last:
            return None
        return [found for sid in last if isinstance(found := self.sinks.get(sid), BaseSubscription)]

    def _not_subscribed(self) -> list[BaseSubscription]:
        """The subscriptions that the present link has not been told of; it is told of them now."""
        found = [
            sub
            for sub in list(self.sinks.values())
            if isinstance(sub, BaseSubscription) and not sub.unsubscribed and sub.link != self._links
        ]
        for sub in found:
            sub.link = self._links
        return found

    def subscribed(self) -> list[BaseSubscription]:
        """All subscriptions that the server knows of."""
        sinks = list(self.sinks.values())
        return [sub for sub in sinks if isinstance(sub, BaseSubscription) and not sub.unsubscribed]


def _told(frame: bytes, sid: bytes) -> Told:
    told = Told(frame)
    told.sid = sid
    return told
