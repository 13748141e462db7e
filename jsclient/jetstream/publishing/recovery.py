"""The handling of asynchronous publishes whose ack does not simply come: 503s, lost links, the end.

`ack_timeouts` decides how long a message waits for its ack; it looks at all messages from time to time. A pending
message is in one of four places:

1. It is in flight.

2. It is in `retries`. The server answered with 503 or another temporary error, and the client will send it again soon.

3. It is `held`, because the link is down.

4. It is in `questions.inquiries`. The server refused it, and that may not be the outcome.

The client may send a message again if it was certainly not stored. It may also do so if the message has an id and the
stream certainly still remembers ids of that time. While any message is held, new messages queue behind it, so a lost
link does not change the order.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from jsclient import waiting
from jsclient.connection import engine_of
from jsclient.durations import elapsed
from jsclient.errors import (
    BufferFull,
    ConnectionClosed,
    ConnectionLost,
    HeadersNotSupported,
    JsClientError,
    NotStored,
    PayloadTooLarge,
    PermissionViolation,
    PublishUnknown,
    brief,
)
from jsclient.jetstream.publishing.ack_timeouts import AckTimeouts
from jsclient.jetstream.publishing.attempts import has_id
from jsclient.jetstream.publishing.entries import in_doubt, unknown
from jsclient.jetstream.publishing.questions import Questions
from jsclient.jetstream.publishing.streams import WINDOW_NOT_KNOWN, same_id_for
from jsclient.jetstream.publishing.verdict import WINDOW_ENDED, Verdict
from jsclient.protocol.frames import Frame, reply_of
from jsclient.states import LinkEvent

if TYPE_CHECKING:
    from jsclient.jetstream.publishing.entries import Entry
    from jsclient.jetstream.publishing.rules import Rules
    from jsclient.jetstream.publishing.streams import Streams
    from jsclient.jetstream.publishing.unacked import Unacked

HELD_UP: Final = 2.0
"""Seconds for which messages wait behind one that needs the window of its stream before it may be sent."""

REFUSALS: Final = (PayloadTooLarge, PermissionViolation, HeadersNotSupported)
"""Errors by which the present server refuses a message that was certainly not sent."""


class Recovery:
    """The slow paths of one publisher. Its lock guards the places; no message is sent or resolved under it.

    With `by_hand`, internal threads send no message again. `due` then shows that messages wait for `resume`.
    """

    def __init__(self, owner: Unacked, rules: Rules, streams: Streams) -> None:
        self.owner = owner
        self.lock: Any = waiting.new_lock()
        self.calm: bool = False  # acks are timed and no message is held, so a publish can skip this class
        self.by_hand = False
        self.due: bool = False
        self.link_since: float = 0.0
        self._linked = 0.0  # the same moment on the clock of timeouts
        self._nc = owner.nc
        self._engine = engine_of(self._nc)
        self._rules = rules
        self.held: dict[bytes, Entry] = {}
        self.retries: dict[bytes, Entry] = {}
        self.questions: Questions = Questions(owner, streams)
        self._retry_due = False
        self._sending = False  # some thread sends the held messages, also those that arrive meanwhile
        self._send_more = False
        self.ack_timeouts: AckTimeouts = AckTimeouts(owner, self, rules)

    def forked(self) -> None:
        """In a forked child: none of the parent's messages are in flight here."""
        self.lock = waiting.new_lock()
        self.held.clear()
        self.retries.clear()
        self.questions.inquiries.clear()

    def forget(self, token: bytes) -> None:
        """The message is resolved."""
        if self.held or self.retries:
            with self.lock:
                self.held.pop(token, None)
                self.retries.pop(token, None)
        self.questions.inquiries.pop(token, None)

    def admit(self, *entries: Entry) -> bool:
        """Admit publishes that are not `calm`; True if they are held behind others and will be sent with them."""
        if not self.ack_timeouts.running:
            self.ack_timeouts.start()
        if self.held or self._sending:
            self._engine.check_usable()
            with self.lock:
                if self.held or self._sending:
                    for entry in entries:
                        entry._sends = 0
                        self.held[entry._token] = entry
                    return True
        with self.lock:
            self.settle()
        return False

    def settle(self) -> None:
        """Update `calm`; the caller holds the lock."""
        self.calm = self.ack_timeouts.running and not self.held and not self._sending

    # --- sending again ------------------------------------------------------------------------------------------

    def retry(self, entry: Entry, error: JsClientError) -> None:
        """Send it again after `retry_wait`, or fail if that is too late. Messages retried together keep their order."""
        if entry._since and time.monotonic() + self._rules.retry_wait - entry._since >= self._rules.ack_timeout:
            known = isinstance(error, PublishUnknown) or not in_doubt(entry)
            self.owner.fail(entry, error if known else unknown(entry, brief(error)))
            return
        with self.lock:
            self.retries[entry._token] = entry
            start, self._retry_due = not self._retry_due, True
        if start:
            self._engine.clock.call_later(self._rules.retry_wait, self._retries_due)
        if entry.done():
            self.forget(entry._token)

    def resume(self) -> None:
        """Send the messages that wait for this call, in the thread that calls."""
        self.due = False
        self._send_retries()
        self.send_held()

    def proceed(self) -> None:
        """Send the held messages, unless `resume` must do that."""
        if self.by_hand:
            self.due = True
        else:
            self.send_held()

    def _retries_due(self) -> None:
        if self.by_hand:
            self.due = True
        else:
            self._send_retries()

    def _send_retries(self) -> None:
        with self.lock:
            batch, self.retries, self._retry_due = self.retries, {}, False
        self._keep(self._send_all(batch))

    def _keep(self, left: dict[bytes, Entry]) -> None:
        """Hold the messages that could not be sent now."""
        if left:
            with self.lock:
                self.held.update(left)
                self.calm = False

    def hold(self, *entries: Entry) -> None:
        """The link is down and no byte of these messages was sent: send them when the link is back."""
        for entry in entries:
            entry._sends = 0
        self._keep({entry._token: entry for entry in entries})
        if self._nc.is_connected:
            self.proceed()  # the link came back before these messages were held

    def send_held(self) -> None:
        """Send the held messages in the order of publishing; messages published meanwhile go behind them."""
        with self.lock:
            if self._sending:
                self._send_more = True  # for the thread that is sending
                return
            self._sending = True
        left: dict[bytes, Entry] = {}
        try:
            while not self._all_sent(left):
                left = self._send_all(self._take_held(), held=True)
                self._keep(left)
        except BaseException:
            self._sending = False
            raise

    def _all_sent(self, left: dict[bytes, Entry]) -> bool:
        """True if the thread that sends the held messages is done. It decides this and lets others in under one
        lock."""
        with self.lock:
            if self._send_more or (self.held and not left):
                self._send_more = False
                return False
            self._sending = False
            self.settle()
            return True

    def _take_held(self) -> dict[bytes, Entry]:
        order = list(self.owner.pending)
        with self.lock:
            held, self.held = self.held, {}
        return {token: held[token] for token in order if token in held}

    def _send_all(self, batch: dict[bytes, Entry], held: bool = False) -> dict[bytes, Entry]:
        """Send these in order. Returns messages to hold, because the link is down or a window is not known yet."""
        now = time.monotonic()
        left: dict[bytes, Entry] = {}
        for token, entry in batch.items():
            if entry.done():
                continue
            may = self._may_send(entry, now)
            if may is False:
                continue
            asking = self.questions.asking_since
            behind = left and asking is not None and now - asking < HELD_UP
            if may is None or behind or not self._send(entry, now):
                left[token] = entry
            elif held and entry._since < self._linked:
                entry._since = now  # over a new link the wait for its ack begins again
        return left

    def _may_send(self, entry: Entry, now: float) -> bool | None:
        """True if it may be sent again, None if that needs the window of its stream first. Resolves it if never."""
        if not in_doubt(entry):
            return True
        if not has_id(entry._block):
            if self._rules.copies_allowed:
                return True
            self.owner.fail(entry, unknown(entry, "it has no message id, so it is not sent again"))
            return False
        window = self.questions.window(entry.subject, now)
        if window is None:
            return None
        if isinstance(window, str):
            self.owner.fail(entry, unknown(entry, WINDOW_NOT_KNOWN))
            return False
        if elapsed() - (entry._first or self.ack_timeouts.swept) <= same_id_for(window):
            return True
        facts = self.questions.streams.facts(entry.subject, now)
        if facts is None or not self._rules.looks_beyond_window:
            self.owner.fail(entry, unknown(entry, WINDOW_ENDED))
        else:
            self.questions.inquire(entry, facts.name, Verdict.DOUBT, why=WINDOW_ENDED)
        return False

    def _send(self, entry: Entry, now: float) -> bool:
        """Send a message again; False without a link, or without room in its queue."""
        if not in_doubt(entry):
            entry._first = elapsed()  # this is the first copy that may be stored
            entry._since = entry._since or now
        entry._sends += 1
        entry._last = now
        try:
            self._engine.post(self.owner.frame(entry))
        except (ConnectionLost, BufferFull):
            entry._sends -= 1
            return False
        except JsClientError as error:
            entry._sends -= 1
            self._cannot_send(entry, error)
        return True

    def _cannot_send(self, entry: Entry, error: JsClientError) -> None:
        """No byte of this copy was sent or will be: the connection is closed, or the server accepts less now."""
        if isinstance(error, ConnectionClosed) or not isinstance(error, REFUSALS):
            self.end(entry, brief(error))
        elif in_doubt(entry):
            self.owner.fail(entry, unknown(entry, f"it cannot be sent again: {brief(error)}"))
        else:
            self.owner.fail(entry, error)

    def repeat(self, entry: Entry, now: float) -> None:
        """Send another copy of a message that may be stored, if that is certainly harmless."""
        if has_id(entry._block):
            window = self.questions.window(entry.subject, now)
            harmless = isinstance(window, float) and elapsed() - entry._first <= same_id_for(window)
        else:
            harmless = self._rules.copies_allowed
        if not harmless:
            return
        if self.by_hand:
            with self.lock:
                self.retries[entry._token] = entry
            self.due = True
        else:
            self._send(entry, now)

    # --- the link: on an internal thread ------------------------------------------------------------------------

    def link_event(self, event: LinkEvent) -> None:
        if event is LinkEvent.RECONNECTED:
            self.owner.refusals.forget_answers()
            self.link_since, self._linked = elapsed(), time.monotonic()
            self.proceed()
        elif event is LinkEvent.DISCONNECTED:
            self._lost()
        else:
            self.abandon("the connection was closed")

    def withdrawn(self, frames: list[Frame]) -> None:
        """Frames of which no byte was sent. Their messages can go out later, with or without an id."""
        start = self.owner.inbox_start
        for frame in frames:
            reply = reply_of(frame)
            entry = self.owner.look_up(reply[len(start) :]) if reply.startswith(start) else None
            if entry is not None and entry._sends > 0:
                entry._sends -= 1
                self._keep({entry._token: entry})

    def _lost(self) -> None:
        """The link is down: hold the messages that may be sent again; the outcome of the others is unknown."""
        self.questions.clear()
        for entry in self.owner.entries():
            token = entry._token
            inquiry = self.questions.inquiries.get(token)
            if inquiry is not None:
                inquiry.link_lost()
            if inquiry is not None or token in self.held or token in self.retries:
                continue
            if has_id(entry._block) or self._rules.copies_allowed or not in_doubt(entry):
                self._keep({token: entry})
            else:
                self.owner.fail(entry, unknown(entry, "the link was lost before its ack came"))

    def abandon(self, why: str) -> None:
        """No ack can come any more, so resolve all messages."""
        for entry in self.owner.entries():
            self.end(entry, why)

    def refused(self, error: BaseException) -> None:
        """The server refused the inbox of the acks."""
        self.abandon(f"the inbox for acks was refused: {brief(error)}")

    def end(self, entry: Entry, why: str) -> None:
        if in_doubt(entry):
            self.owner.fail(entry, unknown(entry, why))
        else:
            self.owner.fail(entry, NotStored(f"the message on {entry.subject!r} was not stored: {why}"))
