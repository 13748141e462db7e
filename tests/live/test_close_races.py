"""A close in one thread, publishes in others: each publish arrives, or raises."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

import jsclient
from jsclient import errors
from jsclient.testing import NatsServer, wait_until


@pytest.fixture(autouse=True)
def threads_change_often() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.parametrize("how", ["close", "drain"])
def test_what_publish_took_arrives_although_another_thread_closes(
    server: NatsServer, how: str, count: Callable[[int, int], int]
) -> None:
    with jsclient.connect(server.url) as other:
        arrived = 0

        def take(message: jsclient.Msg) -> None:
            nonlocal arrived
            arrived += 1

        # Without the interpreter lock three threads publish faster than one thread counts.
        other.subscribe("race", take, pending_messages=10_000_000, pending_bytes=1 << 31)
        other.flush()
        taken = 0
        for _ in range(count(300, 40)):
            nc = jsclient.connect(server.url)
            begun = threading.Barrier(4)
            numbers: list[int] = []
            ends: list[Exception] = []

            def publish(
                nc: jsclient.Connection, begun: threading.Barrier, numbers: list[int], ends: list[Exception]
            ) -> None:
                number = 0
                begun.wait(20)
                try:
                    while True:
                        nc.publish("race", b"x")
                        number += 1
                except Exception as error:
                    ends.append(error)
                    numbers.append(number)

            threads = [threading.Thread(target=publish, args=(nc, begun, numbers, ends)) for _ in range(3)]
            for thread in threads:
                thread.start()
            begun.wait(20)
            getattr(nc, how)()
            for thread in threads:
                thread.join(20)
            assert {type(end) for end in ends} <= {errors.ConnectionClosed, errors.ConnectionDraining}
            assert len(ends) == 3
            taken += sum(numbers)
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: arrived == taken, 20)
        assert arrived == taken
