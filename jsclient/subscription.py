"""Core subscriptions: iterator, `next`, or a callback (see `strands`); and the inboxes of layers above."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors, waiting
from jsclient._engine.mailbox import OVERHEAD, Mailbox, message_size
from jsclient._engine.strands import Strand, Strands
from jsclient._engine.takers import Taker
from jsclient.durations import DEFAULT, Deadline, Timeout, resolve
from jsclient.message import Msg
from jsclient.states import LinkEvent, Wake
from protocol.frames import Frame
from protocol.parser import payload_limit

if TYPE_CHECKING:
    from jsclient.cancel import Cancel
    from jsclient.connection import Connection

log = logging.getLogger("jsclient.subscription")

PENDING_MESSAGES: Final = 65_536
"""Messages a subscription may hold that the application has not taken (nats.go: 65,536 for synchronous ones)."""

PENDING_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the same, each message counted with subject, reply, headers and 200 bytes (nats.go: 64 MiB)."""

NEXT_TIMEOUT: Final = 30.0
"""Seconds that `next` waits unless told otherwise."""

CANCEL_SLICE: Final = 0.05
"""Seconds between two looks at a cancel token where nothing could wake the wait."""


class BaseSubscription:
    """What every subscription has: a sid, a subject, a mailbox that the reader fills, a way to end."""

    def __init__(self, connection: Connection, sid: bytes, subject: str, queue: str, mailbox: Mailbox) -> None:
        self.connection = connection
        self.sid = sid
        self.subject = subject
        self.queue = queue
        self.mailbox = mailbox
        self.received = 0
        self.counted_from = 0  # `received` when the present link was told of it
        self.link = 0  # the number of that link
        self.max_messages: int | None = None
        self.unsubscribed = False  # the server was told: no SUB again after a reconnect

    def __len__(self) -> int:
        return len(self.mailbox)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.subject!r} pending={len(self.mailbox)}>"

    def __reduce__(self) -> Any:
        return self.connection.refuse_pickle(self)

    def deliver(self, messages: list[Msg], nbytes: int) -> None:
        self.received += len(messages)
        self.mailbox.put_many(messages, nbytes)

    def link_event(self, event: LinkEvent) -> None:
        """Told by the connection, on an internal thread, when the link goes down or comes back."""

    def fail(self, error: BaseException) -> None:
        """The server refused the subscription: whoever waits gets the reason."""
        self.connection.remove_subscription(self)
        self.mailbox.close(error)

    def end(self, reason: BaseException) -> None:
        """The connection is closed."""
        self.mailbox.close(reason)


class Subscription(BaseSubscription, Taker):
    """A subscription of the application. Thread-safe: several threads may take from it, each message goes to one.

    Use it as an iterator (ends when it is closed or drained), with `next(timeout)`, or with a callback. Leaving
    its `with` block closes it. Messages are kept up to `pending_messages` and `pending_bytes`; beyond that new
    ones are dropped, `dropped` counts them and one SlowConsumer per episode reaches `on_error`.
    """

    def __init__(
        self,
        connection: Connection,
        sid: bytes,
        subject: str,
        queue: str,
        mailbox: Mailbox,
        callback: Callable[[Msg], Any] | None,
        own_thread: bool = False,
    ) -> None:
        super().__init__(connection, sid, subject, queue, mailbox)
        self._strand: Strand | None = None
        self._popleft = mailbox.popleft
        if callback is not None:
            pool = Strands(connection, own=self) if own_thread else connection.strands
            self._strand = Strand(self, callback, pool)
            self._popleft = self._refuse_taker
        self._ended = False

    # --- the reader's side ------------------------------------------------------------------------------

    def deliver(self, messages: list[Msg], nbytes: int) -> None:
        limit = self.max_messages
        if limit is not None:
            messages = messages[: max(limit - self.received, 0)]
        self.received += len(messages)
        if not self.mailbox.put_many(messages, nbytes):
            self.connection.report_slow_consumer(self)
        limit = self.max_messages  # again: `unsubscribe` may have set it meanwhile, and not seen what we count
        if limit is not None and self.received >= limit:
            self.connection.remove_subscription(self)
            self.mailbox.close(_closed(self.subject))
            if self._strand is not None:
                self._strand.ended()
        if self._strand is not None:
            self._strand.messages_came()

    def fail(self, error: BaseException) -> None:
        super().fail(error)
        if self._strand is not None:
            self._strand.ended()

    # --- taking -----------------------------------------------------------------------------------------

    def next(self, timeout: Timeout = DEFAULT, *, cancel: Cancel | None = None) -> Msg:
        """The next message. Waits at most `timeout` seconds (30 by default, None: for ever, 0: only what is there).

        Raises TimedOut, SubscriptionClosed, ConnectionClosed, PermissionViolation if the server refused it, or
        Cancelled by its `cancel` token.
        """
        try:
            message = self._popleft()
        except IndexError:
            seconds = resolve(timeout, NEXT_TIMEOUT)
            message = self._wait(seconds, cancel)
            if message is None:
                raise errors.TimedOut(f"no message on {self.subject!r} within {seconds:g} s") from None
        message.connection = self.connection
        return message  # type: ignore[no-any-return]

    def _wait(self, timeout: float | None, cancel: Cancel | None = None) -> Any:
        if timeout != 0 and waiting.on_reader():
            raise errors.Reentered("next on the reader thread of a connection would wait for itself")
        if self.mailbox.closed is None:
            self.connection.check_usable()
            self.connection.flush_outbox()
        deadline = Deadline(timeout)
        while True:
            if cancel is None:
                item = self.mailbox.get(deadline.remaining() if timeout else timeout)
            else:
                cancel.check()
                item = self.mailbox.get(deadline.at_most(CANCEL_SLICE))
                if item is None and not deadline.expired():
                    continue
            if not isinstance(item, Wake):
                return item

    def _refuse_taker(self) -> Any:
        raise errors.ConfigError("this subscription has a callback: its messages go there, not to next()")

    def __iter__(self) -> Iterator[Msg]:
        return self

    def __next__(self) -> Msg:
        try:
            message = self._popleft()
        except IndexError:
            try:
                message = self._wait(None)
            except errors.SubscriptionClosed:
                raise StopIteration from None
        message.connection = self.connection
        return message  # type: ignore[no-any-return]

    # --- ending -----------------------------------------------------------------------------------------

    def end(self, reason: BaseException) -> None:
        # After close() no callback is called any more.
        self.mailbox.close(reason, discard=self._strand is not None)
        if self._strand is not None:
            self._strand.ended()

    @property
    def pending(self) -> int:
        """Messages received and not taken yet."""
        return len(self.mailbox)

    @property
    def pending_bytes(self) -> int:
        """Bytes of the same, exact to what was read from the socket at once."""
        return self.mailbox.pending_bytes()

    @property
    def dropped(self) -> int:
        """Messages dropped because the application did not take them fast enough."""
        return self.mailbox.dropped

    @property
    def closed(self) -> bool:
        """True once it receives nothing more; what it holds can still be taken."""
        return self.mailbox.closed is not None

    def unsubscribe(self, max_messages: int | None = None) -> None:
        """Stop receiving: now, or after the server has sent `max_messages` since the subscription was made.

        What was received can still be taken. Raises ConfigError for a number that is not positive.
        """
        if max_messages is None:
            self._end(discard=False)
            return
        if max_messages <= 0:
            raise errors.ConfigError(f"max_messages must be positive, got {max_messages}")
        self.max_messages = max_messages
        if self.received >= max_messages:
            self._end(discard=False)
        else:
            self.connection.send_unsubscribe(self, max_messages)

    def close(self) -> None:
        """Stop receiving and throw away what was not taken; whoever waits gets SubscriptionClosed. Idempotent.

        In a forked child it does nothing: the subscription is the parent's.
        """
        with contextlib.suppress(errors.ForkedConnection):
            self._end(discard=True)

    def _end(self, discard: bool) -> None:
        if not self._ended:
            self._ended = True
            self.connection.remove_subscription(self, tell_server=True)
        self.mailbox.close(_closed(self.subject), discard=discard)
        if self._strand is not None:
            self._strand.ended()

    def drain(self, timeout: Timeout = DEFAULT) -> None:
        """Stop receiving, then wait until everything received was taken (by the callback or by other threads).

        Raises DrainTimeout after `timeout` seconds (30 by default) and when the connection is closed meanwhile; the
        rest is then thrown away.
        """
        deadline = Deadline.of(timeout, self.connection.options.drain_timeout)
        if self._withdraw():
            try:
                self.connection.flush(deadline.at_most(self.connection.options.drain_timeout))
            except (errors.TimedOut, errors.NatsConnectionError):
                pass  # nothing more can come over a link that is gone
        self.all_received()
        self.finish_drain(deadline)

    # The steps of a drain, for a Connection that drains many at once. Between the first two it flushes.

    def begin_drain(self) -> None:
        self._withdraw()

    def _withdraw(self) -> bool:
        """UNSUB, and go on receiving what the server sent before it; False when nothing comes any more."""
        if self._ended or self.mailbox.closed is not None:
            return False
        self._ended = True
        self.connection.remove_subscription(self, tell_server=True, keep_sink=True)
        return True

    def all_received(self) -> None:
        """Nothing more comes: iterators end with what is there."""
        self.connection.remove_subscription(self)
        self.mailbox.close(_closed(self.subject))

    def runs_here(self) -> bool:
        return self._strand is not None and self._strand.worker == threading.get_ident()

    def finish_drain(self, deadline: Deadline) -> None:
        """Wait for the application to take what is left; without a callback that is other threads' work."""
        if self.runs_here():
            return  # a callback drains its own subscription: what is left comes after it returns
        if self._strand is not None:
            drained = self._strand.wait_idle(deadline, lambda: self.connection.closed)
            self._strand.ended()
        else:
            while self.mailbox.items and not deadline.expired() and not self.connection.closed:
                time.sleep(deadline.at_most(0.005))
            drained = not self.mailbox.items
        if not drained:
            left = len(self.mailbox)
            self.mailbox.close(_closed(self.subject), discard=True)
            raise errors.DrainTimeout(f"{self.subject!r} was not drained in time: {left} messages thrown away")

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


INBOX_SLACK: Final = 1024
"""Messages that an inbox takes beside those asked for: statuses, and late answers to what was asked before."""

INBOX_SLACK_BYTES: Final = 16 * 1024 * 1024


class Inbox(BaseSubscription):
    """A subscription of the layers above: its owner grants credit, link events come in order.

    `next` returns a Msg, a LinkEvent, WAKE after `wake()`, or None after the timeout. A server that keeps to the credit
    never fills it; what one sends far beyond it is dropped and reported, or a broken server would take all memory.
    """

    def __init__(self, connection: Connection, sid: bytes, subject: str, queue: str, mailbox: Mailbox) -> None:
        super().__init__(connection, sid, subject, queue, mailbox)
        self._most = math.inf  # messages
        self._most_bytes = math.inf
        self._came = 0  # bytes since the mailbox was last looked into

    def grant(self, messages: int, nbytes: int = 0) -> None:
        """So many messages (and bytes, if not 0) were asked for: twice as many may wait, and some slack."""
        most = 2 * messages + INBOX_SLACK
        most_bytes = 2 * (nbytes or messages * payload_limit(self.connection.max_payload)) + INBOX_SLACK_BYTES
        if self._most is math.inf or most > self._most or most_bytes > self._most_bytes:
            finite = self._most is not math.inf
            self._most = max(most, self._most) if finite else most
            self._most_bytes = max(most_bytes, self._most_bytes) if finite else most_bytes

    def _within_credit(self, messages: list[Msg], nbytes: int) -> bool:
        """Look what is really there; False to drop these."""
        mailbox = self.mailbox
        waiting = sum(message_size(item) + OVERHEAD for item in tuple(mailbox.items) if isinstance(item, Msg))
        if len(mailbox.items) + len(messages) <= self._most and waiting + nbytes <= self._most_bytes:
            self._came = waiting + nbytes
            mailbox.overflowing = False
            return True
        mailbox.dropped += len(messages)
        if not mailbox.overflowing:
            mailbox.overflowing = True
            self.connection.report_beyond_credit(self)
        return False

    def deliver(self, messages: list[Msg], nbytes: int) -> None:
        mailbox = self.mailbox
        mailbox.last_frame = time.monotonic()
        self._came += nbytes
        if (
            self._came > self._most_bytes or len(mailbox.items) + len(messages) > self._most
        ) and not self._within_credit(messages, nbytes):
            return
        self.received += len(messages)
        mailbox.items.extend(messages)
        if mailbox._waiters:
            mailbox._notify(len(messages))
            self.connection.woke_taker = True

    def link_event(self, event: LinkEvent) -> None:
        self.mailbox.last_frame = time.monotonic()
        if self.mailbox.closed is None:
            self.mailbox.put(event)

    def end(self, reason: BaseException) -> None:
        # Before anything is handed back, or the server would deliver it to the pulls that are still open here.
        self.connection.remove_subscription(self, tell_server=True, keep_sink=True)
        super().end(reason)

    @property
    def last_frame(self) -> float:
        """`time.monotonic()` of the last frame or link event, stamped by the reader."""
        return self.mailbox.last_frame

    def next(self, timeout: float | None) -> Msg | LinkEvent | Wake | None:
        """Waits; sends what is coalesced first. Raises why it was closed once it is closed and empty."""
        try:
            return self.mailbox.popleft()  # type: ignore[no-any-return]
        except IndexError:
            self.connection.flush_outbox()
            reading = self.connection.lent_reading()
            if reading is not None and timeout != 0 and self.mailbox.closed is None:
                deadline = Deadline(timeout)
                reading.read_messages(self, deadline)
                timeout = deadline.remaining()
            return self.mailbox.get(timeout)

    def take(self) -> Msg | LinkEvent | None:
        """What is there now, or None."""
        return self.mailbox.take()

    def wake(self) -> None:
        """Every thread that is blocked in `next`, or would be from now on, returns WAKE."""
        self.mailbox.wake()

    def close(self) -> None:
        """UNSUB, forget what is there, wake everybody. Idempotent."""
        if self.mailbox.closed is None:
            self.connection.remove_subscription(self, tell_server=True)
            self.mailbox.close(_closed(self.subject), discard=True)

    def drain_sub(self) -> None:
        """UNSUB, but go on serving what is buffered."""
        if self.mailbox.closed is None:
            self.connection.remove_subscription(self, tell_server=True)
            self.mailbox.close(_closed(self.subject))


class SinkSubscription(BaseSubscription):
    """A subscription whose messages go straight to `sink.deliver` on the reader thread."""

    def __init__(self, connection: Connection, sid: bytes, subject: str, queue: str, sink: Any) -> None:
        super().__init__(connection, sid, subject, queue, Mailbox())
        self.sink = sink

    def deliver(self, messages: list[Msg], nbytes: int) -> None:
        self.sink.deliver(messages, nbytes)

    def link_event(self, event: LinkEvent) -> None:
        self.sink.link_event(event)

    def withdrawn(self, frames: list[Frame]) -> None:
        """Frames (of anybody) that were queued when the link went down, and of which no byte was sent."""
        withdrawn = getattr(self.sink, "withdrawn", None)
        if withdrawn is not None:
            withdrawn(frames)

    def fail(self, error: BaseException) -> None:
        super().fail(error)
        failed = getattr(self.sink, "failed", None)
        if failed is not None:
            failed(error)

    def end(self, reason: BaseException) -> None:
        super().end(reason)
        self.sink.link_event(LinkEvent.CLOSED)

    def close(self) -> None:
        self.connection.remove_subscription(self, tell_server=True)
        self.mailbox.close(_closed(self.subject), discard=True)


def _closed(subject: str) -> errors.SubscriptionClosed:
    return errors.SubscriptionClosed(f"the subscription to {subject!r} is closed")
