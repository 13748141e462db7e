"""Dead letters as a tool: list, count, replay, purge and export messages that worker pools have given up.

from jsclient.workers import DeadLetters

letters = DeadLetters(js, "DEAD")
print(letters.summary())                                   # {("ORDERS", "billing", "ValueError"): 12}
for letter in letters.list(consumer="billing", reason="ValueError"):
    print(letter.seq, letter.original_subject, letter.reason, letter.data)
letters.replay_all(consumer="billing", limit=100)          # published again where they came from, then removed
"""

from __future__ import annotations

import base64
import builtins
import datetime as dt
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypedDict

import attrs
import msgspec

from jsclient import checks, errors, handlers, kinds
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Deadline, Patience, Timeout, whole
from jsclient.jetstream import JetStream, PubAck, RawStreamMsg
from jsclient.jetstream import dead_letters as origins
from jsclient.jetstream.api.headers import readable
from jsclient.protocol import Headers
from jsclient.workers import later

if TYPE_CHECKING:
    from typing_extensions import Unpack


_REPLAYED: Final = "Replayed-"
REPLAYS: Final = "Replayed-Count"
PAGE: Final = 500
ALL: Final = ">"


@attrs.frozen
class Letter:
    """A message that was given up, and the reason.

    `seq` is its sequence in the stream of letters. `headers` are the headers of the original (its `Nats-` headers, such
    as id and TTL, were dropped when it became a letter). `lost` means that the original was gone before it could be
    stored, so there is no payload. `replays` counts its replays before it died again.

    Attributes:
        seq: Its sequence in the stream of letters.
        subject: Its subject there.
        reason: The reason for which it was given up.
        original_subject: The subject under which the message was published.
        stream: The stream it came from.
        consumer: The consumer that delivered it.
        stream_seq: Its sequence in that stream.
        deliveries: Number of its deliveries; 0 means unknown.
        sent: Time at which the message was stored first (UTC).
        died: Time at which it was given up (UTC).
        data: The payload.
        headers: The headers of the message, without the server's headers.
        lost: True if the message was gone before it could be stored here, so there is no payload.
        replays: Number of its replays before it died again.
    """

    seq: int
    subject: str
    reason: str
    original_subject: str
    stream: str
    consumer: str
    stream_seq: int
    deliveries: int
    sent: dt.datetime | None
    died: dt.datetime | None
    data: bytes = attrs.field(repr=False)
    headers: Headers = attrs.field(repr=False)
    lost: bool = False
    replays: int = 0

    @property
    def kind(self) -> str:
        """The reason without its details: the class of the exception, or the text of a Reject up to a colon."""
        return self.reason.partition(":")[0]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON. Payloads that are not UTF-8 stay bytes."""
        plain = attrs.asdict(self, recurse=False)
        plain["headers"] = self.headers.to_dict() or None
        plain["sent"] = self.sent.isoformat() if self.sent else None
        plain["died"] = self.died.isoformat() if self.died else None
        return plain


@attrs.frozen
class Replay:
    """The result of `replay_all`. `failed` has pairs (letter, error). These letters are still stored."""

    replayed: int
    """Letters that were published again and removed."""
    failed: tuple[tuple[Letter, Exception], ...]
    """Letters that were not, each with the error. They are still there."""


class FiltersDict(TypedDict, total=False):
    """Filters for letters: the keyword arguments of `DeadLetters.list`.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        stream: The stream that they came from; by default (None) any.
        consumer: The consumer that gave them up; by default (None) any.
        reason: A regular expression that must match in the reason; by default (None) any.
        since: Given up at that time or later (with a time zone); by default (None) at any time.
    """

    stream: str | None
    consumer: str | None
    reason: str | None
    since: dt.datetime | None


class LettersDict(FiltersDict, total=False):
    """The same filters, and a limit.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        limit: The most letters; by default (None) all.

    It also has the fields of `FiltersDict`.
    """

    limit: int | None


class DeadLetters:
    """The letters in a stream. Thread-safe. It reads stored messages, never through a consumer.

    `subject` limits it to letters on some subjects (wildcards are allowed). By default it has all letters of the
    stream. A stored message without any `Dead-Letter-` header is not a letter, so it is never listed or purged.

    For the server, a replay is a message like any other. In a work queue it comes last, which breaks the order by key.
    The original's own message id and TTL are gone.

    A `timeout` bounds the whole call, without the time that the application takes between two letters. Without a
    `timeout`, each request of the call has the timeout of its kind.

    Attributes:
        stream_name: The stream that holds them.
        subject: Only letters on this subject; `>` for all of the stream.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.

    Further options:
        replay_all: see `FiltersDict`.
        purge, export: see `LettersDict`.
    """

    def __init__(self, js: JetStream, stream: str = "DEAD", subject: str = ALL) -> None:
        kinds.check(JetStream, js=js)
        checks.filter_subject(subject, "subject")
        self._js = js
        self.stream_name = stream
        self.subject = subject
        self._stream = js.stream(stream, fetch_info=False)

    # --- looking --------------------------------------------------------------------------------------------

    def list(
        self,
        *,
        stream: str | None = None,
        consumer: str | None = None,
        reason: str | None = None,
        since: dt.datetime | None = None,
        limit: int | None = None,
        timeout: Timeout = DEFAULT,
    ) -> Iterator[Letter]:
        """Letters, oldest first, as they are read.

        `stream` and `consumer` select their origin. `reason` is a regular expression that must match in the reason.
        `since` selects letters that died at that time or later. `limit` is the most letters.
        """
        kinds.check(str, None, stream=stream, consumer=consumer, reason=reason)
        kinds.check(dt.datetime, None, since=since)
        kinds.check(int, None, limit=limit)
        if limit is not None and limit < 0:
            raise errors.ConfigError(f"limit must be 0 or more, or None for all, got {limit}")
        try:
            wanted = re.compile(reason) if reason else None
        except re.error as error:
            raise errors.ConfigError(f"reason is no regular expression: {error}") from None

        def fits(letter: Letter) -> bool:
            return (
                (stream is None or letter.stream == stream)
                and (consumer is None or letter.consumer == consumer)
                and (wanted is None or wanted.search(letter.reason) is not None)
                and (since is None or (letter.died is not None and letter.died >= since))
            )

        return self._list(fits, limit, Patience(timeout, self._js.api.timeout))

    def _list(self, fits: Callable[[Letter], bool], limit: int | None, patience: Patience) -> Iterator[Letter]:
        # Later letters are not part of this list.
        last = self._stream.info(timeout=patience.deadline()).state.last_seq
        seq, found = 1, 0
        while seq <= last and (limit is None or found < limit):
            page = builtins.list(
                self._stream.get_batch(PAGE, seq=seq, subject=self.subject, timeout=patience.deadline())
            )
            if not page:
                return
            for message in page:
                seq = message.seq + 1
                if message.seq > last:
                    return
                letter = letter_of(message)
                if is_letter(message) and fits(letter):
                    found += 1
                    with patience.paused():
                        yield letter
                    if found == limit:
                        return

    def get(self, seq: int, *, timeout: Timeout = DEFAULT) -> Letter:
        """One letter by its sequence; MessageNotFound."""
        return letter_of(self._stream.get_msg(seq, timeout=timeout))

    def summary(self, *, timeout: Timeout = DEFAULT) -> dict[tuple[str, str, str], int]:
        """(stream, consumer, kind of reason) -> how many letters, most first."""
        letters = self.list(timeout=whole(timeout))
        counts = Counter((letter.stream, letter.consumer, letter.kind) for letter in letters)
        return dict(counts.most_common())

    # --- doing ----------------------------------------------------------------------------------------------

    def replay(self, letter: Letter | int, *, to: str | None = None, timeout: Timeout = DEFAULT) -> PubAck:
        """Publish a letter again, to its original subject or `to`, and remove it when that is stored.

        The message id is made of domain, stream, sequence and time of the letter. So if a crash between the two steps
        repeats the replay within the target's duplicate window, the message is stored once. Raises the errors of
        `publish`, and PublishUnknown if the target knows the id but has removed the message. The letter then stays
        stored.
        """
        kinds.check(Letter, int, letter=letter)
        kinds.check(str, None, to=to)
        timeout = whole(timeout)
        letter = self.get(letter, timeout=timeout) if isinstance(letter, int) else letter
        if letter.lost and to is None:
            raise errors.ConfigError(f"letter {letter.seq} has no payload: its message was gone before it was stored")
        target = letter.original_subject if to is None else to
        if to is None and (not target or target.startswith(("$", "_"))):
            # A letter is stored data: it must not make us call the API of the server in somebody's name.
            raise errors.InvalidSubject(
                f"letter {letter.seq} came from {target!r}. It stays where it is. Name a subject with to=."
            )
        headers = _replay_headers(letter)
        domain, died = origins.domain_of(self._js), origins.microseconds(letter.died)
        own = origins.origin_id(domain, self.stream_name, "replay", letter.seq, died)
        ack = self._js.publish(target, letter.data, headers=headers, msg_id=own, timeout=timeout)
        if ack.duplicate:
            self._check_replayed(letter, ack, headers, own, timeout)
        self.delete(letter, timeout=timeout)
        return ack

    def _check_replayed(self, letter: Letter, ack: PubAck, headers: Headers, own: str, timeout: Timeout) -> None:
        """Raises PublishUnknown unless the message that has this id in the target is this replay."""
        cause: Exception | None = None
        try:
            if origins.is_stored(self._js, ack, letter.data, headers, own, headers, timeout):
                return
        except errors.ConnectionClosed:
            raise
        except errors.JsClientError as error:
            cause = error
        why = "is another message" if cause is None else f"cannot be read ({errors.brief(cause)})"
        raise errors.PublishUnknown(
            f"stream {ack.stream!r} knows the id of letter {letter.seq}: an earlier replay may be stored. Its message "
            f"{ack.seq} {why}. The letter stays where it is. If the replay was handled, delete the letter; if not, "
            "replay it after the duplicate window of that stream."
        ) from cause

    def replay_all(
        self,
        *,
        to: str | None = None,
        limit: int | None = None,
        rate: float | None = None,
        on_letter: Callable[[Letter, Exception | None], Any] | None = None,
        timeout: Timeout = DEFAULT,
        **filters: Unpack[FiltersDict],
    ) -> Replay:
        """Replay every letter that matches (`filters` as for `list`), at most `rate` per second.

        A letter that fails does not stop the others. Raises only ConnectionClosed, and RequestTimeout if the `timeout`
        for all of them is over. `on_letter` gets each letter that was replayed until then. The other letters stay
        stored.

        `to` is a subject to use instead of the original one. `limit` is the most letters; by default (None) all.
        """
        kinds.check(str, None, to=to)
        kinds.check(float, None, rate=rate)
        deadline = whole(timeout)
        handlers.check(on_letter, "on_letter")
        if rate is not None and not rate > 0:
            raise errors.ConfigError(f"rate must be positive, got {rate!r}")
        replayed, failed = 0, []
        begin = time.monotonic()
        for number, letter in enumerate(self.list(limit=limit, timeout=deadline, **filters)):
            if rate is not None:
                self._pause(begin + number / rate - time.monotonic(), deadline)
            if isinstance(deadline, Deadline) and deadline.expired():
                raise errors.RequestTimeout(
                    f"the time sufficed to replay {errors.counted(replayed, 'letter')}, not all that fit. The "
                    "others stay where they are. Call again."
                )
            error: Exception | None = None
            try:
                self.replay(letter, to=to, timeout=deadline)
                replayed += 1
            except errors.ConnectionClosed:
                raise
            except errors.JsClientError as caught:
                error = caught
                failed.append((letter, caught))
            if on_letter is not None:
                handlers.ran(on_letter(letter, error))
        return Replay(replayed, tuple(failed))

    def _pause(self, seconds: float, deadline: Timeout) -> None:
        """Wait, but notice the end of the connection."""
        from jsclient.waiting import Gate

        if isinstance(deadline, Deadline):
            seconds = deadline.at_most(seconds)
        while seconds > 0:
            Gate().wait(min(seconds, 0.5))
            seconds -= 0.5
            engine_of(self._js.nc).check_usable()

    def delete(self, letter: Letter | int, *, timeout: Timeout = DEFAULT) -> None:
        """Remove a letter for good. One that is gone already is fine."""
        kinds.check(Letter, int, letter=letter)
        try:
            self._stream.delete_msg(letter if isinstance(letter, int) else letter.seq, timeout=timeout)
        except errors.MessageNotFound:
            return

    def purge(self, *, timeout: Timeout = DEFAULT, **filters: Unpack[LettersDict]) -> int:
        """Remove every letter that matches (`filters` as for `list`, by default all). Returns their number."""
        removed = 0
        timeout = whole(timeout)
        for letter in self.list(timeout=timeout, **filters):
            self.delete(letter, timeout=timeout)
            removed += 1
        return removed

    def export(self, *, timeout: Timeout = DEFAULT, **filters: Unpack[LettersDict]) -> Iterator[bytes]:
        """JSON lines of the letters that fit, payloads in base64."""
        return (_json(letter.to_dict()) + b"\n" for letter in self.list(timeout=timeout, **filters))


def _json(plain: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(plain)
    except UnicodeEncodeError:  # a subject or a header that is not UTF-8: the escapes of `json` keep its bytes
        return json.dumps(plain, default=lambda data: base64.b64encode(data).decode()).encode()


def is_letter(message: RawStreamMsg) -> bool:
    """Other messages of the stream must not be replayed or purged as letters."""
    return any(name.startswith(origins.PREFIX) for name, _ in readable(message).items())


def letter_of(message: RawStreamMsg) -> Letter:
    """A stored message as a letter. Fields without a header are empty."""
    headers = readable(message)
    kept = [pair for pair in headers.items() if not pair[0].startswith((origins.PREFIX, "Nats-"))]
    return Letter(
        seq=message.seq,
        subject=message.subject,
        reason=headers.get(origins.REASON) or "",
        original_subject=headers.get(origins.SUBJECT) or "",
        stream=headers.get(origins.STREAM) or "",
        consumer=headers.get(origins.CONSUMER) or "",
        stream_seq=_number(headers.get(origins.SEQUENCE)),
        deliveries=_number(headers.get(origins.DELIVERIES)),
        sent=_time(headers.get(origins.TIME)),
        died=message.time,
        data=message.data,
        headers=Headers.received(kept),
        lost=headers.get(origins.LOST) == "true",
        replays=_number(headers.get(REPLAYS)),
    )


def _replay_headers(letter: Letter) -> Headers:
    """The original's headers, and its earlier reasons. Its attempts begin again from none."""
    pairs = letter.headers.sendable().items()
    out = [pair for pair in pairs if not pair[0].startswith(_REPLAYED) and pair[0] not in later.COUNTED]
    told = {
        "Reason": letter.reason,
        "Stream": letter.stream,
        "Consumer": letter.consumer,
        "Sequence": str(letter.stream_seq),
        "Count": str(letter.replays + 1),
    }
    return Headers([*out, *((_REPLAYED + name, origins.one_line(value)) for name, value in told.items())])


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() else 0


def _time(text: str | None) -> dt.datetime | None:
    try:
        return dt.datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
