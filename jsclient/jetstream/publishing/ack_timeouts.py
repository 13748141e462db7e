"""The ack timeout of asynchronous publishes: a message without an ack is sent again, and finally given up.

While messages are pending, a sweep looks at all of them in every tick, on the flusher's thread. A publish needs no
timer and reads no clock, because the first sweep that sees a message notes the time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from jsclient.connection import engine_of
from jsclient.durations import elapsed
from jsclient.jetstream.publishing.entries import unknown

if TYPE_CHECKING:
    from jsclient.jetstream.publishing.entries import Entry
    from jsclient.jetstream.publishing.recovery import Recovery
    from jsclient.jetstream.publishing.rules import Rules
    from jsclient.jetstream.publishing.unacked import Unacked


class AckTimeouts:
    """The sweep over the pending messages of one publisher. The lock of `recovery` guards `running`."""

    def __init__(self, owner: Unacked, recovery: Recovery, rules: Rules) -> None:
        self.running: bool = False
        self.swept: float = 0.0
        """When the last sweep began; messages that it has not seen were published later."""
        self._owner = owner
        self._recovery = recovery
        self._rules = rules
        self._nc = owner.nc
        self._clock = engine_of(owner.nc).clock
        self._oldest: Entry | None = None  # at the last sweep
        self._moved = 0.0  # when the oldest one got its ack, seen by the sweep

    def start(self) -> None:
        """Sweep from now on, until nothing is pending."""
        with self._recovery.lock:
            if self.running:
                return
            self.running = True
            self.swept = elapsed()
        self._clock.call_later(self._rules.tick, self._sweep)

    def _sweep(self) -> None:
        owner, recovery = self._owner, self._recovery
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
            if recovery.held and self._nc.is_connected:
                recovery.proceed()  # some wait for a window that no answer has given yet
            if owner.window.parked:
                owner.window.unpark()  # a safety net: the woken threads may have left without publishing
        finally:
            with recovery.lock:
                # Publishers first put their entry in place and then look whether this runs.
                self.running = recovery.calm = False
                self.running = bool(owner.pending or owner.window.parked)
                recovery.settle()
            if self.running:
                self._clock.call_later(self._rules.tick, self._sweep)

    def _note_progress(self, oldest: Entry | None, now: float) -> None:
        """Acks come in the order of publishing. If the oldest message got its ack, the messages behind it are not
        late. The line is slow, and further copies would only make it slower."""
        if self._oldest is not None and self._oldest is not oldest and self._oldest._ack is not None:
            self._moved = now
        self._oldest = oldest

    def _look(self, entry: Entry, now: float) -> None:
        """Give up a message that has waited too long, or send it again."""
        token, recovery, rules = entry._token, self._recovery, self._rules
        if recovery.due and (token in recovery.held or token in recovery.retries):
            return  # its turn comes with `resume`
        inquiry = recovery.questions.inquiries.get(token)
        waited = now - max(entry._since, self._moved)
        if token in recovery.held:
            self._look_at_held(entry)
        elif inquiry is not None:
            if now - entry._since >= rules.ack_timeout:
                self._owner.fail(entry, inquiry.end(in_time=False))
        elif waited >= rules.ack_timeout:
            # It cannot wait in `retries`: `retry` accepts no message that would be late, and has sent it before this.
            self._owner.fail(entry, unknown(entry, f"no ack within {rules.ack_timeout:g} s"))
        elif token not in recovery.retries and now - max(entry._last, self._moved) >= rules.resend_after:
            recovery.repeat(entry, now)

    def _look_at_held(self, entry: Entry) -> None:
        rules, recovery, now = self._rules, self._recovery, elapsed()
        if now - entry._first > rules.hold_for:
            why = "it could not be sent again" if self._nc.is_connected else "the link did not come back"
            recovery.end(entry, f"{why} within {rules.hold_for:g} s")
        elif self._nc.is_connected and now - max(entry._first, recovery.link_since) > rules.ack_timeout:
            why = "the duplicate window of its stream was not known, or the queue had no room for it"
            recovery.end(entry, f"for {rules.ack_timeout:g} s {why}")
