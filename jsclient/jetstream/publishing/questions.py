"""The questions of asynchronous publishes: is there a stream, how long does it know ids, is the message stored?

Answers come to the inbox of the acks, on the reader thread. Code there never waits or sends. If a question is lost with
its link, the caller that needs the answer asks again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from jsclient import waiting
from jsclient._connection import LinkFrame
from jsclient.connection import engine_of
from jsclient.errors import ApiError, JsClientError, PermissionViolation
from jsclient.jetstream.api.models import PubAck
from jsclient.jetstream.publishing.outcome import Inquiry, Published, Verdict
from jsclient.jetstream.publishing.streams import EXISTS, Streams, names_request, stream_in
from jsclient.nuid import new_token

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.jetstream.publishing.base import PublishingBase
    from jsclient.jetstream.publishing.outcome import Entry
    from jsclient.message import Msg
    from jsclient.protocol.frames import Frame

ASK_AGAIN: Final = 1.0
"""Seconds after which the client asks again for a window that it did not learn."""

NO_LINK: Final = 0.25
"""Seconds until an inquiry looks whether the link is back."""

Then = Callable[["Msg | None"], None]
"""Takes the answer, or None if this user has no permission to ask."""


class Flight(Protocol):
    """The messages in flight, as their recovery needs them (see `InFlight`)."""

    js: PublishingBase
    nc: Connection
    pending: dict[bytes, Any]

    @property
    def inbox_start(self) -> bytes: ...

    def busy(self) -> bool: ...

    def unpark(self) -> None: ...

    def entries(self) -> list[Any]: ...

    def look_up(self, token: bytes) -> Any: ...

    def frame(self, entry: Entry) -> Frame: ...

    def succeed(self, entry: Entry, ack: PubAck) -> None: ...

    def fail(self, entry: Entry, error: BaseException) -> None: ...


class Questions:
    """Questions under way, and the inquiries about refused publishes."""

    def __init__(self, owner: Flight, streams: Streams, proceed: Callable[[], None]) -> None:
        self.streams = streams
        self.inquiries: dict[bytes, Inquiry] = {}  # the inquiry into the outcome of a publish, by its token
        self.asking_since: float | None = None  # the start of a search for a window, without success so far
        self._owner = owner
        self._proceed = proceed  # sends what waits for a window
        self._nc = owner.nc
        self._engine = engine_of(self._nc)
        self._then: dict[bytes, tuple[str, Then]] = {}  # subject and receiver of the answer, by token of the question
        self._asked_window = float("-inf")
        self._asked_for = ""  # the subject

    def clear(self) -> None:
        """The link is gone, and the answers with it."""
        self._then.clear()
        self._asked_window = float("-inf")
        self.asking_since = None

    def ask(self, operation: str, body: bytes, then: Then) -> None:
        """Post a question, on the clock's thread: the reader must not wait for room. `then` is called by the reader."""
        token = b"?" + new_token()
        subject = self._owner.js.api.subject(operation)
        self._then[token] = (subject, then)
        self._engine.clock.call_soon(lambda: self._enqueue(token, subject, body))

    def _enqueue(self, token: bytes, subject: str, body: bytes) -> None:
        try:
            reply = self._owner.inbox_start + token
            self._engine.enqueue(LinkFrame(self._engine.encode(subject, body, reply)))
        except JsClientError:
            self._then.pop(token, None)  # the link is gone

    def answered(self, token: bytes, message: Msg) -> None:
        """Handle an answer, or a message that no question waits for any more."""
        _, then = self._then.pop(token, ("", None))
        if then is not None:
            then(message)

    def refused(self, error: PermissionViolation) -> bool:
        """True if it was a question that this user has no permission to ask."""
        found = [token for token, (subject, _) in waiting.items_of(self._then) if subject == error.subject]
        for token in found:
            _, then = self._then.pop(token, ("", None))
            if then is not None:
                then(None)
        return bool(found)

    # --- windows ----------------------------------------------------------------------------------------------------

    def window(self, subject: str, now: float) -> float | str | None:
        """Like `Streams.window`, and asks if it is not known."""
        window = self.streams.window(subject, now)
        if window is not None:
            self.asking_since = None
        elif now - self._asked_window >= ASK_AGAIN:
            self._asked_window, self._asked_for = now, subject
            self.asking_since = self.asking_since or now
            self.ask("STREAM.NAMES", names_request(subject), self._named)
        return window

    def _named(self, answer: Msg | None) -> None:
        if answer is None:
            self._learned(None)
            return
        found, name = stream_in(answer.data)
        if found == EXISTS:
            self.ask(f"STREAM.INFO.{name}", b"", self._learned)

    def _learned(self, answer: Msg | None) -> None:
        now = time.monotonic()
        if answer is None:
            self.streams.forbidden(now)
        elif not self.streams.learn(answer.data, now):
            return
        if self.streams.window(self._asked_for, now) is not None:
            self._asked_window = float("-inf")  # the next subject need not wait
        self._engine.clock.call_soon(self._proceed)

    # --- inquiries --------------------------------------------------------------------------------------------------

    def inquire(
        self, entry: Entry, stream: str, verdict: Verdict, refusal: ApiError | None = None, why: str = ""
    ) -> None:
        """Find out the outcome of a publish, which is resolved at the end."""
        published = Published.of(entry.subject, entry.payload, entry._block)
        inquiry = self.inquiries[entry._token] = Inquiry(published, stream, verdict, refusal, why)
        inquiry.denied = self.streams.denied(stream, time.monotonic())
        if verdict is Verdict.LISTEN:
            now = time.monotonic()
            if self.streams.replicas(stream, now) is None:
                self.ask(f"STREAM.INFO.{stream}", b"", lambda answer: self._counted(entry, inquiry, answer))
            elif self._has_one_leader(entry, inquiry):
                return
        self._step(entry, inquiry)

    def _counted(self, entry: Entry, inquiry: Inquiry, answer: Msg | None) -> None:
        if answer is not None and self.streams.learn(answer.data, time.monotonic()):
            self._has_one_leader(entry, inquiry)

    def _has_one_leader(self, entry: Entry, inquiry: Inquiry) -> bool:
        """With one replica there is one leader, and its answer counts."""
        if self.streams.replicas(inquiry.stream, time.monotonic()) != 1 or inquiry.verdict is not Verdict.LISTEN:
            return False
        self._conclude(entry, inquiry.refusal)
        return True

    def _step(self, entry: Entry, inquiry: Inquiry) -> None:
        """Look once, and schedule the next look."""
        if entry.done():
            self.inquiries.pop(entry._token, None)
            return
        if not self._nc.is_connected:
            self._engine.clock.call_later(NO_LINK, lambda: self._step(entry, inquiry))
            return
        pause = inquiry.pause()
        if pause is None:
            self._conclude(entry, inquiry.end())
            return
        inquiry.unanswered()
        self._look(entry, inquiry)
        if not entry.done():
            self._engine.clock.call_later(pause, lambda: self._step(entry, inquiry))

    def _look(self, entry: Entry, inquiry: Inquiry) -> None:
        question = inquiry.question()
        if question is not None:
            operation, body = question
            self.ask(operation, msgspec.json.encode(body), lambda answer: self._seen(entry, inquiry, answer))

    def _seen(self, entry: Entry, inquiry: Inquiry, answer: Msg | None) -> None:
        if answer is None:
            inquiry.forbidden()
            self.streams.deny(inquiry.stream, inquiry.denied, time.monotonic())
            self._look(entry, inquiry)
        elif not entry.done():
            self._conclude(entry, inquiry.heard(answer))

    def _conclude(self, entry: Entry, found: Any) -> None:
        if found is None:
            return
        self.inquiries.pop(entry._token, None)
        if isinstance(found, PubAck):
            self._owner.succeed(entry, found)
        else:
            self._owner.fail(entry, found)
