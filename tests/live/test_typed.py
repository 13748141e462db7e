"""Typed messages against a real server: values go in and come out, and what cannot be decoded is told."""

from __future__ import annotations

import dataclasses
import pickle
import weakref
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import jsclient
from jsclient import codecs, errors
from jsclient.jetstream import Consumer, ConsumerConfig, JetStream, JetStreamMsg, Stream, StreamConfig, TypedMsg
from jsclient.testing import NatsServer, wait_until
from jsclient.workers import WorkerPool


class Order(msgspec.Struct):
    id: int
    total: float = 0.0


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Pairs:
    """A codec of two functions, for `Point` only."""

    def encode(self, value: Point, /) -> bytes:
        return f"{value.x},{value.y}".encode()

    def decode(self, data: bytes, type: Any, /) -> Any:
        return type(*map(int, data.split(b",")))


@pytest.fixture
def stream(nc: jsclient.Connection) -> Iterator[Stream]:
    js = JetStream(nc, codec=codecs.JSON)
    yield js.create_stream(StreamConfig(name="T", subjects=["t.>"], storage="memory"))
    js.delete_stream("T")


@pytest.fixture
def dead(nc: jsclient.Connection) -> Iterator[Stream]:
    js = JetStream(nc)
    yield js.create_stream(StreamConfig(name="DEAD", subjects=["dead.>"], storage="memory"))
    js.delete_stream("DEAD")


def fill(stream: Stream, *bad: int, count: int = 5) -> None:
    """Orders 1 to `count`, of which some are none."""
    js = stream.js
    for number in range(1, count + 1):
        if number in bad:
            js.nc.publish("t.a", b"no order")
        else:
            js.nc.publish("t.a", codecs.JSON.encode(Order(number)))
    js.nc.flush()


def durable(stream: Stream, **config: Any) -> Consumer:
    return stream.create_consumer(ConsumerConfig(durable_name="C", **{"ack_wait": 1.0, **config}))


# --- publishing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [codecs.JSON, codecs.MSGPACK], ids=repr)
def test_what_is_published_as_a_value_is_read_as_one(nc: jsclient.Connection, stream: Stream, codec: Any) -> None:
    js: JetStream[Any] = JetStream(nc, codec=codec)
    js.publish("t.a", Order(1, 2.5))
    assert js.publish_async("t.a", {"id": 2, "total": 7}).result(5).seq == 2
    js.publish("t.a", Point(3, 4), headers={"A": "b"})
    consumer = js.stream("T").create_consumer(ConsumerConfig(durable_name="C"))
    first, second = consumer.typed(Order).fetch(2, timeout=5)
    assert (first.value, second.value) == (Order(1, 2.5), Order(2, 7.0))
    assert first.value is first.value
    third = consumer.typed(Point).next(5)
    assert third.value == Point(3, 4)
    assert third.headers["A"] == "b"
    for message in (first, second, third):
        message.double_ack()
    assert consumer.info().num_ack_pending == 0


def test_bytes_and_text_go_out_as_they_are(nc: jsclient.Connection, stream: Stream) -> None:
    for payload in (b"raw", "text", bytearray(b"array"), memoryview(b"view")):
        stream.js.publish("t.a", payload)
        stream.js.publish_async("t.a", payload).result(5)
    wanted = [b"raw", b"raw", b"text", b"text", b"array", b"array", b"view", b"view"]
    assert [stream.get_msg(seq).data for seq in range(1, 9)] == wanted


def test_without_a_codec_only_payloads_are_published(nc: jsclient.Connection, stream: Stream) -> None:
    js: Any = JetStream(nc)
    for publish in (js.publish, js.publish_async):
        with pytest.raises(errors.ConfigError, match="codec"):
            publish("t.a", Order(1))
    assert stream.info().state.messages == 0


def test_what_the_codec_cannot_write_is_not_sent(stream: Stream) -> None:
    js: JetStream[Any] = stream.js
    for publish in (js.publish, js.publish_async):
        with pytest.raises(errors.EncodeFailed, match="object"):
            publish("t.a", object())
    assert stream.info().state.messages == 0


def test_a_codec_of_ones_own(nc: jsclient.Connection, stream: Stream) -> None:
    js: JetStream[Any] = JetStream(nc, codec=Pairs())
    js.publish("t.a", Point(1, 2))
    assert stream.get_msg(1).data == b"1,2"
    js.publish("t.a", b"1,b")
    with pytest.raises(errors.EncodeFailed) as refused:
        js.publish("t.a", 5)
    assert isinstance(refused.value.__cause__, AttributeError)
    good, bad = js.stream("T").create_consumer(ConsumerConfig(durable_name="C")).typed(Point).fetch(2, timeout=5)
    assert good.value == Point(1, 2)
    with pytest.raises(errors.DecodeFailed) as broken:
        bad.value  # noqa: B018
    assert isinstance(broken.value.__cause__, ValueError)


def test_batches_take_values(server: NatsServer, nc: jsclient.Connection) -> None:
    if server.version < (2, 14):
        pytest.skip("fast batches need nats-server 2.14")
    js: JetStream[Any] = JetStream(nc, codec=codecs.JSON)
    config = StreamConfig(name="B", subjects=["b.>"], allow_atomic=True, allow_batched=True, storage="memory")
    stream = js.create_stream(config)
    with js.atomic_batch() as atomic:
        atomic.add("b.a", Order(1))
        atomic.add("b.a", Order(2))
    with js.fast_batch() as fast:
        fast.add("b.a", Order(3))
        fast.commit("b.a", Order(4))
    with stream.ordered_consumer().typed(Order) as ordered:
        assert [message.value.id for message in ordered.fetch(4, timeout=5)] == [1, 2, 3, 4]
    js.delete_stream("B")


def test_options_that_do_not_fit_are_refused(nc: jsclient.Connection, stream: Stream) -> None:
    with pytest.raises(errors.ConfigError, match="codec is"):
        JetStream(nc, codec=msgspec.json)  # type: ignore[arg-type]
    consumer: Any = durable(stream)
    for wrong in ("Order", 5):
        with pytest.raises(errors.ConfigError, match="type must be the type of the values|cannot decode"):
            consumer.typed(wrong)
    for options in ({"on_bad": "ignore"}, {"on_bad": "reject"}, {"on_bad": "skip", "dead_letter": "dead.a"}):
        with pytest.raises(errors.ConfigError, match="on_bad"):
            consumer.typed(Order, **options)
    with pytest.raises(errors.InvalidSubject):
        consumer.typed(Order, on_bad="reject", dead_letter="dead.>")
    none = stream.create_consumer(ConsumerConfig(durable_name="N", ack_policy="none"))
    with pytest.raises(errors.ConfigError, match="explicit"):
        none.typed(Order, on_bad="reject", dead_letter="dead.a")


def test_a_handle_without_info_asks_for_it_where_it_is_needed(stream: Stream) -> None:
    fill(stream, 1, count=2)
    durable(stream)
    handle = stream.consumer("C", fetch_info=False)
    assert handle.typed(Order).fetch(1, timeout=5)[0].stream_seq == 1
    skipping = handle.typed(Order, on_bad="skip")
    for call in (skipping.fetch, skipping.messages, skipping.next):
        with pytest.raises(errors.ConfigError, match=r"call info\(\) first"):
            call()
    skipping.info()
    assert skipping.next(5).value.id == 2
    stream.create_consumer(ConsumerConfig(durable_name="N", ack_policy="none"))
    rejecting = stream.consumer("N", fetch_info=False).typed(Order, on_bad="reject", dead_letter="dead.a")
    rejecting.info()
    with pytest.raises(errors.ConfigError, match="explicit"):
        rejecting.fetch()


def test_a_typed_handle_is_the_same_consumer(stream: Stream) -> None:
    """Of the same class; the one that it was made of has messages without values, and both share one cursor."""
    fill(stream, count=4)
    plain = durable(stream)
    typed = plain.typed(Order)
    assert type(typed) is Consumer
    assert (str(typed), typed.cached_info) == (str(plain), plain.cached_info)
    assert typed.next(5).value.id == 1
    assert type(plain.next(5)) is JetStreamMsg
    assert plain.typed(dict).next(5).value == {"id": 3, "total": 0.0}
    with stream.ordered_consumer() as ordered:
        assert ordered.typed(Order).next(5).value.id == 1
        assert ordered.next(5).stream_seq == 2
        with ordered.typed(Order).messages() as messages:
            assert next(messages).value.id == 3
            with pytest.raises(errors.OrderedConsumerConcurrentRequests):
                ordered.next(1)
        assert ordered.next(5).stream_seq == 4


# --- what cannot be decoded -----------------------------------------------------------------------------------


def test_raise_leaves_the_message_to_the_program(stream: Stream) -> None:
    fill(stream, 2)
    consumer = durable(stream)
    good, bad = consumer.typed(Order).fetch(2, timeout=5)
    assert good.value.id == 1
    with pytest.raises(errors.DecodeFailed, match=r"'t.a', sequence 2, are no Order") as failed:
        bad.value  # noqa: B018
    error = failed.value
    assert (error.payload, error.subject, error.seq) == (b"no order", "t.a", 2)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.payload, copy.seq) == (str(error), b"no order", 2)
    assert not bad.is_acked
    bad.term()
    good.ack()
    with consumer.typed(Order).messages() as messages:
        assert [next(messages).value.id for _ in range(3)] == [3, 4, 5]


def test_every_way_of_taking_gives_values(stream: Stream) -> None:
    fill(stream, 2, count=7)
    consumer = durable(stream, ack_wait=30.0)
    got: list[TypedMsg[Order]] = []
    orders = consumer.typed(Order)
    got += orders.fetch_no_wait(1)
    got += orders.fetch_no_wait(1, 1.0)
    got += orders.fetch_bytes(100_000, 5, max_messages=1)
    got += orders.fetch_each(1, 5)
    got += next(orders.batches(1, 5))
    got += orders.fetch(2, 5)
    assert [message.stream_seq for message in got] == [1, 2, 3, 4, 5, 6, 7]
    bad = got.pop(1)
    for _ in range(2):
        with pytest.raises(errors.DecodeFailed, match="sequence 2, are no Order"):
            bad.value  # noqa: B018
    assert [message.value.id for message in got] == [1, 3, 4, 5, 6, 7]
    bad.term()
    for message in got:
        message.ack()
    wait_until(lambda: consumer.info().ack_floor.stream_seq == 7, 5)


def test_every_way_of_taking_leaves_out_and_tells(stream: Stream) -> None:
    fill(stream, 1, 3, 5, 7, 9, count=10)
    consumer = durable(stream, ack_wait=30.0)
    got: list[Any] = []
    told: list[tuple[Exception, JetStreamMsg]] = []
    orders = consumer.typed(Order, on_bad="skip")
    tell: Any = {"on_error": lambda error, message: told.append((error, message))}
    batches = [
        orders.fetch_no_wait(2),
        orders.fetch_no_wait(2, 1.0),
        orders.fetch_bytes(100_000, 5, max_messages=2),
        next(orders.batches(2, 5)),
    ]
    for batch in batches:
        assert (len(batch), [type(error) for error in batch.skipped]) == (1, [errors.DecodeFailed])
        got += batch
    got += orders.fetch_each(2, 5, **tell)
    assert [message.stream_seq for _, message in told] == [9]
    assert [message.value.id for message in got] == [2, 4, 6, 8, 10]
    for message in got:
        message.ack()
    wait_until(lambda: consumer.info().ack_floor.stream_seq == 10, 5)


def test_a_stream_of_a_fetch_ends_with_one_that_is_left_out(stream: Stream) -> None:
    fill(stream, 2, count=3)
    consumer = durable(stream, ack_wait=30.0)
    assert [message.value.id for message in consumer.typed(Order, on_bad="skip").fetch_each(2, 30)] == [1]
    assert consumer.typed(Order).next(5).value.id == 3


def test_reject_is_the_same_for_all_fetches(stream: Stream, dead: Stream) -> None:
    fill(stream, 1, 2, 3, 4, count=5)
    consumer = durable(stream, ack_wait=30.0)
    orders = consumer.typed(Order, on_bad="reject", dead_letter="dead.t")
    assert not orders.fetch_no_wait(1)
    assert not orders.fetch_bytes(100_000, 5, max_messages=1)
    assert not next(orders.batches(1, 5))
    assert list(orders.fetch_each(1, 5)) == []
    orders.next(5).ack()
    wait_until(lambda: consumer.info().ack_floor.stream_seq == 5, 10)
    assert dead.info().state.messages == 4


def test_ordered_reads_give_values(stream: Stream) -> None:
    fill(stream, 2, 5, count=6)
    told: list[Exception] = []
    with stream.ordered_consumer() as ordered:
        assert ordered.typed(Order).next(5).value.id == 1
        orders = ordered.typed(Order, on_bad="skip")
        assert orders.next(5).value.id == 3
        batch = orders.fetch_no_wait(10)
        assert ([message.value.id for message in batch], len(batch.skipped)) == ([4, 6], 1)
        with pytest.raises(errors.NoMessages):
            orders.next(0)
    with stream.ordered_consumer().typed(Order).read_until(drained=True, timeout=5) as read:
        values = []
        for message in read:
            try:
                values.append(message.value.id)
            except errors.DecodeFailed as error:
                told.append(error)
    assert (values, len(told)) == ([1, 3, 4, 6], 2)
    orders = stream.ordered_consumer().typed(Order, on_bad="skip")
    with orders.read_until(drained=True, timeout=5, on_error=told.append) as read:
        assert [message.value.id for message in read] == [1, 3, 4, 6]
    assert len(told) == 4


def test_a_poll_looks_behind_what_is_left_out(stream: Stream) -> None:
    """`next(0)` takes time for nothing else, and an iterator that is left without an end goes away at once."""

    def poll() -> weakref.ref[Any]:
        messages = durable(stream).typed(Order, on_bad="skip").messages(on_error=lambda error: None)
        with pytest.raises(errors.NoMessages):
            messages.next(0)
        fill(stream, 1, 2, count=3)
        wait_until(lambda: messages.buffered == 3, 10)
        assert messages.next(0).value.id == 3
        return weakref.ref(iter(messages))

    assert poll()() is None


def test_skip_terminates_it_and_tells(stream: Stream) -> None:
    fill(stream, 1, 2, 4)
    consumer = durable(stream)
    batch = consumer.typed(Order, on_bad="skip").fetch(2, timeout=5)
    assert (len(batch), [error.seq for error in batch.skipped if isinstance(error, errors.DecodeFailed)]) == (0, [1, 2])
    told: list[Exception] = []
    with consumer.typed(Order, on_bad="skip").messages(on_error=told.append) as messages:
        for wanted in (3, 5):
            message = next(messages)
            assert message.value.id == wanted
            message.ack()
        with pytest.raises(errors.NoMessages):
            messages.next(0.1)
    assert [type(error) for error in told] == [errors.DecodeFailed]
    wait_until(lambda: consumer.info().ack_floor.stream_seq == 5, 5)


def test_next_looks_behind_what_is_skipped(stream: Stream) -> None:
    fill(stream, 1, 2, 4, 5)
    consumer = durable(stream)
    found = consumer.typed(Order, on_bad="skip").next(5)
    assert found.value.id == 3
    found.ack()
    with pytest.raises(errors.NoMessages):
        consumer.typed(Order, on_bad="skip").next(0.3)
    wait_until(lambda: consumer.info().ack_floor.stream_seq == 5, 5)


def test_reject_stores_it_before_it_is_terminated(stream: Stream, dead: Stream) -> None:
    fill(stream, 2)
    consumer = durable(stream)
    with consumer.typed(Order, on_bad="reject", dead_letter="dead.t").messages(on_error=print) as messages:
        for wanted in (1, 3, 4, 5):
            message = next(messages)
            assert message.value.id == wanted
            message.ack()
        wait_until(lambda: consumer.info().ack_floor.stream_seq == 5, 10)
    letter = dead.get_msg(1)
    assert letter.data == b"no order"
    assert letter.headers["Dead-Letter-Sequence"] == "2"
    assert "are no Order" in (letter.headers["Dead-Letter-Reason"] or "")


def test_what_cannot_be_stored_as_a_dead_letter_comes_again(stream: Stream, nc: jsclient.Connection) -> None:
    fill(stream, 1, count=1)
    consumer = durable(stream)
    told: list[Exception] = []
    orders = consumer.typed(Order, on_bad="reject", dead_letter="dead.t")
    with orders.messages(on_error=told.append) as messages:
        with pytest.raises(errors.NoMessages):
            messages.next(0.1)
        wait_until(lambda: any(isinstance(error, errors.NotStored) for error in told), 20)
        js = JetStream(nc)
        dead = js.create_stream(StreamConfig(name="DEAD", subjects=["dead.>"], storage="memory"))
        try:

            def stored() -> bool:
                with pytest.raises(errors.NoMessages):
                    messages.next(0.1)
                return dead.info().state.messages == 1

            wait_until(stored, 20)
            wait_until(lambda: consumer.info().ack_floor.stream_seq == 1, 10)
        finally:
            js.delete_stream("DEAD")


def test_handlers_get_values(stream: Stream) -> None:
    fill(stream, 3)
    consumer = durable(stream, ack_wait=30.0)
    seen: list[int] = []
    told: list[Exception] = []

    def handle(message: TypedMsg[Order]) -> None:
        seen.append(message.value.id)
        message.ack()

    with consumer.typed(Order, on_bad="skip").consume(handle, on_error=told.append):
        wait_until(lambda: consumer.info().ack_floor.stream_seq == 5, 10)
    assert (seen, [type(error) for error in told]) == ([1, 2, 4, 5], [errors.DecodeFailed])


def test_ordered_and_push_consumers(stream: Stream) -> None:
    fill(stream, 3)
    ordered = stream.ordered_consumer()
    first, second = ordered.typed(Order).fetch(2, timeout=5)
    assert (first.value.id, second.value.id) == (1, 2)
    told: list[Exception] = []
    with ordered.typed(Order, on_bad="skip").messages(on_error=told.append) as messages:
        assert [next(messages).value.id, messages.next(5).value.id] == [4, 5]
    assert len(told) == 1
    push = stream.create_push_consumer(
        ConsumerConfig(durable_name="P", deliver_subject="to.p", ack_policy="explicit", ack_wait=30.0)
    )
    with push.typed(Order, on_bad="skip").messages(on_error=told.append) as pushed:
        for wanted in (1, 2, 4, 5):
            message = pushed.next(5)
            assert message.value.id == wanted
            message.ack()
        wait_until(lambda: push.info().ack_floor.stream_seq == 5, 10)
    assert len(told) == 2
    with stream.ordered_push_consumer().typed(Order, on_bad="skip").messages(on_error=told.append) as pushed:
        assert [pushed.next(5).value.id for _ in range(4)] == [1, 2, 4, 5]
    assert len(told) == 3


def test_ack_next_and_json(stream: Stream) -> None:
    fill(stream, 3)
    consumer = durable(stream)
    first = consumer.typed(Order).next(5)
    second = first.ack_next(5)
    assert second.value.id == 2
    assert second.json() == {"id": 2, "total": 0.0}
    third = second.ack_next(5)
    with pytest.raises(errors.DecodeFailed, match="sequence 3"):
        third.json()
    assert stream.js.nc.request("$JS.API.INFO", b"", timeout=5).json()["streams"] >= 1


# --- pools --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [None, (3, 0.05)], ids=["single", "batch"])
@pytest.mark.parametrize("on_bad", ["raise", "skip", "reject"])
def test_pools(stream: Stream, dead: Stream, on_bad: codecs.OnBad, batch: tuple[int, float] | None) -> None:
    fill(stream, 2, 4, count=6)
    consumer = durable(stream, ack_wait=30.0)
    seen: list[int] = []
    kinds: list[str] = []

    def single(message: TypedMsg[Order]) -> None:
        seen.append(message.value.id)

    def many(messages: list[TypedMsg[Order]]) -> None:
        seen.extend(message.value.id for message in messages)

    handler: Any = many if batch else single
    with WorkerPool(
        consumer.typed(Order, on_bad=on_bad, dead_letter="dead.t" if on_bad == "reject" else None),
        handler,
        batch=batch,
        attempts=2,
        backoff=[0.01],
        dead_letter="dead.t",
        on_event=lambda event: kinds.append(event.kind),
    ) as pool:
        wait_until(lambda: consumer.info().ack_floor.stream_seq == 6, 15)
        wait_until(lambda: pool.snapshot().handled == 4, 5)
        snapshot = pool.snapshot()
    assert sorted(seen) == [1, 3, 5, 6]
    letters = dead.info().state.messages
    if on_bad == "raise":
        assert (letters, snapshot.dead, snapshot.failed, snapshot.rejected) == (2, 2, 4, 0)
    elif on_bad == "skip":
        assert (letters, snapshot.dead, snapshot.failed, snapshot.rejected) == (0, 0, 0, 2)
        assert kinds.count("rejected") == 2
    else:
        assert (letters, snapshot.dead, snapshot.failed, snapshot.rejected) == (2, 2, 0, 2)
        assert "are no Order" in (dead.get_msg(1).headers["Dead-Letter-Reason"] or "")


def test_a_pool_with_keys_and_options_that_do_not_fit(stream: Stream, dead: Stream) -> None:
    fill(stream, 2, count=4)
    consumer = durable(stream, ack_wait=30.0)
    seen: list[int] = []
    orders = consumer.typed(Order, on_bad="reject", dead_letter="dead.t")
    with WorkerPool(orders, lambda message: seen.append(message.value.id), key=lambda message: "k"):
        wait_until(lambda: consumer.info().ack_floor.stream_seq == 4, 15)
    assert seen == [1, 3, 4]
    assert dead.info().state.messages == 1
    with pytest.raises(errors.ConfigError, match="one subject"):
        WorkerPool(orders, print, dead_letter="dead.other")
    with WorkerPool(orders, print, dead_letter="dead.t") as pool:
        assert pool.options.dead_letter == "dead.t"


def test_a_pool_skips_although_it_may_not_ask(server: NatsServer, stream: Stream) -> None:
    """A handle without info, of a user without the permission: the pool itself demands acks of its consumer."""
    fill(stream, 2, count=3)
    consumer = durable(stream, ack_wait=30.0)
    with jsclient.connect(server.url) as nc:
        handle = JetStream(nc).consumer("T", "C", fetch_info=False)
        seen: list[int] = []
        with WorkerPool(handle.typed(Order, on_bad="skip"), lambda message: seen.append(message.value.id)):
            wait_until(lambda: consumer.info().ack_floor.stream_seq == 3, 15)
    assert sorted(seen) == [1, 3]
