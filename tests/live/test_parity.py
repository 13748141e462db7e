"""What other clients of JetStream can do, and this one, too: each with a test against a real server."""

from __future__ import annotations

import asyncio
import concurrent.futures
import datetime as dt
import queue
import threading
import time
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, JetStreamMsg, StreamConfig
from jsclient.testing import NatsServer, Proxy, wait_until


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="S", subjects=["s.>"], storage="memory"))
    return js


def since(js: JetStream, *version: int) -> bool:
    return js.nc.server_info.at_least(*version)


# --- acks -----------------------------------------------------------------------------------------------


def test_nak_and_term_can_be_confirmed(js: JetStream) -> None:
    consumer = js.create_consumer("S", ConsumerConfig(durable_name="C", ack_wait=60, max_deliver=5))
    for number in range(3):
        js.publish("s.x", b"%d" % number)
    first, second, third = consumer.fetch(3, timeout=5)
    first.double_nak()
    assert consumer.next(timeout=5).data == b"0"  # at once, not after ack_wait
    second.double_nak(delay=30)
    assert not consumer.fetch_no_wait(1)
    third.double_term()
    assert consumer.info().num_ack_pending == 2
    for message in (first, second, third):
        with pytest.raises(errors.MsgAlreadyAcked):
            message.double_term()
    if since(js, 2, 10, 4):
        js.publish("s.x", b"3")
        consumer.next(timeout=5).double_term("it is broken")


def test_a_confirmed_nak_to_nobody_raises(js: JetStream) -> None:
    consumer = js.create_consumer("S", ConsumerConfig(durable_name="C"))
    js.publish("s.x", b"0")
    message = consumer.next(timeout=5)
    js.delete_consumer("S", "C")
    with pytest.raises((errors.NoResponders, errors.RequestTimeout)):
        message.double_nak(timeout=2)
    assert not message.is_acked


def test_on_error_of_consume_gets_the_message_to_nak_it(js: JetStream) -> None:
    """One that takes the error alone goes on to work."""
    consumer = js.create_consumer("S", ConsumerConfig(durable_name="C", ack_wait=60))
    js.publish("s.x", b"0")
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    done = threading.Event()

    def handle(message: JetStreamMsg) -> None:
        if message.num_delivered == 1:
            raise RuntimeError("not now")
        message.double_ack()
        done.set()

    def again(error: Exception, message: Any) -> None:
        told.put((error, message.data))
        message.nak()

    with consumer.consume(handle, on_error=again):
        assert done.wait(20)
    error, data = told.get(timeout=5)
    assert (str(error), data) == ("not now", b"0")
    js.publish("s.x", b"1")
    with consumer.consume(handle, on_error=told.put):
        assert str(told.get(timeout=20)) == "not now"


def test_on_error_of_consume_without_a_message(js: JetStream) -> None:
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    consumer = js.create_consumer("S", ConsumerConfig(durable_name="C"))
    with consumer.consume(print, on_error=lambda error, message: told.put((error, message))) as running:
        js.delete_consumer("S", "C")
        error, message = told.get(timeout=20)
        assert (type(error), message) == (errors.ConsumerDeleted, None)
        with pytest.raises(errors.ConsumerDeleted):
            running.wait(20)


# --- publishing -----------------------------------------------------------------------------------------


def test_futures_of_publishes_become_those_of_the_standard_library(js: JetStream) -> None:
    futures = [js.publish_async("s.x", b"%d" % number).to_concurrent() for number in range(100)]
    done, open_ = concurrent.futures.wait(futures, timeout=20)
    assert (len(done), len(open_)) == (100, 0)
    more = [js.publish_async("s.x", b"x").to_concurrent() for _ in range(10)]
    assert sorted(one.result().seq for one in concurrent.futures.as_completed(more, timeout=20)) == [*range(101, 111)]
    refused = js.publish_async("s.x", b"x", expected_last_seq=7)
    with pytest.raises(errors.WrongLastSequence):
        refused.to_concurrent().result(timeout=20)
    assert isinstance(refused.to_concurrent().exception(timeout=0), errors.WrongLastSequence)  # resolved already
    assert not js.publish_async("s.x", b"x").to_concurrent().cancel()

    async def all_of_it() -> list[int]:
        waiting = [asyncio.wrap_future(js.publish_async("s.x", b"x").to_concurrent()) for _ in range(10)]
        return [ack.seq for ack in await asyncio.wait_for(asyncio.gather(*waiting), 20)]

    assert asyncio.run(all_of_it()) == [*range(112, 122)]


def test_a_converted_future_hears_of_the_end_of_the_connection(server: NatsServer, js: JetStream) -> None:
    with Proxy(server.port) as proxy:
        other = jsclient.connect(proxy.url)
        mine = JetStream(other)
        mine.publish("s.x", b"x")
        proxy.stall()
        source = mine.publish_async("s.x", b"x")
        future = source.to_concurrent()
        other.close()
        assert isinstance(future.exception(timeout=20), (errors.PublishUnknown, errors.NotStored))
        assert source.to_concurrent().done()


def test_the_context_has_a_default_time_for_publishes(server: NatsServer, js: JetStream) -> None:
    from jsclient.keyvalue import KeyValueConfig, create_key_value, key_value

    create_key_value(js, KeyValueConfig(bucket="b", storage="memory"))
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as far:
        hasty = JetStream(far, publish_timeout=0.3)
        hasty.publish("s.x", b"x")
        kv = key_value(hasty, "b")
        proxy.stall()
        for call in (lambda: hasty.publish("s.x", b"x"), lambda: kv.create("k", b"v"), lambda: kv.put("k", b"v")):
            began = time.monotonic()
            with pytest.raises(errors.PublishUnknown):
                call()
            assert time.monotonic() - began < 5  # not 15
    for wrong in (-1, float("nan")):
        with pytest.raises(errors.ConfigError):
            JetStream(js.nc, publish_timeout=wrong)


# --- reading --------------------------------------------------------------------------------------------


def test_messages_from_a_point_in_time(js: JetStream) -> None:
    """With direct gets and without, and on servers that cannot say it at once."""
    js.publish("s.a", b"before")
    wait_until(lambda: js.publish("s.tick", b"").seq and time.time() % 1 > 0, 5)
    moment = dt.datetime.now(dt.timezone.utc)
    time_of = js.stream("S").get_last_msg("s.tick").time
    assert time_of is not None
    moment = max(moment, time_of + dt.timedelta(microseconds=1))
    wait_until(lambda: dt.datetime.now(dt.timezone.utc) > moment)
    js.publish("s.b", b"1")
    js.publish("s.a", b"2")
    for direct in (True, False):
        js.update_stream(js.stream("S").info().config.replace(allow_direct=direct))
        stream = js.stream("S")
        assert stream.get_first_msg(moment).data == b"1"
        assert stream.get_first_msg(moment, subject="s.a").data == b"2"
        assert [message.data for message in stream.get_batch(10, start_time=moment)] == [b"1", b"2"]
        assert [message.data for message in stream.get_batch(10, start_time=moment, subject="s.a")] == [b"2"]
        later = dt.datetime.now(dt.timezone.utc) + dt.timedelta(hours=1)
        assert list(stream.get_batch(10, start_time=later)) == []
        with pytest.raises(errors.MessageNotFound):
            stream.get_first_msg(later)
    with js.ordered_consumer("S", deliver_policy="by_start_time", opt_start_time=moment).messages() as messages:
        assert messages.next(timeout=5).data == b"1"


# --- objects, services ----------------------------------------------------------------------------------


def test_a_callback_watches_objects(js: JetStream) -> None:
    from jsclient import objectstore

    store = objectstore.create_object_store(js, bucket="o", storage="memory")
    store.put("a", b"1")
    seen: list[str] = []
    with store.watch(callback=lambda info: seen.append(info.name)):
        wait_until(lambda: seen == ["a"])
        store.put("b", b"2")
        wait_until(lambda: seen == ["a", "b"])
    with store.watch(timeout=5) as watcher:
        assert [next(watcher).name, next(watcher).name] == ["a", "b"]
        store.put("c", b"3")
        assert next(watcher).name == "c"  # no marker in a loop
        assert watcher.initial_complete
