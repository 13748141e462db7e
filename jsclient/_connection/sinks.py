"""The kinds of subscriptions that the table holds, and their common base.

They are subscriptions of the application, inboxes with a mailbox, and sinks on the reader thread.
"""

from __future__ import annotations

import abc
import contextlib
import math
import time
import weakref
from collections.abc import Callable, Collection
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from jsclient import checks, errors, protocol, waiting
from jsclient._connection.callback_pool import CallbackPool, OrderedCallback
from jsclient._connection.drainable import Drainable
from jsclient._connection.mailbox import OVERHEAD, Mailbox, message_size
from jsclient._connection.reading import read_messages
from jsclient.cancel import Cancel
from jsclient.durations import Deadline
from jsclient.instruments import taking
from jsclient.message import Msg
from jsclient.protocol.parser import payload_limit
from jsclient.states import LinkEvent, Wake

if TYPE_CHECKING:
    from jsclient._connection.engine import Engine
    from jsclient.protocol.frames import Frame
    from jsclient.subscription import Subscription

CANCEL_SLICE: Final = 0.05
"""Seconds between two looks at a cancel token if nothing could wake the wait."""


class BaseSubscription:
    """The base of every subscription: a sid, a subject, a mailbox that the reader fills, and a way to end."""

    def __init__(self, engine: Engine, sid: bytes, subject: str, queue: str, mailbox: Mailbox) -> None:
        self.engine: Engine = engine
        """For layers."""
        self.sid: bytes = sid
        """For layers."""
        self.subject: str = subject
        """The subject as given to `subscribe`."""
        self.queue: str = queue
        """Its queue group; "" when it has none."""
        raw = checks.filter_subject(subject)
        try:
            self.frame: bytes = protocol.sub(raw, sid, checks.queue_group(queue) if queue else b"")  #: SUB
        except protocol.InvalidArgument as error:
            raise errors.InvalidSubject(error.what) from None
        self.mailbox: Mailbox = mailbox
        """For layers."""
        self.received: int = 0
        """Messages that came so far, dropped ones included."""
        self.counted_from: int = 0  #: For layers: `received` when its SUB went to the current link
        self.link: int = 0  #: For layers: the number of that link
        self.max_messages: int | None = None
        """The number of messages after which it ends; None: it does not. Set by `unsubscribe`."""
        self.unsubscribed: bool = False  #: For layers: the UNSUB was sent, so a reconnect sends no SUB

    def __len__(self) -> int:
        return len(self.mailbox)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.subject!r} pending={len(self.mailbox)}>"

    def __reduce__(self) -> Any:
        return self.engine.refuse_pickle(self)

    def public(self) -> Any:
        """The object that callbacks and events name."""
        return self

    def deliver(self, messages: list[Msg], nbytes: int) -> None:
        self.received = self.received + len(messages)
        self.mailbox.put_many(messages, nbytes)

    def link_event(self, event: LinkEvent) -> None:
        """The connection calls it on an internal thread when the link goes down or comes back."""

    def fail(self, error: BaseException) -> None:
        """The server refused the subscription: waiting threads get the reason."""
        self.engine.remove_subscription(self)
        self.mailbox.close(error)

    def end(self, reason: BaseException) -> None:
        """The connection is closed."""
        self.mailbox.close(reason)


class AppSubscription(BaseSubscription, Drainable):
    """A subscription of the application, as its connection holds it: the sink of its messages.

    The user's Subscription refers to this object. This object refers back only if there is a callback. Otherwise the
    garbage collector takes the Subscription once the program no longer holds it, and it unsubscribes.
    """

    def __init__(self, engine: Engine, sid: bytes, subject: str, queue: str, mailbox: Mailbox) -> None:
        super().__init__(engine, sid, subject, queue, mailbox)
        self.ordered_callback: OrderedCallback | None = None  # its callback
        self.ended: bool = False
        self._public: Callable[[], Subscription | None] = lambda: None
        if engine.options.instrumentation is not None:
            self.wait = taking(engine.options.instrumentation, self.wait)  # type: ignore[method-assign]

    def held_by(self, public: Subscription, callback: Callable[[Msg], Any] | None, own_thread: bool) -> None:
        """Remember the object that the application holds. With a callback this keeps it alive."""
        if callback is None:
            self._public = weakref.ref(public)
            return
        self._public = lambda: public
        pool = CallbackPool(self.engine, own=self) if own_thread else self.engine.callback_pool
        self.ordered_callback = OrderedCallback(self, public.connection, callback, pool)

    def public(self) -> Subscription:
        """The object for callbacks and events: a new one if the first was collected just now."""
        public = self._public()
        if public is not None:
            return public
        made: Subscription = import_module("jsclient.subscription").Subscription(self.engine.connection, self)
        return made

    def collected(self) -> None:
        """The program no longer holds the public object. A finalizer runs anywhere, so another thread does the work."""
        if not self.closed:
            self.engine.clock.call_soon(self._abandon)

    def _abandon(self) -> None:
        if self.engine.subscriptions.sinks.get(self.sid) is self:
            with contextlib.suppress(errors.JsClientError):
                self.close(discard=True)

    # --- the reader's side ------------------------------------------------------------------------------

    def deliver(self, messages: list[Msg], nbytes: int) -> None:
        limit = self.max_messages
        if limit is not None:
            messages = messages[: max(limit - self.received, 0)]
        self.received: int = self.received + len(messages)
        if not self.mailbox.put_many(messages, nbytes):
            self.engine.events.report_slow_consumer(self)
        if self.ordered_callback is not None:
            self.ordered_callback.messages_came()  # before the end below, at which its thread ends
        limit = self.max_messages  # again: `unsubscribe` may have set it meanwhile without seeing our count
        if limit is not None and self.received >= limit:
            self.engine.remove_subscription(self)
            self.mailbox.close(closed_subscription(self.subject))
            if self.ordered_callback is not None:
                self.ordered_callback.ended()

    def fail(self, error: BaseException) -> None:
        super().fail(error)
        if self.ordered_callback is not None:
            self.ordered_callback.ended()

    # --- taking -----------------------------------------------------------------------------------------

    def wait(self, timeout: float | None, cancel: Cancel | None = None) -> Any:
        """The next message; None after the timeout. Once it is closed and empty, raises the reason of the close."""
        if timeout != 0 and waiting.on_reader():
            raise errors.Reentered("next on the reader thread of a connection would wait for itself")
        if self.mailbox.closed is None:
            self.engine.check_usable()
            self.engine.flush_outbox()
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

    # --- ending -----------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """True after its end. The application can still take the messages it holds."""
        return self.mailbox.closed is not None

    def end(self, reason: BaseException) -> None:
        # After close() no more callbacks run.
        self.mailbox.close(reason, discard=self.ordered_callback is not None)
        if self.ordered_callback is not None:
            self.ordered_callback.ended()

    def close(self, discard: bool) -> None:
        """End it. `discard` also discards the messages that it holds."""
        if not self.ended:
            self.ended = True
            self.engine.remove_subscription(self, tell_server=True)
        self.mailbox.close(closed_subscription(self.subject), discard=discard)
        if self.ordered_callback is not None:
            self.ordered_callback.ended()

    def begin_drain(self) -> None:
        self.withdraw()

    def withdraw(self) -> bool:
        """Send UNSUB, but still receive messages that the server sent before it. False when none come any more."""
        if self.ended or self.closed:
            return False
        self.ended = True
        self.engine.remove_subscription(self, tell_server=True, keep_sink=True)
        return True

    def all_received(self) -> None:
        """No more messages come: iterators end after the available ones."""
        self.engine.remove_subscription(self)
        self.mailbox.close(closed_subscription(self.subject))

    def runs_here(self) -> bool:
        return self.ordered_callback is not None and self.ordered_callback.runs_here()

    def finish_drain(self, deadline: Deadline) -> None:
        """Wait for the application to take the remaining messages. Without a callback, other threads do that."""
        if self.runs_here():
            return  # a callback drains its own subscription: it gets the remaining messages after it returns
        if self.ordered_callback is not None:
            drained = self.ordered_callback.wait_idle(deadline, lambda: self.engine.closed)
            self.ordered_callback.ended()
        else:
            while self.mailbox.items and not deadline.expired() and not self.engine.closed:
                time.sleep(deadline.at_most(0.005))
            drained = not self.mailbox.items
        if not drained:
            left = errors.counted(len(self.mailbox), "message")
            self.mailbox.close(closed_subscription(self.subject), discard=True)
            raise errors.DrainTimeout(
                f"{self.subject!r} was not drained in time: the client threw {left} away. Give it more "
                "time, or take messages faster."
            )


INBOX_SLACK: Final = 1024
"""Messages that an inbox takes in addition to the requested ones: statuses, and late answers to earlier requests."""

INBOX_SLACK_BYTES: Final = 16 * 1024 * 1024


class Inbox(BaseSubscription):
    """A subscription of the layers above: its owner grants credit, link events come in order.

    `next` returns a Msg, a LinkEvent, WAKE after `wake()`, or None after the timeout. A server that keeps to the credit
    never fills it. If a broken server sends far more, the client drops and reports the excess to protect its memory.
    """

    def __init__(self, engine: Engine, sid: bytes, subject: str, queue: str, mailbox: Mailbox) -> None:
        super().__init__(engine, sid, subject, queue, mailbox)
        self._most = math.inf  # messages
        self._most_bytes = math.inf
        self._granted = (0, 0, 0)  # last: messages, bytes, and max_payload then
        self._came = 0  # bytes since the mailbox was last looked into

    def grant(self, messages: int, nbytes: int = 0) -> None:
        """The owner has requested this number of messages (and bytes, if not 0). Twice the number may wait, and some
        slack."""
        granted = (messages, nbytes, self.engine.encoder.max_payload)
        if granted == self._granted:
            return  # unchanged: this inbox serves a series of fetches
        self._granted = granted
        most = 2 * messages + INBOX_SLACK
        most_bytes = 2 * (nbytes or messages * payload_limit(granted[2])) + INBOX_SLACK_BYTES
        if self._most is math.inf or most > self._most or most_bytes > self._most_bytes:
            finite = self._most is not math.inf
            self._most = max(most, self._most) if finite else most
            self._most_bytes = max(most_bytes, self._most_bytes) if finite else most_bytes

    def _within_credit(self, messages: list[Msg], nbytes: int) -> bool:
        """Check the real contents; False to drop these messages."""
        mailbox = self.mailbox
        items = waiting.copy_of(mailbox.items)
        held = sum(message_size(item) + OVERHEAD for item in items if isinstance(item, Msg))
        if len(mailbox.items) + len(messages) <= self._most and held + nbytes <= self._most_bytes:
            self._came = held + nbytes
            mailbox.overflowing = False
            return True
        mailbox.dropped += len(messages)
        if not mailbox.overflowing:
            mailbox.overflowing = True
            self.engine.events.report_beyond_credit(self)
        return False

    def deliver(self, messages: list[Msg], nbytes: int) -> None:
        mailbox = self.mailbox
        mailbox.last_frame = time.monotonic()
        self._came += nbytes
        if (
            self._came > self._most_bytes or len(mailbox.items) + len(messages) > self._most
        ) and not self._within_credit(messages, nbytes):
            return
        self.received: int = self.received + len(messages)
        mailbox.items.extend(messages)
        if mailbox._waiters:
            mailbox._notify(len(messages))
            self.engine.woke_taker = True

    def link_event(self, event: LinkEvent) -> None:
        self.mailbox.last_frame = time.monotonic()
        if self.mailbox.closed is None:
            self.mailbox.put(event)

    def end(self, reason: BaseException) -> None:
        # Before handing messages back, or the server would deliver them to the pulls that are still open here.
        self.engine.remove_subscription(self, tell_server=True, keep_sink=True)
        super().end(reason)

    @property
    def last_frame(self) -> float:
        """`time.monotonic()` of the last frame or link event, stamped by the reader."""
        return self.mailbox.last_frame

    def next(self, timeout: float | None) -> Msg | LinkEvent | Wake | None:
        """Send coalesced frames, then wait. Once it is closed and empty, raises the reason of the close."""
        try:
            return self.mailbox.popleft()  # type: ignore[no-any-return]
        except IndexError:
            self.engine.flush_outbox()
            reading = self.engine.lent_reading()
            if reading is not None and timeout != 0 and self.mailbox.closed is None:
                deadline = Deadline(timeout)
                read_messages(reading, self, deadline)
                timeout = deadline.remaining()
            return self.mailbox.get(timeout)

    def take(self) -> Msg | LinkEvent | None:
        """An available item, or None."""
        return self.mailbox.take()

    def wake(self) -> None:
        """Every thread that is blocked in `next`, or would be from now on, returns WAKE."""
        self.mailbox.wake()

    def close(self) -> None:
        """Send UNSUB, discard the contents, wake all waiting threads. Idempotent."""
        if self.mailbox.closed is None:
            self.engine.remove_subscription(self, tell_server=True)
            self.mailbox.close(closed_subscription(self.subject), discard=True)

    def drain_sub(self) -> None:
        """Send UNSUB, but continue to serve the buffered messages."""
        if self.mailbox.closed is None:
            self.engine.remove_subscription(self, tell_server=True)
            self.mailbox.close(closed_subscription(self.subject))


class MessageSink(abc.ABC):
    """Gets the messages and events of a subscription, on the reader thread. It must be quick and raise nothing."""

    @abc.abstractmethod
    def deliver(self, messages: list[Msg], nbytes: int) -> None:
        """Handle messages that have arrived."""

    @abc.abstractmethod
    def link_event(self, event: LinkEvent) -> None:
        """Handle a link event, in order with the messages."""

    def failed(self, error: BaseException) -> None:  # noqa: B027
        """The server has refused the subscription."""

    def forked(self) -> None:  # noqa: B027
        """This is a forked child: no more messages come."""


class ReplySink(MessageSink):
    """A sink that waits for an answer to each of its messages. Its inbox stays subscribed until an old link has
    ended."""

    @abc.abstractmethod
    def under_way(self) -> Collection[bytes]:
        """The tokens of messages that were sent and not answered yet. Any thread may call it."""

    @abc.abstractmethod
    def withdrawn(self, frames: list[Frame]) -> None:
        """Handle frames (of any sender) that were queued when the link went down, with no byte sent."""


class SinkSubscription(BaseSubscription):
    """A subscription with messages that go straight to `sink.deliver` on the reader thread."""

    def __init__(self, engine: Engine, sid: bytes, subject: str, queue: str, sink: MessageSink) -> None:
        super().__init__(engine, sid, subject, queue, Mailbox())
        self.sink = sink

    def deliver(self, messages: list[Msg], nbytes: int) -> None:
        self.sink.deliver(messages, nbytes)

    def link_event(self, event: LinkEvent) -> None:
        self.sink.link_event(event)

    def fail(self, error: BaseException) -> None:
        super().fail(error)
        self.sink.failed(error)

    def end(self, reason: BaseException) -> None:
        super().end(reason)
        self.sink.link_event(LinkEvent.CLOSED)

    def close(self) -> None:
        self.engine.remove_subscription(self, tell_server=True)
        self.mailbox.close(closed_subscription(self.subject), discard=True)


def closed_subscription(subject: str) -> errors.SubscriptionClosed:
    return errors.SubscriptionClosed(f"the subscription to {subject!r} is closed")
