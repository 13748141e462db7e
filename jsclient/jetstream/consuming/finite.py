"""Finite reads: iterate over a stream and end exactly at a sequence, a time, or the last message stored now.

The end is fixed before the first message. The read finds it even if the last messages were deleted or are filtered out.
The server's "no messages" counts, and not the arrival of one particular message. It counts only if every message that
the server has sent has arrived (see `Reading.caught_up`).
"""

from __future__ import annotations

import datetime as dt
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from jsclient import errors, kinds, waiting
from jsclient.durations import DEFAULT, Deadline, Timeout, resolve
from jsclient.jetstream.api.models import StreamInfo
from jsclient.jetstream.consuming.listing import Reading
from jsclient.jetstream.consuming.ordered_messages import take_turn
from jsclient.jetstream.consuming.pull_inboxes import FLUSH_TIMEOUT
from jsclient.jetstream.consuming.pull_options import FETCH_TIMEOUT, PullOptionsDict
from jsclient.jetstream.consuming.typed import Values, tell
from jsclient.jetstream.message import JetStreamMsg, M, timestamp_ns

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from jsclient.jetstream.consuming.ordered import OrderedConsumer
    from jsclient.jetstream.context import JetStream


R = TypeVar("R", bound="OrderedRead[Any]")


class Until:
    """The end of a finite read: the last sequence, or the last moment (both inclusive)."""

    def __init__(
        self,
        js: JetStream,
        stream_name: str,
        end_seq: int | None,
        time: dt.datetime | None,
        drained: bool,
        timeout: Timeout = DEFAULT,
    ) -> None:
        if (end_seq is not None) + (time is not None) + drained != 1:
            raise errors.ConfigError("read_until needs exactly one of end_seq, time and drained=True")
        if end_seq is not None and end_seq < 0:
            raise errors.ConfigError(f"end_seq must not be negative, got {end_seq}")
        self._js = js
        self._stream_name = stream_name
        self.end_ns: int | None = None if time is None else timestamp_ns(time)
        self.one_copy: bool = True
        self.position: int = 0  # the sequence that a reading must have reached, once the end has passed
        self.end_seq: int | None = self.last_seq(timeout) if drained else end_seq

    def last_seq(self, timeout: Timeout = DEFAULT) -> int:
        info = self._js.api.request(f"STREAM.INFO.{self._stream_name}", None, StreamInfo, timeout=timeout, read=True)
        self.one_copy = (info.config.num_replicas or 1) == 1
        return info.state.last_seq

    def beyond(self, message: JetStreamMsg) -> bool:
        """True if the message comes after the end."""
        if self.end_seq is not None:
            return message.stream_seq > self.end_seq
        return message.metadata.timestamp_ns > (self.end_ns or 0)

    def is_last(self, message: JetStreamMsg) -> bool:
        return self.end_seq is not None and message.stream_seq >= self.end_seq

    def passed(self, timeout: Timeout = DEFAULT) -> bool:
        """True if the stream has passed the end, at a moment when the consumer has no message to deliver."""
        if self.end_ns is not None:
            if timestamp_ns(dt.datetime.now(dt.timezone.utc)) <= self.end_ns:
                return False
            self.position = self.last_seq(timeout)
            return True
        self.position = self.end_seq or 0
        return self.position <= self.last_seq(timeout)


class OrderedRead(Generic[M]):
    """Iterates over the messages of an ordered consumer and ends exactly at the end: each once, in order, without acks.

    `end_seq` is the last stream sequence to read. If the stream is shorter, the read waits for it. `time` reads
    messages stored up to then. `drained=True` reads up to the last message of the stream at the start. The read waits
    at most `timeout` seconds (30 by default) for the next message, then raises ReadStalled. Threads may share it.
    """

    def __init__(
        self,
        consumer: OrderedConsumer,
        end_seq: int | None = None,
        *,
        time: dt.datetime | None = None,
        drained: bool = False,
        timeout: Timeout = DEFAULT,
        values: Values[Any] | None = None,
        **options: Unpack[PullOptionsDict],
    ) -> None:
        kinds.check(int, None, end_seq=end_seq)
        kinds.check(dt.datetime, None, time=time)
        kinds.check(bool, drained=drained)
        self._values, self._on_error = values, options.get("on_error")
        self._timeout = resolve(timeout, FETCH_TIMEOUT)
        deadline = Deadline(Deadline(self._timeout).at_most(consumer.js.api.timeout or FETCH_TIMEOUT))
        self.until: Until = Until(consumer.js, consumer.stream_name, end_seq, time, drained, deadline)
        self._turn = waiting.new_turn()
        self._pending: int | None = None  # the number of messages still to come, from the last message
        self._reading: Reading | None = None
        if self.until.end_seq != 0:
            messages = consumer.open_messages(deadline, **options)
            self._reading = Reading(consumer, messages, self.until.end_seq, self.until.one_copy)

    def __iter__(self: R) -> R:
        return self

    def __next__(self) -> M:
        values = self._values
        if values is None:
            return self._read()  # type: ignore[return-value]
        while True:
            message = values.of(self._read())
            if values.takes(message, partial(tell, self._on_error, "a finite read")):
                return message  # type: ignore[return-value]

    def _read(self) -> JetStreamMsg:
        waiting.check_turn(self._turn, "a finite read was used")
        with self._turn:
            try:
                message = self._next()
            except errors.IteratorClosed:
                message = None  # closed by another thread
            if message is None:
                self._close()
                raise StopIteration
            if self.until.is_last(message):
                self._close()
            return message

    def _next(self) -> JetStreamMsg | None:
        deadline = Deadline(self._timeout)
        while self._reading is not None:
            # A message with nothing behind it may be the end: look immediately, without a pause.
            wait = 0.0 if self._pending == 0 else deadline.at_most(self._reading.patience)
            message = self._reading.take(wait)
            if message is not None:
                self._pending = message.metadata.num_pending
                return None if self.until.beyond(message) else message
            if self._ended(self._reading, deadline):
                return None
            self._pending = None
            if deadline.expired():
                source = self._reading.messages.source
                raise errors.ReadStalled(f"no message of {source} in time, and the end is not reached")
        return None

    def _ended(self, reading: Reading, deadline: Deadline) -> bool:
        # First the end of the stream, then the messages still to come: the other order would miss messages.
        try:
            passed = self.until.passed(deadline)
        except errors.JsClientError:
            passed = False
        info = reading.look(deadline)
        if not passed or info is None:
            return False
        reading.end, reading.one_copy = self.until.position, self.until.one_copy
        return reading.caught_up(max(reading.consumer.state.last_seq, info.delivered.stream_seq), deadline)

    def _close(self) -> None:
        if self._reading is not None:
            self._reading.messages.close()
            self._reading = None

    def close(self) -> None:
        """End the read, even while another thread waits for the next message; idempotent."""
        waiting.check_turn(self._turn, "a finite read was used")
        reading = self._reading
        if reading is not None:
            reading.messages.stop()
        if take_turn(self._turn, FLUSH_TIMEOUT):
            try:
                self._close()
            finally:
                self._turn.release()
        elif reading is not None:
            reading.messages.close()  # the thread that waits for the server's answer then finds it closed

    def __enter__(self: R) -> R:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
