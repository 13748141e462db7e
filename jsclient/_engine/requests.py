"""Requests: one wildcard inbox per connection, a token per request, a ticket per waiting thread."""

from __future__ import annotations

import queue
import sys
from collections import deque
from collections.abc import Callable
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors
from jsclient._engine.mailbox import OVERHEAD, message_size
from jsclient._engine.relay import CHAINS, Relay
from jsclient._engine.sinks import ReplySink
from jsclient.durations import Deadline
from jsclient.nuid import new_token
from jsclient.states import LinkEvent
from jsclient.waiting import Ticket, get, new_lock
from protocol.frames import Frame, pub_each, reply_of

if TYPE_CHECKING:
    from jsclient.message import Msg

MAX_KEPT: Final = 1_024
"""Answered requests to which further replies are heard, at most: a caller that keeps one forgets it soon."""

MAX_EARLY: Final = 64
EARLY_SIZE: Final = 4_096
"""Second replies that wait to be asked for, and the bytes of one, at most: an ack is small, and asked for at once."""

EACH_WRITE: Final = 256
"""Requests of `ask_each` that are joined before they are queued: about 32 KiB."""

MOST_REPLIES: Final = 64 * 1024 * 1024
"""Bytes of replies to one request that may wait to be taken (`PENDING_BYTES` of a subscription); more are dropped."""


class Replies:
    """Replies of one request that were not taken yet. The reader counts up, the thread that takes them counts down."""

    __slots__ = ("dropped", "received", "taken")

    def __init__(self) -> None:
        self.received = self.taken = self.dropped = 0

    def admit(self, message: Msg) -> bool:
        size = message_size(message) + OVERHEAD
        if self.received - self.taken + size > MOST_REPLIES:
            self.dropped += 1
            return False
        self.received += size
        return True

    def take(self, message: Msg) -> None:
        self.taken += message_size(message) + OVERHEAD


_references: Callable[[object], int] = getattr(sys, "getrefcount", lambda _: sys.maxsize)


def _references_of_abandoned() -> int:
    """How often a ticket is referred to if only the table of those that wait knows it.

    Three exceptions of signal handlers in a row may keep a request from taking its token out of the table. Its frame is
    gone then, and with it the reference that every request that waits has to its ticket.
    """
    for ticket, _ in [(Ticket[Any](), "")]:
        return _references(ticket)
    raise AssertionError


ABANDONED: Final = _references_of_abandoned()


class Collector:
    """The ticket of many requests at once: it is given all their replies, and its thread is woken once.

    The reader gives it what it reads, and takes the tokens of that out of the table; its own thread gives it what it
    reads itself (see `taking`). It is no part of a chain of wake-ups (see `relay`).
    """

    __slots__ = ("_cut", "_numbers", "came", "done", "replies")

    def __init__(self, tokens: list[bytes], cut: int) -> None:
        """`cut`: where the token begins in the subject of a reply."""
        self._numbers = dict(zip(tokens, range(len(tokens)), strict=True))  # token -> number of the request
        self._cut = cut
        self.came: deque[Msg] = deque()
        """What its own thread has read, until `take_all`."""
        self.replies: dict[int, Msg] = {}
        self.done: Ticket[BaseException | None] = Ticket()

    def take(self, token: bytes, reply: Msg) -> bool:
        """True when it was the last one. Of two answers to a request the first one counts."""
        number = self._numbers.get(token)
        if number is None or number in self.replies:
            return False
        self.replies[number] = reply
        if len(self.replies) < len(self._numbers):
            return False
        self.done.put(None)
        return True

    def numbers_of(self, sid: bytes, events: list[Any]) -> list[int] | None:
        """The requests that these are replies to; None if there is something else among them."""
        found, numbers, cut = [], self._numbers, self._cut
        for event in events:
            number = numbers.get(event.raw_subject[cut:]) if event.sid == sid else None
            if number is None:
                return None
            found.append(number)
        return found

    def take_all(self, numbers: list[int]) -> None:
        """Its own thread: take what has come, the replies to these requests."""
        found = dict(zip(reversed(numbers), reversed(self.came), strict=True))
        found.update(self.replies)
        self.replies.update(found)
        self.came.clear()
        if len(self.replies) == len(self._numbers):
            self.done.put(None)

    def put(self, error: BaseException) -> None:
        """Something has ended the wait."""
        self.done.put(error)


class Requests(ReplySink):
    """The reply side of requests; a sink on the reader thread.

    Every responder sees the prefix of the inbox, so a token is random and serves one request: a responder to one
    can forge no other. A waiter is a ticket that gets the reply, or the exception that ends the wait.

    The thread that waits enters its token into `waiting` and takes it out again, inside one `try`: both are single
    calls into C, so that a Ctrl-C between them and anything else cannot leave it there for ever.
    """

    def __init__(self, subscribe: Callable[[Requests], bytes], relay: Relay) -> None:
        self._subscribe = subscribe
        self._lock = new_lock()
        self._relay = relay
        self.waiting: dict[bytes, tuple[Any, str]] = {}  # token -> (ticket, subject of the request)
        self._early: dict[bytes, Msg] = {}  # reply subject -> what came before the first reply was looked at
        self.kept: dict[bytes, Ticket[Any]] = {}  # reply subject -> the ticket for its further replies
        self.prefix: bytes | None = None
        """How the subject of each reply begins; None until the wildcard inbox is subscribed."""
        self.served: bytes = b""  # the token that was answered last
        self.answers: int = 0
        self.many: dict[bytes, Replies] = {}  # token -> the account of a request that waits for more than one reply
        self._cut = 0
        self._refusal: Callable[[], BaseException] | None = None

    def new(self) -> tuple[bytes, bytes, Ticket[Any]]:
        """(token, reply subject, ticket) for a request; the wildcard inbox is subscribed at first use."""
        prefix = self.prefix
        if prefix is None:
            prefix = self._open_inbox()
        token = new_token()
        return token, prefix + token, Ticket()

    def _open_inbox(self) -> bytes:
        with self._lock:
            prefix = self.prefix
            if prefix is None:
                self._refusal = None
                prefix = self._subscribe(self)
                self._cut = len(prefix)
                self.prefix = prefix
                if self._refusal is not None:  # it came before the line above
                    self.prefix = None
            return prefix

    def ask_each(
        self,
        subjects: list[bytes],
        payload: bytes,
        deadline: Deadline,
        post_now: Callable[[bytes, Deadline], None],
        read: Callable[[Collector, Deadline], None],
    ) -> tuple[dict[int, Msg], BaseException | None]:
        """One request to each subject; see `Asker.request_each`. `read`: read the replies, if this thread may."""
        prefix = self.prefix
        if prefix is None:
            prefix = self._open_inbox()
        tokens = [new_token() for _ in subjects]
        frames = pub_each(subjects, prefix, tokens, payload)
        collector = Collector(tokens, self._cut)
        try:
            self.waiting.update(zip(tokens, repeat((collector, ""))))
            self.check_open()
            for first in range(0, len(frames), EACH_WRITE):
                post_now(b"".join(frames[first : first + EACH_WRITE]), deadline)
            read(collector, deadline)
            ended = get(collector.done, deadline.remaining())
            return collector.replies.copy(), ended  # a copy, because more of them may just come in
        except queue.Empty:
            return collector.replies.copy(), None
        finally:
            try:
                deque(map(self.waiting.pop, tokens, repeat(None)), 0)
            except BaseException:
                deque(map(self.waiting.pop, tokens, repeat(None)), 0)
                raise

    def check_open(self) -> None:
        """Called right after a token was entered: raises the refusal of the inbox if it came before that."""
        if self.prefix is None and self._refusal is not None:
            raise self._refusal()

    def deliver(self, messages: list[Msg], nbytes: int) -> None:
        waiting, answered = self.waiting, self._relay.answered
        alone = not CHAINS or (len(messages) == 1 and not self._relay.running)
        for message in messages:
            token = message.raw_subject[self._cut :]
            found = waiting.get(token)
            if found is None and len(waiting) == 1 and not message.raw_subject.startswith(self.prefix or b""):
                # An import rewrote the reply subject: with one request under way it can only be meant for that one.
                found = next(iter(list(waiting.values())), None)
            account = self.many.get(token)
            if found is not None and found[0].__class__ is Collector:
                waiting.pop(token, None)
                self.answers += found[0].take(token, message)
            elif found is not None and (found[0].empty() if account is None else account.admit(message)):
                self.served = token
                self.answers += 1
                if alone or account is not None:
                    found[0].put(message)
                else:
                    found[0].put_closed(message)
                    answered.append(found[0])
            elif found is not None or self.kept:
                self._another(message, waited_for=found is not None)
        if answered:
            self._relay.start()

    def keep(self, message: Msg, ticket: Ticket[Any]) -> None:
        """The request was answered by `message`, and further replies to it shall be heard, too."""
        while len(self.kept) >= MAX_KEPT:
            self.kept.pop(next(iter(list(self.kept))), None)
        self.kept[message.raw_subject] = ticket
        early = self._early.pop(message.raw_subject, None)
        if early is not None:
            ticket.put(early)

    def _another(self, message: Msg, waited_for: bool) -> None:
        """Reader thread: a further reply, for the caller that keeps that request or is just about to (see `keep`)."""
        subject = message.raw_subject
        if waited_for:
            if len(message.data) > EARLY_SIZE:
                return
            while len(self._early) >= MAX_EARLY:
                self._early.pop(next(iter(list(self._early))), None)
            self._early[subject] = message
        # `keep` enters the ticket first and looks for an early reply then: one of the two sees the other.
        ticket = self.kept.get(subject)
        if ticket is not None and ticket.empty():
            another = self._early.pop(subject, None) if waited_for else message
            if another is not None:
                ticket.put(another)

    def all_served(self) -> bool:
        """Reader thread: nobody waits but the request that was answered last, and may not have noticed yet."""
        if self.many:
            return False
        waiting = self.waiting
        for token in list(waiting) if waiting else ():  # the tokens alone: of many the first one usually decides
            found = waiting.get(token) if token != self.served else None
            if found is not None:
                ticket, _ = found
                if _references(ticket) > ABANDONED:
                    return False
                waiting.pop(token, None)
        return True

    def under_way(self) -> list[bytes]:
        """The tokens of the requests that have no answer yet."""
        accounts = self.many
        return [t for t in list(self.waiting) if (account := accounts.get(t)) is None or not account.received]

    def withdrawn(self, frames: list[Frame]) -> None:
        """The link went down before a byte of these was sent; told before `fail`, so that the waiter hears it first."""
        prefix = self.prefix
        if prefix is None:
            return
        for frame in frames:
            reply = reply_of(frame)
            waiter = self.waiting.get(reply[self._cut :]) if reply.startswith(prefix) else None
            if waiter is not None:
                waiter[0].put(errors.ConnectionLost("the link went down", sent=False))

    def link_event(self, event: LinkEvent) -> None:
        """Requests end by `fail`; link events alone say nothing to them."""

    def fail(self, make: Callable[[], BaseException], subject: str | None = None) -> None:
        """End the waits (of all requests, or of those to one subject) with an exception each."""
        for ticket, asked in list(self.waiting.values()):
            if subject is None or asked == subject:
                ticket.put(make())
        if subject is None:
            for ticket in list(self.kept.values()):
                ticket.put(make())

    def refuse(self, make: Callable[[], BaseException]) -> None:
        """The server does not permit the inbox: all waiting requests are told, and the next request makes a new one."""
        # Without the lock: this is the reader, and the holder of the lock may be waiting for the server.
        self._refusal = make
        self.prefix = None
        self.fail(make)
