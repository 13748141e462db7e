"""Stored, not stored, unknown: what is said after lost acks, after refusals of second copies, beyond the window."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import JetStream, PubAck, StreamConfig
from jsclient.jetstream.publishing import outcome as publish_verdict
from jsclient.testing import NatsServer, Proxy, wait_until

SYNC, ASYNC = "publish", "publish_async"


class Rig:
    """A publisher behind a proxy, and a second connection that sees the stream as it is."""

    def __init__(self, proxy: Proxy, js: JetStream, beside: JetStream) -> None:
        self.proxy = proxy
        self.js = js
        self.beside = beside
        self.stream = beside.create_stream(StreamConfig(name="S", subjects=["s.>"]))
        js.publish_async("s.first", b"x").result(5)

    def publish(self, way: str, subject: str, payload: bytes = b"x", **options: Any) -> PubAck:
        if way == SYNC:
            return self.js.publish(subject, payload, **options)
        return self.js.publish_async(subject, payload, **options).result(60)

    def lose_the_ack(self, meanwhile: Callable[[], Any] = lambda: None) -> threading.Thread:
        """The next ack is lost with its link. `meanwhile` runs when the message is stored, before the link is back."""
        before = self.stream.info().state.last_seq
        self.proxy.stall("down")

        def cut() -> None:
            wait_until(lambda: self.stream.info().state.last_seq > before)
            self.proxy.refuse()
            meanwhile()
            self.proxy.resume("down")
            self.proxy.accept()

        thread = threading.Thread(target=cut)
        thread.start()
        return thread

    def count(self) -> int:
        return self.stream.info().state.messages - 1  # without the first one


@pytest.fixture
def rig(server: NatsServer) -> Iterator[Rig]:
    with Proxy(server.port) as proxy, jsclient.connect(server.url) as direct, jsclient.connect(proxy.url) as nc:
        beside = JetStream(direct)
        yield Rig(proxy, JetStream(nc), beside)
        for name in list(beside.stream_names()):
            beside.delete_stream(name)


@pytest.mark.parametrize("way", [SYNC, ASYNC])
@pytest.mark.parametrize(
    "expected", [{"expected_last_subject_seq": 0}, {"expected_last_seq": 1}], ids=["subject", "stream"]
)
def test_an_ack_that_was_lost_and_an_expectation(rig: Rig, way: str, expected: dict[str, Any]) -> None:
    """2.15.1 refuses the second copy because the first one is there: that is no reason to say that it is not."""
    thread = rig.lose_the_ack()
    ack = rig.publish(way, "s.a", msg_id="1", **expected)
    thread.join()
    assert (ack.stream, ack.seq, ack.duplicate) == ("S", 2, True)
    assert rig.count() == 1


@pytest.mark.parametrize("way", [SYNC, ASYNC])
def test_a_stream_that_was_sealed_meanwhile(rig: Rig, way: str) -> None:
    thread = rig.lose_the_ack(rig.stream.seal)
    ack = rig.publish(way, "s.a", msg_id="1")
    thread.join()
    assert (ack.seq, ack.duplicate) == (2, True)


@pytest.mark.parametrize("way", [SYNC, ASYNC])
def test_a_limit_that_was_lowered_meanwhile(rig: Rig, way: str) -> None:
    def lower() -> None:
        config = rig.stream.info().config
        rig.beside.update_stream(config.replace(max_msg_size=100))

    thread = rig.lose_the_ack(lower)
    ack = rig.publish(way, "s.a", bytes(1000), msg_id="1")
    thread.join()
    assert (ack.seq, ack.duplicate) == (2, True)


@pytest.mark.parametrize("way", [SYNC, pytest.param(ASYNC, marks=pytest.mark.faults)])
def test_what_cannot_be_found_again_is_unknown(rig: Rig, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first copy was taken out again before the second one was refused."""
    monkeypatch.setattr(publish_verdict, "PAUSES", (0.02, 0.05, 0.3))

    def seal() -> None:
        rig.stream.delete_msg(2)
        rig.stream.seal()

    thread = rig.lose_the_ack(seal)
    with pytest.raises(errors.PublishUnknown):
        rig.publish(way, "s.a", msg_id="1")
    thread.join()


@pytest.mark.parametrize("way", [SYNC, ASYNC])
def test_somebody_else_is_in_the_place(rig: Rig, way: str) -> None:
    """The first copy never arrived: its refusal is the outcome."""
    rig.proxy.stall("up")
    out = rig.js.nc.stats().bytes_out

    def cut() -> None:
        wait_until(lambda: rig.js.nc.stats().bytes_out > out)
        rig.beside.publish("s.a", b"other", expected_last_subject_seq=0)
        rig.proxy.cut(reset=True)
        rig.proxy.resume("up")

    thread = threading.Thread(target=cut)
    thread.start()
    with pytest.raises(errors.WrongLastSequence):
        rig.publish(way, "s.a", msg_id="1", expected_last_subject_seq=0)
    thread.join()
    assert rig.count() == 1


# --- the window of ids ----------------------------------------------------------------------------------------------


def config_with(rig: Rig, **changes: Any) -> None:
    rig.beside.update_stream(rig.stream.info().config.replace(**changes))


@pytest.mark.parametrize("way", [SYNC, ASYNC])
@pytest.mark.parametrize(
    "changes",
    [{"duplicate_window": 0.3}, pytest.param({"max_age": 1, "duplicate_window": 1}, marks=pytest.mark.faults)],
    ids=["window", "max_age"],
)
def test_an_id_is_not_sent_beyond_the_window(rig: Rig, way: str, changes: dict[str, Any]) -> None:
    config_with(rig, **changes)
    start = time.monotonic()
    gone = rig.lose_the_ack(
        lambda: wait_until(lambda: time.monotonic() - start > (1.6 if "max_age" in changes else 0.6))
    )
    try:
        ack = rig.publish(way, "s.a", msg_id="1")
        assert ack.duplicate  # it was seen in the stream; nothing was sent
    except errors.PublishUnknown:
        assert "max_age" in changes  # it has gone meanwhile
    gone.join()
    assert rig.stream.info().state.last_seq == 2


@pytest.mark.parametrize("way", [SYNC, ASYNC])
def test_inside_the_window_it_is_sent_again(rig: Rig, way: str) -> None:
    config_with(rig, duplicate_window=60)
    thread = rig.lose_the_ack()
    ack = rig.publish(way, "s.a", msg_id="1")
    thread.join()
    assert ack.duplicate
    assert rig.count() == 1


@pytest.mark.parametrize("way", [SYNC, ASYNC])
@pytest.mark.parametrize("stated", [None, 60.0], ids=["not known", "stated"])
def test_who_may_not_ask_for_the_window(way: str, stated: float | None) -> None:
    """Then nothing is known, and nothing is sent twice, unless the application states it."""
    config = """
        authorization { users: [
            { user: all, password: x },
            { user: few, password: x, permissions: { publish: ["s.>"], subscribe: ["_INBOX.>"] } } ] }
    """
    with (
        NatsServer(config) as server,
        Proxy(server.port) as proxy,
        jsclient.connect(server.url, user="all", password="x") as direct,
        jsclient.connect(proxy.url, user="few", password="x") as nc,
    ):
        rig = Rig(proxy, JetStream(nc, publish_async_duplicate_window=stated), JetStream(direct))
        thread = rig.lose_the_ack()
        try:
            if way == SYNC:
                outcome: Any = rig.js.publish("s.a", b"x", msg_id="1")
            else:
                outcome = rig.js.publish_async("s.a", b"x", msg_id="1").result(20)
        except errors.PublishUnknown as error:
            outcome = error
        thread.join()
        if stated is None:
            assert "publish_async_duplicate_window" in str(outcome)
        else:
            assert outcome.duplicate
        assert rig.count() == 1


# --- what is held, batches ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [SYNC, ASYNC])
def test_a_server_that_takes_less_after_the_link_was_lost(rig: Rig, way: str) -> None:
    with NatsServer("max_payload: 1000") as small:
        rig.proxy.refuse()
        wait_until(lambda: not rig.js.nc.is_connected)
        rig.proxy.target = ("127.0.0.1", small.port)
        start = time.monotonic()
        if way == SYNC:
            rig.proxy.accept()
            with pytest.raises(errors.PayloadTooLarge, match="Nothing of it was sent"):
                rig.publish(way, "s.a", bytes(2000))
        else:
            future = rig.js.publish_async("s.a", bytes(2000))
            rig.proxy.accept()
            with pytest.raises(errors.PayloadTooLarge, match="Nothing of it was sent"):
                future.result(20)
        assert time.monotonic() - start < 10


@pytest.mark.parametrize("size", [1, 3])
def test_the_commit_of_an_atomic_batch_whose_ack_is_lost(rig: Rig, size: int) -> None:
    """Every message of it carries the id of the batch."""
    if (rig.beside.api_level() or 0) < 2:
        pytest.skip("atomic batches came with 2.12")
    config_with(rig, allow_atomic=True)
    batch = rig.js.atomic_batch()
    for number in range(size):
        batch.add(f"s.{number}", b"x", expected_last_subject_seq=0)
    thread = rig.lose_the_ack()
    ack = batch.commit()
    thread.join()
    assert (ack.seq, ack.batch, ack.count) == (1 + size, batch.id, size)
    assert rig.count() == size
