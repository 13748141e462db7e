"""Atomic and fast batches: stored whole or as they come, flow control, gaps, refusals, lost links."""

from __future__ import annotations

import pickle
import time
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import AtomicBatch, FastBatch, JetStream, StreamConfig
from jsclient.testing import NatsServer, Proxy, wait_until

LEVEL_ATOMIC, LEVEL_FAST = 2, 4


def needs(js: JetStream, level: int) -> bool:
    return (js.api_level() or 0) >= level


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="PLAIN", subjects=["plain.>"], storage="memory"))
    if needs(js, LEVEL_ATOMIC):
        js.create_stream(StreamConfig(name="A", subjects=["a.>"], storage="memory", allow_atomic=True))
    if needs(js, LEVEL_FAST):
        js.create_stream(StreamConfig(name="F", subjects=["f.>"], storage="memory", allow_batched=True))
    return js


def stored(js: JetStream, stream: str) -> int:
    return js.stream(stream).info().state.messages


def test_old_servers_are_refused(js: JetStream) -> None:
    for batch, level, version in ((js.atomic_batch(), LEVEL_ATOMIC, "2.12"), (js.fast_batch(), LEVEL_FAST, "2.14")):
        if not needs(js, level):
            with pytest.raises(errors.NotSupported, match=version):
                batch.add("plain.x", b"x")
            assert stored(js, "PLAIN") == 0


def test_atomic_batch_is_stored_whole(js: JetStream) -> None:
    if not needs(js, LEVEL_ATOMIC):
        return
    with js.atomic_batch() as batch:
        assert [batch.add(f"a.{number % 3}", b"%d" % number) for number in range(250)] == list(range(1, 251))
        assert stored(js, "A") == 0
    assert batch.ack is not None
    assert (batch.ack.seq, batch.ack.count, batch.ack.batch) == (250, 250, batch.id)
    assert [js.stream("A").get_msg(seq).data for seq in (1, 100, 250)] == [b"0", b"99", b"249"]
    with js.atomic_batch() as batch:
        batch.add("a.x", b"the only one")
    assert batch.ack is not None
    assert (batch.ack.seq, batch.ack.count) == (251, 1)
    with pytest.raises(errors.BatchClosed):
        batch.add("a.x", b"too late")
    with pytest.raises(errors.BatchClosed):
        batch.commit()


def test_an_atomic_batch_copies_a_buffer_when_it_is_added(js: JetStream) -> None:
    """A message goes out with the next one: a bytearray that is filled anew in between must not change it."""
    if not needs(js, LEVEL_ATOMIC):
        return
    buffer = bytearray(b"one")
    with js.atomic_batch() as batch:
        batch.add("a.x", buffer)
        buffer[:] = b"two"
        batch.add("a.x", memoryview(buffer))
        buffer[:] = b"end"
    assert [js.stream("A").get_msg(seq).data for seq in (1, 2)] == [b"one", b"two"]


def test_an_atomic_batch_of_one_that_is_refused_has_ended(js: JetStream) -> None:
    if not needs(js, LEVEL_ATOMIC):
        return
    for subject, error in (("nobody.x", errors.NoStreamForSubject), ("plain.x", errors.ApiError)):
        batch = js.atomic_batch()
        batch.add(subject, b"x")
        with pytest.raises(error):
            batch.commit()
        with pytest.raises(errors.BatchClosed):
            batch.add(subject, b"y")


def test_atomic_batch_over_a_lost_link_stores_nothing(server: NatsServer, js: JetStream) -> None:
    if not needs(js, LEVEL_ATOMIC):
        return
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        other = JetStream(nc)
        batch = other.atomic_batch()
        for number in range(3):
            batch.add("a.x", b"%d" % number)
        reconnects = nc.stats().reconnects
        proxy.cut()
        wait_until(lambda: nc.stats().reconnects > reconnects and nc.is_connected)
        batch.add("a.x", b"3")
        with pytest.raises((errors.BatchRefused, errors.NotStored)):
            batch.commit()
    assert stored(js, "A") == 0


def test_fast_batch(js: JetStream) -> None:
    if not needs(js, LEVEL_FAST):
        return
    with js.fast_batch() as batch:
        for number in range(5000):
            assert batch.add(f"f.{number % 3}", b"%d" % number) == number + 1
            assert number + 1 - batch.acked <= 300
    assert batch.ack is not None
    assert (batch.ack.seq, batch.ack.count, batch.acked, len(batch)) == (5000, 5000, 5000, 5000)
    assert stored(js, "F") == 5000
    with pytest.raises(errors.BatchClosed):
        batch.add("f.x", b"too late")


def test_fast_batch_is_no_transaction(js: JetStream) -> None:
    if not needs(js, LEVEL_FAST):
        return
    with pytest.raises(ZeroDivisionError), js.fast_batch() as batch:
        batch.add("f.x", b"1")
        batch.add("f.x", b"2")
        js.nc.flush()
        raise ZeroDivisionError
    wait_until(lambda: stored(js, "F") == 2)


@pytest.mark.parametrize("kind", ["atomic", "fast"])
def test_a_batch_without_a_stream_is_refused_soon(js: JetStream, kind: str) -> None:
    if not needs(js, LEVEL_ATOMIC if kind == "atomic" else LEVEL_FAST):
        return
    start = time.monotonic()
    with pytest.raises(errors.NoStreamForSubject), js.atomic_batch() if kind == "atomic" else js.fast_batch() as batch:
        batch.add("nosuchstream", b"1")
        batch.add("nosuchstream", b"2")
    assert time.monotonic() - start < 1
    assert batch.closed


def test_an_exception_in_the_block_discards_an_atomic_batch(js: JetStream) -> None:
    if not needs(js, LEVEL_ATOMIC):
        return
    with pytest.raises(ZeroDivisionError), js.atomic_batch() as batch:
        batch.add("a.x", b"1")
        batch.add("a.x", b"2")
        raise ZeroDivisionError
    assert batch.closed
    assert stored(js, "A") == 0


def test_fast_batch_and_a_refused_message(js: JetStream) -> None:
    if not needs(js, LEVEL_FAST):
        return
    with pytest.raises(errors.WrongLastSequence), js.fast_batch() as batch:
        for number in range(20):
            batch.add("f.x", b"%d" % number, **_wrong(number))
    assert stored(js, "F") == 10
    with js.fast_batch(gap="ok") as batch:
        for number in range(20):
            batch.add("f.x", b"%d" % number, **_wrong(number))
    assert list(batch.errors) == [11]
    assert isinstance(batch.errors[11], errors.WrongLastSequence)
    assert stored(js, "F") == 10 + 19


def _wrong(number: int) -> Any:
    return {"expected_last_subject_seq": 777} if number == 10 else {}


@pytest.mark.parametrize("before", [0, 3, 150])
def test_a_fast_batch_that_is_refused_says_what_of_it_is_stored(js: JetStream, before: int) -> None:
    if not needs(js, LEVEL_FAST):
        return
    batch = js.fast_batch()
    for _ in range(before):
        batch.add("f.x", b"x")
    with pytest.raises((errors.WrongLastSequence, errors.PublishUnknown)) as caught:
        batch.add("f.x", b"refused", expected_last_seq=7_777)
        batch.add("f.x", b"never")
        batch.commit()
    wait_until(lambda: stored(js, "F") == before, 5)
    text = str(caught.value)
    assert "Nothing was stored" not in text
    if before:
        assert isinstance(caught.value, errors.WrongLastSequence)
        assert caught.value.last_sequence == before
        assert f"refused message {before + 1} of the batch" in text
        assert f"The server has confirmed all messages up to {before}." in text
        assert batch.acked == before
        assert str(pickle.loads(pickle.dumps(caught.value))) == text


def test_fast_batch_over_a_lost_link_is_unknown(server: NatsServer, js: JetStream) -> None:
    if not needs(js, LEVEL_FAST):
        return
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        batch = JetStream(nc).fast_batch()
        for number in range(150):
            batch.add("f.x", b"%d" % number)
        proxy.cut()
        with pytest.raises(errors.PublishUnknown):
            for number in range(100_000):
                batch.add("f.x", b"%d" % number)
        assert batch.closed
        assert batch.acked <= stored(js, "F")


def test_fast_batch_that_begins_without_a_link(server: NatsServer, js: JetStream) -> None:
    """The first message waits for a link; one that could not be sent in its time is certainly not stored."""
    if not needs(js, LEVEL_FAST):
        return
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        other = JetStream(nc)
        other.fast_batch().commit("f.x", b"what the server can do is known")
        proxy.refuse()
        wait_until(lambda: not nc.is_connected)
        batch = other.fast_batch()
        with pytest.raises(errors.NotStored, match="was not sent in its time"):
            batch.add("f.x", b"never", timeout=0.1)
        assert batch.closed
        proxy.accept()
        batch = other.fast_batch()
        assert batch.add("f.x", b"1") == 1
        assert batch.commit().count == 1
    assert stored(js, "F") == 2


@pytest.mark.parametrize("end", ["sealed", "deleted"])
def test_fast_batch_whose_stream_ends_is_unknown(js: JetStream, end: str) -> None:
    """What it has taken before is stored, whatever is said about later messages."""
    if not needs(js, LEVEL_FAST):
        return
    batch = js.fast_batch()
    for _ in range(5):
        batch.add("f.x", b"x")
    js.nc.flush()
    if end == "sealed":
        js.stream("F").seal()
    else:
        js.delete_stream("F")
    with pytest.raises(errors.PublishUnknown, match="up to message 0 of"):
        for _ in range(400):
            batch.add("f.x", b"x")
    assert batch.closed


def test_batches_do_not_pickle(js: JetStream) -> None:
    for batch in (AtomicBatch(js), FastBatch(js)):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(batch)
