"""Arguments of the right type beyond any use: refused at the call, with nothing allocated, begun or sent."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jsclient
from jsclient import errors, services
from jsclient.coordination import Semaphore, lease_bucket
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer
from jsclient.workers import WorkerPool

HUGE = 2**63
SURROGATE = "\ud800"


@pytest.fixture(scope="module")
def js(server: NatsServer) -> Iterator[JetStream]:
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        stream = js.create_stream(StreamConfig(name="EXTREME", subjects=["extreme.*"]))
        stream.create_consumer(ConsumerConfig(durable_name="c"))
        yield js


def refused(js: JetStream, call: Callable[[], Any]) -> None:
    js.nc.flush()
    before = js.nc.stats().bytes_out
    with pytest.raises(errors.ConfigError):
        call()
    assert js.nc.stats().bytes_out == before


@pytest.mark.timeout(20)
@pytest.mark.parametrize("count", [HUGE, 100_000, 0, -1, True])
def test_counts_of_threads_and_permits(js: JetStream, count: int) -> None:
    consumer = js.consumer("EXTREME", "c")
    leases = lease_bucket(js, "extreme", ttl=5)
    with services.add_service(js.nc, services.ServiceConfig(name="s", version="1.0.0")) as service:
        for call in (
            lambda: consumer.consume(print, workers=count),
            lambda: WorkerPool(consumer, print, threads=count),
            lambda: service.add_endpoint("e", print, workers=count),
            lambda: Semaphore(leases, "x", count),
        ):
            refused(js, call)


@pytest.mark.parametrize("flag", ["yes", 7, None])
def test_flags(js: JetStream, flag: Any) -> None:
    stream = js.stream("EXTREME")
    for call in (
        lambda: js.stream("EXTREME", fetch_info=flag),
        lambda: js.consumer("EXTREME", "c", fetch_info=flag),
        lambda: stream.consumer("c", fetch_info=flag),
        lambda: stream.info(deleted_details=flag),
    ):
        refused(js, call)


@pytest.mark.parametrize("seconds", [float(HUGE), float("inf"), dt.timedelta.max])
@pytest.mark.parametrize("name", ["expires", "heartbeat"])
def test_durations_that_no_server_reads(js: JetStream, name: str, seconds: Any) -> None:
    consumer = js.consumer("EXTREME", "c")
    refused(js, lambda: consumer.consume(print, **{name: seconds}))
    refused(js, lambda: consumer.messages(**{name: seconds}))
    refused(js, lambda: js.ordered_consumer("EXTREME").messages(**{name: seconds}))


def test_text_that_is_not_utf_8(js: JetStream) -> None:
    consumer = js.consumer("EXTREME", "c")
    for call in (
        lambda: consumer.fetch(1, group=SURROGATE, timeout=1),
        lambda: consumer.next(group=SURROGATE, timeout=1),
        lambda: consumer.messages(group=SURROGATE),
        lambda: consumer.consume(print, group=SURROGATE),
    ):
        refused(js, call)


@pytest.mark.parametrize("address", ["\x00", SURROGATE, "a\x00b"])
def test_a_local_address_that_is_none(address: str) -> None:
    with pytest.raises(errors.ConfigError):
        jsclient.connect("nats://127.0.0.1:1", local_address=address)
