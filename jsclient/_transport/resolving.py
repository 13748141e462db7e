"""Resolves names into addresses, within a time limit.

The system's resolver cannot be interrupted, and a name server that does not answer blocks it for many seconds. So each
lookup has its own thread, which continues alone when the caller's time is up. Attempts that come meanwhile wait for the
same lookup, so there is never more than one thread per name.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from typing import Any, Final

from jsclient import errors, waiting
from jsclient.durations import Deadline
from jsclient.threads import Thread

SLICE: Final = 0.1
"""Seconds between two checks whether the attempt was given up."""

Addresses = list[tuple[Any, ...]]


class _Lookup:
    """One call of the resolver in progress."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.done = waiting.Gate()
        self.found: Addresses = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.found = _resolve(self.host, self.port)
        except Exception as error:  # also UnicodeError: a name that IDNA cannot encode
            self.error = error
        finally:
            _under_way.pop((self.host, self.port), None)  # first: the next attempt starts a new lookup
            self.done.set()


_under_way: dict[tuple[str, int], _Lookup] = {}

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_under_way.clear)  # the threads do not exist there


def _resolve(host: str, port: int, flags: int = 0) -> Addresses:
    return list(dict.fromkeys(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)))


def addresses(host: str, port: int, deadline: Deadline, abandoned: threading.Event | None = None) -> Addresses:  # noqa: TID251
    """The results of `getaddrinfo` for streams to a host, each once. Raises OSError, also when the time is up."""
    try:
        return _resolve(host, port, socket.AI_NUMERICHOST)  # an address needs no resolver
    except (OSError, UnicodeError):
        pass
    lookup = _begin(host, port)
    while not lookup.done.wait(deadline.at_most(SLICE)):
        if abandoned is not None and abandoned.is_set():
            raise OSError(errno.ECANCELED, "the attempt was given up")
        if deadline.expired():
            raise TimeoutError(errno.ETIMEDOUT, f"the name {host!r} was not resolved in time: its DNS does not answer")
    if lookup.error is not None:
        raise lookup.error
    return lookup.found


def _begin(host: str, port: int) -> _Lookup:
    new = _Lookup(host, port)
    lookup = _under_way.setdefault((host, port), new)
    if lookup is new:
        try:
            Thread(f"jsclient-resolve-{host}", lookup.run).start()
        except (errors.NoThread, MemoryError) as error:
            _under_way.pop((host, port), None)
            lookup.error = OSError(errno.EAGAIN, f"no thread to resolve {host!r} with: {errors.brief(error)}")
            lookup.done.set()
    return lookup
