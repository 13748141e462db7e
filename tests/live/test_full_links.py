"""A link that takes nothing more keeps no call beyond its timeout: what settles messages that cannot be decoded, what
gives back at an end, and what is large."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.deadline_rig import ALLOWED, PUSH, TIMEOUT, Lateness, fill

import jsclient
from jsclient import errors
from jsclient import jetstream as jets
from jsclient.connection import engine_of
from jsclient.durations import Deadline
from jsclient.testing import NatsServer, Proxy, wait_until

pytestmark = pytest.mark.timeout(120)

CONSUMER = jets.ConsumerConfig(durable_name="c")


@pytest.mark.parametrize("on_bad", ["skip", "reject"])
@pytest.mark.parametrize("full", ["the link", "the window"])
def test_what_cannot_be_decoded_keeps_no_call_beyond_its_timeout(server: NatsServer, on_bad: str, full: str) -> None:
    """It is terminated, or stored elsewhere, within the call: that waited 10 s for room on a full link, and for ever
    for room among the messages without an ack."""
    bad: Any = {"on_bad": on_bad, **({"dead_letter": "bad.dead"} if on_bad == "reject" else {})}
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url, ping_interval=60) as nc:
        js = jets.JetStream(nc, publish_async_max_pending=5)
        stream = js.create_stream(jets.StreamConfig(name="BAD", subjects=["bad.>"], storage="memory"))
        consumer = stream.create_consumer(CONSUMER)
        told: list[BaseException] = []
        with consumer.typed(int, **bad).messages(on_error=told.append) as messages:
            js.publish_async("bad.dead", b"1").result(5)  # so that nothing is to be asked later
            js.publish("bad.x", b"1")
            assert [messages.next(timeout=5).value for _ in range(2)] == [1, 1]
            js.publish("bad.x", b"no number")
            wait_until(lambda: messages.buffered == 1)
            proxy.stall("both")
            if full == "the link":
                fill(nc)
            else:
                for _ in range(5):
                    js.publish_async("bad.dead", b"1")
            started = time.monotonic()
            with pytest.raises(errors.NoMessages):
                messages.next(timeout=TIMEOUT)
            assert time.monotonic() - started < TIMEOUT + 2 * ALLOWED
            assert isinstance(told[0], errors.DecodeFailed)
            proxy.heal()
        js.delete_stream("BAD")


def taken_from(consumer: Any) -> Any:
    """An iterator with a message of which others wait behind it."""
    messages = consumer.messages()
    messages.next(timeout=5)
    wait_until(lambda: messages.buffered > 100)
    return messages


def drained_before(consumer: Any) -> Any:
    messages = taken_from(consumer)
    messages.drain(1.0)
    return messages


CLOSES: dict[str, tuple[float, Callable[[Any], Any], Callable[[Any, Any, float], Any]]] = {
    "messages": (TIMEOUT, taken_from, lambda nc, taking, t: taking.close(t)),
    "drained messages": (TIMEOUT, drained_before, lambda nc, taking, t: taking.close(t)),
    "push messages": (TIMEOUT, taken_from, lambda nc, taking, t: taking.close(t)),
    "the connection": (TIMEOUT, taken_from, lambda nc, taking, t: nc.drain(t)),
}


@pytest.mark.parametrize("what", CLOSES)
def test_what_goes_back_on_a_full_link_keeps_no_end_beyond_its_timeout(server: NatsServer, what: str) -> None:
    """It took 10 s: `write_timeout`, for the first message that is given back."""
    bound, begin, end = CLOSES[what]
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url, ping_interval=60) as nc:
        js = jets.JetStream(nc)
        stream = js.create_stream(jets.StreamConfig(name="BACK", subjects=["back"], storage="memory"))
        for _ in range(300):
            js.publish_async("back", b"1")
        js.publish_async_complete(5)
        made = stream.create_push_consumer(PUSH) if "push" in what else stream.create_consumer(CONSUMER)
        taking = begin(made)
        proxy.stall("up")
        fill(nc)
        started = time.monotonic()
        with contextlib.suppress(errors.DrainTimeout):
            end(nc, taking, bound)
        assert time.monotonic() - started < bound + 0.2 + 2 * ALLOWED
        proxy.cut()
        proxy.heal()
    with jsclient.connect(server.url) as nc:
        nc.jetstream().delete_stream("BACK")


def test_a_large_request_ends_within_its_timeout(server: NatsServer) -> None:
    """Megabytes on a link that takes nothing: what is not sent then is withdrawn."""
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url, ping_interval=60) as nc:
        proxy.stall()
        engine_of(nc).server_takes(64 << 20, True)
        payload = b"x" * (40 << 20)
        with Lateness() as lateness:
            deadline = Deadline(0.3)
            with pytest.raises(errors.RequestTimeout):
                nc.request("dl.large", payload, timeout=0.3)
            over = time.monotonic() - (deadline.at or 0)
        assert over < ALLOWED + 3 * lateness.worst
        proxy.cut()
