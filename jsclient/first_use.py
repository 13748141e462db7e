"""One thread at a time shows msgspec a class that it does not know yet.

msgspec stores what it knows of a class before it has looked at the fields, and looks at these in Python code, where
threads change places. A thread that decodes the class meanwhile reads a null pointer: the process dies of signal 11
without a word (msgspec 0.22.0; within seconds when eight threads begin with the same class).
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from jsclient import waiting

K = TypeVar("K")

_known: set[Any] = set()
_lock = waiting.new_lock()  # for all classes: two may have a third one in common


def prepared(kind: K) -> K:
    """The same class, or other type, of which msgspec has looked at all fields. Raises what msgspec does when it is
    none that it takes."""
    if kind not in _known:
        with _lock:
            msgspec.json.Decoder(kind)
            _known.add(kind)
    return kind


def decoder(module: Any, kind: Any) -> Any:
    """`module.Decoder(kind)`, made while no other thread makes one; also for types that cannot be hashed."""
    with _lock:
        return module.Decoder(kind)
