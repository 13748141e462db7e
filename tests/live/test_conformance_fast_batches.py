"""Cases of the conformance framework for fast batches (ADR-50): the name of a test has the numbers of its cases."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.pauses import time_passes

import jsclient
from jsclient import errors
from jsclient.jetstream import JetStream, PubAck, Stream, StreamConfig, StreamSource
from jsclient.nuid import next_nuid
from jsclient.testing import Cluster, NatsServer, wait_until

START, APPEND, COMMIT, END, PING = range(5)


@pytest.fixture
def js(server: NatsServer, js: JetStream) -> JetStream:
    if server.version < (2, 14, 0):
        pytest.skip("fast batches need nats-server 2.14")
    return js


def new_stream(js: JetStream, name: str = "FB", **config: Any) -> Stream:
    settings = {"subjects": ["t.>"], "allow_batched": True, "allow_direct": True, "storage": "memory"}
    return js.create_stream(StreamConfig(name=name, **{**settings, **config}))


@pytest.fixture
def stream(js: JetStream) -> Stream:
    return new_stream(js)


class Batch:
    """One batch as it is on the wire: the reply subjects of its messages, and each answer to them."""

    def __init__(self, js: JetStream, flow: int = 10, gap: str = "ok", batch: str = "") -> None:
        self.nc, self.flow, self.gap = js.nc, flow, gap
        self.id = batch or next_nuid()
        self.inbox = self.nc.new_inbox()
        self.answers = self.nc.subscribe(f"{self.inbox}.>")
        self.seen: list[dict[str, Any]] = []

    def send(self, number: int, operation: int, data: bytes = b"x", end: str = ".$FI", **headers: str) -> None:
        reply = f"{self.inbox}.{self.id}.{self.flow}.{self.gap}.{number}.{operation}{end}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.nc.publish("t.a", data, reply=reply, headers=named or None)

    def start(self) -> dict[str, Any]:
        self.send(1, START)
        return self.next()

    def append(self, *numbers: int) -> None:
        for number in numbers:
            self.send(number, APPEND)

    def commit(self, number: int) -> dict[str, Any]:
        self.send(number, COMMIT)
        return self.last()

    def next(self, timeout: float = 5.0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.answers.next(timeout=timeout).data)
        self.seen.append(found)
        return found

    def last(self) -> dict[str, Any]:
        """The acknowledgement or error that ends it."""
        while "type" in (found := self.next(10)):
            pass
        return found

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [found for found in self.seen if found.get("type") == kind]


def code(answer: dict[str, Any]) -> int:
    return int(answer["error"]["err_code"])


def count(stream: Stream) -> int:
    return stream.info().state.messages


def published(js: JetStream, messages: int = 3) -> PubAck:
    """A batch by the public call."""
    with js.fast_batch() as batch:
        for number in range(messages):
            batch.add("t.a", b"%d" % number)
    ack = batch.ack
    assert ack is not None
    return ack


# --- 100: the setting -------------------------------------------------------------------------------------------


def test_fb_101_a_stream_for_batches(js: JetStream, stream: Stream) -> None:
    config = stream.info().config
    assert config.allow_batched
    assert config.metadata is not None
    assert int(config.metadata["_nats.req.level"]) >= 3


def test_fb_102_103_it_can_be_switched(js: JetStream) -> None:
    stream = new_stream(js, allow_batched=None)
    config = stream.info().config
    assert code(Batch(js).start()) == 10205
    js.update_stream(config.replace(allow_batched=True))
    assert published(js, 1).count == 1
    js.update_stream(config.replace(allow_batched=False))
    assert code(Batch(js).start()) == 10205
    with pytest.raises(errors.BatchRefused):
        published(js)


def test_fb_104_a_stream_that_writes_asynchronously(js: JetStream) -> None:
    new_stream(js, storage="file", persist_mode="async")
    assert published(js, 5).count == 5


def test_fb_105_both_kinds_of_batches(js: JetStream) -> None:
    stream = new_stream(js, allow_atomic=True)
    with js.atomic_batch() as batch:
        for _ in range(3):
            batch.add("t.a", b"x")
    assert published(js).count == 3
    assert count(stream) == 6


def test_fb_106_mirrors_cannot_have_it(js: JetStream, stream: Stream) -> None:
    with pytest.raises((errors.ApiError, errors.ConfigError)):
        new_stream(js, "MIR", subjects=None, mirror=StreamSource(name="FB"))


@pytest.mark.parametrize("kind", ["sources", "mirror"])
def test_fb_107_1301_1302_copies_are_plain_messages(js: JetStream, stream: Stream, kind: str) -> None:
    source = StreamSource(name="FB")
    given: dict[str, Any] = {"sources": [source]} if kind == "sources" else {"mirror": source, "allow_batched": None}
    copy = new_stream(js, "DST", subjects=None, **given)
    published(js, 5)
    wait_until(lambda: count(copy) == 5, 10)
    for message in copy.get_batch(10, subject=">"):
        assert [name for name in message.headers if name != "Nats-Stream-Source"] == []


# --- 200 and 300: batches that are stored -----------------------------------------------------------------------


def test_fb_201_403_1401_a_batch_of_one(js: JetStream, stream: Stream) -> None:
    batch = Batch(js, batch="i" * 64)
    batch.send(1, COMMIT, b"data")
    answer = batch.next()
    assert (answer["batch"], answer["count"], answer["seq"]) == ("i" * 64, 1, 1)
    assert [message.data for message in stream.get_batch(10, subject=">")] == [b"data"]


def test_fb_202_an_end_alone_stores_nothing(js: JetStream, stream: Stream) -> None:
    batch = Batch(js)
    batch.send(1, END)
    answer = batch.last()
    assert "error" in answer or not answer["count"]
    assert count(stream) == 0


def test_fb_301_701_702_the_flow_is_at_most_what_was_asked_for(js: JetStream, stream: Stream) -> None:
    batch = Batch(js, flow=100)
    first = batch.start()
    assert first["type"] == "ack"
    assert first["seq"] in (0, 1)
    batch.append(*range(2, 51))
    answer = batch.commit(51)
    assert (answer["batch"], answer["count"], answer["seq"], count(stream)) == (batch.id, 51, 51, 51)
    assert all(1 <= ack["msgs"] <= 100 for ack in batch.of("ack"))


def test_fb_302_an_end_is_neither_stored_nor_counted(js: JetStream, stream: Stream) -> None:
    batch = Batch(js)
    batch.start()
    batch.append(*range(2, 10))
    batch.send(10, END)
    answer = batch.last()
    assert (answer["count"], answer["seq"], count(stream)) == (9, 9, 9)


def test_fb_303_702_703_acks_go_forward(js: JetStream, stream: Stream) -> None:
    batch = Batch(js, flow=20)
    batch.start()
    batch.append(*range(2, 500))
    assert batch.commit(500)["count"] == 500
    acks = batch.of("ack")
    assert [ack["seq"] for ack in acks] == sorted(ack["seq"] for ack in acks)
    assert max(ack["seq"] for ack in acks) <= 500
    assert max(ack["msgs"] for ack in acks) <= 20
    assert max(ack["msgs"] for ack in acks) >= acks[0]["msgs"]


def test_fb_704_a_lost_ack_stops_no_publisher(js: JetStream, stream: Stream) -> None:
    """The acks of a batch tell of all messages before: the public call goes on with any later one."""
    assert published(js, 100).count == 100
    batch = Batch(js)
    batch.start()
    batch.append(*range(2, 41))
    while not (batch.of("ack") and batch.of("ack")[-1]["seq"] >= 40):
        batch.next()
    assert batch.commit(41)["count"] == 41


# --- 400: what is refused ---------------------------------------------------------------------------------------


def test_fb_401_402_an_unknown_operation_or_gap(js: JetStream, stream: Stream) -> None:
    batch = Batch(js)
    batch.send(1, 9)
    assert code(batch.next()) == 10206
    assert code(Batch(js, gap="maybe").start()) == 10206
    assert count(stream) == 0


def test_fb_404_405_an_id_that_is_too_long_or_unknown(js: JetStream, stream: Stream) -> None:
    assert code(Batch(js, batch="i" * 65).start()) == 10207
    batch = Batch(js)
    batch.append(5)
    assert code(batch.next()) == 10208


def test_fb_406_a_reply_without_its_end_starts_no_batch(js: JetStream, stream: Stream) -> None:
    batch = Batch(js)
    batch.send(1, START, end="")
    answer = batch.next()
    assert "error" in answer or (answer["seq"] == 1 and "batch" not in answer)
    batch.append(2)
    assert code(batch.next()) == 10208


# --- 500 and 600: gaps ------------------------------------------------------------------------------------------


def test_fb_501_503_a_gap_that_is_allowed(js: JetStream, stream: Stream) -> None:
    batch = Batch(js, flow=5)
    batch.start()
    batch.append(2, 4, 5, 6, 7, 8, 9)
    answer = batch.commit(10)
    (gap,) = batch.of("gap")
    assert set(gap) == {"type", "last_seq", "seq"}
    assert gap["seq"] == 4
    assert gap["last_seq"] in (2, 3)
    assert (answer["count"], count(stream)) == (10, 9)


def test_fb_502_1402_several_gaps(js: JetStream, stream: Stream) -> None:
    batch = Batch(js)
    batch.start()
    batch.append(2, 5, 6, 9)
    answer = batch.commit(10)
    assert len(batch.of("gap")) == 2
    assert answer["count"] == 10
    assert {found["type"] for found in batch.seen[:-1]} == {"ack", "gap"}
    assert {"seq", "batch", "count"} <= set(answer)


def test_fb_601_602_a_gap_that_ends_the_batch(js: JetStream, stream: Stream) -> None:
    batch = Batch(js, flow=5, gap="fail")
    batch.start()
    batch.append(2, 3, 5, 6, 7, 8)
    answer = batch.last()
    assert batch.of("gap")
    assert (answer["count"], count(stream)) == (3, 3)
    while True:  # what came too late
        late = batch.next()
        if "error" in late:
            break
    assert code(late) == 10208
    assert count(stream) == 3


# --- 800: expectations ------------------------------------------------------------------------------------------


def test_fb_801_an_expectation_that_fails_ends_the_batch(js: JetStream, stream: Stream) -> None:
    js.publish("t.a", b"before")
    batch = Batch(js, gap="fail")
    batch.send(1, START, Nats_Expected_Last_Sequence="100")
    batch.append(2, 3)
    batch.send(4, COMMIT)
    found = batch.next()
    while "error" not in found:
        found = batch.next()
    assert code(found) == 10071
    batch.append(5)
    while code(found) != 10208:
        found = batch.next()
    assert count(stream) == 1


def test_fb_802_an_expectation_that_fails_and_is_let_go(js: JetStream, stream: Stream) -> None:
    js.publish("t.a", b"before")
    batch = Batch(js)
    batch.send(1, START, Nats_Expected_Last_Sequence="100")
    batch.append(2, 3, 4, 5, 6)
    answer = batch.commit(7)
    (refused,) = [found for found in batch.seen if found.get("error")]
    assert (refused["type"], refused["seq"], code(refused)) == ("err", 1, 10071)
    assert (answer["count"], count(stream)) == (7, 7)


def test_fb_803_an_expected_message_id_is_refused(js: JetStream, stream: Stream) -> None:
    """The case lets the server choose; 2.15 refuses it."""
    batch = Batch(js, gap="fail")
    batch.send(1, START, Nats_Expected_Last_Msg_Id="foo")
    assert code(batch.commit(2)) == 10070


# --- 900: pings -------------------------------------------------------------------------------------------------


def test_fb_901_a_ping_brings_the_state_again(js: JetStream, stream: Stream) -> None:
    batch = Batch(js)
    batch.start()
    batch.append(*range(2, 16))
    wait_until(lambda: count(stream) == 15)
    batch.send(15, PING)
    while batch.next()["seq"] < 10:
        pass
    batch.append(16)
    assert batch.commit(17)["count"] == 17


def test_fb_902_a_ping_has_no_number(js: JetStream, stream: Stream) -> None:
    batch = Batch(js)
    batch.start()
    batch.append(2, 3)
    for _ in range(3):
        batch.send(3, PING)
    batch.append(4)
    assert batch.commit(5)["count"] == 5
    assert batch.of("gap") == []
    assert count(stream) == 5


# --- 1000: idle batches -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_fb_1001_1002_1003_an_idle_batch_is_given_up(js: JetStream, stream: Stream) -> None:
    idle, busy, pinged = (Batch(js) for _ in range(3))
    for batch in (idle, busy, pinged):
        batch.start()
    for number in (2, 3, 4):
        time_passes(5.0, "the server gives a batch up after 10 s without a message")
        busy.append(number)
        pinged.send(1, PING)
    idle.append(2)
    assert code(idle.next()) == 10208
    assert busy.commit(5)["count"] == 5
    pinged.append(2)
    assert pinged.commit(3)["count"] == 3
    assert count(stream) == 9  # the first message of the idle batch stays


# --- 1100: limits -----------------------------------------------------------------------------------------------


def opened(js: JetStream, subject: str, batches: int = 1000) -> str:
    """The inbox of open batches with the ids 0, 1, ...; each has an answer."""
    inbox = js.nc.new_inbox()
    with js.nc.subscribe(f"{inbox}.>") as answers:
        for number in range(batches):
            js.nc.publish(subject, b"x", reply=f"{inbox}.{number}.10.ok.1.0.$FI")
        waiting = {str(number) for number in range(batches)}
        while waiting:
            answer = answers.next(timeout=10)
            assert json.loads(answer.data)["type"] == "ack"
            waiting.discard(answer.subject[len(inbox) + 1 :].split(".")[0])
    return inbox


def test_fb_1101_1103_a_stream_has_at_most_1000_open_batches(js: JetStream, stream: Stream) -> None:
    inbox = opened(js, "t.a")
    assert code(Batch(js).start()) == 10211
    with js.nc.subscribe(f"{inbox}.0.>") as answers:
        js.nc.publish("t.a", b"x", reply=f"{inbox}.0.10.ok.2.2.$FI")
        while "type" in (answer := json.loads(answers.next(timeout=10).data)):
            pass
    assert answer["count"] == 2
    assert published(js, 1002).count == 1002


@pytest.mark.slow
def test_fb_1102_a_server_has_at_most_50000_open_batches(js: JetStream, stream: Stream) -> None:
    for number in range(50):
        new_stream(js, f"FB{number}", subjects=[f"many.{number}"])
        opened(js, f"many.{number}")
    assert code(Batch(js).start()) == 10211
    assert count(stream) == 0
    js.delete_stream("FB0")
    assert published(js).count == 3


# --- 1200: a new leader -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("gap", ["ok", "fail"])
def test_fb_1201_1202_a_new_leader_continues_or_ends_it(server: NatsServer, gap: str) -> None:
    if server.version < (2, 14, 0):
        pytest.skip("fast batches need nats-server 2.14")
    with Cluster(3) as cluster, jsclient.connect(cluster.url) as nc:
        js = JetStream(nc)
        stream = new_stream(js, num_replicas=3, storage="file")
        batch = Batch(js, gap=gap)
        batch.start()
        batch.append(*range(2, 51))
        wait_until(lambda: count(stream) == 50, 10)
        stream.step_down()
        batch.append(*range(51, 101))
        batch.send(101, COMMIT)
        answer = batch.last()
        assert answer["count"] == 101 if gap == "ok" else 50 <= answer["count"] <= 101
        wait_until(lambda: count(stream) <= answer["count"], 10)
        assert count(stream) == answer["count"] or batch.of("gap")
