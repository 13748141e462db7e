"""Finite reads: iterate over what a stream holds and end exactly at a sequence, a time, or what is there now.

The end is fixed before the first message. It is found even when the last messages were deleted or are filtered
out: the server's own "no messages" counts, not the arrival of one particular message; and it counts only if nothing
that the server has sent is missing here (see `complete`).
"""

from __future__ import annotations

import datetime as dt
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from jsclient import errors, handlers, hints, waiting
from jsclient._engine import Taker
from jsclient.cancel import Cancel
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Deadline, Timeout, resolve
from jsclient.hints import Unpack
from jsclient.jetstream.api.models import StreamInfo
from jsclient.jetstream.consuming.consumer_source import source_of
from jsclient.jetstream.consuming.fetch import GRACE, NO_WAIT_TIMEOUT, Batch, Ended
from jsclient.jetstream.consuming.listing import Reading
from jsclient.jetstream.consuming.ordered_reset import take_turn
from jsclient.jetstream.consuming.pull_inboxes import FLUSH_TIMEOUT, nak_all, nak_frames
from jsclient.jetstream.consuming.pull_options import ErrorHook
from jsclient.jetstream.consuming.pull_request import FETCH_TIMEOUT
from jsclient.jetstream.consuming.typed import Values, tell
from jsclient.jetstream.message import JetStreamMsg, M, timestamp_ns
from jsclient.jetstream.publishing.attempts import wait_connected

if TYPE_CHECKING:
    from jsclient.jetstream.consumer import Consumer
    from jsclient.jetstream.consuming.ordered import OrderedConsumer
    from jsclient.jetstream.consuming.pull_options import PullOptionsDict
    from jsclient.jetstream.context import JetStream

hints.wanted(globals(), "Consumer")


T = TypeVar("T")
F = TypeVar("F", bound="FiniteRead[Any]")
R = TypeVar("R", bound="OrderedRead[Any]")

SILENT: Final = 0.9
"""Share of its time after which a pull that does not wait was ended by its own clock, not by the server's answer."""

SHORTEST_LOOK: Final = 0.1
"""Seconds that the server has at least to say what is there."""

RETRY: Final = 0.25
"""Seconds between two attempts at what nobody answers."""

LOST_WAIT: Final = 1.0
"""Seconds between two questions whether lost messages are still to come."""


class Until:
    """Where a finite read ends: the last sequence, or the last moment (both inclusive)."""

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
        """Whether the message comes after the end."""
        if self.end_seq is not None:
            return message.stream_seq > self.end_seq
        return message.metadata.timestamp_ns > (self.end_ns or 0)

    def is_last(self, message: JetStreamMsg) -> bool:
        return self.end_seq is not None and message.stream_seq >= self.end_seq

    def passed(self, timeout: Timeout = DEFAULT) -> bool:
        """Whether nothing more can come before the end, now that the consumer has nothing to deliver."""
        if self.end_ns is not None:
            if timestamp_ns(dt.datetime.now(dt.timezone.utc)) <= self.end_ns:
                return False
            self.position = self.last_seq(timeout)
            return True
        self.position = self.end_seq or 0
        return self.position <= self.last_seq(timeout)


class _Read(Generic[M]):
    """Hands out what a finite read has found: messages, or messages with values."""

    _values: Values[Any] | None
    _on_error: ErrorHook | None

    def _read(self) -> JetStreamMsg:
        raise AssertionError("subclasses say it")

    def __next__(self) -> M:
        values = self._values
        if values is None:
            return self._read()  # type: ignore[return-value]
        while True:
            message = values.of(self._read())
            if values.takes(message, partial(tell, self._on_error, "a finite read")):
                return message  # type: ignore[return-value]


class FiniteRead(_Read[M], Taker):
    """Iterates over the messages of a pull consumer and ends exactly at the end.

    `end_seq`: the last stream sequence to read (waits for it if the stream is not that long yet); `time`: messages
    stored up to then; `drained=True`: up to the stream's last message at the start. Ack what you take, or
    max_ack_pending stops the read. Waits at most `timeout` seconds (30 by default) for the next message, then raises
    ReadStalled. Messages fetched and not taken when it is closed (or its `with` block left) go back at once.
    Redeliveries that become due later are not waited for. Threads may share it.

    Attributes:
        consumer: The consumer that it reads.
    """

    def __init__(
        self,
        consumer: Consumer,
        end_seq: int | None = None,
        *,
        time: dt.datetime | None = None,
        drained: bool = False,
        max_messages: int = 500,
        timeout: Timeout = DEFAULT,
        values: Values[Any] | None = None,
        on_error: ErrorHook | None = None,
    ) -> None:
        handlers.check(on_error, "on_error")
        if on_error is not None and values is None:
            raise errors.ConfigError("on_error is for messages that cannot be decoded here: it goes with typed()")
        self._values, self._on_error = values, on_error
        self.consumer = consumer
        self._source = source_of(consumer)
        self._timeout = resolve(timeout, FETCH_TIMEOUT)
        deadline = Deadline(Deadline(self._timeout).at_most(consumer.js.api.timeout or FETCH_TIMEOUT))
        self.until: Until = Until(consumer.js, consumer.stream_name, end_seq, time, drained, deadline)
        """For layers."""
        self._max_messages = max_messages
        self._turn = waiting.new_turn()
        self._ready: deque[JetStreamMsg] = deque()
        self._last_seq = 0
        self._first = 0  # consumer sequence of the first message
        self._received = 0
        self._doubt = False  # a pull did not end in order: what the server sent for it may be lost
        self._done = self.until.end_seq == 0
        self._closed: errors.ConnectionClosed | None = None
        self._left = Cancel()  # ends a wait for more when another thread closes it
        engine_of(consumer.nc).takers.enter(self)

    application_driven = True

    def __iter__(self: F) -> F:
        return self

    def _read(self) -> JetStreamMsg:
        waiting.check_turn(self._turn, "a finite read was used")
        with self._turn:
            while True:
                if self._closed is not None:
                    raise self._closed
                if self._left.cancelled and not self._done:
                    self._end()
                if self._ready:
                    message = self._ready.popleft()
                    if self.until.beyond(message):
                        self._ready.appendleft(message)
                        if self._doubt:
                            if not self._end_comes_last():
                                self._wait_for_lost()
                            continue
                        self._end()
                        raise StopIteration
                    self._last_seq = max(self._last_seq, message.stream_seq)
                    if self.until.is_last(message) and not self._doubt:
                        self._end()
                    return message
                if self._done:
                    raise StopIteration
                with suppress(errors.Cancelled):
                    self._refill()

    def _refill(self) -> None:
        """What is there; if that is nothing, either this is the end or we wait for more."""
        want = self._max_messages
        if self.until.end_seq is not None and self.until.end_seq > self._last_seq:
            want = min(want, self.until.end_seq - self._last_seq)  # never more than can lie before the end
        deadline = Deadline(self._timeout)
        batch = self._patiently(lambda: self._what_is_there(want, deadline), deadline)
        if not batch and self._patiently(lambda: self.until.passed(deadline), deadline):
            # It may have been stored between the fetch and the look at the stream's end: look once more.
            batch = self._patiently(lambda: self._what_is_there(want, deadline), deadline)
            if not batch and not self._doubt:
                self._end()
                return
            if not batch:
                self._wait_for_lost()
                return
        if not batch:
            batch = self._patiently(lambda: self._fetch(want, self._wait(deadline)), deadline)
            self._note(batch)
            last = Deadline(max(deadline.at_most(FETCH_TIMEOUT), SHORTEST_LOOK))
            if not batch and not self._patiently(lambda: self.until.passed(last), last):
                raise errors.ReadStalled(f"no message of {self.consumer} in time, and the end is not reached")
        self._ready.extend(batch)

    def _fetch(self, want: int, seconds: float) -> Batch:
        return self.consumer.fetch(want, no_wait_then=seconds, cancel=self._left)

    def _what_is_there(self, want: int, deadline: Deadline) -> Batch:
        asked = time.monotonic()
        within = max(deadline.at_most(NO_WAIT_TIMEOUT), SHORTEST_LOOK)
        batch = self.consumer.fetch_no_wait(want, within)
        # After a long time its own clock ended it: nobody said that there is no more.
        self._doubt = self._doubt or time.monotonic() - asked >= SILENT * min(within, GRACE)
        return self._note(batch)

    def _note(self, batch: Batch) -> Batch:
        if batch:
            self._first = self._first or batch[0].metadata.consumer_seq
            self._received += len(batch)
        self._doubt = self._doubt or batch.ended is Ended.ERROR
        return batch

    def _patiently(self, call: Callable[[], T], deadline: Deadline) -> T:
        """Repeat what fails because the link, or that of a leaf node, is down; within the time for one message."""
        while True:
            try:
                return call()
            except errors.ConnectionLost:
                self._doubt = True
                self._left.check()
                if not wait_connected(self.consumer.nc, deadline.remaining(), self._left):
                    raise
            except (errors.NoResponders, errors.RequestTimeout, errors.ReadStalled):
                self._doubt = True
                self._left.check()
                if deadline.at_most(RETRY) < RETRY or not self._may_be_there(deadline):
                    raise
                pause = waiting.Gate()
                with self._left.ends(pause.set):
                    pause.wait(RETRY)

    def _may_be_there(self, deadline: Deadline) -> bool:
        """Whether a server that does not answer may answer again: the consumer is there, or it is not known."""
        try:
            self.consumer.info(timeout=deadline.at_most(1.0))
        except (errors.ConsumerNotFound, errors.StreamNotFound):
            return False
        except errors.JsClientError:
            pass
        return True

    def _end_comes_last(self) -> bool:
        """Put what lies before the end in front of what lies beyond; True if there is any. What was lost comes again
        behind what was sent after it."""
        early = [message for message in self._ready if not self.until.beyond(message)]
        if early:
            self._ready = deque(early + [message for message in self._ready if self.until.beyond(message)])
        return bool(early)

    def _wait_for_lost(self) -> None:
        """The end is reached, but a pull was cut short: what was sent for it comes again after the consumer's ack_wait.

        Raises ReadStalled when it does not come in time, or never comes again (ack_policy none).
        """
        deadline = Deadline(self._timeout)
        while True:
            info = self._patiently(lambda: self.consumer.info(timeout=deadline.remaining()), deadline)
            if self._source.ack_none:
                missing = info.delivered.consumer_seq + 1 - (self._first or 1) - self._received
            else:
                # What waits here has come; a copy of it may wait, too.
                missing = info.num_ack_pending - len({message.stream_seq for message in self._ready})
            if missing <= 0:
                self._doubt = False  # of what has not been sent nothing can be lost
                return
            if self._source.ack_none or deadline.expired():
                raise errors.ReadStalled(
                    f"{missing} messages of {self.consumer} were sent and neither acked nor received here: they were "
                    "lost with a link, or another reader of the consumer has them"
                )
            wait = max(deadline.at_most(LOST_WAIT), 0.001)
            batch = self._patiently(partial(self._fetch, self._max_messages, wait), deadline)
            self._ready.extend(self._note(batch))
            if self._end_comes_last():
                return

    def _wait(self, deadline: Deadline) -> float:
        """Seconds for the next message; what is left of the time is for the last look at the end."""
        seconds = FETCH_TIMEOUT if self._timeout is None else deadline.at_most(self._timeout) - SHORTEST_LOOK
        if self.until.end_ns is not None:
            left = (self.until.end_ns - timestamp_ns(dt.datetime.now(dt.timezone.utc))) / 1e9
            seconds = min(seconds, max(left, 0.0) + 0.05)
        return max(seconds, 0.001)

    def _end(self) -> None:
        self._done = True
        if not self._source.ack_none:
            nak_all([message.msg for message in self._ready], self.consumer.nc)
        self._ready.clear()

    def end(self, reason: errors.ConnectionClosed) -> None:
        self._closed = reason

    def hand_back(self) -> list[bytes]:
        ready = [] if self._source.ack_none else [message.msg for message in tuple(self._ready)]
        self._ready.clear()
        return nak_frames(ready)

    def close(self) -> None:
        """End here, also while another thread waits for the next message; idempotent.

        Where that thread asks the server and gets no answer, it gives back what there is, as soon as it hears of it.
        """
        waiting.check_turn(self._turn, "a finite read was used")
        self._left.cancel()
        if take_turn(self._turn, FLUSH_TIMEOUT):
            try:
                if self._closed is None:
                    self._end()
            finally:
                self._turn.release()

    def __enter__(self: F) -> F:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return engine_of(self.consumer.nc).refuse_pickle(self)


class OrderedRead(_Read[M]):
    """As FiniteRead, over an ordered consumer: every message once, in order, pre-buffered, without acks."""

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
        self._values, self._on_error = values, options.get("on_error")
        self._timeout = resolve(timeout, FETCH_TIMEOUT)
        deadline = Deadline(Deadline(self._timeout).at_most(consumer.js.api.timeout or FETCH_TIMEOUT))
        self.until: Until = Until(consumer.js, consumer.stream_name, end_seq, time, drained, deadline)
        self._turn = waiting.new_turn()
        self._pending: int | None = None  # what the last message said is still to come
        self._reading: Reading | None = None
        if self.until.end_seq != 0:
            messages = consumer.open_messages(deadline, **options)
            self._reading = Reading(consumer, messages, self.until.end_seq, self.until.one_copy)

    def __iter__(self: R) -> R:
        return self

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
            # After a message with nothing behind it this may be the end: look at once and not after a pause.
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
        # First the end of the stream, then what is still to come: the other way round would miss messages.
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
        """End here, also while another thread waits for the next message; idempotent."""
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
            reading.messages.close()  # the thread that asks the server and gets no answer finds it closed

    def __enter__(self: R) -> R:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


hints.given(FiniteRead, OrderedRead)
