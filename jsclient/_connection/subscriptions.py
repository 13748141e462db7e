"""The subscriptions of a connection: a table by sid, and the SUBs and UNSUBs sent to the server of the current link.

Messages are dispatched by sid, never by subject: a message pulled from JetStream arrives on the inbox's sid with its
original subject. The messages of one chunk are grouped, and each group goes to its sink in one call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import filterfalse
from typing import TYPE_CHECKING, Any, Final

from jsclient import protocol, waiting
from jsclient._connection.mailbox import OVERHEAD, message_size
from jsclient._connection.sender import LinkFrame
from jsclient._connection.sinks import BaseSubscription
from jsclient._transport import Transport
from jsclient.protocol.frames import Frame

if TYPE_CHECKING:
    from jsclient._connection.engine import Engine

MOST_TOLD: Final = 1_024
"""Number of SUBs and UNSUBs to remember. The server refuses a SUB within a round trip, long before that limit."""

UNSUB: Final = b""


class Told(LinkFrame):
    """A SUB or UNSUB frame."""

    sid: bytes = UNSUB  # of a SUB


class Subscriptions:
    """Made for the reader, which looks up the sink of each message in `sinks`, without a lock."""

    def __init__(self, engine: Engine) -> None:
        self.sinks: dict[bytes, BaseSubscription] = {}
        self.messages_in: int = 0
        self.bytes_in: int = 0
        self._engine = engine
        self._outbox = engine.outbox
        self._links = 0  # made so far
        self._told: deque[Told] = deque(maxlen=MOST_TOLD)  # in the order in which they were queued
        self._order = waiting.new_lock()  # frames have the same order in `_told` and in the outbox
        self._next_sid = waiting.numbers()

    # --- the reader ---------------------------------------------------------------------------------------

    def dispatch(self, events: list[Any], nbytes: int) -> list[Any]:
        """Deliver the messages among the events. Returns the others, in order (a PONG comes after the events that it
        confirms)."""
        sink = self._only_sink(events)
        if sink is not None:
            # The common case: a chunk of one subscription counts the bytes read.
            self.messages_in += len(events)
            self.bytes_in += nbytes
            sink.deliver(events, nbytes + OVERHEAD * len(events))
            return []
        groups: dict[bytes | None, list[Any]] = {}
        for event in events:
            sid = event.sid
            if sid in groups:
                groups[sid].append(event)
            else:
                groups[sid] = [event]
        control = groups.pop(None, [])
        self.messages_in += len(events) - len(control)
        self.bytes_in += nbytes
        for sid, group in groups.items():
            sink = self.sinks.get(sid)  # type: ignore[arg-type]
            if sink is not None:
                sink.deliver(group, sum(map(message_size, group)) + OVERHEAD * len(group))
        return control

    def _only_sink(self, events: list[Any]) -> BaseSubscription | None:
        """The sink that owns every event of this chunk, or None: 20 ns per message, grouping them takes 55."""
        sid = events[0].sid if events else None
        for event in events:
            if event.sid != sid:
                return None
        return None if sid is None else self.sinks.get(sid)

    # --- any thread ---------------------------------------------------------------------------------------

    def next_sid(self) -> bytes:
        return b"%d" % self._next_sid()

    def add(self, subscription: BaseSubscription) -> None:
        """Enter it into the table and send SUB, without waiting for a stalled link. Raises BufferFull if far too much
        is queued for such a link."""
        frame = self._sub_frames(subscription)
        self._outbox.check_control()
        try:
            self.sinks[subscription.sid] = subscription
            self._engine.check_usable()  # after the entry in the table, because close() ends the entries that it finds
            # While offline, an entry in the table is enough: see `link_up`.
            if not self._outbox.offline:
                subscription.link = self._links
                self._tell(frame, subscription.sid)
            self._outbox.nudge()
            self._engine.session.recall_reader()
        except BaseException:  # Ctrl-C: no thread will ever take from it
            self.remove(subscription, tell_server=True)
            raise

    @staticmethod
    def _sub_frames(subscription: BaseSubscription) -> bytes:
        frame = subscription.frame
        subscription.counted_from = subscription.received
        if subscription.max_messages is not None:
            frame += protocol.unsub(subscription.sid, max(1, subscription.max_messages - subscription.received))
        return frame

    def tell_unsubscribed(self, subscription: BaseSubscription, max_messages: int | None = None) -> None:
        """Send UNSUB to the server. While offline, `link_up` handles it for the next link."""
        if max_messages is None and self._outbox.is_full() and self._withdraw(subscription):
            return
        while not self._outbox.offline:
            link = self._links
            # The server counts from the SUB of its link. Repeat if the link was replaced just now.
            left = None if max_messages is None else max(1, max_messages - subscription.counted_from)
            self._tell(protocol.unsub(subscription.sid, left), UNSUB)
            if link == self._links:
                break
        if not self._outbox.ticking:
            self._engine.clock.kick()

    def _withdraw(self, subscription: BaseSubscription) -> bool:
        """Take back the SUB of a loop that subscribes and unsubscribes on a stalled link; False if it was sent."""
        withdrawn = self._outbox.withdraw(LinkFrame(self._sub_frames(subscription)))
        if withdrawn:
            self._told.append(Told())  # no count is valid across it
        return withdrawn

    def _tell(self, frame: bytes, sid: bytes) -> None:
        told = _told(frame, sid)
        self._outbox.count_queued(len(frame))
        with self._order:
            # Into both queues in one call into C, because Ctrl-C may come between two calls.
            both: Iterator[Any] = filterfalse(self._told.append, (told,))
            self._outbox.frames.extend(both)

    def remove(self, subscription: BaseSubscription, tell_server: bool = False, keep_sink: bool = False) -> None:
        """Forget a subscription. With `keep_sink` only the server does, and messages on their way still arrive."""
        subscription.unsubscribed = True
        if not keep_sink:
            self.sinks.pop(subscription.sid, None)
        if tell_server:
            self.tell_unsubscribed(subscription)

    def link_up(self, stream: Transport, takes: Callable[[Frame], bool]) -> tuple[list[Frame], list[BaseSubscription]]:
        """Connector thread: send all subscriptions over the new link, before the kept frames. Returns the kept messages
        that this server does not accept, and the subscriptions.

        It takes no lock (see the rule in `waiting`). Another thread enters a subscription into the table, or marks it
        as ended, and then checks whether we are online. This method goes online and then checks the table once more.
        So one of the two sends the frame, or both do. The server ignores a second SUB of one sid, or an UNSUB of none.
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
        return [told.sid for told in waiting.copy_of(self._told)]

    def beyond_the_limit(self, told: list[bytes], refused: int) -> list[BaseSubscription] | None:
        """The subscriptions that a server had no room for, which are the last of the `told` ones. None if an UNSUB in
        between has made room."""
        last = told[-refused:]
        if len(last) < refused or UNSUB in last:
            return None
        return [found for sid in last if (found := self.sinks.get(sid)) is not None]

    def _not_subscribed(self) -> list[BaseSubscription]:
        """The subscriptions whose SUB was not sent to the current link yet; marks them as sent."""
        found = [sub for sub in self.subscribed() if sub.link != self._links]
        for sub in found:
            sub.link = self._links
        return found

    def subscribed(self) -> list[BaseSubscription]:
        """All subscriptions that the server knows of."""
        return [sub for sub in list(self.sinks.values()) if not sub.unsubscribed]


def _told(frame: bytes, sid: bytes) -> Told:
    told = Told(frame)
    told.sid = sid
    return told
