"""When messages under way were sent for the first time, and of which an earlier copy may be stored. Pure.

A message id makes a second copy harmless only as long as the stream remembers it, counted from the first copy that may
be stored. Reading the clock for every message costs too much, so `look` is called now and then: what it had not seen
before was sent after the look before that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

LOOK_EVERY: Final = 0.5
"""Seconds between two looks: so much earlier than it was a message may seem to have been sent."""


class Copies:
    """What is known about the copies of messages, by token. For one thread."""

    def __init__(self, now: float) -> None:
        self._looked = now
        self._first: dict[bytes, float] = {}
        self._doubtful: set[bytes] = set()

    def due(self, now: float) -> bool:
        """Whether it is time to look, before the next messages are sent."""
        return now - self._looked > LOOK_EVERY

    def look(self, sent: Iterable[bytes], now: float) -> None:
        """`sent`: the tokens of all messages that were sent and have no ack."""
        first, looked = self._first, self._looked
        self._first = {token: first.get(token, looked) for token in sent}
        self._doubtful.intersection_update(self._first)
        self._looked = now

    def refused(self, tokens: Iterable[bytes], now: float) -> None:
        """The latest copy of these is certainly not stored. Where it was the only one, the next one is the first."""
        self._first.update((token, now) for token in tokens if token in self._first and token not in self._doubtful)

    def unanswered(self, tokens: Iterable[bytes]) -> None:
        """These are sent again although a copy of each may be stored."""
        self._doubtful.update(tokens)

    def age(self, token: bytes, now: float) -> float:
        """Seconds since the first copy that may be stored."""
        return now - self._first.get(token, self._looked)
