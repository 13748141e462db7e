"""Consumers with headers_only: an empty payload is never taken for the payload of a message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import Consumer, ConsumerConfig, JetStream, Stream, StreamConfig
from jsclient.testing import NatsServer, wait_until
from jsclient.workers import DeadLetters, Reject, WorkerPool


class Order(msgspec.Struct):
    id: int


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="DEAD", subjects=["dead.>"], storage="memory"))
    return js


GOOD, BAD = b'{"id":1}', b"no order"


def jobs(js: JetStream, *payloads: bytes, **settings: Any) -> Stream:
    given: dict[str, Any] = {"subjects": ["jobs.>", "later.jobs.*"], "retention": "workqueue", "storage": "memory"}
    stream = js.create_stream(StreamConfig(name="JOBS", **(given | settings)))
    for payload in payloads:
        js.publish("jobs.a", payload, headers={"Kind": "job"})
    return stream


def consumer_of(stream: Stream, headers_only: bool = True, **settings: Any) -> Consumer:
    given: dict[str, Any] = {"durable_name": "w", "ack_wait": 1.0, "headers_only": headers_only} | settings
    return stream.create_consumer(ConsumerConfig(**given))


def switched_on(stream: Stream, **settings: Any) -> Consumer:
    """A consumer on which an administrator has set headers_only after this handle was made."""
    consumer = consumer_of(stream, headers_only=False, **settings)
    config = consumer.info().config
    JetStream(stream.js.nc).create_or_update_consumer("JOBS", config.replace(headers_only=True))
    assert consumer.cached_info is not None
    assert not consumer.cached_info.config.headers_only
    return consumer


def emptied(stream: Stream) -> Callable[[], bool]:
    return lambda: stream.info().state.messages == 0


WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "keyed": {"key": lambda message: message.subject},
    "batch": {"batch": (5, 0.01)},
}


@pytest.mark.parametrize("way", list(WAYS))
def test_a_letter_has_the_payload_of_its_message(js: JetStream, way: str) -> None:
    stream = jobs(js, b"first", b"second", b"")

    def handle(got: Any) -> Any:
        if way == "batch":
            return [Reject("no") for _ in got]
        assert got.data == b""
        raise Reject("no")

    with WorkerPool(consumer_of(stream), handle, dead_letter="dead.x", **WAYS[way]):
        wait_until(emptied(stream), 10)
    letters = DeadLetters(js)
    assert sorted(letter.data for letter in letters.list()) == [b"", b"first", b"second"]
    assert {letter.headers["Kind"] for letter in letters.list()} == {"job"}
    assert not any(letter.lost for letter in letters.list())


def test_a_message_that_is_gone_is_a_lost_letter(js: JetStream) -> None:
    stream = jobs(js, b"first", retention="limits")

    def handle(message: Any) -> None:
        stream.delete_msg(message.stream_seq)
        raise Reject("no")

    with WorkerPool(consumer_of(stream), handle, dead_letter="dead.x"):
        wait_until(lambda: js.stream("DEAD").info().state.messages == 1, 10)
    (letter,) = DeadLetters(js).list()
    assert (letter.lost, letter.data, letter.reason) == (True, b"", "no")


def test_a_payload_that_cannot_be_read_keeps_the_message() -> None:
    """The user has no permission for STREAM.MSG.GET: nothing is stored, nothing terminated."""
    users = """
        accounts { A { jetstream: enabled, users: [
          { user: admin, password: a },
          { user: w, password: w, permissions: { publish: { deny: ["$JS.API.STREAM.MSG.GET.>"] } } }
        ] } }
    """
    with NatsServer(users) as server, jsclient.connect(server.url, user="admin", password="a") as admin:
        stream = jobs(JetStream(admin), BAD)
        dead = JetStream(admin).create_stream(StreamConfig(name="DEAD", subjects=["dead.>"], storage="memory"))
        config = consumer_of(stream, headers_only=False).info().config
        with jsclient.connect(server.url, user="w", password="w") as nc:
            consumer = JetStream(nc).consumer("JOBS", "w")
            JetStream(admin).create_or_update_consumer("JOBS", config.replace(headers_only=True))
            told: list[Exception] = []
            orders = consumer.typed(Order, on_bad="reject", dead_letter="dead.x")
            with (
                orders.messages(on_error=told.append) as messages,
                pytest.raises(errors.NoMessages),
            ):
                messages.next(0.3)
            assert isinstance(told[0], errors.PayloadMissing)
            calls: list[Any] = []
            with WorkerPool(orders, calls.append, attempts=1, backoff=[0.05]) as pool:
                wait_until(lambda: stream.consumer("w").info().num_redelivered, 10)
                assert pool.snapshot().dead == 0
        assert calls == []
        assert (stream.info().state.messages, dead.info().state.messages) == (1, 0)


@pytest.mark.parametrize("way", list(WAYS))
def test_a_payload_that_did_not_come_is_no_failed_attempt(js: JetStream, way: str) -> None:
    """Without dead letters the messages would be lost, all of them. A keyed pool, which tries the same message again,
    has read the payload until then."""
    stream = jobs(js, GOOD, GOOD)
    consumer = switched_on(stream)
    handled: list[Any] = []

    def handle(got: Any) -> Any:
        try:
            handled.extend(message.json() for message in (got if way == "batch" else [got]))
        except errors.JsClientError as error:
            if way != "batch":
                raise
            return [error] * len(got)

    with WorkerPool(consumer, handle, attempts=1, retries=0, backoff=[0.05], threads=1, **WAYS[way]) as pool:
        wait_until(lambda: consumer.info().num_redelivered or way == "keyed", 10)
        assert pool.snapshot().failed == 0
        js.create_or_update_consumer("JOBS", consumer.info().config.replace(headers_only=False))
        wait_until(emptied(stream), 10)
    assert handled == [{"id": 1}, {"id": 1}]


# --- typed() ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"on_bad": "skip"}, {"on_bad": "reject", "dead_letter": "dead.x"}])
def test_decoding_is_refused_where_it_is_known(js: JetStream, options: dict[str, Any]) -> None:
    stream = jobs(js, GOOD, retention="limits")
    consumer = consumer_of(stream)
    with pytest.raises(errors.ConfigError, match="headers_only"):
        consumer.typed(Order, **options)
    orders = stream.consumer("w", fetch_info=False).typed(Order, **options)
    orders.info()
    calls: list[Callable[[], Any]] = [
        lambda: orders.fetch(1, timeout=1),
        lambda: orders.next(1),
        lambda: orders.messages(),
        lambda: orders.consume(print),
        lambda: next(orders.fetch_each(1, 1)),
        lambda: WorkerPool(orders, print),
        lambda: WorkerPool(stream.consumer("w", fetch_info=False).typed(Order, **options), print),
    ]
    for call in calls:
        with pytest.raises(errors.ConfigError, match="headers_only"):
            call()
    assert consumer.info().num_ack_pending == 0


def test_other_consumers_refuse_it_too(js: JetStream) -> None:
    stream = jobs(js, GOOD, retention="limits")
    push = stream.create_push_consumer(
        ConsumerConfig(durable_name="p", deliver_subject="out.p", headers_only=True, ack_policy="explicit")
    )
    calls: tuple[Callable[[], Any], ...] = (
        lambda: stream.ordered_consumer(headers_only=True).typed(Order, on_bad="skip"),
        lambda: stream.ordered_push_consumer(headers_only=True).typed(Order),
        lambda: push.typed(Order, on_bad="skip"),
    )
    for call in calls:
        with pytest.raises(errors.ConfigError, match="headers_only"):
            call()


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("on_bad", ["raise", "skip", "reject"])
def test_a_pool_reads_what_it_did_not_get(js: JetStream, way: str, on_bad: Any) -> None:
    """headers_only is set while the pool runs: good messages are handled, bad ones alone are given up."""
    stream = jobs(js, GOOD)
    consumer = consumer_of(stream, headers_only=False)
    handled: list[int] = []

    def handle(got: Any) -> None:
        handled.extend(message.value.id for message in (got if way == "batch" else [got]))

    options: dict[str, Any] = {"dead_letter": "dead.x", "attempts": 2, "backoff": [0.05], **WAYS[way]}
    subject = "dead.x" if on_bad == "reject" else None
    with WorkerPool(consumer.typed(Order, on_bad=on_bad, dead_letter=subject), handle, threads=2, **options):
        wait_until(emptied(stream), 10)
        js.create_or_update_consumer("JOBS", consumer.info().config.replace(headers_only=True))
        for number in range(2, 6):
            js.publish("jobs.a", b'{"id":%d}' % number)
        js.publish("jobs.a", BAD)
        wait_until(emptied(stream), 20)
    assert sorted(handled) == [1, 2, 3, 4, 5]
    assert [letter.data for letter in DeadLetters(js).list()] == ([] if on_bad == "skip" else [BAD])


@pytest.mark.parametrize("call", ["fetch", "messages", "fetch_each", "consume", "next"])
@pytest.mark.parametrize("on_bad", ["skip", "reject"])
def test_readers_read_what_they_did_not_get(js: JetStream, call: str, on_bad: Any) -> None:
    stream = jobs(js, GOOD, BAD, GOOD)
    consumer = switched_on(stream)
    orders = consumer.typed(Order, on_bad=on_bad, dead_letter="dead.x" if on_bad == "reject" else None)
    found: list[Any] = []
    if call == "fetch":
        found += orders.fetch(3, timeout=5)
    elif call == "messages":
        with orders.messages() as messages:
            found += [next(messages), next(messages)]
    elif call == "fetch_each":
        found += orders.fetch_each(3, 5)
    elif call == "next":
        found += [orders.next(5), orders.next(5)]
    else:
        with orders.consume(found.append):
            wait_until(lambda: len(found) == 2, 10)
    assert [message.value.id for message in found] == [1, 1]
    for message in found:
        message.ack()
    wait_until(emptied(stream), 10)
    assert [letter.data for letter in DeadLetters(js).list()] == ([] if on_bad == "skip" else [BAD])


@pytest.mark.parametrize("decode", [Order, bytes])
def test_a_value_that_did_not_come_is_an_error_of_its_own(js: JetStream, decode: Any) -> None:
    """Not DecodeFailed, after which a program would terminate the message; nor an empty value."""

    class Raw:
        def encode(self, value: Any) -> bytes:
            return bytes(value)

        def decode(self, data: bytes, type: Any) -> Any:
            return data if type is bytes else msgspec.json.decode(data, type=type)

    js = JetStream(js.nc, codec=Raw())
    consumer = switched_on(jobs(js, GOOD, GOOD, GOOD))
    found = [*consumer.typed(decode).fetch(1, timeout=5), consumer.typed(decode).next(5)]
    with consumer.typed(decode).messages() as messages:
        found.append(next(messages))
    for message in found:
        with pytest.raises(errors.PayloadMissing, match="headers"):
            message.value  # noqa: B018
        with pytest.raises(errors.PayloadMissing):
            message.json()


def test_an_empty_message_is_empty(js: JetStream) -> None:
    """Also where its publisher has set the server's header."""
    stream = jobs(js, retention="limits")
    js.publish("jobs.a", b"", headers={"Nats-Msg-Size": "12"})
    js.publish("jobs.a", b"")
    batch = switched_on(stream).typed(Order, on_bad="skip").fetch(2, timeout=5)
    assert not batch
    assert [type(error) for error in batch.skipped] == [errors.DecodeFailed] * 2


def test_a_retry_for_later_has_the_payload(js: JetStream, server: NatsServer) -> None:
    settings = {"allow_msg_schedules": True} if server.version >= (2, 12) else {}
    stream = jobs(js, b"first", **settings)
    consumer = consumer_of(stream, filter_subject="jobs.*")
    calls: list[int] = []

    def handle(message: Any) -> None:
        calls.append(1)
        if len(calls) < 3:
            raise RuntimeError("not yet")
        raise Reject("never")

    options: dict[str, Any] = {"later": "later.jobs", "later_from": 0.0, "backoff": [0.1]}
    with WorkerPool(consumer, handle, dead_letter="dead.x", threads=1, **options):
        wait_until(emptied(stream), 20)
    assert [letter.data for letter in DeadLetters(js).list()] == [b"first"]
