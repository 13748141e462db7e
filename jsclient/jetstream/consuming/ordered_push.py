"""Ordered reading by a push consumer: the older form, with flow control and heartbeats (features 1.10).

OrderedConsumer, which pulls, does the same with bounded memory and less to go wrong; this one is for accounts that
may not pull, and for servers' push paths.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors, waiting
from jsclient.connection import engine_of
from jsclient.durations import Deadline
from jsclient.jetstream.api import consumer_requests, names
from jsclient.jetstream.api import headers as header_names
from jsclient.jetstream.api.models import ConsumerConfig, ConsumerInfo
from jsclient.jetstream.consuming.consume import ConsumeContext
from jsclient.jetstream.consuming.ordered_reset import (
    CREATE_AGAIN,
    CREATE_TIMEOUT,
    Again,
    SameStream,
    take_turn,
    why_silent,
)
from jsclient.jetstream.consuming.ordered_sequence import DELIVER, GAP, OrderedOptions, OrderedOptionsDict, OrderedState
from jsclient.jetstream.consuming.pull_inboxes import FLUSH_TIMEOUT
from jsclient.jetstream.consuming.push import PushMessages, PushOptions, PushOptionsDict
from jsclient.jetstream.message import JetStreamMsg
from jsclient.states import LinkEvent

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from jsclient.jetstream.context import JetStream
    from jsclient.message import Msg

log = logging.getLogger("jsclient.jetstream.ordered")

HEARTBEAT: Final = 5.0
SHORTEST_HEARTBEAT: Final = 0.1  # what the server accepts (10083)
ACK_WAIT: Final = 22 * 3600.0  # as nats.go and nats.py: nothing is redelivered, gaps are read again


class OrderedPushSource:
    """The current consumer on the server; every one of them delivers to a subject of its own."""

    def __init__(self, js: JetStream, stream_name: str, state: OrderedState, heartbeat: float) -> None:
        self.js = js
        self.nc = js.nc
        self._engine = engine_of(self.nc)
        self.stream_name = stream_name
        self.state = state
        self.heartbeat = heartbeat
        self.info: ConsumerInfo | None = None
        self.same_stream = SameStream()
        self.config = ConsumerConfig(deliver_subject=js.nc.new_inbox(), flow_control=True, idle_heartbeat=heartbeat)

    def _config(self, config: ConsumerConfig, subject: str) -> ConsumerConfig:
        return config.replace(
            deliver_subject=subject,
            flow_control=True,
            idle_heartbeat=self.heartbeat,
            max_deliver=1,
            ack_wait=ACK_WAIT,
        )

    def create(self, subject: str, timeout: float = CREATE_TIMEOUT) -> None:
        self.delete()
        self.config = self._config(self.state.next_config(), subject)
        self.info = consumer_requests.put(
            self.js, self.stream_name, self.config, "", timeout=timeout, every=CREATE_AGAIN
        )
        self.same_stream.check(self.js, self.stream_name, self.info)
        # A repeated create may find the consumer at work already.
        self.state.created(self.info.num_pending + self.info.delivered.consumer_seq)

    def delete(self) -> None:
        """Best effort and without waiting; what is missed the server removes after inactive_threshold."""
        if not self.state.name:
            return
        self.info = None
        subject = self.js.api.subject(f"CONSUMER.DELETE.{self.stream_name}.{self.state.name.decode()}")
        try:
            self._engine.post(self._engine.encode(subject, b"", self.nc.new_inbox().encode()))
        except errors.JsClientError:
            pass

    def examine(self, timeout: float) -> Exception | None:
        name = self.state.name.decode()
        return why_silent(self.js, self.stream_name, name, str(self), 1.5 * self.heartbeat, timeout)

    def why_deleted(self, deleted: errors.ConsumerDeleted, timeout: float) -> Exception:
        return deleted

    def __str__(self) -> str:
        return f"ordered push consumer {self.state.name.decode()!r} of stream {self.stream_name!r}"


class OrderedPushMessages(PushMessages):
    """The iterator. Threads may share it: each message goes to one of them, in order."""

    source: OrderedPushSource

    def __init__(self, source: OrderedPushSource, options: PushOptions) -> None:
        self.resets = 0
        self._order = waiting.new_turn()
        self._because = ""
        self._until = Deadline(None)  # of the call that takes
        self._again = Again(source.state.options.max_reset_attempts)
        super().__init__(source, options)
        try:
            self.make_next()
        except BaseException:
            self.close()
            raise

    def make_next(self, timeout: float = CREATE_TIMEOUT) -> bool:
        """Subscribe first, then create. A subject of its own per consumer, or the "Consumer Deleted" of the old one
        would be taken for the new one's; and no wildcard, which the server does not count as interest."""
        self._connected = self.connection.is_connected
        if not self._connected:
            return False
        old, subject = self._subscription, self.connection.new_inbox()
        self._subscription = self._engine.open_sink(subject, self._sink)
        self._engine.remove_subscription(old, tell_server=True)
        self.source.create(subject, timeout)
        self._subject, self._raw_subject = subject, subject.encode()
        self._watchdog.restart(time.monotonic())
        self._because = ""
        return True

    def _get(self, timeout: float | None) -> JetStreamMsg | None:
        deadline = Deadline(timeout)
        if not take_turn(self._order, timeout):
            return None
        try:
            self._until = deadline
            return super()._get(deadline.remaining())
        finally:
            self._order.release()

    def _admit(self, item: Msg) -> JetStreamMsg | None:
        if item.raw_headers is not None and item.status is not None and not item.raw_reply:
            return None  # a control frame of an earlier consumer
        verdict = self.source.state.check(item.raw_reply)
        if verdict is DELIVER:
            return JetStreamMsg(item, self._engine)
        if verdict is GAP:
            self._because = f"messages are missing before {item.reply}"
        return None

    def _heartbeat(self, message: Msg) -> None:
        headers = message.headers
        last = headers.get(header_names.LAST_CONSUMER) if headers is not None else None
        if last is not None and last.isdigit() and self.source.state.behind(int(last)):
            self._because = f"a heartbeat tells of message {last} that has not come"
        super()._heartbeat(message)

    def _link_event(self, event: LinkEvent) -> None:
        super()._link_event(event)
        if event is LinkEvent.RECONNECTED:
            self._because = "reconnected"

    def _fail(self, error: Exception | None) -> None:
        if isinstance(error, (errors.ConsumerDeleted, errors.NoHeartbeat)):
            self._because = str(error)
            super()._report(error)
        else:
            super()._fail(error)

    def _report(self, error: Exception | None) -> None:
        if isinstance(error, errors.NoHeartbeat):
            self._because = str(error)
        super()._report(error)

    def _check_open(self) -> None:
        super()._check_open()
        if not self._because or self._draining:
            return
        log.info("%s: %s; making a new one", self.source, self._because)
        if self._again.run(self, self._until):
            self.resets += 1
            super()._check_open()

    def give_up(self, error: Exception) -> None:
        super()._fail(error)

    def tell(self, error: Exception) -> None:
        super()._report(error)

    def pause(self, delay: float) -> bool:
        item = self._mailbox.get(delay)
        return item is LinkEvent.RECONNECTED

    def close(self, timeout: float = FLUSH_TIMEOUT) -> None:
        first = not self._closed
        super().close(timeout)
        if first:
            self.source.delete()


class OrderedPushConsumer:
    """Reads a stream in order, each message once, pushed by the server. Made by `stream.ordered_push_consumer(...)`.

    Options are those of OrderedOptions, and `heartbeat`: seconds between signs of life (5), twice this without one
    is an alarm. Each `messages()` or `consume()` begins at the options' start, with a consumer of its own.
    """

    def __init__(
        self, js: JetStream, stream_name: str, *, heartbeat: float = HEARTBEAT, **options: Unpack[OrderedOptionsDict]
    ) -> None:
        if not heartbeat >= SHORTEST_HEARTBEAT:
            raise errors.ConfigError(f"heartbeat must be at least {SHORTEST_HEARTBEAT} s, got {heartbeat!r}")
        self.js = js
        self.stream_name = names.check_stream(stream_name)
        self.options = OrderedOptions(**options)
        self.heartbeat = heartbeat

    def messages(self, **options: Unpack[PushOptionsDict]) -> OrderedPushMessages:
        """An endless iterator; memory is bounded by the server's flow control (32 MiB)."""
        source = OrderedPushSource(self.js, self.stream_name, OrderedState(self.options), self.heartbeat)
        return OrderedPushMessages(source, PushOptions(**options))

    def consume(self, handler: Callable[[JetStreamMsg], Any], **options: Unpack[PushOptionsDict]) -> ConsumeContext:
        """Call `handler(msg)` for every message, in order, in one worker thread."""
        return ConsumeContext(self.messages(**options), handler, 1)

    def __repr__(self) -> str:
        return f"<OrderedPushConsumer of {self.stream_name!r}>"

    def __reduce__(self) -> Any:
        return engine_of(self.js.nc).refuse_pickle(self)
