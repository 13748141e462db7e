"""Pushed messages on their way to an iterator: subscription, mailbox, control frames, silence."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypedDict

import attrs

from jsclient import errors, kinds, waiting
from jsclient._connection import Mailbox, MessageSink
from jsclient.connection import engine_of
from jsclient.durations import Deadline, seconds_of
from jsclient.jetstream.api import headers as header_names
from jsclient.jetstream.consuming import diagnosis
from jsclient.jetstream.consuming.pull_inboxes import FLUSH_TIMEOUT, nak_all
from jsclient.jetstream.consuming.pull_options import ErrorHook, Paused
from jsclient.jetstream.consuming.pull_statuses import row_of
from jsclient.jetstream.consuming.pump import NOTHING, Notice, failed, reported
from jsclient.jetstream.consuming.watchdog import NEVER, Look, Watchdog
from jsclient.states import WAKE, LinkEvent

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.jetstream.api.models import ConsumerConfig
    from jsclient.message import Msg

PENDING_MESSAGES: Final = 65_536
PENDING_BYTES: Final = 64 * 1024 * 1024
"""The limits of waiting messages without flow control; the client drops and reports messages beyond them."""


class PushOptionsDict(TypedDict, total=False):
    """Keyword arguments of `messages()` and `consume()` of push consumers.

    A value of another type or out of range raises ConfigError before anything is sent.

    The fields are described in `PushOptions`.
    """

    on_error: ErrorHook | None
    pending_messages: int
    pending_bytes: int
    leave_buffered: bool


@attrs.frozen(kw_only=True)
class PushOptions:
    """`on_error(error)` gets NoHeartbeat, SlowConsumer and exceptions of the handler; without it they are logged. For
    `consume` a function of two arguments gets `(error, message)`, as in PullOptions.

    Without flow control at most `pending_messages` and `pending_bytes` wait for the application. The client drops more
    and reports SlowConsumer (with acks the server redelivers them after ack_wait). `leave_buffered` leaves unread
    messages to ack_wait at the end, instead of returning them.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        on_error: Called with errors that the reading survives; with None they are logged.
        pending_messages: Messages that may wait for the application without flow control; more are dropped.
        pending_bytes: Bytes that may wait for the application without flow control; more are dropped.
        leave_buffered: At the end leave unread messages to `ack_wait`, instead of returning them immediately.
    """

    on_error: ErrorHook | None = attrs.field(default=None, validator=kinds.field(Callable, None))
    pending_messages: int = attrs.field(default=PENDING_MESSAGES, validator=kinds.field(int))
    pending_bytes: int = attrs.field(default=PENDING_BYTES, validator=kinds.field(int))
    leave_buffered: bool = attrs.field(default=False, validator=kinds.field(bool))

    def __attrs_post_init__(self) -> None:
        for name in ("pending_messages", "pending_bytes"):
            if getattr(self, name) < 1:
                raise errors.ConfigError(f"{name} must be 1 or more, got {getattr(self, name)}")


class PushSink(MessageSink):
    """The reader's side: a mailbox, bounded unless flow control bounds it."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.mailbox = mailbox
        self.overflowed: bool = False

    def deliver(self, messages: list[Msg], nbytes: int) -> None:
        self.mailbox.last_frame = time.monotonic()
        if not self.mailbox.put_many(messages, nbytes):
            self.overflowed = True

    def link_event(self, event: LinkEvent) -> None:
        self.mailbox.last_frame = time.monotonic()
        if event is LinkEvent.CLOSED:
            if self.mailbox.closed is None:  # the reader's `end` has given the reason already
                self.mailbox.close(errors.ConnectionClosed("the connection is closed"))
        else:
            self.mailbox.put(event)

    def server_left(self, event: LinkEvent) -> None:
        """A listener for links: passes on the event that a server of the cluster has left."""
        if event is LinkEvent.SERVER_LEFT:
            self.mailbox.put(event)

    def failed(self, error: BaseException) -> None:
        self.mailbox.close(error)


class PushSource(Protocol):
    """The interface of a consumer that pushed messages need."""

    nc: Connection

    @property
    def config(self) -> ConsumerConfig: ...

    def examine(self, timeout: float) -> Exception | None:
        """Ask the server for the reason of the silence; None if it names none within `timeout` seconds."""

    def why_deleted(self, deleted: errors.ConsumerDeleted, timeout: float) -> Exception:
        """Ask the server if the complete stream was deleted."""


class PushIntake:
    """The subscription of a push consumer: the mailbox, control frames, and the meaning of silence.

    The counterpart of the Pump, where the server decides what it sends. It runs without its own thread. The thread that
    takes messages calls `take`, `control` for other items, and `look` if nothing came. The calls return reports for the
    application.
    """

    paused_until: Paused | None = None
    """Always None: the server reports a pause only to pulls."""

    def __init__(self, source: PushSource, options: PushOptions) -> None:
        self.source = source
        self.connection: Connection = source.nc
        self._engine = engine_of(self.connection)
        config = source.config
        self._subject = config.deliver_subject or ""
        self._raw_subject = self._subject.encode()
        bounded = not config.flow_control
        self.mailbox: Mailbox = Mailbox(
            options.pending_messages if bounded else None, options.pending_bytes if bounded else None
        )
        self._sink = PushSink(self.mailbox)
        self.lock: Any = waiting.new_lock()
        self.connected: bool = True
        self.halted: bool = False
        self.delivered = 0
        self.missed_heartbeats: int = 0
        self._beat = seconds_of(config.idle_heartbeat or 0.0)
        self._watchdog = Watchdog.of_heartbeats(self._beat, time.monotonic())
        self._subscription = self._engine.open_sink(self._subject, self._sink, config.deliver_group or "")

    def move_to(self, subject: str) -> None:
        """Subscribe to the subject of the next consumer, and leave the old consumer's subject."""
        old = self._subscription
        self._subscription = self._engine.open_sink(subject, self._sink)
        self._engine.remove_subscription(old, tell_server=True)

    def moved_to(self, subject: str) -> None:
        """The next consumer exists: from now on its control frames count."""
        self._subject, self._raw_subject = subject, subject.encode()
        self._watchdog.restart(time.monotonic())

    # --- taking -------------------------------------------------------------------------------------------

    def watch_servers(self) -> None:
        """From now on `take` returns LinkEvent.SERVER_LEFT, too."""
        self._engine.add_link_listener(self._sink.server_left)

    def take(self, deadline: Deadline, until: float = NEVER) -> Any:
        """The next item. None at the deadline, when it is time to `look`, and at the time `until` (monotonic)."""
        item = self.mailbox.take()
        if item is not None or deadline.expired():
            return item
        self._engine.flush_outbox()
        left = deadline.remaining()
        if self._watched or until < NEVER:
            due = min(self._watchdog.due(self.mailbox.last_frame) if self._watched else NEVER, until) - time.monotonic()
            if due <= 0:
                return None
            left = due if left is None else min(left, due)
        return self.mailbox.get(left)

    @property
    def _watched(self) -> bool:
        return bool(self._beat) and self.connected and not self.halted

    def dropped(self) -> Sequence[Notice]:
        """A report if the mailbox was full since the last call."""
        if not self._sink.overflowed:
            return NOTHING
        self._sink.overflowed = False
        dropped = self.mailbox.dropped
        text = f"the client dropped {errors.counted(dropped, 'message')} of {self.source}"
        return reported(errors.SlowConsumer(text, self._subject, dropped))

    # --- what comes beside messages -------------------------------------------------------------------------

    def is_control(self, item: Any) -> bool:
        if item is WAKE or isinstance(item, LinkEvent):
            return True
        return item.raw_headers is not None and item.raw_subject == self._raw_subject and item.status is not None

    def control(self, item: Any) -> Sequence[Notice]:
        if item is WAKE:
            return NOTHING
        if isinstance(item, LinkEvent):
            self.connected = item is LinkEvent.RECONNECTED
            self._watchdog.restart(time.monotonic())
            return NOTHING
        return self._status(item)

    def _status(self, message: Msg) -> Sequence[Notice]:
        status = message.status
        assert status is not None
        if status.code == 100:
            if message.raw_reply:
                self._answer(message.reply)  # flow control: the application took everything before it
            else:
                stalled = header_names.readable(message).get(header_names.CONSUMER_STALLED)
                if stalled:
                    self._answer(stalled)
            return NOTHING
        if row_of(status.code, status.description).error is errors.ConsumerDeleted:
            deleted = errors.ConsumerDeleted(409, status.description, f"{self.source} was deleted")
            return failed(self.source.why_deleted(deleted, diagnosis.ASK_TIMEOUT))
        return reported(errors.PullStatusError(status.code, status.description))

    def _answer(self, subject: str) -> None:
        self._engine.enqueue_at_once(self._engine.encode(subject))

    def look(self, deadline: Deadline) -> Sequence[Notice]:
        """Nothing came: ask what is wrong, or raise the alarm, if it is time for that (see Watchdog)."""
        if not self._watched:
            return NOTHING
        watchdog = self._watchdog
        with self.lock:
            now, last_frame = time.monotonic(), self.mailbox.last_frame
            look = watchdog.look(now, last_frame)
            if look is Look.ALARM:
                watchdog.restart(time.monotonic())
                self.missed_heartbeats += 1
        if look is Look.ALARM:
            text = f"no heartbeat and no message of {self.source} for {watchdog.patience:g} s"
            return reported(errors.NoHeartbeat(text))
        if look is Look.ASK:
            found = self.source.examine(min(watchdog.ask_time(deadline, last_frame, now), diagnosis.ASK_TIMEOUT))
            if found is not None:
                return failed(found)
        return NOTHING

    # --- the end --------------------------------------------------------------------------------------------

    def withdraw(self) -> None:
        """UNSUB: the server sends nothing more, but messages on their way still arrive. Does not wait."""
        self.halted = True
        if self.mailbox.closed is None:
            self._engine.remove_subscription(self._subscription, tell_server=True, keep_sink=True)

    def complete(self) -> None:
        """After `withdraw` and a flush: the end comes after the messages in the mailbox."""
        self._engine.remove_subscription(self._subscription)
        self.mailbox.close(errors.SubscriptionClosed(f"{self.source} was drained"))

    def leftovers(self) -> list[Msg]:
        """Empty the mailbox; returns the messages delivered and not taken."""
        left: list[Msg] = []
        items = self.mailbox.items
        with contextlib.suppress(IndexError):  # until it is empty: another thread may take from it, too
            while True:
                item = items.popleft()
                if not isinstance(item, LinkEvent) and item.status is None:
                    left.append(item)
        return left

    def release(self) -> None:
        """No thread takes from it any more."""

    def settle(self, give_back: bool, timeout: float = FLUSH_TIMEOUT, more: bool = False) -> list[Msg]:
        """Unsubscribe, wait for messages on their way, and return messages delivered and not taken."""
        self._engine.remove_link_listener(self._sink.server_left)
        if self.mailbox.closed is None:
            self.withdraw()
            with contextlib.suppress(errors.JsClientError):  # a lost link delivers nothing more
                if self.connection.is_connected:
                    self.connection.flush(timeout)
            self._engine.remove_subscription(self._subscription)
        left = self.leftovers()
        self.mailbox.close(errors.SubscriptionClosed(f"{self.source} was closed"), discard=True)
        return left

    def abandon(self, give_back: bool) -> None:
        """For an iterator without references. A finalizer runs anywhere, even on a thread that holds our locks, so
        another thread does the work.
        """
        self._engine.run_callback(_abandon, self, give_back)


def _abandon(intake: PushIntake, give_back: bool) -> None:
    left = intake.settle(give_back)
    if give_back:
        nak_all(left, intake.connection)
