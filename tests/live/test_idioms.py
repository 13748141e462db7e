"""What Python programmers expect to work: loops over consumers, buckets as mappings, handles that act on themselves."""

from __future__ import annotations

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import Consumer, ConsumerConfig, JetStream, StreamConfig
from jsclient.keyvalue import KeyValueConfig, create_key_value, create_or_update_key_value, update_key_value
from jsclient.objectstore import create_object_store, create_or_update_object_store, update_object_store
from jsclient.testing import NatsServer, wait_until


@pytest.fixture
def consumer(js: JetStream) -> Consumer:
    stream = js.create_stream(StreamConfig(name="S", subjects=["s"], storage="memory"))
    for number in range(10):
        js.publish("s", b"%d" % number)
    return stream.create_consumer(ConsumerConfig(durable_name="c"))


def test_a_loop_over_a_consumer_gives_back_what_it_leaves(consumer: Consumer) -> None:
    seen = []
    for msg in consumer:
        msg.double_ack()
        seen.append(msg.data)
        if len(seen) == 3:
            break
    assert seen == [b"0", b"1", b"2"]
    given_back = sorted(msg.data for msg in consumer.fetch(7, timeout=5))
    assert given_back == [b"%d" % number for number in range(3, 10)]


def test_fetch_each_yields_while_it_waits(js: JetStream, consumer: Consumer) -> None:
    numbers = []
    for msg in consumer.fetch_each(12, timeout=10):
        msg.ack()
        numbers.append(msg.data)
        if len(numbers) in (10, 11):  # one by one, each after the one before was handled
            js.publish("s", b"%d" % len(numbers))
    assert numbers == [b"%d" % number for number in range(12)]
    assert list(consumer.fetch_each(1, timeout=0.1)) == []
    with pytest.raises(errors.ConfigError):
        next(consumer.fetch_each(0))


def test_batches_follow_each_other(consumer: Consumer) -> None:
    sizes = []
    for batch in consumer.batches(4, timeout=0.2):
        sizes.append(len(batch))
        for msg in batch:
            msg.ack()
        if not batch:
            break
    assert sizes == [4, 4, 2, 0]


def test_a_consumer_acts_on_itself(js: JetStream, consumer: Consumer) -> None:
    if (js.api_level() or 0) >= 1:
        assert consumer.pause(30).paused
        assert consumer.info().paused
        assert not consumer.resume().paused
        with pytest.raises(errors.ApiError):
            consumer.unpin("no such group")
    if (js.api_level() or 0) >= 4:
        assert [msg.stream_seq for msg in consumer.fetch(2, timeout=5)] == [1, 2]
        consumer.reset(5)
        assert consumer.next(timeout=5).stream_seq == 5
    consumer.delete()
    with pytest.raises(errors.ConsumerNotFound):
        consumer.delete()


def test_a_bucket_is_a_mapping_where_that_is_honest(js: JetStream) -> None:
    kv = create_key_value(js, KeyValueConfig(bucket="b", storage="memory"))
    assert kv.get("k", default=None) is None
    kv["k"] = "text"
    kv["other"] = bytearray(b"bytes")
    assert (kv["k"], kv["other"]) == (b"text", b"bytes")
    entry = kv.get("k", default=None)
    assert entry is not None
    assert entry.value == b"text"
    wait_until(lambda: sorted(kv) == ["k", "other"])
    del kv["k"]
    assert "k" not in kv
    assert kv.get("k", default=b"") == b""
    with pytest.raises(KeyError):
        kv["k"]
    with pytest.raises(errors.InvalidName):
        kv.get("bad key", default=None)
    with pytest.raises(TypeError):
        len(kv)  # type: ignore[arg-type]


def test_a_configuration_may_be_given_as_its_fields(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        js = nc.jetstream(timeout=10)
        assert isinstance(js, JetStream)
        assert js.api.timeout == 10
        stream = js.create_stream(name="F", subjects=["f.>"], storage="memory")
        assert js.update_stream(name="F", subjects=["f.>"], storage="memory", max_msgs=5).info().config.max_msgs == 5
        assert js.create_or_update_stream(name="F", subjects=["f.>", "g"], storage="memory").name == "F"
        assert js.get_or_create_stream(name="F").info().config.subjects == ["f.>", "g"]
        assert stream.create_consumer(durable_name="C").name == "C"
        assert js.update_consumer("F", durable_name="C", max_ack_pending=7).info().config.max_ack_pending == 7
        assert stream.create_or_update_consumer(durable_name="C", max_ack_pending=8).name == "C"
        assert js.get_or_create_consumer("F", durable_name="C").info().config.max_ack_pending == 8
        push = js.create_push_consumer("F", durable_name="P", deliver_subject="to")
        assert push.info().config.deliver_subject == "to"
        js.update_push_consumer("F", durable_name="P", deliver_subject="other")
        assert stream.create_or_update_push_consumer(durable_name="P", deliver_subject="third").name == "P"
        for call in (create_key_value, update_key_value, create_or_update_key_value):
            assert call(js, bucket="b", history=3, ttl=60).status().history == 3
        for make in (create_object_store, update_object_store, create_or_update_object_store):
            assert make(js, bucket="o", ttl=60).bucket == "o"
        for wrong in (
            lambda: js.create_stream(StreamConfig(name="F"), name="F"),
            lambda: js.create_stream(),
            lambda: js.create_stream("F"),  # type: ignore[arg-type]
            lambda: js.create_stream(nam="F"),  # type: ignore[call-arg]
            lambda: js.create_consumer("F", durabel="C"),  # type: ignore[call-arg]
            lambda: create_key_value(js),
        ):
            with pytest.raises(errors.ConfigError):
                wrong()
        for name in list(js.stream_names()):
            js.delete_stream(name)
