"""Waiting for a condition, and free ports. Standard library only."""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Seconds between two checks of a condition: short enough for people, and long enough to keep cores idle.
POLL = 0.005


def wait_until(predicate: Callable[[], T | None], timeout: float = 10.0, message: str = "") -> T:
    """Poll `predicate` until it returns something true, and return that. Raises TimeoutError after `timeout` seconds.

    `message` describes the condition in the text of the error.
    """
    end = time.monotonic() + timeout
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() >= end:
            raise TimeoutError(
                message or f"still {value!r} after {timeout} s: {getattr(predicate, '__name__', predicate)}"
            )
        time.sleep(POLL)


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that was free a moment ago. Prefer port=-1 (the server chooses) if that is possible.

    If possible, it lies below the ports that systems use for outgoing connections. So a server that is down for a while
    finds it free again.

    `host` is the address to use it on.
    """
    for quiet in random.sample(range(15_000, 32_000), 50):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind((host, quiet))
                return quiet
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
