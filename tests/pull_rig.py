"""A connection without a socket, and a model of the server that serves pulls over it: for everything that pulls.

The model acts when somebody waits for it, one random step at a time, so nothing waits for a clock. A pull ends with a
status when its messages are served or the next one does not fit into its bytes, and without one when its bytes are used
up exactly (2.9 to 2.15).
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from jsclient import errors
from jsclient._connection import Drainables, Mailbox
from jsclient.durations import Deadline
from jsclient.jetstream.consuming.sources import PullSource
from jsclient.message import Msg
from jsclient.options import ConnectOptions
from jsclient.states import LinkEvent


class Stalled(AssertionError):
    """Somebody waits for what will never come."""


class Clock:
    def call_soon(self, call: Callable[[], None]) -> None:
        call()


class Inbox:
    received = 0

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.mailbox = Mailbox()

    def next(self, timeout: float | None) -> Any:
        for _ in range(1000):
            if self.mailbox.items:
                return self.mailbox.popleft()
            if self.mailbox.closed is not None:
                self.mailbox.raise_closed()
            if self.mailbox.woken:
                return None
            if not self._connection.server.step() and not self.mailbox.items:
                break
        if timeout is not None and timeout < 2:
            return None  # a back-off, or the end of a call
        raise Stalled(self._connection.server)

    def grant(self, messages: int, nbytes: int = 0) -> None:
        pass

    def drain_sub(self) -> None:
        self._end(discard=False)

    def close(self) -> None:
        self._end(discard=True)

    def _end(self, discard: bool) -> None:
        if self.mailbox.closed is None:
            self.mailbox.close(errors.SubscriptionClosed("closed"), discard)
        self._connection.server.forget(self)


class Connection:
    """A connection and its engine in one."""

    options = ConnectOptions()
    is_connected = True
    closed: Exception | None = None
    draining = is_draining = False
    round_trip = 0.0
    max_payload = 1 << 20
    clock = Clock()

    def __init__(self, server: Server) -> None:
        self.server = server
        self.drainables = Drainables()
        self.inboxes: dict[bytes, Inbox] = {}
        self._names = 0
        self.sinks: dict[str, Any] = {}
        self.published: list[str] = []
        self._engine = self.connection = self
        server.connection = self

    def new_inbox(self) -> str:
        self._names += 1
        return f"_INBOX.{self._names}"

    def open_inbox(self, subject: str) -> Inbox:
        self.inboxes[subject.removesuffix("*").encode()] = made = Inbox(self)
        return made

    def encode(self, subject: str, payload: bytes = b"", reply: bytes = b"") -> bytes:
        return reply + b" " + payload if payload else subject.encode()

    def bound(self) -> None:
        """No call has a deadline for what it sends."""

    @contextmanager
    def sends_within(self, deadline: Deadline) -> Iterator[None]:
        yield

    def enqueue_at_once(self, frame: bytes) -> None:
        if not self.is_connected:
            raise errors.ConnectionLost("there is no link")
        if b" " not in frame:
            self.published.append(frame.decode())  # an answer, or what removes a consumer
            return
        reply, _, payload = frame.partition(b" ")
        self.server.pull(json.loads(payload), reply)

    def enqueue(self, frame: Any) -> None:
        self.server.given_back(frame)

    def remove_subscription(self, inbox: Any, tell_server: bool = False, keep_sink: bool = False) -> None:
        self.server.forget(inbox)

    def open_sink(self, subject: str, sink: Any, queue: str = "") -> Any:
        self.sinks[subject] = sink
        return subject

    def publish(self, subject: str, payload: bytes = b"") -> None:
        self.published.append(subject)

    def run_callback(self, call: Callable[..., None], *args: Any) -> None:
        call(*args)

    def refuse_pickle(self, what: object) -> None:
        raise TypeError(f"a {type(what).__name__} cannot be pickled")

    def nothing(self, *args: Any) -> None:
        pass

    flush = flush_outbox = check_usable = check_process = nothing
    add_link_listener = remove_link_listener = add_violation_listener = when_read = nothing


class Source(PullSource):
    def __str__(self) -> str:
        return "the consumer"


class Pull:
    def __init__(self, inbox: Inbox, reply: bytes, body: dict[str, Any]) -> None:
        self.inbox, self.reply = inbox, reply
        self.messages: int = body["batch"]
        self.limited = "max_bytes" in body
        self.bytes: int = body.get("max_bytes", 1 << 60)
        self.no_wait: bool = body.get("no_wait", False)
        self.expires: int = body.get("expires", 0)

    def unserved(self) -> str:
        nbytes = self.bytes if self.limited else 0
        return f"Nats-Pending-Messages: {self.messages}\r\nNats-Pending-Bytes: {nbytes}\r\n"


class Stored(NamedTuple):
    sequence: int
    size: int


def message(stored: Stored, delivery: int, pending: int) -> Msg:
    """One with a subject, reply and payload of that size together."""
    reply = b"$JS.ACK.S.C.1.%d.%d.1700000000000000000.%d" % (stored.sequence, delivery, pending)
    return Msg(b"s", b"1", reply, bytes(stored.size - 1 - len(reply)))


def size_of(message: Msg) -> int:
    return len(message.raw_subject) + len(message.raw_reply or b"") + len(message.data)


LEAST = 70
"""Bytes of the smallest message."""


class Server:
    """One consumer of a stream; `left` is what it has not sent yet."""

    def __init__(self, r: random.Random, left: list[Stored], trouble: float = 0.0) -> None:
        self.r = r
        self.left = deque(left)
        self.trouble = trouble  # how often something happens that ends all pulls
        self.in_turn = r.random() < 0.5  # pulls are served one after the other, or in turn
        self.pulls: deque[Pull] = deque()
        self.delivery = 0
        self.connection: Connection
        self.returned: list[bytes] = []  # frames that give messages back
        self.most = 1 << 60  # messages that may be asked for and waiting together
        self.largest = 1 << 60  # and the bytes

    def __repr__(self) -> str:
        return f"{len(self.left)} messages left, {len(self.pulls)} pulls, {self.delivery} sent"

    def begin(self, left: list[Stored]) -> None:
        """A new consumer."""
        self.left, self.delivery = deque(left), 0

    # --- what the client does ---------------------------------------------------------------------------------

    def pull(self, body: dict[str, Any], reply: bytes) -> None:
        inbox = self.connection.inboxes[reply[: reply.rindex(b".") + 1]]
        pull = Pull(inbox, reply, body)
        self.pulls.append(pull)
        waiting = [each for each in inbox.mailbox.items if getattr(each, "raw_reply", None)]
        assert len(waiting) + sum(each.messages for each in self.pulls) <= self.most
        assert sum(map(size_of, waiting)) + sum(each.bytes for each in self.pulls if each.limited) <= self.largest
        if pull.no_wait:
            self._serve_at_once(pull)

    def forget(self, inbox: Any) -> None:
        self.pulls = deque(pull for pull in self.pulls if pull.inbox is not inbox)

    def given_back(self, frame: bytes) -> None:
        self.returned.append(frame)

    # --- what happens -----------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Something happens; False when nothing can."""
        if self.pulls and self.r.random() < self.trouble:
            self.r.choice([self.cut, self.new_leader, self.expire])()
            return True
        served = False
        for _ in range(self.r.randint(1, 30)):
            served = self._serve_one() or served
        if not served and self.pulls:
            self.expire()
            return True
        return served

    def cut(self) -> None:
        """The link goes, and comes back."""
        inboxes = {id(pull.inbox): pull.inbox for pull in self.pulls}
        self.pulls.clear()
        for inbox in inboxes.values():
            inbox.mailbox.items.extend([LinkEvent.DISCONNECTED, LinkEvent.RECONNECTED])

    def new_leader(self) -> None:
        for pull in self.pulls:
            self.say(pull, "409 Leadership Change")
            self.say(pull, "100 Idle Heartbeat")
        self.pulls.clear()

    def expire(self) -> None:
        pull = self.pulls.popleft()
        self.say(pull, "408 Request Timeout", pull.unserved())

    def _serve_one(self) -> bool:
        while self.pulls and self.left:
            pull = self.pulls.popleft()
            if self.left[0].size > pull.bytes:
                self.say(pull, "409 Message Size Exceeds MaxBytes", pull.unserved())
                continue
            self.send(pull)
            if pull.messages and pull.bytes:
                (self.pulls.append if self.in_turn else self.pulls.appendleft)(pull)
            return True
        return False

    def send(self, pull: Pull) -> None:
        stored = self.left.popleft()
        self.delivery += 1
        pull.inbox.mailbox.items.append(message(stored, self.delivery, len(self.left)))
        pull.messages -= 1
        if pull.limited:
            pull.bytes -= stored.size
            if not pull.messages and pull.bytes:
                self.say(pull, "409 Batch Completed", pull.unserved())

    def _serve_at_once(self, pull: Pull) -> None:
        served = False
        while self.left and pull.messages and pull.bytes:
            if self.left[0].size > pull.bytes:
                self.say(pull, "409 Message Size Exceeds MaxBytes", pull.unserved())
                break
            self.send(pull)
            served = True
        else:
            if pull.messages and pull.bytes and (served or not pull.expires):
                self.say(pull, "408 Requests Pending" if served else "404 No Messages")
            elif pull.messages and pull.bytes:
                pull.no_wait = False
                return  # it waits for the first message
        self.pulls.remove(pull)

    def say(self, pull: Pull, text: str, headers: str = "") -> None:
        block = f"NATS/1.0 {text}\r\n{headers}\r\n".encode()
        pull.inbox.mailbox.items.append(Msg(pull.reply, b"1", None, b"", block))


def some_stored(r: random.Random, largest: int) -> list[Stored]:
    """Some of the sequences are not there."""
    kinds: list[Callable[[], int]] = [
        lambda: r.randint(LEAST, largest),
        lambda: r.choice([LEAST, largest * 6 // 10]),
        lambda: largest // 5,  # fills pulls exactly
    ]
    kind = r.choice(kinds)
    sequences = [sequence for sequence in range(1, r.randint(2, 80)) if r.random() < 0.9]
    return [Stored(sequence, max(LEAST, min(kind(), largest))) for sequence in sequences]
