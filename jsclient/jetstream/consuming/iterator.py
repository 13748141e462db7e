"""The iterators below `Messages`: their loop, their use, and their end.

The reader thread puts messages into a mailbox. The thread that takes them drives the intake, a Pump or the subscription
of a push consumer, so it needs no further thread.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from jsclient import errors, waiting
from jsclient._connection import SLICE, Drainable
from jsclient.connection import Connection, engine_of
from jsclient.durations import DEFAULT, Deadline, Timeout, check_timeout, plain, resolve
from jsclient.instruments import taking
from jsclient.jetstream.consuming.hooks import call_hook, error_hook
from jsclient.jetstream.consuming.pull_inboxes import FLUSH_TIMEOUT, SHORTEST_CLOSE, nak_all, nak_frames
from jsclient.jetstream.consuming.pull_options import FETCH_TIMEOUT
from jsclient.jetstream.consuming.typed import Values, tell
from jsclient.jetstream.consuming.typed_message import TypedMsg, UnreadMsg
from jsclient.jetstream.message import JetStreamMsg, M
from jsclient.message import Msg
from jsclient.states import WAKE, LinkEvent

if TYPE_CHECKING:
    from jsclient.cancel import Cancel
    from jsclient.jetstream.consuming.pull_options import Paused
    from jsclient.jetstream.consuming.pump import Intake, Notice

log: logging.Logger = logging.getLogger("jsclient.jetstream.pull")

PATIENCE: Final = 5.0
"""Seconds that the drain of a connection waits for the application to come for the next message of an iterator."""

S = TypeVar("S", bound="MessageIterator[Any]")


class MessageIterator(Drainable, Generic[M]):
    """Base of the iterators below `Messages`: their use, and their end.

    Everything that ends the iterator sets `_stopped`, and `_terminal`, the reason, unless the application wanted the
    end. From then on it delivers nothing more, and returns the messages that it holds.
    """

    application_driven = True  # unless a consume or a pool has entered its connection in its place
    _terminal: Exception | None = None
    _stopped = False
    _draining = False
    _drained = False  # with its connection: it still delivers available messages, even after the close
    _settled = False  # the server knows that we take nothing more
    _closed = True  # until there is something to close
    _user = 0  # a thread that took from it
    resets = 0
    """The number of times that an ordered consumer was re-created."""
    runs_out = False
    """Its consumer does not redeliver messages that are on their way during a drain, see `RunOut`."""
    _values: Values[Any] | None = None
    _decode: Callable[[bytes], Any] | None = None
    """The function that decodes a payload, if the loops that deliver messages call it themselves. Another function in
    between would cost an eighth of the decoding.
    """

    def __init__(
        self,
        source: Any,
        options: Any,
        intake: Intake,
        cancel: Cancel | None = None,
        values: Values[Any] | None = None,
    ) -> None:
        self.source = source
        self.options = options
        self.connection: Connection = intake.connection
        self._engine = engine_of(self.connection)
        self._intake = intake
        self._mailbox = intake.mailbox
        self._popleft = intake.mailbox.popleft
        self._lock = intake.lock
        self._state = intake.state
        self._take = intake.state.take
        self._group = getattr(options, "group", "")
        self._cancel = cancel
        self._returned: deque[Msg] = deque()
        # Attributes of the object, not of the class, because Python 3.11 finds them quicker. No code here may use
        # `__dict__`, or each access to an attribute becomes a search: that cost a handler 0.1 µs per message.
        self._stopped = self._closed = False
        self._values = values
        if values is None:
            self.makes(JetStreamMsg)
        else:
            self.makes(values.maker(), values.decode)
        self._engine.drainables.enter(self)
        if cancel is not None:
            cancel.enter(self._intake, partial(_cancelled, weakref.ref(self), cancel))

    def makes(self, make: Callable[[Msg, Connection], Any], decode: Callable[[bytes], Any] | None = None) -> None:
        """Make messages with this function. A loop that makes typed messages itself calls `decode` instead.

        Every way to take a message uses this, so it also puts the instrument in between."""
        instrument = self.connection.options.instrumentation
        self._plain = make, decode
        if instrument is None:
            self._use(make, decode)
        else:
            self._use(taking(instrument, make), None)

    def for_handlers(self) -> None:
        """A consume or a pool takes the messages: it reports them to an instrument when its handler begins."""
        self._use(*self._plain)

    def _use(self, make: Callable[[Msg, Connection], Any], decode: Callable[[bytes], Any] | None) -> None:
        values = self._values
        if values is not None and not values.lazy:
            # Without a reference to this object, which must be freed when the program leaves a loop.
            make, decode = values.sifter(make, partial(tell, self.options.on_error, self.source)), None
        self._make: Callable[[Msg, Connection], M | None] = make
        self._decode = decode

    @property
    def missed_heartbeats(self) -> int:
        """See `Messages`."""
        return self._intake.missed_heartbeats

    @property
    def paused_until(self) -> Paused | None:
        """See `Messages`."""
        return self._intake.paused_until

    @property
    def _wants_acks(self) -> bool:
        raise AssertionError("subclasses say it")

    def __iter__(self: S) -> S:
        return self

    def __next__(self) -> M:
        # The one loop of all iterators. It is written out, because calls are a tenth of the cost of a message.
        state = self._state
        if state.due:
            self._pull()
        try:
            item = self._popleft()
            headers = item.raw_headers
            # A blank at this place may be the server's status. A pinned group learns its pin from the headers.
            if (headers is None or (headers[8:9] != b" " and not self._group)) and not self._stopped:
                if self._take() >= state.check_at and self._intake.reached():
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
                message = self._deliver(item)
                if message is not None:
                    return message
                item = None  # left out
        except IndexError:
            item = None
        except AttributeError:
            pass  # a link event
        return self._get_slowly(item, timeout)

    def _pull(self) -> None:
        self._user = threading.get_ident()
        self._intake.keep_pulling()

    def _get_slowly(self, item: Any, timeout: float | None) -> M | None:
        """The same, beginning with `item` from the mailbox."""
        self._user = threading.get_ident()
        deadline = Deadline(timeout)
        while True:
            if item is not None:
                found = self._handle(item)
                if found is not None:
                    return found
            self._check_open()
            try:
                item = self._intake.take(deadline)
            except errors.SubscriptionClosed:
                self._finish()
            if item is None:
                self._on_notices(self._intake.look(deadline))
                if deadline.expired() and not self._mailbox.items:
                    return None

    def _handle(self, item: Any) -> M | None:
        """Return a message, unless it is left out; handle a status or a link event."""
        if item is WAKE:
            return None
        if isinstance(item, LinkEvent):
            self._link_event(item)
        elif isinstance(item, Exception):
            self._fail(item)  # no permission to publish pulls
        elif self._intake.is_control(item):
            self._on_notices(self._intake.status(item))
        elif self._stopped:
            self._return(item)
        else:
            return self._came(item)
        return None

    def _link_event(self, event: LinkEvent) -> None:
        self._intake.link_event(event)

    def _came(self, item: Msg) -> M | None:
        """A message came: return it, unless it is left out."""
        if self._group:
            self.source.learn_pin(self._group, item)
        return self._deliver(item)

    def _deliver(self, item: Msg) -> M | None:
        """Count a message, and make the application's message of it. None if it is left out."""
        state = self._state
        if self._take() >= state.check_at and self._intake.reached():
            self.stop()
        if state.max_bytes:
            # As in `__next__`. To call `message_size` here would cost `next` 0.05 µs of 1.0.
            size = len(item.raw_subject) + len(item.data) + len(item.raw_reply or b"")
            if item.raw_headers is not None:
                size += len(item.raw_headers)
            state.taken_bytes += size
        return self._make(item, self.connection)

    def next(self, timeout: Timeout = DEFAULT) -> M:
        """See `Messages`."""
        seconds = resolve(timeout, FETCH_TIMEOUT)
        if self._values is None or self._values.lazy:
            message = self._get(seconds)
        else:  # messages left out are settled meanwhile, within the time of the call
            with self._engine.sends_within(Deadline(seconds)):
                message = self._get(seconds)
        if message is None:
            raise errors.NoMessages(f"no message of {self.source} within {seconds:g} s")
        return message

    def _check_open(self) -> None:
        if self._terminal is not None:
            self.close()
            raise self._terminal
        if self._stopped:
            self._finish()

    def _finish(self) -> None:
        self.close()
        raise errors.IteratorClosed(f"the iterator over {self.source} was stopped")

    def _fail(self, error: Exception | None) -> None:
        """Nothing can come any more: every thread that takes messages gets the reason."""
        self._terminal = error
        self._mailbox.wake()

    def _report(self, error: Exception | None) -> None:
        hook = error_hook(self.options.on_error)
        if error is not None and hook is not None:
            call_hook(hook, error)
        elif error is not None:
            log.warning("%s: %s", self.source, error, exc_info=error)

    def _on_notices(self, told: Sequence[Notice]) -> None:
        """Handle the findings of the pump."""
        for kind, what in told:
            if kind == "failed":
                self._fail(what)
            elif kind == "reported":
                self._report(what)
            else:
                log.info("%s: %s", self.source, what)
                if self.options.on_event is not None:
                    call_hook(self.options.on_event, what)

    @property
    def buffered(self) -> int:
        """See `Messages`."""
        return len(self._mailbox)

    @property
    def closed(self) -> bool:
        """See `Messages`."""
        return self._closed

    def stop(self) -> None:
        """See `Messages`."""
        self._stopped = self._intake.halted = True
        self._mailbox.wake()
        # On another thread: a signal may have interrupted ours in a subscription, with its lock taken.
        with contextlib.suppress(errors.ForkedConnection):  # in a forked child there is nothing to withdraw
            self._engine.clock.call_soon(self.withdraw)

    @property
    def delivered(self) -> int:
        """Messages taken up to now."""
        return self._intake.delivered

    @property
    def ending(self) -> bool:
        """True if it was stopped, or drains."""
        return self._stopped or self._draining

    # --- how it ends ----------------------------------------------------------------------------------------

    def withdraw(self) -> None:
        """UNSUB: the server sends nothing more, but messages on their way still arrive. Does not wait."""
        self._draining = True
        self._intake.withdraw()

    def complete(self) -> None:
        """After `withdraw` and a flush: the iteration ends after the messages in the mailbox."""
        self._intake.complete()

    def ask_no_more(self) -> None:
        """Begin a drain: `withdraw`, unless it `runs_out`."""
        self.withdraw()

    def run_out(self, deadline: Deadline) -> None:
        """In a drain, before `complete`, if it `runs_out`: wait for all requested messages."""

    def drain(self, timeout: float | dt.timedelta = FLUSH_TIMEOUT) -> None:
        """See `Messages`."""
        check_timeout(plain(timeout))
        deadline = Deadline(plain(timeout))
        with self._lock:
            if self.ending:
                return
            self.ask_no_more()
        if self.runs_out:
            self.run_out(deadline)
        else:
            with contextlib.suppress(errors.JsClientError):  # nothing more can come over a link that is gone
                if self.connection.is_connected:
                    self.connection.flush(timeout)
        self.complete()

    def close(self, timeout: float | dt.timedelta = FLUSH_TIMEOUT) -> None:
        """See `Messages`."""
        seconds = plain(timeout)
        check_timeout(seconds)
        deadline = Deadline(seconds)
        self._stopped = self._intake.halted = True
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._cancel is not None:
            self._cancel.leave(self._intake)
        give_back = not self.options.leave_buffered and self.connection.is_connected
        self._mailbox.wake()
        self._intake.release()
        if self.connection.closed:
            return  # the end of the connection returns the messages
        with self._engine.sends_within(deadline):
            self._give_back(self._intake.settle(give_back, seconds, self._wants_acks))

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            try:
                give_back = self._wants_acks and not self.options.leave_buffered and self.connection.is_connected
                self._intake.abandon(give_back)
            except Exception:  # the interpreter is going down
                pass

    # --- how it ends with its connection: see Drainable ------------------------------------------------------------

    def begin_drain(self) -> None:
        if self._wants_acks:  # otherwise nothing is lost, and a running handler may still read from it
            self.withdraw()

    def all_received(self) -> None:
        if self._wants_acks:
            self.complete()

    def finish_drain(self, deadline: Deadline) -> None:
        """The application may take received messages as long as it asks for more; the rest goes back."""
        if not self._wants_acks:
            # No thread waits for the application. It can take the available messages even after the close. Otherwise a
            # millisecond would decide if a loop ended in order or with ConnectionClosed.
            if self.runs_out:
                self.ask_no_more()
                self.run_out(deadline)
            self.withdraw()
            self.complete()
            self._drained = True
            return
        waited = self._closed or not self.delivered or self._user == threading.get_ident()
        over = waited or self._wait_for_application(deadline)
        left = self.buffered
        self.close(max(deadline.at_most(FLUSH_TIMEOUT), SHORTEST_CLOSE))
        if not over and deadline.expired():
            raise errors.DrainTimeout(
                f"the application still works on a message of {self.source}: its ack will not arrive, and {left} "
                "messages that it did not come for went back. Give it more time, or let the loop end sooner."
            )

    def _wait_for_application(self, deadline: Deadline) -> bool:
        """Wait until it has asked for the next message and there was none; False if it does not ask."""
        seen, patience, gate = -1, Deadline(PATIENCE), waiting.Gate()
        while not (self._closed or deadline.expired() or self.connection.closed):
            if self.delivered != seen:
                seen, patience = self.delivered, Deadline(PATIENCE)
            elif patience.expired():
                log.warning("%s: nobody comes for the next message; what was received goes back", self.source)
                return False
            gate.wait(deadline.at_most(SLICE))
        return self._closed

    def end(self, reason: errors.ConnectionClosed) -> None:
        if self._drained:
            return
        if not self._closed and not self._stopped:
            self._terminal = self._terminal or reason
        self._stopped = self._intake.halted = True
        self.withdraw()
        self._mailbox.wake()

    def hand_back(self) -> list[bytes]:
        if self._drained:
            return []
        self._settled = True
        left = self._intake.leftovers() + self._take_returned()
        return nak_frames(left) if self._wants_acks and not self.options.leave_buffered else []

    def _give_back(self, messages: list[Msg]) -> None:
        """Return messages to the server, once it knows that we take nothing more: else it would send them back."""
        self._settled = True  # first: messages returned from here on go back without us
        messages += self._take_returned()
        if self._wants_acks and not self.options.leave_buffered:
            nak_all(messages, self.connection)

    def _return(self, message: Msg) -> None:
        """A message taken from the mailbox after the end goes back with the rest."""
        self._returned.append(message)
        if self._settled:
            self._give_back([])

    def _take_returned(self) -> list[Msg]:
        taken: list[Msg] = []
        with contextlib.suppress(IndexError):  # until it is empty: another thread may take from it, too
            while True:
                taken.append(self._returned.popleft())
        return taken

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(errors.ForkedConnection):  # a forked child that leaves the blocks of its parent
            self._engine.check_process()  # before the lock, which a thread of the parent may have held
            self.close()

    def __reduce__(self) -> Any:
        return self._engine.refuse_pickle(self)


def _cancelled(of: weakref.ref[MessageIterator[Any]], token: Cancel) -> None:
    messages = of()
    if messages is not None:
        messages._fail(token.error())
        messages._engine.clock.call_soon(messages.withdraw)
