"""Push consumers: the server sends to a subject of its own accord.

Pull consumers do the same with less to go wrong; push remains for queue groups of mixed clients and for old
designs. Flow control is answered in order with the messages: after everything before it was taken.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, TypedDict

import attrs

from jsclient import errors, waiting
from jsclient._engine import Mailbox
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Deadline, Timeout
from jsclient.jetstream.api import headers as header_names
from jsclient.jetstream.api import names
from jsclient.jetstream.api.models import ConsumerConfig, ConsumerInfo
from jsclient.jetstream.consuming import diagnosis
from jsclient.jetstream.consuming.consume import ConsumeContext
from jsclient.jetstream.consuming.iterator import MessageIterator
from jsclient.jetstream.consuming.pull_inboxes import FLUSH_TIMEOUT
from jsclient.jetstream.consuming.watchdog import Look, Watchdog
from jsclient.jetstream.message import JetStreamMsg
from jsclient.states import WAKE, LinkEvent

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from jsclient.jetstream.context import JetStream
    from jsclient.message import Msg

log = logging.getLogger("jsclient.jetstream.push")

PENDING_MESSAGES: Final = 65_536
PENDING_BYTES: Final = 64 * 1024 * 1024
"""What may wait for the application without flow control; beyond that messages are dropped and reported."""

UNBIND_TIMEOUT: Final = 1.0


class PushOptionsDict(TypedDict, total=False):
    """Keyword arguments of `messages()` and `consume()`; see PushOptions."""

    on_error: Callable[[Exception], Any] | None
    pending_messages: int
    pending_bytes: int
    leave_buffered: bool


@attrs.frozen(kw_only=True)
class PushOptions:
    """`on_error(error)` gets NoHeartbeat, SlowConsumer and what the handler raised; without it they are logged.

    Without flow control at most `pending_messages` and `pending_bytes` wait for the application; more is dropped
    and reported as SlowConsumer (with acks the server sends it again after ack_wait). `leave_buffered`: at the end
    leave what was received and not taken to ack_wait instead of giving it back.
    """

    on_error: Callable[[Exception], Any] | None = None
    pending_messages: int = PENDING_MESSAGES
    pending_bytes: int = PENDING_BYTES
    leave_buffered: bool = False


class PushSink:
    """The reader's side: a mailbox, bounded unless flow control bounds it."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.mailbox = mailbox
        self.overflowed = False

    def deliver(self, messages: list[Msg], nbytes: int) -> None:
        self.mailbox.last_frame = time.monotonic()
        if not self.mailbox.put_many(messages, nbytes):
            self.overflowed = True

    def link_event(self, event: LinkEvent) -> None:
        self.mailbox.last_frame = time.monotonic()
        if event is LinkEvent.CLOSED:
            if self.mailbox.closed is None:  # `end` of whatever takes from it has told why already
                self.mailbox.close(errors.ConnectionClosed("the connection is closed"))
        else:
            self.mailbox.put(event)

    def failed(self, error: BaseException) -> None:
        self.mailbox.close(error)


class PushMessages(MessageIterator):
    """The iterator over a push consumer. Threads may share it; close it or leave its `with` block to unsubscribe."""

    def __init__(self, consumer: Any, options: PushOptions) -> None:
        self.source = consumer
        self.options = options
        self.connection = consumer.nc
        self._engine = engine_of(self.connection)
        self.missed_heartbeats = 0
        config = consumer.config
        self._subject = config.deliver_subject or ""
        self._raw_subject = self._subject.encode()
        self._beat = float(config.idle_heartbeat or 0.0)
        bounded = not config.flow_control
        self._mailbox = Mailbox(
            options.pending_messages if bounded else None, options.pending_bytes if bounded else None
        )
        self._sink = PushSink(self._mailbox)
        self._lock = waiting.new_lock()
        self._connected = True
        self._watchdog = Watchdog.of_heartbeats(self._beat, time.monotonic())
        self._terminal = None
        self._stopped = False
        self._delivered = 0
        self._returned = deque()
        self._subscription = self._engine.open_sink(self._subject, self._sink, config.deliver_group or "")
        self._closed = False
        self._engine.takers.enter(self)

    # --- taking -------------------------------------------------------------------------------------------

    def _get(self, timeout: float | None) -> JetStreamMsg | None:
        deadline = Deadline(timeout)
        self._user = get_ident()
        while True:
            self._check_open()
            try:
                item = self._mailbox.take()
                if item is None:
                    if deadline.expired():
                        if self._beat and self._connected:
                            self._silent(deadline)  # nobody else looks while the iterator is only polled
                        return None
                    item = self._wait(deadline)
            except errors.SubscriptionClosed:
                self._finish()
            if item is None or item is WAKE:
                continue
            if isinstance(item, LinkEvent):
                self._link_event(item)
                continue
            if item.raw_headers is not None and item.raw_subject == self._raw_subject and item.status is not None:
                self._status(item)
                continue
            if self._stopped:
                self._return(item)
                continue
            message = self._admit(item)
            if message is not None:
                self._delivered += 1
                return message

    def _admit(self, item: Msg) -> JetStreamMsg | None:
        """Ordered push looks at the message first."""
        return JetStreamMsg(item, self._engine)

    def _link_event(self, event: LinkEvent) -> None:
        self._connected = event is LinkEvent.RECONNECTED
        self._watchdog.restart(time.monotonic())

    def _wait(self, deadline: Deadline) -> Any:
        self._engine.flush_outbox()
        left = deadline.remaining()
        if self._beat and self._connected and not self._draining:
            due = self._watchdog.due(self._mailbox.last_frame) - time.monotonic()
            if due <= 0:
                self._silent(deadline)
                return None
            left = due if left is None else min(left, due)
        return self._mailbox.get(left)

    def _check_open(self) -> None:
        super()._check_open()
        if self._sink.overflowed:
            self._sink.overflowed = False
            dropped = self._mailbox.dropped
            self._report(
                errors.SlowConsumer(f"{dropped} messages of {self.source} were dropped", self._subject, dropped)
            )

    # --- what comes beside messages -------------------------------------------------------------------------

    def _status(self, message: Msg) -> None:
        status = message.status
        assert status is not None
        if status.code == 100:
            if message.raw_reply:
                self._answer(message.reply)  # flow control: everything before it was taken
            else:
                self._heartbeat(message)
        elif status.code == 409 and "consumer deleted" in status.description.lower():
            deleted = errors.ConsumerDeleted(409, status.description, f"{self.source} was deleted")
            self._fail(self.source.why_deleted(deleted, diagnosis.ASK_TIMEOUT))
        else:
            self._report(errors.PullStatusError(status.code, status.description))

    def _heartbeat(self, message: Msg) -> None:
        headers = message.headers
        stalled = headers.get(header_names.CONSUMER_STALLED) if headers is not None else None
        if stalled:
            self._answer(stalled)

    def _answer(self, subject: str) -> None:
        self.connection.publish(subject)

    def _silent(self, deadline: Deadline) -> None:
        """Nothing came: ask what is wrong, or raise the alarm (see Watchdog)."""
        watchdog = self._watchdog
        with self._lock:
            now, last_frame = time.monotonic(), self._mailbox.last_frame
            look = watchdog.look(now, last_frame)
            if look is Look.ALARM:
                watchdog.restart(time.monotonic())
                self.missed_heartbeats += 1
        if look is Look.ALARM:
            text = f"no heartbeat and no message of {self.source} for {watchdog.patience:g} s"
            self._report(errors.NoHeartbeat(text))
        elif look is Look.ASK:
            found = self.source.examine(min(watchdog.ask_time(deadline, last_frame, now), diagnosis.ASK_TIMEOUT))
            if found is not None:
                self._fail(found)

    # --- the end --------------------------------------------------------------------------------------------

    @property
    def delivered(self) -> int:
        """Messages taken up to now."""
        return self._delivered

    @property
    def _wants_acks(self) -> bool:
        return bool(self.source.config.ack_policy == "explicit")

    def drain(self, timeout: float = FLUSH_TIMEOUT) -> None:
        """Unsubscribe; the iteration ends after what was received. `timeout`: seconds for what is on its way."""
        self._unsubscribe(timeout)
        self.complete()

    def withdraw(self) -> None:
        self._draining = True
        if self._mailbox.closed is None:
            self._engine.remove_subscription(self._subscription, tell_server=True, keep_sink=True)

    def complete(self) -> None:
        self._engine.remove_subscription(self._subscription)
        self._mailbox.close(errors.SubscriptionClosed(f"{self.source} was drained"))

    def _leftovers(self) -> list[Msg]:
        left: list[Msg] = []
        items = self._mailbox.items
        while items:
            try:
                item = items.popleft()
            except IndexError:
                break
            if not isinstance(item, LinkEvent) and item.status is None:
                left.append(item)
        return left

    def _unsubscribe(self, timeout: float) -> None:
        connection = self.connection
        self.withdraw()
        try:
            if connection.is_connected:
                connection.flush(timeout)
        except errors.JsClientError:
            pass  # nothing more comes over a link that is gone
        engine_of(connection).remove_subscription(self._subscription)

    def close(self, timeout: float = FLUSH_TIMEOUT) -> None:
        """Unsubscribe; what was received and not taken goes back to the server at once. Idempotent."""
        self._stopped = True
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._mailbox.wake()
        if self.connection.closed:
            return  # the end of the connection hands back what is there
        if self._mailbox.closed is None:
            self._unsubscribe(timeout)
        left = self._leftovers()
        self._mailbox.close(errors.SubscriptionClosed(f"{self.source} was closed"), discard=True)
        self._give_back(left)

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            try:
                # A finalizer runs anywhere, also where our locks are held: the work is done on another thread.
                self._engine.run_callback(self._subscription.close)
            except Exception:  # the interpreter is going down
                pass

    def __repr__(self) -> str:
        return f"<PushMessages of {self.source} {'closed' if self._closed else 'open'}>"


class PushConsumer:
    """A push consumer. Made by `create_push_consumer`, `push_consumer` and the like.

    The server delivers only while somebody is subscribed, that is while an iterator or consume is open. With a
    `deliver_group` many may be, in one process or several; without one only one (ConsumerAlreadyBound).
    """

    def __init__(
        self, js: JetStream, stream_name: str, name: str, config: ConsumerConfig, info: ConsumerInfo | None = None
    ) -> None:
        if not config.is_push:
            raise errors.NotPushConsumer(f"consumer {name!r} of stream {stream_name!r} is a pull consumer")
        self.js = js
        self.nc = js.nc
        self.stream_name = names.check_stream(stream_name)
        self.name = names.check_consumer(name)
        self.config = config
        self._info = info

    @property
    def cached_info(self) -> ConsumerInfo | None:
        """What the server said last; no round trip. None for a handle that never asked."""
        return self._info

    def info(self, timeout: Timeout = DEFAULT) -> ConsumerInfo:
        """Ask the server. Raises ConsumerNotFound."""
        operation = f"CONSUMER.INFO.{self.stream_name}.{self.name}"
        info = self.js.api.request(operation, None, ConsumerInfo, timeout=timeout, read=True)
        self._info, self.config = info, info.config
        return info

    @property
    def _made(self) -> dt.datetime | None:
        return None if self._info is None else self._info.created

    def examine(self, timeout: float) -> Exception | None:
        """Ask the server why nothing comes; None when it does not tell within `timeout` seconds."""
        found = diagnosis.examine(self.js, self.stream_name, self.name, self._made, timeout)
        return found if isinstance(found, Exception) else None

    def why_deleted(self, deleted: errors.ConsumerDeleted, timeout: float) -> Exception:
        """Ask the server whether it is the whole stream that was deleted."""
        return diagnosis.why_gone(self.js, self.stream_name, self._made, deleted, timeout)

    def messages(self, **options: Unpack[PushOptionsDict]) -> PushMessages:
        """An endless iterator; options: see PushOptions. Raises ConsumerAlreadyBound."""
        self._check_bound()
        return PushMessages(self, PushOptions(**options))

    def consume(
        self, handler: Callable[[JetStreamMsg], Any], *, workers: int = 1, **options: Unpack[PushOptionsDict]
    ) -> ConsumeContext:
        """Call `handler(msg)` for every message; with one worker in order. See Consumer.consume."""
        return ConsumeContext(self.messages(**options), handler, workers)

    def _check_bound(self) -> None:
        if self.config.deliver_group or self._info is None:
            return  # a handle that never asked does not begin with it
        deadline = Deadline(UNBIND_TIMEOUT)
        while self.info().push_bound:
            # The server notices the end of an earlier subscription of ours with a delay.
            if not deadline.expired():
                time.sleep(UNBIND_TIMEOUT / 10)
                continue
            raise errors.ConsumerAlreadyBound(
                f"somebody else is subscribed to {self}; give it a deliver_group to share its messages"
            )

    def __str__(self) -> str:
        return f"push consumer {self.name!r} of stream {self.stream_name!r}"

    def __repr__(self) -> str:
        return f"<PushConsumer {self.name!r} of {self.stream_name!r}>"

    def __reduce__(self) -> Any:
        return engine_of(self.nc).refuse_pickle(self)
