"""`Consumer.batches()`: fetch after fetch, and over a long line the next messages are on their way meanwhile.

Near the server, and for an application that works on a batch for many round trips, each batch is one fetch: nothing is
asked for that the application has not come for. A fetch costs a round trip, so over a long line a quick application
would mostly wait. It gets the window of `messages()` instead, from which the batches are cut: one pump, one rule of
endings. Whatever makes reading ahead pointless or strange (a batch that was not full, a slow application, an error that
the pump survives) ends the window, and a fetch takes over, which knows what to say of it.
"""

from __future__ import annotations

import contextlib
import logging
import time
import weakref
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

import attrs

from jsclient import errors
from jsclient.connection import engine_of
from jsclient.durations import Deadline, Timeout, resolve
from jsclient.jetstream.consuming.fetch import SHORTEST_PULL, Batch, Ended, went_back
from jsclient.jetstream.consuming.pull import FASTEST, LONGEST_WINDOW, ROUND_TRIPS, SHORTEST
from jsclient.jetstream.consuming.pull_inboxes import FLUSH_TIMEOUT, nak_all
from jsclient.jetstream.consuming.pull_messages import PullMessages
from jsclient.jetstream.consuming.pull_request import FETCH_TIMEOUT

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.jetstream.api.models import ConsumerConfig
    from jsclient.jetstream.consuming.pull_options import PullOptions
    from jsclient.jetstream.consuming.pull_source import PullSource
    from jsclient.jetstream.message import JetStreamMsg
    from jsclient.message import Msg

log: logging.Logger = logging.getLogger("jsclient.jetstream.pull")

FAR: Final = 0.005
"""Seconds of a round trip from which on it may be worth it. Below, a fetch of a hundred costs about as much itself."""

BEGIN: Final = 4
END: Final = 2
"""Batches that the application takes in ROUND_TRIPS: with so many reading ahead begins, with fewer than these it ends.
It begins where a fetch would be a fifth of the time or more."""

GROWTH: Final = 4
"""Times that the window may be as large as at the batch before: how quick an application is shows in one batch only
so far."""


def may_read_ahead(config: ConsumerConfig) -> bool:
    """Whether what was read and not handed out can go back: else a loop that is left would lose it."""
    return config.ack_policy != "none" and config.max_deliver != 1


class BatchesAhead:
    """The batches of one loop; for one thread."""

    def __init__(
        self,
        source: PullSource,
        want: int,
        timeout: Timeout,
        options: PullOptions,
        *,
        fetch: Callable[[int, Timeout], Batch[Any]],
        finish: Callable[[Batch[Any], Deadline], Batch[Any]],
        make: Callable[[Msg, Connection], JetStreamMsg],
    ) -> None:
        """`fetch` brings a batch that is ready for the application. One that is cut from the window has messages that
        `make` makes, and `finish` makes it ready. `options`: of the window."""
        self._source = source
        self._want = want
        self._timeout = timeout
        self._options = options
        self._fetch = fetch
        self._finish = finish
        self._make = make
        self._engine = engine_of(source.nc)
        self._most = options.most_messages
        self._window = want
        self._messages: PullMessages | None = None
        self._full = False
        self._handed_out = 0.0

    def each(self) -> Iterator[Batch[Any]]:
        """All of them; a loop that is left gives back what it has not got."""
        try:
            while True:
                yield self.next()
        finally:
            self.close()

    def next(self) -> Batch[Any]:
        """The next batch."""
        if self._messages is None and self._engine.round_trip < FAR:
            self._full = False  # of one message it takes 95 us here; what follows would be 15 more
            return self._fetch(self._want, self._timeout)
        deadline = Deadline(resolve(self._timeout, FETCH_TIMEOUT))
        batch = self._next(deadline)
        self._full = batch.ended is Ended.COMPLETE
        self._handed_out = time.monotonic()
        return batch

    def close(self) -> None:
        """What was read ahead and not handed out goes back."""
        messages, self._messages = self._messages, None
        if messages is not None:
            messages.close()

    # --- whether, and how much ------------------------------------------------------------------------------

    def _next(self, deadline: Deadline) -> Batch[Any]:
        if self._messages is None:
            window = self._window_for_now() if self._full else 0
            if window < BEGIN * self._want:
                return self._fetch(self._want, deadline.seconds)
            self._begin()
        elif not self._goes_on(self._messages):
            _leave(self._messages, deadline)
        assert self._messages is not None
        self._grow(self._messages)
        return self._collect(self._messages, deadline)

    def _window_for_now(self) -> int:
        """What the application takes in ROUND_TRIPS, by how long it worked on the last batch; 0: the server is near."""
        round_trip = self._engine.round_trip
        if round_trip < FAR:
            return 0
        work = max(time.monotonic() - self._handed_out, SHORTEST)
        held = min(self._want / work, FASTEST) * min(ROUND_TRIPS * round_trip, LONGEST_WINDOW)
        return min(int(held), self._most)

    def _begin(self) -> None:
        # The smallest window is what a fetch asks for: one that the server finds too large goes back to that.
        told = _Trouble()
        options = attrs.evolve(self._options, max_messages=self._want, on_error=told, on_event=told)
        self._window = self._want
        self._messages = messages = PullMessages(self._source, options)
        messages.makes(self._make)
        messages.for_handlers()  # an instrument is told of a batch when it is handed out
        told.messages = weakref.ref(messages)

    def _grow(self, messages: PullMessages) -> None:
        window = min(self._window_for_now(), GROWTH * self._window)
        if not messages.ending and window >= self._want:
            self._window = window
            messages.resize(window, (window + 1) // 2)

    def _goes_on(self, messages: PullMessages) -> bool:
        if messages.window < self._window:
            self._most = 0  # the server takes no pull that is larger than what a fetch asks for
        return self._full and not messages.ending and self._window_for_now() >= END * self._want

    # --- a batch of the window --------------------------------------------------------------------------------

    def _collect(self, messages: PullMessages, deadline: Deadline) -> Batch[Any]:
        got: list[JetStreamMsg] = []
        calls = self._engine.takers.calls
        calls.append(get_ident())
        try:
            self._take(messages, deadline, got)
        except errors.NoMessages:
            messages.withdraw()  # the server has no more, and what comes during the work on these may be for others
            return self._finish(Batch(got, Ended.TIMEOUT), deadline)
        except errors.IteratorClosed:
            self._messages = None
            if self._source.nc.is_draining:
                nak_all([message.msg for message in got], self._source.nc)  # their acks may not be sent any more
                self._engine.check_usable()
                raise errors.ConnectionDraining("the connection drains") from None
            return self._rest(got, deadline)
        except BaseException as error:
            self.close()
            back = went_back(error, [message.msg for message in got], self._source)
            if back or not got or not isinstance(error, errors.JsClientError):
                raise
            return self._finish(Batch(got, Ended.ERROR, error), deadline)
        finally:
            with contextlib.suppress(ValueError):
                calls.remove(get_ident())
        if len(got) == self._want:
            return self._finish(Batch(got, Ended.COMPLETE), deadline)
        return self._finish(Batch(got, Ended.ERROR, errors.ConnectionDraining("the connection drains")), deadline)

    def _take(self, messages: PullMessages, deadline: Deadline, got: list[JetStreamMsg]) -> None:
        while len(got) < self._want:
            if got and messages.ending and not messages.buffered and self._source.nc.is_draining:
                return  # the connection waits for its end until the application comes again, with its acks sent
            got.append(messages.next(deadline.remaining()))

    def _rest(self, got: list[JetStreamMsg], deadline: Deadline) -> Batch[Any]:
        """The window has ended: what is missing comes by a fetch."""
        left = deadline.remaining()
        if got and left is not None and left < SHORTEST_PULL:
            return self._finish(Batch(got, Ended.TIMEOUT), deadline)
        begun = self._finish(Batch(got, Ended.COMPLETE), deadline)
        try:
            rest = self._fetch(self._want - len(got), left if left is None else max(left, SHORTEST_PULL))
        except errors.JsClientError as error:
            if not got:
                raise
            return Batch(list(begun), Ended.ERROR, error, begun.skipped)
        return Batch([*begun, *rest], rest.ended, rest.error, begun.skipped + rest.skipped)


class _Trouble:
    """What the window is told of, in the thread that waits: it ends. Weak, so that a loop that is left ends it too."""

    messages: weakref.ref[PullMessages] | None = None

    def __call__(self, what: Any) -> None:
        messages = self.messages() if self.messages is not None else None
        if messages is not None:
            log.info("%s: %s; nothing more is read ahead", messages.source, what)
            _leave(messages, Deadline(FLUSH_TIMEOUT))


def _leave(messages: PullMessages, deadline: Deadline) -> None:
    """Ask for nothing more; what was sent comes, and then the end."""
    messages.withdraw()
    with contextlib.suppress(errors.JsClientError):  # nothing more can come over a link that is gone
        if messages.connection.is_connected:
            messages.connection.flush(deadline.at_most(FLUSH_TIMEOUT))
    messages.complete()
