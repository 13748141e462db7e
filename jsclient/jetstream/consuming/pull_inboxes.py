"""Reply inboxes of pulls: `<inbox>.*`, one subscription that serves many pulls, each with its own token.

A fresh subscription per fetch would cost a SUB and an UNSUB (and their way through a cluster) each time. The client
only reuses an inbox after a *clean* end: every requested message came, or the server ended the pull. Otherwise it
closes the inbox to make the server drop the pull, because an orphan would swallow messages that the next fetch waits
for.
"""

from __future__ import annotations

import functools
import os
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from hmac import compare_digest
from itertools import repeat, starmap
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors, waiting
from jsclient._connection import LinkFrame
from jsclient.cancel import Cancel
from jsclient.connection import engine_of
from jsclient.durations import Deadline
from jsclient.jetstream.api.ack_and_nak import NAK
from jsclient.jetstream.api.capabilities import server_at_least
from jsclient.protocol.frames import pub_to
from jsclient.states import LinkEvent

if TYPE_CHECKING:
    from jsclient._connection import Inbox, Mailbox
    from jsclient.connection import Connection
    from jsclient.message import Msg

IDLE_INBOXES: Final = 8
"""Subscriptions kept per connection for the next fetch; if more threads fetch at a time, they open their own."""

SHORTEST_CLOSE: Final = 0.1
"""Seconds to return the remaining messages when the time of a drain is over."""

FLUSH_TIMEOUT: Final = 1.0
"""Seconds to wait for messages that the server had already sent when the client gives up an inbox."""

SILENT_FLUSH: Final = 0.1
"""Shorter after an alarm: the caller must not wait again for a server that is silent anyway."""

KNOWN_PULLS: Final = 4096

ELECTION: Final = 10.0
"""Seconds after a reconnect in which a 503 probably means an election (4-8 s), not a missing consumer."""


NO_MESSAGE: Final = (LinkEvent, Exception, Cancel)
"""Types of other items in a mailbox."""

FORGED: Final = -1
"""A number that no pull has."""

_SEALING: Final = os.urandom(32)
_DIGITS: Final = 18  # hexadecimal, of one seal
_SEALS: Final = 7  # of one digest
_NAK: Final = pub_to(NAK)


def _seal(number: int) -> bytes:
    """72 bits that only this process can compute (and its forked children, which use none of its connections)."""
    block, place = divmod(number, _SEALS)
    return _seals(block)[place * _DIGITS : (place + 1) * _DIGITS]


@functools.lru_cache(64)
def _seals(block: int) -> bytes:
    """All seals that one digest holds: a digest takes 1.3 µs, and every pull needs a seal."""
    return blake2b(b"%d" % block, key=_SEALING, digest_size=_SEALS * _DIGITS // 2).hexdigest().encode()


class PullInbox:
    """One wildcard subscription; every pull on it has its own token."""

    numbers: Callable[[], int] = staticmethod(waiting.numbers())
    """Numbers of pulls. They are unique in the process, so a late status cannot match a later pull on the inbox."""

    def __init__(self, connection: Connection) -> None:
        base = connection.new_inbox()
        self.connection = connection
        self._engine = engine_of(self.connection)
        self.inbox: Inbox = engine_of(connection).open_inbox(base + ".*")
        self.prefix: bytes = base.encode() + b"."
        self.mailbox: Mailbox = self.inbox.mailbox
        self.pull_subject = ""  # where the pulls of its present holder go
        self.one_server = False
        """The consumer lives on one server, so its reader wants to know when a server of the cluster leaves."""
        self.lock: Any = waiting.new_lock()
        """The lock of its present holder. It is reentrant, because a signal handler may stop the read of the thread
        that it interrupted. Making a lock costs as much as all other objects of a fetch.
        """
        self._cut = len(self.prefix)

    def reply(self, number: int) -> bytes:
        """The subject for the statuses of a pull: its number, and a seal that no other process can make."""
        return b"%b%d-%b" % (self.prefix, number, _seal(number))

    def is_control(self, message: Msg) -> bool:
        """True if the server sent it to us.

        A stored message keeps its own subject, so a publisher that forges a status line cannot pass for the server.
        """
        headers = message.raw_headers
        return headers is not None and headers[8:9] == b" " and message.raw_subject.startswith(self.prefix)

    def number(self, message: Msg) -> int | None:
        """The number of the pull to which a status belongs; FORGED if the status is not from the server."""
        digits, _, seal = message.raw_subject[self._cut :].partition(b"-")
        if not digits.isdigit() or not compare_digest(seal, _seal(int(digits))):
            return FORGED
        return int(digits)

    def take_all(self) -> list[Any]:
        """All items of the mailbox: messages, statuses, link events. For an inbox with one reader."""
        mailbox = self.mailbox
        return list(starmap(mailbox.popleft, repeat((), len(mailbox.items))))

    def snapshot(self) -> tuple[int, int]:
        """(messages, bytes) received and not taken, without statuses and link events."""
        count = size = 0
        for item in waiting.copy_of(self.mailbox.items):
            if self._is_message(item):
                count += 1
                size += message_size(item)
        return count, size

    def statuses(self) -> list[Msg]:
        """The statuses received and not taken."""
        items = waiting.copy_of(self.mailbox.items)
        return [item for item in items if not isinstance(item, NO_MESSAGE) and self.is_control(item)]

    def _is_message(self, item: Any) -> bool:
        return not isinstance(item, NO_MESSAGE) and not self.is_control(item)

    def settle(self, graceful: bool = True, timeout: float = FLUSH_TIMEOUT, more: bool = False) -> list[Msg]:
        """UNSUB, and return the messages that the server had already sent and no thread took.

        `more`: the caller may have other messages that go back with them. Messages that come after the timeout go back
        automatically.
        """
        connection = self.connection
        deadline = Deadline(timeout)
        if graceful:
            try:
                if self.mailbox.closed is None:
                    engine_of(connection).remove_subscription(self.inbox, tell_server=True, keep_sink=True)
                    connection.flush(deadline)
                if more or self.mailbox.items:
                    self._forget_pulls(deadline)
            except errors.TimedOut:
                self._engine.when_read(self._settle_late)
                return []
            except errors.JsClientError:
                pass  # a lost link delivers nothing more
        left = self.leftovers()
        self.inbox.close()
        return left

    def _settle_late(self) -> None:
        """On the flusher thread: the server has read the UNSUB now, or never will."""
        self.ask_to_forget_pulls()
        nak_all(self.leftovers(), self.connection)
        self.inbox.close()

    def _forget_pulls(self, deadline: Deadline) -> None:
        """Make an old server drop the pulls of an unsubscribed inbox, before messages go back.

        Servers before 2.10 keep such pulls until they look for one to serve. If there are only such pulls, 2.9.10
        forgets a returned message and delivers another one twice. A request for the consumer's information makes it
        look.
        """
        subject = self._forgets_when_asked()
        if subject:
            self._engine.request(subject, timeout=deadline)

    def _forgets_when_asked(self) -> str:
        head, found, name = self.pull_subject.partition("CONSUMER.MSG.NEXT.")
        return f"{head}CONSUMER.INFO.{name}" if found and not server_at_least(self.connection, (2, 10, 0)) else ""

    def ask_to_forget_pulls(self) -> None:
        """The same without waiting for the answer: the connection ends, and that waits for the server in any case."""
        subject = self._forgets_when_asked()
        if subject:
            connection = self.connection
            # Without a link there is nothing to return either. If a link takes nothing more, close() must go on without
            # waiting for room.
            with suppress(errors.JsClientError):
                frame = LinkFrame(engine_of(connection).encode(subject, b"", connection.new_inbox().encode()))
                engine_of(connection).enqueue_now(frame, Deadline(0))

    def leftovers(self) -> list[Msg]:
        """Empty the mailbox; only delivered messages are returned."""
        left: list[Msg] = []
        items = self.mailbox.items
        with suppress(IndexError):  # until it is empty: another thread may take from it, too
            while True:
                item = items.popleft()
                if self._is_message(item):
                    left.append(item)
        return left


def message_size(message: Any) -> int:
    """The size in bytes that the server counts against max_bytes."""
    size = len(message.raw_subject) + len(message.data) + len(message.raw_reply or b"")
    return size + len(message.raw_headers) if message.raw_headers is not None else size


class PullInboxes:
    """The idle inboxes of one connection; thread-safe (a deque, no lock)."""

    def __init__(self, connection: Connection) -> None:
        # Only an inbox in use has a strong reference: an idle one does not keep a dropped connection alive.
        self._connection: Connection = weakref.proxy(connection)
        self.idle: deque[PullInbox] = deque()
        self._active: set[PullInbox] = set()
        self.reconnected_at: float = float("-inf")
        self.pulled: set[str] = set()  # subjects of pulls, which show the API of a consumer
        self.forgetful: set[str] = set()  # consumers of a server that has forgotten deliveries, see `stale_acks`
        engine_of(connection).add_link_listener(self._link_event)
        engine_of(connection).add_violation_listener(self._violation)

    def _link_event(self, event: LinkEvent) -> None:
        if event is LinkEvent.RECONNECTED:
            self.reconnected_at = time.monotonic()
        elif event is LinkEvent.CLOSED:
            self.idle.clear()
            for inbox in self._active.copy():  # unsubscribed by now; the messages that they hold go back next
                inbox.ask_to_forget_pulls()
        elif event is LinkEvent.SERVER_LEFT:
            for inbox in self._active.copy():
                if inbox.one_server:
                    inbox.mailbox.put(event)

    def _violation(self, error: errors.PermissionViolation) -> None:
        """On the reader thread: inboxes with pulls on the refused subject get the reason instead of silence."""
        for inbox in self._active.copy():
            if inbox.pull_subject == error.subject:
                inbox.mailbox.put(error)

    def lease(self, connection: Connection, pull_subject: str) -> PullInbox:
        """An inbox for one caller until `give_back` or `forget`."""
        inbox = self._idle_one(connection) or PullInbox(connection)
        inbox.connection = connection
        inbox.pull_subject = pull_subject
        self.remember(pull_subject)
        self._active.add(inbox)
        return inbox

    def remember(self, pull_subject: str) -> None:
        """Keep a pull subject, which shows the API of its consumer, even for a push consumer."""
        if pull_subject not in self.pulled:
            if len(self.pulled) >= KNOWN_PULLS:
                self.pulled.clear()
            self.pulled.add(pull_subject)

    def _idle_one(self, connection: Connection) -> PullInbox | None:
        while self.idle:
            try:
                inbox = self.idle.pop()
            except IndexError:  # pragma: no cover - another thread took it since the look: no test can make that
                break
            if inbox.mailbox.closed is None:
                if inbox.mailbox.items:
                    nak_all(inbox.leftovers(), connection)
                return inbox
        return None

    def forget(self, inbox: PullInbox) -> None:
        """The caller has closed the inbox, or closes it now."""
        self._active.discard(inbox)

    def give_back(self, inbox: PullInbox) -> None:
        """Call it only after a clean end."""
        self._active.discard(inbox)
        if len(self.idle) < IDLE_INBOXES and inbox.mailbox.closed is None:
            inbox.connection = self._connection
            self.idle.append(inbox)
        else:
            inbox.inbox.close()

    def electing(self, now: float, since: float = float("-inf")) -> bool:
        """True while an election may be under way after a reconnect, or after an event at `since`.

        A consumer that is missing now may exist soon.
        """
        return now < max(self.reconnected_at, since) + ELECTION


_pools: weakref.WeakKeyDictionary[Connection, PullInboxes] = weakref.WeakKeyDictionary()
_pools_lock = waiting.new_lock()


def pool_of(connection: Connection) -> PullInboxes:
    """The pull inboxes of a connection, created at first use."""
    pool = _pools.get(connection)
    if pool is None:
        with _pools_lock:
            pool = _pools.get(connection)
            if pool is None:
                pool = _pools[connection] = PullInboxes(connection)
    return pool


def pool_if_any(connection: Connection) -> PullInboxes | None:
    """The same, or None if nothing was pulled on the connection."""
    return _pools.get(connection)


def nak_all(messages: list[Msg], connection: Connection) -> None:
    """Return messages to the server, for redelivery now and not after ack_wait.

    If the link is full, it waits as long as the enclosing call may take, or FLUSH_TIMEOUT seconds.
    """
    frames = nak_frames(messages)
    if not frames:
        return
    engine = engine_of(connection)
    with engine.sends_within(engine.bound() or Deadline(FLUSH_TIMEOUT)):
        for frame in frames:
            try:
                engine.enqueue(frame)
            except errors.JsClientError:
                return  # the connection is gone, or full: they are redelivered after ack_wait


def nak_frames(messages: list[Msg]) -> list[bytes]:
    """The frames that `nak_all` sends."""
    return [_NAK(message.raw_reply) for message in messages if message.raw_reply]
