"""Lets only one thread at a time introduce a new class to msgspec.

msgspec stores its data about a class before it has read the fields. It reads the fields in Python code, where the
interpreter can switch threads. A thread that decodes the class meanwhile reads a null pointer, and the process dies of
signal 11 without a message. This happens with msgspec 0.22.0, within seconds when eight threads begin with the same
class.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from jsclient import waiting

K = TypeVar("K")

_known: set[Any] = set()
_lock = waiting.new_lock()  # for all classes: two may have a third one in common


def prepared(kind: K) -> K:
    """The same class or other type, after msgspec has read all its fields. If msgspec does not support it, raises the
    error of msgspec."""
    if kind not in _known:
        with _lock:
            msgspec.json.Decoder(kind)
            _known.add(kind)
    return kind


def decoder(module: Any, kind: Any) -> Any:
    """`module.Decoder(kind)`, made while no other thread makes one; also for unhashable types."""
    with _lock:
        return module.Decoder(kind)
