"""Core subscriptions, with an iterator, `next`, or a callback (see `callback_pool`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal

from jsclient import checks, errors, handlers
from jsclient._connection.sinks import AppSubscription
from jsclient.cancel import Cancel, check_cancel
from jsclient.durations import DEFAULT, Deadline, Timeout, resolve
from jsclient.instruments import taking
from jsclient.message import Msg

if TYPE_CHECKING:
    from jsclient.connection import Connection


PENDING_MESSAGES: Final = 65_536
"""Messages that a subscription buffers for the application (nats.go: 65,536 for synchronous ones)."""

PENDING_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the same, each message counted with subject, reply, headers and 200 bytes (nats.go: 64 MiB)."""

NEXT_TIMEOUT: Final = 30.0
"""Seconds that `next` waits by default."""


SubscriptionStatus = Literal["active", "slow consumer", "draining", "closed"]


def check_limits(messages: int, nbytes: int) -> None:
    """Raises ConfigError for limits that no message could meet."""
    checks.positive(messages, "pending_messages")
    checks.positive(nbytes, "pending_bytes")


class Subscription:
    """A subscription of the application. Thread-safe: several threads may take from it, each message goes to one.

        with nc.subscribe("greet.*") as sub:
            nc.publish("greet.anna", b"hello")
            for msg in sub:  # waits for messages until the subscription ends
                print(msg.subject, msg.data)
                sub.drain()

    Use it as an iterator (ends when it is closed or drained), with `next(timeout)`, or with a callback. The end of its
    `with` block closes it. Without a callback, it unsubscribes when your program no longer refers to it. It buffers up
    to `pending_messages` and `pending_bytes`. If the buffer is full, the client drops new messages. `dropped` counts
    them, and the client reports one SlowConsumer per episode to `on_error`.

    Attributes:
        connection: The connection that it belongs to.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
        cancel: A Cancel. Its `cancel()`, called from another thread, ends the wait, and the call raises Cancelled.
    """

    def __init__(
        self,
        connection: Connection,
        core: AppSubscription,
        callback: Callable[[Msg], Any] | None = None,
        own_thread: bool = False,
    ) -> None:
        self._core: AppSubscription = core
        self.connection: Connection = connection
        self._popleft: Callable[[], Any] = core.mailbox.popleft
        if callback is not None:
            self._popleft = _refuse_taker
        elif core.engine.options.instrumentation is not None:
            self._popleft = taking(core.engine.options.instrumentation, self._popleft)
        core.held_by(self, callback, own_thread)

    def __del__(self) -> None:
        self._core.collected()

    def __len__(self) -> int:
        return len(self._core)

    def __repr__(self) -> str:
        return f"<Subscription {self.subject!r} pending={len(self)}>"

    def __reduce__(self) -> Any:
        return self._core.engine.refuse_pickle(self)

    @property
    def subject(self) -> str:
        """The subject as given to `subscribe`."""
        return self._core.subject

    @property
    def queue(self) -> str:
        """Its queue group; "" when it has none."""
        return self._core.queue

    @property
    def received(self) -> int:
        """Messages that came so far, dropped ones included."""
        return self._core.received

    # --- taking -----------------------------------------------------------------------------------------

    def next(self, timeout: Timeout = DEFAULT, *, cancel: Cancel | None = None) -> Msg:
        """The next message. Waits at most `timeout` seconds, by default 30.

        With None it waits indefinitely, and with 0 it returns only a message that has already arrived. Raises TimedOut,
        SubscriptionClosed, ConnectionClosed, PermissionViolation if the server refused the subscription, or Cancelled
        by its `cancel` token.
        """
        try:
            message = self._popleft()
        except IndexError:
            seconds = resolve(timeout, NEXT_TIMEOUT)
            if cancel is not None:
                check_cancel(cancel)
            message = self._core.wait(seconds, cancel)
            if message is None:
                raise errors.TimedOut(f"no message on {self.subject!r} within {seconds:g} s") from None
        message.connection = self.connection
        return message  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[Msg]:
        return self

    def __next__(self) -> Msg:
        try:
            message = self._popleft()
        except IndexError:
            try:
                message = self._core.wait(None)
            except errors.SubscriptionClosed:
                raise StopIteration from None
        message.connection = self.connection
        return message  # type: ignore[no-any-return]

    # --- ending -----------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Messages received and not taken yet."""
        return len(self._core.mailbox)

    @property
    def pending_bytes(self) -> int:
        """Bytes of the same messages, exact to one read from the socket."""
        return self._core.mailbox.pending_bytes()

    @property
    def dropped(self) -> int:
        """Messages dropped because the application did not take them fast enough."""
        return self._core.mailbox.dropped

    @property
    def max_pending(self) -> tuple[int, int]:
        """The largest backlog so far, in messages and in bytes: the high-water mark of `pending`."""
        return self._core.mailbox.high_messages, self._core.mailbox.high_bytes

    @property
    def pending_limits(self) -> tuple[int, int]:
        """The current `pending_messages` and `pending_bytes`."""
        return self._core.mailbox.max_messages or 0, self._core.mailbox.max_bytes or 0

    def set_pending_limits(self, messages: int, nbytes: int) -> None:
        """Change the limits from the next messages on. Messages that already wait stay. Raises ConfigError."""
        check_limits(messages, nbytes)
        self._core.mailbox.max_messages, self._core.mailbox.max_bytes = messages, nbytes

    @property
    def status(self) -> SubscriptionStatus:
        """The state of the subscription. "slow consumer" means that it dropped messages and has not caught up since."""
        if self.closed:
            return "closed"
        if self._core.ended:
            return "draining"
        return "slow consumer" if self._core.mailbox.is_behind else "active"

    @property
    def closed(self) -> bool:
        """True once it receives no more messages. You can still take the messages it holds."""
        return self._core.closed

    def when_closed(self, call: Callable[[Subscription], Any]) -> None:
        """Call `call(subscription)` on the events thread of the connection once it is closed, for whatever reason.

        If it is closed already, the call comes soon. If that thread has ended with the connection, the call runs
        immediately in this thread.
        """
        handlers.check(call, "call")
        core = self._core
        core.mailbox.when_closed(lambda: core.engine.run_last_callback(call, core.public()))

    def unsubscribe(self, max_messages: int | None = None) -> None:
        """Stop receiving: now, or after the server has sent `max_messages` since the subscription was made.

        You can still take the messages received so far. Raises ConfigError for a number that is not positive, and
        BufferFull if far too much data waits for a server that does not read.
        """
        if max_messages is None:
            self._core.close(discard=False)
            return
        checks.positive(max_messages, "max_messages")
        core = self._core
        core.engine.outbox.check_control()
        core.max_messages = max_messages
        if core.received >= max_messages:
            core.close(discard=False)
        else:
            core.engine.subscriptions.tell_unsubscribed(core, max_messages)

    def close(self) -> None:
        """Stop receiving and discard the remaining messages; waiting calls raise SubscriptionClosed. Idempotent.

        In a forked child it does nothing, because the subscription belongs to the parent.
        """
        with contextlib.suppress(errors.ForkedConnection):
            self._core.close(discard=True)

    def drain(self, timeout: Timeout = DEFAULT) -> None:
        """Stop receiving, then wait until the callback or other threads have taken all received messages.

        Raises DrainTimeout after `timeout` seconds (by default `drain_timeout`, 30) and when the connection is closed
        meanwhile. The remaining messages are discarded then.
        """
        core = self._core
        limit = core.engine.options.drain_timeout
        deadline = Deadline.of(timeout, limit)
        if core.withdraw():
            with contextlib.suppress(errors.TimedOut, errors.NatsConnectionError):  # nothing comes over a dead link
                core.engine.requests.rtt(deadline.at_most(limit))
        core.all_received()
        core.finish_drain(deadline)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _refuse_taker() -> Any:
    raise errors.ConfigError("this subscription has a callback: its messages go there, not to next()")


def core_of(subscription: Subscription) -> AppSubscription:
    """The part of a subscription that the layers above use. Not part of the API."""
    return subscription._core
