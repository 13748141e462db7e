"""`Consumer.batches()` over a long line: quicker than fetch after fetch, bounded, and what was read ahead goes back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest
from tests.pauses import time_passes

import jsclient
from jsclient import errors
from jsclient.cancel import Cancel
from jsclient.instruments import Instrumentation, Operation
from jsclient.jetstream import Consumer, ConsumerConfig, JetStream, StreamConfig
from jsclient.jetstream.consuming.batches_ahead import FAR
from jsclient.testing import NatsServer, Proxy, server_version, wait_until

WANT = 10
COUNT = 300
TRIES = 3


class Far:
    """A stream of COUNT messages, a consumer far away from it, and an observer near it."""

    def __init__(self, server: NatsServer, proxy: Proxy, near: JetStream) -> None:
        self.server = server
        self.proxy = proxy
        self.near = near
        self.connections: list[jsclient.Connection] = []

    def consumer(self, round_trip: float = 0.04, options: Any = None, **config: Any) -> Consumer:
        self.proxy.delay(round_trip / 2)
        nc = jsclient.connect(self.proxy.url, **(options or {}))
        self.connections.append(nc)
        made = ConsumerConfig(durable_name="C", **{"ack_wait": 60.0, "max_ack_pending": -1, **config})
        self.near.create_or_update_consumer("AHEAD", made)
        return JetStream(nc).consumer("AHEAD", "C")

    def unacked(self) -> int:
        return self.near.consumer_info("AHEAD", "C").num_ack_pending

    def others_get(self, rest: int) -> None:
        """At once, and not after ack_wait."""
        seen: set[int] = set()
        while len(seen) < rest:
            batch = self.near.consumer("AHEAD", "C").fetch(rest - len(seen), timeout=5)
            assert batch, f"{rest - len(seen)} messages are held back"
            seen |= {message.stream_seq for message in batch}
        assert len(seen) == rest
        assert self.near.consumer_info("AHEAD", "C").num_pending == 0


@pytest.fixture
def far(server: NatsServer) -> Iterator[Far]:
    with jsclient.connect(server.url) as nc, Proxy(server.port) as proxy:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="AHEAD", subjects=["ahead"], storage="memory"))
        for number in range(1, COUNT + 1):
            nc.publish("ahead", b"%d" % number)
        nc.flush()
        made = Far(server, proxy, js)
        try:
            yield made
        finally:
            for one in made.connections:
                one.close()
            if "AHEAD" in js.stream_names():
                js.delete_stream("AHEAD")


def take(batches: Iterator[Any], times: int) -> int:
    """So many batches, each acked; the number of messages."""
    taken = 0
    for _, batch in zip(range(times), batches, strict=False):
        for message in batch:
            message.ack()
        taken += len(batch)
    return taken


def test_twice_as_quick_as_a_loop_of_fetches(far: Far, count: Callable[[int, int], int]) -> None:
    times = count(25, 12)
    consumer = far.consumer(0.1)

    def seconds_of(batches: Iterator[Any]) -> float:
        start = time.monotonic()
        assert take(batches, times) == times * WANT
        return time.monotonic() - start

    fetched = seconds_of(consumer.fetch(WANT, timeout=10) for _ in range(times))
    assert fetched >= times * 0.1
    for _ in range(TRIES):
        far.near.delete_consumer("AHEAD", "C")  # `reset` would go on behind what is acked: too few messages are left
        consumer = far.consumer(0.1)
        if seconds_of(consumer.batches(WANT, timeout=10)) < fetched / 2:
            return
    raise AssertionError("not twice as quick")


def test_a_slow_application_gets_nothing_before_it_comes_for_it(far: Far) -> None:
    consumer = far.consumer(0.01)
    batches = consumer.batches(WANT, timeout=10)
    take(batches, 2)
    link = consumer.js.nc.link
    assert link is not None
    work = max(0.15, 12 * link.round_trip)
    for _ in range(4):  # what was read ahead is used up; it is 30 at most
        time_passes(work, "the work of the application: longer than the line")
        take(batches, 1)
    time_passes(work, "the same")
    held = next(batches)
    time_passes(0.1, "messages that were asked for come in this time")
    assert far.unacked() == len(held) == WANT
    batches.close()


def test_near_the_server_nothing_is_read_ahead(far: Far) -> None:
    consumer = far.consumer(0.0)

    def is_near() -> bool:
        """Of several looks, as a busy machine may be slow to answer the first one."""
        consumer.js.nc.flush(5)
        link = consumer.js.nc.link
        return link is not None and link.round_trip < FAR

    wait_until(is_near, 10)
    batches = consumer.batches(WANT, timeout=10)
    for number in range(1, 5):
        assert len(next(batches)) == WANT
        time_passes(0.02, "messages that were asked for come in this time")
        assert far.unacked() == number * WANT
    batches.close()


def test_the_window_grows_fourfold_from_batch_to_batch(far: Far) -> None:
    batches = far.consumer(0.1).batches(WANT, timeout=10)
    assert (len(next(batches)), far.unacked()) == (WANT, WANT)
    assert len(next(batches)) == WANT
    time_passes(0.2, "messages that were asked for come in this time")
    assert far.unacked() <= WANT + 4 * WANT
    batches.close()


@pytest.mark.parametrize("how", ["break", "exception", "close", "connection closed", "connection drained"])
def test_what_was_read_ahead_goes_back(far: Far, how: str) -> None:
    consumer = far.consumer()
    batches, taken, released = consumer.batches(WANT, timeout=10), 0, threading.Thread()
    ends: dict[str, Any] = {
        "exception": ZeroDivisionError,
        "connection closed": errors.ConnectionClosed,
        "connection drained": (errors.ConnectionDraining, errors.ConnectionClosed),
    }
    with pytest.raises(ends.get(how, StopIteration)):
        for batch in batches:
            for message in batch:
                message.ack()
                taken += 1
            if taken < 4 * WANT or (not far.unacked() and taken < COUNT // 2):
                continue  # nothing is read ahead: the machine has no time for us
            if how == "exception":
                del batches
                raise ZeroDivisionError
            if how == "connection closed":
                consumer.js.nc.flush()
                consumer.js.nc.close()
            elif how != "connection drained":
                break
            elif not released.ident:
                released = threading.Thread(target=consumer.js.nc.drain, args=(20,))
                released.start()
                wait_until(lambda: consumer.js.nc.is_draining, 5)
        raise StopIteration
    if how == "break":
        del batches
    elif how == "close":
        batches.close()
    if released.ident:
        released.join(20)
    far.others_get(COUNT - taken)


def test_it_ends_by_a_token_and_with_its_consumer(far: Far) -> None:
    token = Cancel()
    consumer = far.consumer()
    with closing(consumer.batches(WANT, timeout=10, cancel=token)) as batches:
        taken = take(batches, 3)
        token.cancel()
        with pytest.raises(errors.Cancelled):
            while True:
                taken += take(batches, 1)
    if server_version(far.server.binary) < (2, 10, 0):
        return  # 2.9 answers nothing where a consumer was
    with closing(consumer.batches(WANT, timeout=5)) as batches:
        taken += take(batches, 3)
        far.near.delete_consumer("AHEAD", "C")
        with pytest.raises(errors.ConsumerDeleted):
            while taken < COUNT + WANT:
                taken += take(batches, 1)


def test_all_of_it_through_a_reconnect(far: Far) -> None:
    seen: list[int] = []
    with closing(far.consumer(ack_wait=1.0).batches(WANT, timeout=1)) as batches:
        for batch in batches:
            if len(seen) == 5 * WANT:
                far.proxy.cut()
            seen += [message.stream_seq for message in batch]
            for message in batch:
                message.ack()
            if len(set(seen)) == COUNT:
                break
    assert sorted(set(seen)) == list(range(1, COUNT + 1))


def test_the_last_batch_is_smaller_and_then_they_are_empty(far: Far) -> None:
    sizes = []
    for batch in far.consumer().batches(70, timeout=0.5):
        sizes.append(len(batch))
        for message in batch:
            message.ack()
        if not batch:
            break
    assert sizes == [70, 70, 70, 70, 20, 0]


class Recorder(Instrumentation):
    def __init__(self) -> None:
        self.delivered = 0

    def begin(self, operation: Operation) -> Any:
        self.delivered += operation.kind == "deliver"
        return lambda error: None


class Number(msgspec.Struct):
    n: int


def test_values_and_instruments(far: Far) -> None:
    far.near.stream("AHEAD").purge()
    for number in range(8 * WANT):
        far.near.publish("ahead", b"?" if number % WANT == 3 else b'{"n": %d}' % number)
    recorder = Recorder()
    consumer = far.consumer(options={"instrumentation": recorder})
    seen: list[int] = []
    skipped = 0
    for batch in consumer.typed(Number, on_bad="skip").batches(WANT, timeout=5):
        assert len(batch) + len(batch.skipped) == WANT
        assert recorder.delivered == len(seen) + len(batch) + skipped + len(batch.skipped)
        seen += [message.value.n for message in batch]
        skipped += len(batch.skipped)
        for message in batch:
            message.ack()
        if skipped == 8:
            break
    assert seen == [number for number in range(8 * WANT) if number % WANT != 3]
