"""Facts about the streams behind a publisher's subjects: whether there is one, and how long it knows ids.

After a lost ack a message may be sent again only as long as the stream remembers its id. This is its
`duplicate_window`: two minutes unless the stream has another one or a shorter `max_age`. So the client asks for the
window before an id goes out a second time. Without the permission to ask, the client does not know it. Then it sends
nothing again, unless the application has stated a window (`publish_async_duplicate_window`).
"""

from __future__ import annotations

import datetime as dt
import re
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from jsclient.connection import engine_of
from jsclient.durations import check_timeout, plain_or_none, seconds_of
from jsclient.errors import (
    ConnectionLost,
    JetStreamError,
    JsClientError,
    NoResponders,
    PermissionViolation,
    RequestTimeout,
)
from jsclient.jetstream.api import model_base
from jsclient.jetstream.api.models import StreamConfig, StreamInfo
from jsclient.jetstream.api.requests import check_error
from jsclient.protocol import matches

if TYPE_CHECKING:
    from jsclient.jetstream.api.access import Access

ASK_TIMEOUT: Final = 0.5
"""Seconds for the question whether a stream exists; a typo must show in under a second."""

FACTS_FOR: Final = 10.0
"""Seconds for which the answers are cached: a window may change at any time, and rarely does."""

KNOWN_STREAMS: Final = 100
"""Streams in the cache; when it is full, the client asks for them again."""

MARGIN: Final = 0.1
LEAST_MARGIN: Final = 0.5
"""The client leaves a tenth of the window, and half a second at least: a copy must also arrive within the window."""

WINDOW_NOT_KNOWN: Final = (
    "this user may not ask for the stream's duplicate window, so it is not sent again: permit STREAM.NAMES and "
    "STREAM.INFO, or state publish_async_duplicate_window"
)

EXISTS, NONE, UNAVAILABLE, FORBIDDEN = "exists", "none", "unavailable", "forbidden"


_BUCKETS: Final = re.compile(r".+\.(\$(?:KV|O)\..+)").fullmatch


def known_as(subject: str) -> str:
    """The subject as the stream has it: buckets in another domain or account are written behind an API prefix."""
    found = _BUCKETS(subject)
    return subject if found is None else found[1]


def names_request(subject: str) -> bytes:
    """The body of the STREAM.NAMES request for the streams that take the subject.

    JSON is UTF-8, but a subject may not be. A stream can only take such a subject by a wildcard, which takes the
    replacement character as well.
    """
    text = known_as(subject).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return msgspec.json.encode({"subject": text})


def names_answer(payload: bytes) -> str:
    """The meaning of the reply: EXISTS, NONE or UNAVAILABLE."""
    return stream_in(payload)[0]


def stream_in(payload: bytes) -> tuple[str, str]:
    """The same with the name of the stream."""
    try:
        plain = model_base.decode_json(payload)
    except JetStreamError:
        return UNAVAILABLE, ""
    if not isinstance(plain, dict) or plain.get("error"):
        return UNAVAILABLE, ""
    found = plain.get("streams")
    if found and isinstance(found, list):
        return EXISTS, str(found[0])
    known = not found and ("streams" in plain or plain.get("total") == 0)
    return (NONE if known else UNAVAILABLE), ""


def ask_for_stream(js: Access, subject: str, timeout: float) -> str:
    """Is there a stream for the subject? FORBIDDEN if this user has no permission to ask."""
    answer: str = _ask(js, "STREAM.NAMES", names_request(subject), timeout, names_answer)
    return answer


def _ask(js: Access, operation: str, body: bytes, timeout: float, read: Any) -> Any:
    try:
        return read(engine_of(js.nc).request(js.api.subject(operation), body, timeout=timeout).data)
    except PermissionViolation:
        return FORBIDDEN
    except (NoResponders, RequestTimeout, ConnectionLost, JetStreamError):
        return UNAVAILABLE


class Facts(msgspec.Struct, frozen=True):
    """The facts about a stream."""

    name: str
    subjects: tuple[str, ...]
    window: float
    """Seconds for which it remembers message ids."""
    replicas: int
    at: float
    """When the client asked."""

    @classmethod
    def of(cls, info: StreamInfo, at: float) -> Facts:
        config = info.config
        window = remembers_ids_for(config)
        return cls(config.name, tuple(config.subjects or ()), window, config.num_replicas or 1, at)


def remembers_ids_for(config: StreamConfig) -> float:
    """Seconds for which a stream remembers message ids."""
    window = seconds_of(config.duplicate_window or 0)
    # When a server starts, it finds the ids again in the messages that it still has.
    return min(window, seconds_of(config.max_age)) if config.max_age else window


def same_id_for(window: float) -> float:
    """Seconds after the first copy in which the stream certainly recognises another one."""
    return max(0.0, window - max(window * MARGIN, LEAST_MARGIN))


class Streams:
    """The facts about the streams of one JetStream context; thread-safe.

    `stated` is the window that the user states. `believed` applies if this user has no permission to ask.
    """

    def __init__(self, stated: float | None = None, believed: float | None = None) -> None:
        self.stated = stated
        self._believed: float | str = FORBIDDEN if believed is None else believed
        self._known: dict[str, Facts] = {}
        self._forbidden_at = float("-inf")
        self._denied: dict[str, tuple[float, int]] = {}  # time, and number of ways to look denied, by stream

    # --- what is known --------------------------------------------------------------------------------------------

    def window(self, subject: str, now: float) -> float | str | None:
        """Seconds for which the stream remembers ids on this subject; FORBIDDEN, or None if the client must ask."""
        if self.stated is not None:
            return self.stated
        facts = self.facts(subject, now)
        if facts is not None:
            return facts.window
        return self._believed if now - self._forbidden_at < FACTS_FOR else None

    def facts(self, subject: str, now: float) -> Facts | None:
        """The stream that takes the subject, if the client has asked recently."""
        subject = known_as(subject)
        for facts in list(self._known.values()):
            if now - facts.at < FACTS_FOR and any(matches(pattern, subject) for pattern in facts.subjects):
                return facts
        return None

    def replicas(self, stream: str, now: float) -> int | None:
        """The number of replicas of the stream (one is a single leader); None if the client has not asked recently."""
        facts = self._known.get(stream)
        return None if facts is None or now - facts.at >= FACTS_FOR else facts.replicas

    def denied(self, stream: str, now: float) -> int:
        """The number of ways to look at this stream that recently lacked permission, so they are not tried again."""
        at, ways = self._denied.get(stream, (now, 0))
        return ways if now - at < FACTS_FOR else 0

    def deny(self, stream: str, ways: int, now: float) -> None:
        if len(self._denied) >= KNOWN_STREAMS:
            self._denied.clear()
        self._denied[stream] = (now, ways)

    # --- asking, as steps that any thread can drive ---------------------------------------------------------------

    def forbidden(self, now: float) -> None:
        """Note that this user has no permission to ask."""
        self._forbidden_at = now

    def learn(self, payload: bytes, now: float) -> bool:
        """Take the answer of STREAM.INFO; False if it holds no facts."""
        try:
            facts = Facts.of(model_base.from_wire(check_error(payload), StreamInfo), now)
        except JsClientError:
            return False
        if len(self._known) >= KNOWN_STREAMS:
            self._known.clear()
        self._known[facts.name] = facts
        return True

    def ask(self, js: Access, subject: str, timeout: float) -> str:
        """Find out about the stream of a subject. Returns EXISTS if it has the facts now, else the reason. Blocks."""
        answer: Any = _ask(js, "STREAM.NAMES", names_request(subject), timeout, stream_in)
        found: str = answer[0] if isinstance(answer, tuple) else answer
        if found == EXISTS:
            found = self.ask_about(js, answer[1], timeout)
        if found == FORBIDDEN:
            self.forbidden(time.monotonic())
        return found

    def ask_about(self, js: Access, stream: str, timeout: float) -> str:
        """Find out about a stream."""
        now = time.monotonic()
        answer: Any = _ask(js, f"STREAM.INFO.{stream}", b"", timeout, lambda payload: self.learn(payload, now))
        if answer is True:
            return EXISTS
        return FORBIDDEN if answer == FORBIDDEN else UNAVAILABLE


def check_window(stated: float | dt.timedelta | None) -> float | None:
    """Check a window that the application states."""
    stated = plain_or_none(stated)
    check_timeout(stated, "duplicate_window")
    return None if stated is None else float(stated)
