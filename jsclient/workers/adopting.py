"""Letters of messages that others gave up, from the server's advisories: the work of `DeadLetters.adopt`."""

from __future__ import annotations

import datetime as dt
import logging
from typing import Final

from jsclient import errors
from jsclient.durations import Timeout
from jsclient.jetstream import JetStream, RawStreamMsg, Stream
from jsclient.jetstream import dead_letters as names
from jsclient.jetstream.advisories import MaxDeliveries, MessageTerminated
from jsclient.jetstream.api.headers import MSG_ID, readable
from jsclient.jetstream.api.stored_messages import from_leader
from protocol import Headers

log: logging.Logger = logging.getLogger("jsclient.workers")

UNREACHABLE: Final = 60.0
"""Seconds after which an advisory is delivered again if its domain could not be reached."""

ABOUT: Final = dt.timedelta(seconds=10)
"""The most between the times of a letter and of the advisory about its message, with clocks that differ."""

_PAGE: Final = 500

GivenUp = MaxDeliveries | MessageTerminated


class Adopting:
    """One call of `adopt`: `letters` has old letters on `known_on`, new ones go to `subject`."""

    def __init__(self, js: JetStream, letters: Stream, known_on: str, subject: str, timeout: Timeout) -> None:
        self._js = js
        self._letters = letters
        self._known_on = known_on
        self._subject = subject
        self._timeout = timeout
        self._known: dict[str, list[dt.datetime]] | None = None
        self._made: dict[tuple[str, str], dt.datetime | None] = {}

    def adopt(self, told: GivenUp) -> bool:
        """Store the letter of one message; False if its domain cannot be reached now. Raises what `publish` raises."""
        reason = "max_deliver"
        if isinstance(told, MessageTerminated):
            reason = f"terminated: {told.reason}" if told.reason else "terminated"
        origin = names.in_domain(self._js, told.domain)
        domain = told.domain or names.domain_of(self._js)
        try:
            message = self._message(origin, told)
        except (errors.NoResponders, errors.TimedOut) as error:
            if origin is self._js:
                raise
            log.warning("domain %r cannot be reached, its dead letters wait: %s", told.domain, errors.brief(error))
            return False
        pairs: list[tuple[str, str]] = []
        if message is None:
            pairs.append((names.LOST, "true"))
        else:
            kept = readable(message).sendable().items()
            pairs += [pair for pair in kept if not pair[0].startswith(("Nats-", names.PREFIX))]
        pairs += [
            (names.REASON, names.one_line(reason)[: names.MAX_REASON]),
            (names.SUBJECT, names.header_of(message.subject) if message else ""),
            (names.STREAM, told.stream),
            (names.CONSUMER, told.consumer),
            (names.SEQUENCE, str(told.stream_seq)),
            (names.DELIVERIES, str(told.deliveries)),
        ]
        stored: int | str = f"lost-{told.id}"
        if message is not None:
            stored = names.microseconds(message.time)
            if message.time is not None:
                pairs.append((names.TIME, message.time.isoformat()))
        message_id = names.origin_id(domain, told.stream, told.consumer, told.stream_seq, stored)
        if message is None and self._is_known(message_id, told):
            return True
        names.store(
            self._js, self._subject, message.data if message else b"", Headers(pairs), message_id, self._timeout
        )
        return True

    def _message(self, origin: JetStream, told: GivenUp) -> RawStreamMsg | None:
        """The message that was given up; None when it is gone, or its stream was re-created since."""
        stream = origin.stream(told.stream, fetch_info=False)
        try:
            key = (told.domain, told.stream)
            if key not in self._made:
                self._made[key] = stream.info(timeout=self._timeout).created
            made = self._made[key]
            if made is not None and told.timestamp is not None and made > told.timestamp:
                return None
            request = {"seq": told.stream_seq}
            return from_leader(origin.api, stream.name, request, self._timeout)
        except (errors.MessageNotFound, errors.StreamNotFound):
            return None

    def _is_known(self, message_id: str, told: GivenUp) -> bool:
        """True if a pool has stored the letter of a message that is gone; it does so just before its term."""
        if told.timestamp is None:
            return False
        if self._known is None:
            self._known = self._letters_since(told.timestamp - ABOUT)
        same = self._known.get(message_id.rpartition(".")[0], [])
        for stored in same:
            if abs(stored - told.timestamp) <= ABOUT:
                same.remove(stored)  # a re-created stream has another message of this sequence
                return True
        return False

    def _letters_since(self, time: dt.datetime) -> dict[str, list[dt.datetime]]:
        """When letters were stored since then, by their ids without the last part."""
        found: dict[str, list[dt.datetime]] = {}
        try:
            seq = self._letters.get_first_msg(time, subject=self._known_on, timeout=self._timeout).seq
        except errors.MessageNotFound:
            return found
        while page := list(self._letters.get_batch(_PAGE, seq=seq, subject=self._known_on, timeout=self._timeout)):
            for message in page:
                if message.time is not None:
                    key = (readable(message).get(MSG_ID) or "").rpartition(".")[0]
                    found.setdefault(key, []).append(message.time)
            seq = page[-1].seq + 1
        return found
