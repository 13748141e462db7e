"""Threads of the library that the system does not give: refused, or dead before they begin."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from collections.abc import Iterator
from typing import Any, Literal

import pytest

How = Literal["refused", "dead"]

HOWS: tuple[How, ...] = ("refused", "dead")
"""`refused` is what the system says when there are too many; `dead` is how the interpreter fails for want of memory:
the thread is made, raises MemoryError before it can say that it runs, and is told of as an exception ignored."""


@contextlib.contextmanager
def no_threads(monkeypatch: pytest.MonkeyPatch, how: How, named: str = "jsclient-") -> Iterator[list[str]]:
    """`with no_threads(...) as refused:` no thread with such a name begins; the names of those that have not."""
    refused: list[str] = []

    def fail(thread: threading.Thread, *, go_on: Any, error: BaseException) -> None:
        if not re.match(named, thread.name):
            go_on(thread)
            return
        refused.append(thread.name)
        raise error

    start, inner = threading.Thread.start, threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def refuse(thread: threading.Thread) -> None:
        fail(thread, go_on=start, error=RuntimeError("can't start new thread"))

    def die(thread: threading.Thread) -> None:
        fail(thread, go_on=inner, error=MemoryError())

    with monkeypatch.context() as patch:
        patch.setattr(sys, "unraisablehook", lambda told: None)
        if how == "refused":
            patch.setattr(threading.Thread, "start", refuse)
        else:
            patch.setattr(threading.Thread, "_bootstrap_inner", die)
        yield refused
