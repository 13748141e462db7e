"""The iterator of a pull consumer, endless and pre-buffered: `Messages` and consumes take from it.

The reader thread puts messages into the inbox. The thread that takes them drives the pump, so it needs no further
thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import get_ident
from typing import Any

from jsclient import errors
from jsclient.connection import engine_of
from jsclient.durations import Deadline
from jsclient.jetstream.consuming.iterator import MessageIterator
from jsclient.jetstream.consuming.pull_inboxes import FLUSH_TIMEOUT, PullInbox
from jsclient.jetstream.consuming.pull_options import PullOptions
from jsclient.jetstream.consuming.pump import WindowPump
from jsclient.jetstream.consuming.run_out import RunOut
from jsclient.jetstream.consuming.sources import PullSource
from jsclient.jetstream.consuming.typed import Values
from jsclient.jetstream.consuming.typed_message import TypedMsg, UnreadMsg
from jsclient.jetstream.message import M
from jsclient.states import WAKE, LinkEvent


class PullMessages(MessageIterator[M]):
    """The iterator of a pull consumer.

    It raises errors that no pull survives (consumer deleted, request refused), and reports the rest to `on_error`. It
    survives reconnects, leader changes and missing heartbeats.
    """

    _running_out: RunOut | None = None

    def __init__(self, source: PullSource, options: PullOptions, values: Values[Any] | None = None) -> None:
        engine_of(source.nc).check_usable()
        if options.cancel is not None:
            options.cancel.check()
        self._pump = WindowPump(source, options.terms(), options.state(PullInbox.numbers))
        self._state = self._pump.state
        self._take = self._state.take
        self._popleft = self._pump.mailbox.popleft
        super().__init__(source, options, self._pump, options.cancel, values)

    # --- taking -------------------------------------------------------------------------------------------

    def __next__(self) -> M:
        # The same as _get, without its calls, which are a tenth of the cost of a message.
        state = self._state
        if state.due:
            self._pull()
        try:
            item = self._popleft()
            headers = item.raw_headers
            # A blank at this place may be the server's status. A pinned group learns its pin from the headers.
            if (headers is None or (headers[8:9] != b" " and not self.options.group)) and not self._stopped:
                if self._take() >= state.check_at and self._pump.reached():
                    self.stop()
                if state.max_bytes:
                    # Summed up first: no other thread may run between reading and writing the count.
                    size = len(item.raw_subject) + len(item.data) + len(item.raw_reply or b"")
                    if headers is not None:
                        size += len(headers)
                    state.taken_bytes += size
                decode = self._decode
                if decode is None or not item.data:  # perhaps the server left it out
                    make = self._make
                    message = make(item, self.connection)
                    if message is not None:
                        return message
                    item = None  # left out
                else:
                    try:
                        return TypedMsg(item, self.connection, True, None, self._values, decode(item.data))  # type: ignore[return-value]
                    except Exception:  # reading its value raises
                        return UnreadMsg(item, self.connection, True, None, self._values)  # type: ignore[return-value]
        except IndexError:
            item = None
        except AttributeError:
            pass  # a link event
        try:
            message = self._get_slowly(item, None)
        except errors.IteratorClosed:
            raise StopIteration from None
        assert message is not None
        return message

    def _get(self, timeout: float | None) -> M | None:
        """The next message, or None after the timeout. An available message needs no lock."""
        if self._state.due:
            self._pull()
        try:
            item = self._popleft()
            if item.raw_headers is None and not self._stopped:
                if self._pump.count(item):
                    self.stop()
                message = self._make(item, self.connection)
                if message is not None:
                    return message
                item = None  # left out
        except IndexError:
            item = None
        except AttributeError:
            pass  # a link event
        return self._get_slowly(item, timeout)

    def _pull(self) -> None:
        self._user = get_ident()
        self._pump.keep_pulling()

    def _get_slowly(self, item: Any, timeout: float | None) -> M | None:
        self._user = get_ident()
        deadline = Deadline(timeout)
        while True:
            if item is not None:
                found = self._handle(item)
                if found is not None:
                    return found
            self._check_open()
            try:
                item = self._mailbox.take()
                if item is None and not deadline.expired():
                    item = self._pump.wait(deadline)
            except errors.SubscriptionClosed:
                self._finish()
            if item is None:
                self._on_notices(self._pump.look(deadline))
                if deadline.expired() and not self._mailbox.items:
                    return None

    def _handle(self, item: Any) -> M | None:
        """Return a message, unless it is left out; handle a status or a link event."""
        if item is WAKE:
            return None
        if isinstance(item, LinkEvent):
            self._pump.link_event(item)
            return None
        if isinstance(item, Exception):
            self._fail(item)  # no permission to publish pulls
            return None
        if self._pump.inbox.is_control(item):
            self._on_notices(self._pump.status(item))
            return None
        if self._stopped:
            self._return(item)
            return None
        if self.options.group:
            self.source.learn_pin(self.options.group, item)
        if self._pump.count(item):
            self.stop()
        return self._make(item, self.connection)

    # --- a drain without acks -------------------------------------------------------------------------------

    @property
    def runs_out(self) -> bool:  # type: ignore[override]
        """Its consumer does not redeliver messages that are on their way during a drain, see `run_out`."""
        return not self._wants_acks

    def ask_no_more(self) -> None:
        if self._wants_acks:
            self.withdraw()
            return
        with self._lock:
            self._draining = True
            if self._running_out is None:
                self._running_out = RunOut(self._pump)
                self._popleft = self._running_out.popleft

    def run_out(self, deadline: Deadline) -> None:
        if self._running_out is not None and not self._stopped:
            self._report(self._running_out.run(deadline))

    # --- how it is with it ----------------------------------------------------------------------------------

    @property
    def window(self) -> int:
        """The most messages that are buffered and requested together."""
        return self._state.max_messages

    def resize(self, max_messages: int, threshold_messages: int) -> None:
        """Set the window from the next pull on; pulls under way stay. A WorkerPool adjusts it to its free workers."""
        self._pump.resize(max_messages, threshold_messages)

    @property
    def _wants_acks(self) -> bool:
        return not self.source.ack_none


def each(messages: PullMessages[M], most: int, deadline: Deadline) -> Iterator[M]:
    """Messages until the deadline, from an iterator that stops after `most` messages; closes it at the end."""
    try:
        while messages.delivered < most:
            try:
                message = messages.next(deadline.remaining())
            except errors.NoMessages:
                return
            except errors.IteratorClosed:
                if messages.delivered < most:
                    raise
                return  # the last ones were left out: they could not be decoded
            yield message
    finally:
        messages.close(deadline.at_most(FLUSH_TIMEOUT))
