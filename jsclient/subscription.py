"""Core subscriptions: iterator, `next`, or a callback (see `strands`); and the inboxes of layers above."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal

from jsclient import checks, errors, handlers, hints, waiting
from jsclient._engine.mailbox import Mailbox
from jsclient._engine.sinks import CANCEL_SLICE, BaseSubscription, closed_subscription
from jsclient._engine.strands import Strand, Strands
from jsclient._engine.takers import Taker
from jsclient.cancel import Cancel, check_cancel
from jsclient.durations import DEFAULT, Deadline, Timeout, resolve
from jsclient.instruments import taking
from jsclient.message import Msg
from jsclient.shared_options import with_shared_options
from jsclient.states import Wake

if TYPE_CHECKING:
    from jsclient._engine.engine import LiveEngine
    from jsclient.connection import Connection

hints.wanted(globals(), "Connection", "LiveEngine")

log: logging.Logger = logging.getLogger("jsclient.subscription")

PENDING_MESSAGES: Final = 65_536
"""Messages a subscription may hold that the application has not taken (nats.go: 65,536 for synchronous ones)."""

PENDING_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the same, each message counted with subject, reply, headers and 200 bytes (nats.go: 64 MiB)."""

NEXT_TIMEOUT: Final = 30.0
"""Seconds that `next` waits unless told otherwise."""


SubscriptionStatus = Literal["active", "slow consumer", "draining", "closed"]


def check_limits(messages: int, nbytes: int) -> None:
    """Raises ConfigError for limits under which nothing could ever be taken."""
    checks.positive(messages, "pending_messages")
    checks.positive(nbytes, "pending_bytes")


@with_shared_options
class Subscription(BaseSubscription, Taker):
    """A subscription of the application. Thread-safe: several threads may take from it, each message goes to one.

    Use it as an iterator (ends when it is closed or drained), with `next(timeout)`, or with a callback. Leaving
    its `with` block closes it. Messages are kept up to `pending_messages` and `pending_bytes`; beyond that new
    ones are dropped, `dropped` counts them and one SlowConsumer per episode reaches `on_error`.
    """

    def __init__(
        self,
        connection: Connection,
        engine: LiveEngine,
        sid: bytes,
        subject: str,
        queue: str,
        mailbox: Mailbox,
        callback: Callable[[Msg], Any] | None,
        own_thread: bool = False,
    ) -> None:
        super().__init__(engine, sid, subject, queue, mailbox)
        self.connection: Connection = connection
        """The connection that it belongs to."""
        self.strand: Strand | None = None
        """For layers."""
        self._popleft = mailbox.popleft
        if callback is not None:
            pool = Strands(engine, own=self) if own_thread else engine.strands
            self.strand = Strand(self, callback, pool)
            self._popleft = self._refuse_taker
        elif engine.options.instrumentation is not None:
            self._popleft = taking(engine.options.instrumentation, self._popleft)
            self._wait = taking(engine.options.instrumentation, self._wait)  # type: ignore[method-assign]
        self._ended = False

    # --- the reader's side ------------------------------------------------------------------------------

    def deliver(self, messages: list[Msg], nbytes: int) -> None:
        limit = self.max_messages
        if limit is not None:
            messages = messages[: max(limit - self.received, 0)]
        self.received: int = self.received + len(messages)
        if not self.mailbox.put_many(messages, nbytes):
            self.engine.telling.report_slow_consumer(self)
        limit = self.max_messages  # again: `unsubscribe` may have set it meanwhile, and not seen what we count
        if limit is not None and self.received >= limit:
            self.engine.remove_subscription(self)
            self.mailbox.close(closed_subscription(self.subject))
            if self.strand is not None:
                self.strand.ended()
        if self.strand is not None:
            self.strand.messages_came()

    def fail(self, error: BaseException) -> None:
        super().fail(error)
        if self.strand is not None:
            self.strand.ended()

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
            if cancel is not None:
                check_cancel(cancel)
            message = self._wait(seconds, cancel)
            if message is None:
                raise errors.TimedOut(
                    f"no message on {self.subject!r} within {seconds:g} s. Nothing is lost. Ask again."
                ) from None
        message.connection = self.connection
        return message  # type: ignore[no-any-return]

    def _wait(self, timeout: float | None, cancel: Cancel | None = None) -> Any:
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
        self.mailbox.close(reason, discard=self.strand is not None)
        if self.strand is not None:
            self.strand.ended()

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
    def max_pending(self) -> tuple[int, int]:
        """Messages, and bytes, that waited at most at the same time: the high-water mark of `pending`."""
        return self.mailbox.high_messages, self.mailbox.high_bytes

    @property
    def pending_limits(self) -> tuple[int, int]:
        """`pending_messages` and `pending_bytes`, as they are now."""
        return self.mailbox.max_messages or 0, self.mailbox.max_bytes or 0

    def set_pending_limits(self, messages: int, nbytes: int) -> None:
        """Change them from the next messages on; what waits already is kept. Raises ConfigError."""
        check_limits(messages, nbytes)
        self.mailbox.max_messages, self.mailbox.max_bytes = messages, nbytes

    @property
    def status(self) -> SubscriptionStatus:
        """Where it is in its life. "slow consumer": it dropped messages, and has not caught up since."""
        if self.closed:
            return "closed"
        if self._ended:
            return "draining"
        return "slow consumer" if self.mailbox.is_behind else "active"

    @property
    def closed(self) -> bool:
        """True once it receives nothing more; what it holds can still be taken."""
        return self.mailbox.closed is not None

    def when_closed(self, call: Callable[[Subscription], Any]) -> None:
        """Call `call(subscription)` on the events thread of the connection once it is closed, for whatever reason;
        soon if it is already. Where that thread has ended with the connection: here and now."""
        handlers.check(call, "call")
        self.mailbox.when_closed(lambda: self.engine.run_last_callback(call, self))

    def unsubscribe(self, max_messages: int | None = None) -> None:
        """Stop receiving: now, or after the server has sent `max_messages` since the subscription was made.

        What was received can still be taken. Raises ConfigError for a number that is not positive, BufferFull where
        far too much waits for a server that takes nothing.
        """
        if max_messages is None:
            self._end(discard=False)
            return
        checks.positive(max_messages, "max_messages")
        self.engine.outbox.check_control()
        self.max_messages: int | None = max_messages
        if self.received >= max_messages:
            self._end(discard=False)
        else:
            self.engine.subscriptions.tell_unsubscribed(self, max_messages)

    def close(self) -> None:
        """Stop receiving and throw away what was not taken; waiting calls get SubscriptionClosed. Idempotent.

        In a forked child it does nothing: the subscription is the parent's.
        """
        with contextlib.suppress(errors.ForkedConnection):
            self._end(discard=True)

    def _end(self, discard: bool) -> None:
        if not self._ended:
            self._ended = True
            self.engine.remove_subscription(self, tell_server=True)
        self.mailbox.close(closed_subscription(self.subject), discard=discard)
        if self.strand is not None:
            self.strand.ended()

    def drain(self, timeout: Timeout = DEFAULT) -> None:
        """Stop receiving, then wait until everything received was taken (by the callback or by other threads).

        Raises DrainTimeout after `timeout` seconds (30 by default) and when the connection is closed meanwhile; the
        rest is then thrown away.
        """
        deadline = Deadline.of(timeout, self.engine.options.drain_timeout)
        if self._withdraw():
            try:
                self.engine.flush(deadline.at_most(self.engine.options.drain_timeout))
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
        self.engine.remove_subscription(self, tell_server=True, keep_sink=True)
        return True

    def all_received(self) -> None:
        """Nothing more comes: iterators end with what is there."""
        self.engine.remove_subscription(self)
        self.mailbox.close(closed_subscription(self.subject))

    def runs_here(self) -> bool:
        return self.strand is not None and self.strand.runs_here()

    def finish_drain(self, deadline: Deadline) -> None:
        """Wait for the application to take what is left; without a callback that is other threads' work."""
        if self.runs_here():
            return  # a callback drains its own subscription: what is left comes after it returns
        if self.strand is not None:
            drained = self.strand.wait_idle(deadline, lambda: self.engine.closed)
            self.strand.ended()
        else:
            while self.mailbox.items and not deadline.expired() and not self.engine.closed:
                time.sleep(deadline.at_most(0.005))
            drained = not self.mailbox.items
        if not drained:
            left = len(self.mailbox)
            self.mailbox.close(closed_subscription(self.subject), discard=True)
            raise errors.DrainTimeout(
                f"{self.subject!r} was not drained in time: {left} messages were thrown away. Give it more "
                "time, or take messages faster."
            )

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
