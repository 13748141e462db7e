"""Ending waits from another thread: the call raises Cancelled at once, and the connection goes on."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import jsclient
from jsclient import Cancel, errors
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer, Proxy, wait_until


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="K", subjects=["k.>"], storage="memory"))
    js.create_consumer("K", ConsumerConfig(durable_name="C"))
    return js


def request(js: JetStream, cancel: Cancel) -> None:
    with js.nc.subscribe("silent"):
        js.nc.request("silent", timeout=30, cancel=cancel)


def request_many(js: JetStream, cancel: Cancel) -> None:
    with js.nc.subscribe("silent"):
        next(js.nc.request_many("silent", timeout=30, cancel=cancel))


def iterate(js: JetStream, cancel: Cancel) -> None:
    with js.consumer("K", "C").messages(cancel=cancel) as messages:
        next(messages)


def consume(js: JetStream, cancel: Cancel) -> None:
    with js.consumer("K", "C").consume(print, cancel=cancel, on_error=lambda error: None) as running:
        running.wait(timeout=30)


def subscription(js: JetStream, cancel: Cancel) -> None:
    with js.nc.subscribe("silent") as silent:
        silent.next(timeout=30, cancel=cancel)


CALLS: list[Callable[[JetStream, Cancel], Any]] = [
    request,
    request_many,
    subscription,
    iterate,
    consume,
    lambda js, cancel: js.consumer("K", "C").fetch(1, timeout=30, cancel=cancel),
    lambda js, cancel: js.consumer("K", "C").next(timeout=None, cancel=cancel),
    lambda js, cancel: js.consumer("K", "C").fetch_bytes(1000, timeout=30, cancel=cancel),
    lambda js, cancel: js.ordered_consumer("K").fetch(1, timeout=30, cancel=cancel),
    lambda js, cancel: js.ordered_consumer("K").next(timeout=30, cancel=cancel),
]
NAMES = [
    "request",
    "request_many",
    "subscription",
    "messages",
    "consume",
    "fetch",
    "next",
    "fetch_bytes",
    "ordered fetch",
    "ordered next",
]


@pytest.mark.parametrize("call", CALLS, ids=NAMES)
def test_a_call_that_waits_is_ended(js: JetStream, call: Callable[[JetStream, Cancel], Any]) -> None:
    token = Cancel()
    timer = threading.Timer(0.1, token.cancel)
    timer.start()
    started = time.monotonic()
    with pytest.raises(errors.Cancelled):
        call(js, token)
    assert 0.05 < time.monotonic() - started < 1
    timer.join()
    with pytest.raises(errors.Cancelled):
        call(js, token)
    # Nothing is left: the next message is for the next fetch.
    js.publish("k.a", b"1")
    assert js.consumer("K", "C").fetch(1, timeout=5)[0].metadata.num_delivered == 1


def test_one_token_ends_many_calls(js: JetStream) -> None:
    token, ended = Cancel(), []

    def fetch() -> None:
        try:
            js.consumer("K", "C").fetch(1, timeout=30, cancel=token)
        except errors.Cancelled as error:
            ended.append(error)

    threads = [threading.Thread(target=fetch, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    wait_until(lambda: js.consumer_info("K", "C").num_waiting == 8, 5)
    token.cancel()
    for thread in threads:
        thread.join(5)
    assert len(ended) == 8
    assert len({id(error) for error in ended}) == 8


def test_a_fetch_that_has_messages_returns_them(js: JetStream) -> None:
    js.publish("k.a", b"1")
    token = Cancel()
    threading.Timer(0.1, token.cancel).start()
    batch = js.consumer("K", "C").fetch(5, timeout=30, cancel=token)
    assert [message.data for message in batch] == [b"1"]
    assert isinstance(batch.error, errors.Cancelled)


def test_a_signal_handler_ends_its_own_thread(js: JetStream) -> None:
    token = Cancel()
    before = signal.signal(signal.SIGALRM, lambda *_: token.cancel())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(errors.Cancelled):
            js.consumer("K", "C").fetch(1, timeout=30, cancel=token)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_waits_for_a_link_end_too(server: NatsServer) -> None:
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        proxy.refuse()
        wait_until(lambda: not nc.is_connected, 5)
        for call in (nc.flush, lambda **options: nc.request("x", **options)):
            token = Cancel()
            threading.Timer(0.1, token.cancel).start()
            started = time.monotonic()
            with pytest.raises(errors.Cancelled):
                call(timeout=30, cancel=token)
            assert time.monotonic() - started < 1
