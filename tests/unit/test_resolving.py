"""Looking names up within a time limit: the resolver of the system cannot be interrupted."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from jsclient._transport import resolving
from jsclient.durations import Deadline
from jsclient.testing import wait_until

FOUND = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 4222))]


class Resolver:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.calls = 0
        self.answer = threading.Event()
        self.error: Exception | None = None

    def __call__(self, host: str, port: int, *, flags: int = 0, **_: Any) -> Any:
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "a name")
        if host.endswith(".test"):  # others of this process may look up names of their own
            self.calls += 1
        assert self.answer.wait(10)
        if self.error is not None:
            raise self.error
        return FOUND * 2


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    made = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", made)
    yield made
    made.answer.set()
    wait_until(lambda: not resolving._under_way)


def test_an_address_needs_no_thread() -> None:
    assert resolving.addresses("127.0.0.1", 4222, Deadline(1))[0][4] == ("127.0.0.1", 4222)
    assert resolving.addresses("::1", 4222, Deadline(1))[0][4][:2] == ("::1", 4222)
    assert not resolving._under_way


def test_a_name_that_is_not_answered_costs_its_time_only(resolver: Resolver) -> None:
    start = time.monotonic()
    with pytest.raises(TimeoutError, match="'slow.test' was not resolved in time"):
        resolving.addresses("slow.test", 4222, Deadline(0.05))
    assert time.monotonic() - start < 2
    with pytest.raises(TimeoutError):
        resolving.addresses("slow.test", 4222, Deadline(0.05))
    assert resolver.calls == 1, "one thread per name, however often it is asked for"
    resolver.answer.set()
    assert resolving.addresses("slow.test", 4222, Deadline(5)) == FOUND


def test_an_attempt_that_is_given_up_ends(resolver: Resolver) -> None:
    abandoned = threading.Event()
    abandoned.set()
    with pytest.raises(OSError, match="given up"):
        resolving.addresses("slow.test", 4222, Deadline(None), abandoned)


def test_the_error_of_the_resolver_is_told_and_the_next_attempt_asks_anew(resolver: Resolver) -> None:
    resolver.answer.set()
    resolver.error = socket.gaierror(socket.EAI_NONAME, "no such name")
    with pytest.raises(socket.gaierror):
        resolving.addresses("gone.test", 4222, Deadline(5))
    resolver.error = None
    wait_until(lambda: not resolving._under_way)
    assert resolving.addresses("gone.test", 4222, Deadline(5)) == FOUND


def test_no_thread_is_an_error_of_the_attempt(resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(OSError, match="no thread to resolve"):
        resolving.addresses("slow.test", 4222, Deadline(1))
