"""Ordered consumers and finite reads against a real server."""

from __future__ import annotations

import datetime as dt
import json
import sys
import threading
import time
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import JetStream, OrderedConsumer, StreamConfig
from jsclient.jetstream.consuming.messages import Messages
from jsclient.testing import NatsServer, Proxy, wait_until


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="O", subjects=["o.>"], storage="memory"))
    return js


def publish(js: JetStream, count: int, first: int = 1, subjects: int = 1) -> None:
    for number in range(first, first + count):
        js.publish_async(f"o.{number % subjects}", b"%d" % number)
    js.publish_async_complete(timeout=20)  # stored, and not only on the way


def consumers(js: JetStream) -> int:
    return len(list(js.stream("O").consumer_names()))


def take(messages: Messages, count: int) -> list[int]:
    return [int(messages.next(timeout=10).data) for _ in range(count)]


def test_everything_in_order_and_nothing_left_behind(js: JetStream) -> None:
    publish(js, 5000)
    with js.stream("O").ordered_consumer().messages() as messages:
        assert take(messages, 5000) == list(range(1, 5001))
        with pytest.raises(errors.NoMessages):
            messages.next(timeout=0.1)
    wait_until(lambda: consumers(js) == 0, 5)
    assert messages.resets == 0


def test_reconnects_are_mended(server: NatsServer, js: JetStream) -> None:
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        publish(js, 500)
        ordered = JetStream(nc).stream("O").ordered_consumer()
        with ordered.messages(max_messages=20) as messages:
            seen = []
            for _ in range(5):
                seen += take(messages, 100)
                proxy.cut()
            publish(js, 10, first=501)
            seen += take(messages, 10)
        assert seen == list(range(1, 511))
    wait_until(lambda: consumers(js) <= 1, 5)


def test_a_gap_is_noticed_and_filled(js: JetStream) -> None:
    publish(js, 300)
    with js.stream("O").ordered_consumer().messages(max_messages=50) as messages:
        seen = take(messages, 10)
        wait_until(lambda: messages.buffered >= 30, 5)
        iterator: Any = iter(messages)
        while len(iterator._ready) > 5:
            iterator._ready.pop()  # what a network that drops would do: what was checked stays, the rest is gone
        iterator.source.state.expected -= 1
        iterator.source.state._head = b""
        publish(js, 1, first=301)
        del seen[:]
        seen = [int(messages.next(timeout=10).data) for _ in range(5)]
    assert seen == sorted(set(seen))


def test_attempts_can_be_limited(server: NatsServer, js: JetStream) -> None:
    ordered = js.stream("O").ordered_consumer(max_reset_attempts=1)
    with ordered.messages(heartbeat=0.5, on_error=lambda error: None) as messages:
        js.delete_stream("O")
        with pytest.raises(errors.OrderedConsumerReset) as caught:
            messages.next(timeout=20)
        assert isinstance(caught.value.__cause__, errors.StreamNotFound)


def test_fetch_and_next_go_on_where_the_last_one_ended(js: JetStream) -> None:
    publish(js, 1000)
    with js.stream("O").ordered_consumer() as ordered:
        assert [int(m.data) for m in ordered.fetch(10)] == list(range(1, 11))
        assert int(ordered.next().data) == 11
        with ordered.messages(max_messages=100) as messages:
            assert take(messages, 5) == list(range(12, 17))
            with pytest.raises(errors.OrderedConsumerConcurrentRequests):
                ordered.fetch(1)
            with pytest.raises(errors.OrderedConsumerConcurrentRequests):
                ordered.messages()
            wait_until(lambda: messages.buffered >= 80, 5)
        assert int(ordered.next().data) == 17
        assert len(ordered.fetch_no_wait(10_000)) == 1000 - 17
        assert not ordered.fetch_no_wait(10)
        assert not ordered.fetch(10, timeout=0.1)
        with pytest.raises(errors.NoMessages):
            ordered.next(timeout=0.1)
    wait_until(lambda: consumers(js) == 0, 5)


def test_consume(js: JetStream) -> None:
    publish(js, 500)
    seen: list[int] = []
    with js.stream("O").ordered_consumer().consume(lambda message: seen.append(int(message.data))):
        wait_until(lambda: len(seen) == 500, 10)
    assert seen == list(range(1, 501))


def test_options(js: JetStream, server: NatsServer) -> None:
    publish(js, 30, subjects=3)
    stream = js.stream("O")
    with stream.ordered_consumer(filter_subjects="o.1") as ordered:
        assert [int(m.data) for m in ordered.fetch_no_wait(100)] == list(range(1, 30, 3))
    with stream.ordered_consumer(deliver_policy="by_start_sequence", opt_start_seq=28) as ordered:
        assert [int(m.data) for m in ordered.fetch_no_wait(100)] == [28, 29, 30]
    with stream.ordered_consumer(headers_only=True, name_prefix="mine", replay_policy="instant") as ordered:
        message = ordered.next()
        assert message.data == b""
        assert ordered.info().name == "mine_1"
        assert ordered.info().config.headers_only
        assert ordered.info().config.mem_storage
    filters = ["o.1", "o.2"]
    if server.version[:2] < (2, 10):
        with pytest.raises(errors.NotSupported):
            stream.ordered_consumer(filter_subjects=filters).next()
    else:
        with stream.ordered_consumer(filter_subjects=filters) as ordered:
            assert len(ordered.fetch_no_wait(100)) == 20
    with pytest.raises(errors.OrderedConsumerNotCreated):
        stream.ordered_consumer().info()


def test_last_per_subject_starts_again_without_older_values(js: JetStream) -> None:
    """nats.go #1633: a restart by sequence delivers values that are not the last ones."""
    for number in range(1, 101):
        js.nc.publish(f"o.{number}", b"old")
    for number in range(1, 101):
        js.nc.publish(f"o.{number}", b"new %d" % number)
    wait_until(lambda: js.stream("O").info().state.last_seq == 200, 5)
    ordered = js.stream("O").ordered_consumer(deliver_policy="last_per_subject")
    with ordered.messages(max_messages=10, heartbeat=1) as messages:
        seen = [messages.next(timeout=5).data for _ in range(40)]
        for number in (90, 91):
            js.publish(f"o.{number}", b"newest %d" % number)
        js.delete_consumer("O", ordered.info().name)
        seen += [messages.next(timeout=10).data for _ in range(60)]
        js.delete_consumer("O", ordered.info().name)
        js.publish("o.1", b"a")
        js.publish("o.1", b"b")
        seen += [messages.next(timeout=10).data for _ in range(2)]
        assert messages.delivered == len(seen), "messages that came a second time do not count"
    expected = [b"new %d" % n for n in range(1, 101) if n not in (90, 91)] + [b"newest 90", b"newest 91", b"a", b"b"]
    assert seen == expected


# --- finite reads -----------------------------------------------------------------------------------------------


def everything(js: JetStream, **config: Any) -> OrderedConsumer:
    return js.stream("O").ordered_consumer(**config)


def read(consumer: OrderedConsumer, **until: Any) -> list[int]:
    with consumer.read_until(**until) as messages:
        return [int(message.data) for message in messages]


@pytest.mark.parametrize("end", [1, 499, 500, 501, 2000])
def test_read_until_a_sequence(js: JetStream, end: int) -> None:
    publish(js, 2000)
    assert read(everything(js), end_seq=end) == list(range(1, end + 1))


def test_read_until_drained(js: JetStream) -> None:
    publish(js, 1234)
    consumer = everything(js)
    assert read(consumer, drained=True) == list(range(1, 1235))
    assert read(consumer, drained=True) == []
    publish(js, 3, first=1235)
    assert read(consumer, drained=True) == [1235, 1236, 1237]


def test_read_of_an_empty_stream(js: JetStream) -> None:
    assert read(everything(js), drained=True) == []


def test_the_end_is_found_when_the_last_messages_are_gone(js: JetStream) -> None:
    publish(js, 100)
    stream = js.stream("O")
    for seq in range(91, 101):
        stream.delete_msg(seq)
    assert read(everything(js), end_seq=100) == list(range(1, 91))


def test_the_end_is_found_when_the_last_messages_are_filtered_out(js: JetStream) -> None:
    publish(js, 100, subjects=3)
    consumer = everything(js, filter_subjects="o.2")
    assert read(consumer, drained=True) == list(range(2, 101, 3))


def test_read_until_a_time(js: JetStream) -> None:
    publish(js, 50)
    moment = js.stream("O").get_msg(50).time
    assert moment is not None
    publish(js, 50, first=51)
    until = moment + dt.timedelta(microseconds=1)
    assert read(everything(js), time=until) == list(range(1, 51))


def test_a_read_waits_for_an_end_in_the_future(js: JetStream) -> None:
    publish(js, 10)
    timer = threading.Timer(0.3, publish, (js, 10, 11))
    timer.start()
    assert read(everything(js), end_seq=15) == list(range(1, 16))
    timer.join()


def test_a_read_that_stalls_says_so(js: JetStream) -> None:
    publish(js, 10)
    with pytest.raises(errors.ReadStalled):
        read(everything(js), end_seq=15, timeout=0.5)


@pytest.mark.slow
def test_a_read_lives_through_lost_links(server: NatsServer, js: JetStream) -> None:
    publish(js, 500)
    seen: list[int] = []
    timers: list[threading.Timer] = []
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        there = JetStream(nc)
        consumer = everything(there)
        while len(seen) < 500:
            with consumer.read_until(drained=True, max_messages=50) as messages:
                for message in messages:
                    seen.append(int(message.data))
                    if len(seen) % 120 == 0:
                        proxy.refuse()
                        proxy.cut()
                        wait_until(lambda: not nc.is_connected, 5)
                        timers.append(threading.Timer(0.2, proxy.accept))
                        timers[-1].start()
        for timer in timers:
            timer.join()
    assert seen == list(range(1, 501))


@pytest.mark.parametrize("until", [{}, {"end_seq": 1, "drained": True}, {"end_seq": -1}])
def test_a_read_needs_one_end(js: JetStream, until: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigError):
        read(everything(js), **until)


@pytest.mark.parametrize("pushed", [False, True], ids=["pull", "push"])
def test_a_thread_that_waits_does_not_hold_up_the_timeout_of_another(js: JetStream, pushed: bool) -> None:
    stream = js.stream("O")
    consumer: Any = stream.ordered_push_consumer() if pushed else stream.ordered_consumer()
    with consumer.messages() as messages:
        waiting = threading.Thread(target=lambda: list(messages), daemon=True)
        waiting.start()
        wait_until(lambda: "_wait" in functions_of(waiting), 5)
        started = time.monotonic()
        with pytest.raises(errors.NoMessages):
            messages.next(timeout=0.2)
        assert time.monotonic() - started < 1
        with pytest.raises(errors.NoMessages):
            messages.next(timeout=0)
        messages.stop()
        waiting.join(5)
        assert not waiting.is_alive()


def test_a_read_whose_link_is_down_is_closed_by_another_thread(server: NatsServer, js: JetStream) -> None:
    publish(js, 10)
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        messages = everything(JetStream(nc)).read_until(end_seq=20, timeout=60)
        taken: list[int] = []
        reading = threading.Thread(target=lambda: taken.extend(int(message.data) for message in messages))
        reading.start()
        wait_until(lambda: len(taken) == 10, 10)
        proxy.refuse()
        proxy.cut()
        wait_until(lambda: not nc.is_connected, 10)
        before = time.monotonic()
        messages.close()
        assert time.monotonic() - before < 10
        proxy.accept()
        reading.join(20)
        assert not reading.is_alive()
    assert taken == list(range(1, 11))


def functions_of(thread: threading.Thread) -> list[str]:
    """The names of the functions that it is in."""
    frame, found = sys._current_frames().get(thread.ident or 0), []
    while frame is not None:
        found.append(frame.f_code.co_name)
        frame = frame.f_back
    return found


@pytest.mark.parametrize("poll", [1.5, 0])
def test_consumers_that_go_as_soon_as_they_are_made_are_made_with_pauses(js: JetStream, poll: float) -> None:
    """Somebody deletes each of them: it is not made thousands of times, however short each call waits."""
    stream = js.create_stream(StreamConfig(name="GONE", subjects=["gone.>"], storage="memory"))
    made: list[str] = []

    def delete(message: jsclient.Msg) -> None:
        name = json.loads(message.data)["consumer"]
        made.append(name)
        js.nc.publish(f"$JS.API.CONSUMER.DELETE.GONE.{name}", b"")

    with js.nc.subscribe("$JS.EVENT.ADVISORY.CONSUMER.CREATED.GONE.>", callback=delete):
        with stream.ordered_consumer().messages(on_error=lambda error: None) as messages:
            end = time.monotonic() + 1.5
            while time.monotonic() < end:
                with pytest.raises(errors.NoMessages):
                    messages.next(timeout=poll)
            assert 1 <= len(made) <= 12
    js.delete_stream("GONE")
