"""The handling of asynchronous publishes whose ack does not simply come: 503s, lost links, the end.

While messages are pending, a sweep looks at all of them in every tick: it sends a message without an ack again, and
finally gives it up. A publish needs no timer and reads no clock, because the first sweep that sees a message notes the
time. A pending message is in one of four places:

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
    ApiError,
    BufferFull,
    ConnectionClosed,
    ConnectionLost,
    HeadersNotSupported,
    JsClientError,
    PayloadTooLarge,
    PermissionViolation,
    brief,
)
from jsclient.jetstream.publishing.outcome import (
    WINDOW_ENDED,
    Verdict,
    after_no_responders,
    asks_for_stream,
    ended,
    has_id,
    in_doubt,
    judge_refusal,
    others_in_doubt,
    out_of_time,
    reply_error,
    stream_of,
    unknown,
    why_not_again,
)
from jsclient.jetstream.publishing.questions import Questions
from jsclient.jetstream.publishing.streams import (
    ASK_TIMEOUT,
    FORBIDDEN,
    NONE,
    names_answer,
    names_request,
)
from jsclient.protocol.frames import Frame, reply_of
from jsclient.states import LinkEvent

if TYPE_CHECKING:
    from jsclient.jetstream.publishing.outcome import Entry, Rules
    from jsclient.jetstream.publishing.questions import Flight
    from jsclient.jetstream.publishing.streams import Streams
    from jsclient.message import Msg

HELD_UP: Final = 2.0
"""Seconds for which messages wait behind one that needs the window of its stream before it may be sent."""

REFUSALS: Final = (PayloadTooLarge, PermissionViolation, HeadersNotSupported)
"""Errors by which the present server refuses a message that was certainly not sent."""


class Recovery:
    """The slow paths of one publisher. Its lock guards the places; no message is sent or resolved under it.

    With `by_hand`, internal threads send no message again. `due` then shows that messages wait for `resume`.
    """

    def __init__(self, owner: Flight, rules: Rules, streams: Streams) -> None:
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
        self.questions: Questions = Questions(owner, streams, self.proceed)
        self._retry_due = False
        self._sending = False  # some thread sends the held messages, also those that arrive meanwhile
        self._send_more = False
        self.sweeping: bool = False
        self.swept: float = 0.0  # When the last sweep began. Messages that it has not seen are younger.
        self._oldest: Entry | None = None
        self._moved = 0.0  # When the oldest one got its ack, seen by the sweep.
        self._asked: dict[str, tuple[float, str]] = {}  # Is there a stream? Time and answer, by subject.

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
        if not self.sweeping:
            self.start_sweep()
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
        self.calm = self.sweeping and not self.held and not self._sending

    # --- sending again ------------------------------------------------------------------------------------------

    def retry(self, entry: Entry, refusal: ApiError | None = None) -> None:
        """Send it again after `retry_wait`, or fail if that is too late. Messages retried together keep their order."""
        if entry._since and time.monotonic() + self._rules.retry_wait - entry._since >= self._rules.ack_timeout:
            self.owner.fail(entry, out_of_time(entry, refusal))
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
            while True:
                if self._all_sent(left):
                    return
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
        why = why_not_again(window, elapsed() - (entry._first or self.swept))
        facts = self.questions.streams.facts(entry.subject, now) if why == WINDOW_ENDED else None
        if not why:
            return True
        if facts is None or not self._rules.looks_beyond_window:
            self.owner.fail(entry, unknown(entry, why))
        else:
            self.questions.inquire(entry, facts.name, Verdict.DOUBT, why=why)
        return False

    def _send(self, entry: Entry, now: float) -> bool:
        """Send a message again; False without a link, or without room in its queue."""
        if not in_doubt(entry):
            entry._first = elapsed()  # this is the first copy that may be stored
            entry._since = entry._since or now
        entry._sends += 1
        entry._last = now
        try:
            self._engine.enqueue(self.owner.frame(entry))
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
            harmless = window is not None and not why_not_again(window, elapsed() - entry._first)
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

    # --- unusual answers: on the reader thread, which never waits or sends --------------------------------------

    def unusual(self, token: bytes, message: Msg) -> None:
        """Handle any message other than a PubAck."""
        entry = self.owner.look_up(token)
        if entry is None:
            self.questions.answered(token, message)
            return
        status = message.status
        if status is not None and status.code == 503 and not message.data:
            self._no_responders(entry)
            return
        error = reply_error(message.data)
        if isinstance(error, ApiError):
            self._refused(entry, error, message.data)
        else:
            self.owner.fail(entry, error)

    def _refused(self, entry: Entry, error: ApiError, payload: bytes) -> None:
        if entry._token in self.questions.inquiries:
            return  # another copy, or another server: the inquiry that is running decides
        verdict = judge_refusal(entry, error)
        if verdict is Verdict.AGAIN:
            self.retry(entry, error)
        elif verdict is Verdict.REFUSED:
            self.owner.fail(entry, error)
        else:
            self.questions.inquire(entry, stream_of(payload), verdict, error)

    def _no_responders(self, entry: Entry) -> None:
        entry._no_responders += 1
        answer = self._stream_of(entry.subject) if asks_for_stream(entry, self._rules) else ""
        error = after_no_responders(entry, self._rules, answer)
        if error is None:
            self.retry(entry)
        else:
            self.owner.fail(entry, error)

    def _stream_of(self, subject: str) -> str:
        """The answer to whether a stream takes the subject. It is empty while the client asks."""
        when, answer = self._asked.get(subject, (0.0, ""))
        if answer == FORBIDDEN or time.monotonic() - when <= 2 * ASK_TIMEOUT:
            return answer
        self._asked[subject] = (time.monotonic(), "")

        def told(answer: Msg | None) -> None:
            self._answered(subject, FORBIDDEN if answer is None else names_answer(answer.data))

        self.questions.ask("STREAM.NAMES", names_request(subject), told)
        return ""

    def _answered(self, subject: str, answer: str) -> None:
        self._asked[subject] = (time.monotonic(), answer)
        for entry in list(self.retries.values()) if answer == NONE else ():
            error = after_no_responders(entry, self._rules, answer) if entry.subject == subject else None
            if error is not None:
                self.owner.fail(entry, error)

    def refused_publish(self, error: PermissionViolation) -> None:
        """The server denies this user a publish on a subject, so the message was certainly not stored."""
        if error.operation == "subscribe":
            return
        if self.questions.refused(error):
            return
        for entry in self.owner.entries():
            if entry.subject == error.subject:
                self.owner.fail(entry, unknown(entry, brief(error)) if others_in_doubt(entry) else error)

    # --- the sweep: on the flusher's thread ----------------------------------------------------------------------

    def start_sweep(self) -> None:
        """Sweep from now on, until nothing is pending."""
        with self.lock:
            if self.sweeping:
                return
            self.sweeping = True
            self.swept = elapsed()
        self._engine.clock.call_later(self._rules.tick, self._sweep)

    def _sweep(self) -> None:
        owner = self.owner
        try:
            before, self.swept = self.swept, elapsed()
            now = time.monotonic()
            entries = owner.entries()
            self._note_progress(entries[0] if entries else None, now)
            for entry in entries:
                if entry._first:
                    self._look(entry, now)
                else:
                    entry._first, entry._last, entry._since = before, now, now
            if self.held and self._nc.is_connected:
                self.proceed()  # some wait for a window that no answer has given yet
            owner.unpark()  # a safety net: the woken threads may have left without publishing
        finally:
            with self.lock:
                # Publishers first put their entry in place and then look whether this runs.
                self.sweeping = self.calm = False
                self.sweeping = owner.busy()
                self.settle()
            if self.sweeping:
                self._engine.clock.call_later(self._rules.tick, self._sweep)

    def _note_progress(self, oldest: Entry | None, now: float) -> None:
        """Acks come in the order of publishing. If the oldest message got its ack, the messages behind it are not
        late. The line is slow, and further copies would only make it slower."""
        if self._oldest is not None and self._oldest is not oldest and self._oldest._ack is not None:
            self._moved = now
        self._oldest = oldest

    def _look(self, entry: Entry, now: float) -> None:
        """Give up a message that has waited too long, or send it again."""
        token, rules = entry._token, self._rules
        if self.due and (token in self.held or token in self.retries):
            return  # its turn comes with `resume`
        inquiry = self.questions.inquiries.get(token)
        waited = now - max(entry._since, self._moved)
        if token in self.held:
            self._look_at_held(entry)
        elif inquiry is not None:
            if now - entry._since >= rules.ack_timeout:
                self.owner.fail(entry, inquiry.end(in_time=False))
        elif waited >= rules.ack_timeout:
            # It cannot wait in `retries`: `retry` accepts no message that would be late, and has sent it before this.
            self.owner.fail(entry, unknown(entry, f"no ack within {rules.ack_timeout:g} s"))
        elif token not in self.retries and now - max(entry._last, self._moved) >= rules.resend_after:
            self.repeat(entry, now)

    def _look_at_held(self, entry: Entry) -> None:
        rules, now = self._rules, elapsed()
        if now - entry._first > rules.hold_for:
            why = "it could not be sent again" if self._nc.is_connected else "the link did not come back"
            self.end(entry, f"{why} within {rules.hold_for:g} s")
        elif self._nc.is_connected and now - max(entry._first, self.link_since) > rules.ack_timeout:
            why = "the duplicate window of its stream was not known, or the queue had no room for it"
            self.end(entry, f"for {rules.ack_timeout:g} s {why}")

    # --- the link: on an internal thread ------------------------------------------------------------------------

    def link_event(self, event: LinkEvent) -> None:
        if event is LinkEvent.RECONNECTED:
            self._asked.clear()  # subjects without a stream may have one now
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
        self.owner.fail(entry, ended(entry, why))
