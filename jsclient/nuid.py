"""Identifiers: NUIDs for names, unguessable ids for inboxes, unguessable tokens for replies.

All functions here are safe to call from any thread and from a signal handler. A forked child
starts with new random values, so parent and child never produce the same id.
"""

from __future__ import annotations

import itertools
import os
import random
import struct
from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Iterator
from typing import Final

from jsclient import waiting

ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
BASE: Final = len(ALPHABET)
PREFIX_LENGTH: Final = 12
SEQUENCE_LENGTH: Final = 10
NUID_LENGTH: Final = PREFIX_LENGTH + SEQUENCE_LENGTH
TOKEN_LENGTH: Final = 12
"""Characters of a reply token, 6 random bits each. A client that sees one reply subject has its prefix. To forge the
reply to another request, it would have to hit one of a few thousand waiting tokens among 2^72."""

TOKENS_AT_ONCE: Final = 1024
"""Tokens made from one read of the system's random source. Single reads would cost a system call for every request,
which also releases the interpreter lock. In bulk a token costs as much as formatting a counter."""

INBOX_LENGTH: Final = 22  # 62^22 is more than 2^130: an inbox must not be guessable (reliability X15)

_SEQUENCE_END: Final = BASE**SEQUENCE_LENGTH
_MIN_STEP: Final = 33
_MAX_STEP: Final = 333
_PAIRS: Final = [a + b for a in ALPHABET for b in ALPHABET]  # two digits per division: twice as fast
_PAIR: Final = BASE * BASE
_below: Final = random.SystemRandom().randrange  # as secrets.randbelow, whose module costs 3 ms to import


def _encode(number: int, length: int) -> str:
    """`number` in base 62, padded to `length` (even) digits."""
    parts = []
    for _ in range(length // 2):
        number, rest = divmod(number, _PAIR)
        parts.append(_PAIRS[rest])
    parts.reverse()
    return "".join(parts)


class _Generator:
    """One random prefix with its counter."""

    __slots__ = ("_prefix", "_sequence")

    def __init__(self) -> None:
        self._prefix = _encode(_below(BASE**PREFIX_LENGTH), PREFIX_LENGTH)
        step = _MIN_STEP + _below(_MAX_STEP - _MIN_STEP)
        self._sequence = waiting.numbers(_below(_SEQUENCE_END), step)

    def nuid(self) -> str | None:
        """The next NUID, or None when the counter of this prefix is used up."""
        number = self._sequence()
        return self._prefix + _encode(number, SEQUENCE_LENGTH) if number < _SEQUENCE_END else None


_current = _Generator()
_tokens: deque[bytes] = deque()
_cut = struct.Struct(f"{TOKEN_LENGTH}s" * TOKENS_AT_ONCE).unpack  # in one call: slices cost three times as much


def _renew() -> None:
    global _current
    _current = _Generator()
    _tokens.clear()  # in a forked child: the parent uses these


def next_nuid() -> str:
    """A new NUID: 22 base-62 characters, unique, the first 12 random and the last 10 a counter.

    Two NUIDs of one process share their prefix: do not use one as a secret (see `inbox_id`).
    """
    while (nuid := _current.nuid()) is None:
        _renew()
    return nuid


def _draw() -> tuple[bytes, ...]:
    found: tuple[bytes, ...] = _cut(urlsafe_b64encode(os.urandom(TOKENS_AT_ONCE * TOKEN_LENGTH * 6 // 8)))
    return found


def new_token() -> bytes:
    """12 random characters that no one else can guess. Use them once, as the last token of one reply subject."""
    while True:
        try:
            return _tokens.pop()
        except IndexError:
            _tokens.extend(_draw())


def tokens() -> Iterator[bytes]:
    """An endless iterator of the same, for one thread that needs many: it costs a third. Do not use it in a forked
    child."""
    return itertools.chain.from_iterable(iter(_draw, ()))


def inbox_id() -> str:
    """22 base-62 characters from the system's random source (130 bits), which no one else can guess."""
    return _encode(_below(BASE**INBOX_LENGTH), INBOX_LENGTH)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
