"""Cases of the conformance framework for atomic batches (ADR-50): the name of a test has the numbers of its cases."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from tests.pauses import time_passes

import jsclient
from jsclient import errors
from jsclient.jetstream import JetStream, PubAck, Stream, StreamConfig, StreamSource
from jsclient.nuid import next_nuid
from jsclient.testing import Cluster, NatsServer, wait_until


@pytest.fixture
def js(server: NatsServer, js: JetStream) -> JetStream:
    if server.version < (2, 12, 0):
        pytest.skip("atomic batches need nats-server 2.12")
    return js


def new_stream(js: JetStream, name: str = "AB", **config: Any) -> Stream:
    settings = {"subjects": ["t.>"], "allow_atomic": True, "allow_direct": True, "storage": "memory"}
    return js.create_stream(StreamConfig(name=name, **{**settings, **config}))


@pytest.fixture
def stream(js: JetStream) -> Stream:
    return new_stream(js)


ABANDONED = "$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.AB"


def reason(abandoned: jsclient.Subscription) -> str:
    return str(json.loads(abandoned.next(timeout=5).data)["reason"])


def commit(js: JetStream, *payloads: bytes) -> PubAck:
    batch = js.atomic_batch()
    for payload in payloads:
        batch.add("t.a", payload)
    return batch.commit()


def send(js: JetStream, batch: str, number: int | None, commit: str = "", data: bytes = b"") -> dict[str, Any]:
    """The answer to one message of a batch: {} if the server only says that it came."""
    headers = {"Nats-Batch-Id": batch}
    if number is not None:
        headers["Nats-Batch-Sequence"] = str(number)
    if commit:
        headers["Nats-Batch-Commit"] = commit
    answer = js.nc.request("t.a", data, headers=headers, timeout=5).data
    found: dict[str, Any] = json.loads(answer) if answer else {}
    return found


def code(answer: dict[str, Any]) -> int:
    return int(answer["error"]["err_code"])


def stored(stream: Stream) -> list[Any]:
    return list(stream.get_batch(100, subject=">"))


# --- 100: the setting -------------------------------------------------------------------------------------------


def test_ab_101_a_stream_for_batches(stream: Stream) -> None:
    config = stream.info().config
    assert config.allow_atomic
    assert config.metadata is not None
    assert int(config.metadata["_nats.req.level"]) >= 2


def test_ab_102_103_it_can_be_switched(js: JetStream) -> None:
    stream = new_stream(js, allow_atomic=False)
    config = stream.info().config
    assert code(send(js, next_nuid(), 1)) == 10174
    js.update_stream(config.replace(allow_atomic=True))
    assert commit(js, b"1").count == 1
    js.update_stream(config)
    with pytest.raises(errors.BatchRefused) as caught:
        commit(js, b"1")
    assert caught.value.err_code == 10174


def test_ab_104_105_settings_that_exclude_it(js: JetStream, stream: Stream) -> None:
    with pytest.raises(errors.ApiError):
        new_stream(js, "ASYNC", subjects=["async"], storage="file", persist_mode="async")
    with pytest.raises((errors.ApiError, errors.ConfigError)):
        new_stream(js, "MIR", subjects=None, mirror=StreamSource(name="AB"))


def test_ab_106_sources_leave_the_headers_of_batches_out(js: JetStream, stream: Stream) -> None:
    copy = new_stream(js, "DST", subjects=None, sources=[StreamSource(name="AB")])
    commit(js, b"1", b"2", b"3")
    wait_until(lambda: copy.info().state.messages == 3, 10)
    assert [name for message in stored(copy) for name in message.headers if name.startswith("Nats-Batch")] == []


# --- 200: batches that are stored -------------------------------------------------------------------------------


def test_ab_201_a_batch_of_one(js: JetStream, stream: Stream) -> None:
    ack = commit(js, b"1")
    assert (ack.count, ack.seq) == (1, 1)
    (message,) = stored(stream)
    headers = dict(message.headers)
    assert (headers["Nats-Batch-Id"], headers["Nats-Batch-Sequence"], headers["Nats-Batch-Commit"]) == (
        ack.batch,
        "1",
        "1",
    )


def test_ab_202_a_commit_that_is_not_stored(js: JetStream, stream: Stream) -> None:
    if not js.nc.server_info.at_least(2, 14):
        pytest.skip("needs nats-server 2.14")
    batch = next_nuid()
    assert send(js, batch, 1, data=b"data") == {}
    ack = send(js, batch, 2, "eob", b"ignored")
    assert (ack["batch"], ack["count"], ack["seq"]) == (batch, 1, 1)
    (message,) = stored(stream)
    assert (message.data, message.headers["Nats-Batch-Commit"]) == (b"data", "1")


def test_ab_203_204_205_701_a_batch_of_several(js: JetStream, stream: Stream) -> None:
    js.publish("t.a", b"before")
    ack = commit(js, b"a", b"b", b"c", b"d")
    assert (ack.count, ack.seq) == (4, 5)
    messages = stored(stream)[1:]
    assert [message.data for message in messages] == [b"a", b"b", b"c", b"d"]
    assert [message.headers["Nats-Batch-Sequence"] for message in messages] == ["1", "2", "3", "4"]
    assert [message.headers.get("Nats-Batch-Commit") for message in messages] == [None, None, None, "1"]


# --- 300: ids and numbers ---------------------------------------------------------------------------------------


def test_ab_301_302_an_id_has_at_most_64_characters(js: JetStream, stream: Stream) -> None:
    assert send(js, "x" * 64, 1, "1")["batch"] == "x" * 64
    assert code(send(js, "x" * 65, 1, "1")) == 10179
    assert [message.headers["Nats-Batch-Id"] for message in stored(stream)] == ["x" * 64]


def test_ab_303_304_a_message_without_number(js: JetStream, stream: Stream) -> None:
    assert code(send(js, next_nuid(), None)) == 10175
    batch = next_nuid()
    assert send(js, batch, 1) == {}
    assert code(send(js, batch, None)) == 10175
    assert stored(stream) == []


@pytest.mark.parametrize("numbers", [[2], [1, 3], [1, 1], [1, 3, 2]], ids=str)
def test_ab_305_306_307_308_numbers_out_of_order(js: JetStream, stream: Stream, numbers: list[int]) -> None:
    batch = next_nuid()
    answers = [send(js, batch, number) for number in numbers]
    assert any("error" in answer for answer in answers)
    assert stored(stream) == []


def test_ab_309_a_batch_that_is_unknown(js: JetStream, stream: Stream) -> None:
    assert "error" in send(js, next_nuid(), 5)
    assert stored(stream) == []


def test_ab_310_311_a_batch_has_at_most_1000_messages(js: JetStream, stream: Stream) -> None:
    assert commit(js, *[b"x"] * 1000).count == 1000
    stream.purge()
    batch = js.atomic_batch()
    for _ in range(1000):
        batch.add("t.a", b"x")
    with pytest.raises(errors.BatchTooLarge):
        batch.add("t.a", b"x")
    batch.discard()
    with js.nc.subscribe(ABANDONED) as abandoned:
        js.nc.flush()
        large = next_nuid()
        assert send(js, large, 1) == {}
        for number in range(2, 1001):
            js.nc.publish("t.a", b"", headers={"Nats-Batch-Id": large, "Nats-Batch-Sequence": str(number)})
        assert code(send(js, large, 1001)) == 10199
        assert reason(abandoned) == "large"
    assert stored(stream) == []


# --- 400: expectations ------------------------------------------------------------------------------------------


def test_ab_401_410_expectations_that_hold(js: JetStream, stream: Stream) -> None:
    last = js.publish("t.a", b"before").seq
    for options in ({"expected_last_seq": last}, {"expected_last_subject_seq": last + 2}):
        batch = js.atomic_batch()
        batch.add("t.a", b"1", **options)  # type: ignore[arg-type]
        batch.add("t.a", b"2")
        assert batch.commit().count == 2


def test_ab_402_411_a_wrong_expectation_is_refused_at_the_commit(js: JetStream, stream: Stream) -> None:
    last = js.publish("t.a", b"before").seq
    for options in ({"expected_last_seq": last + 99}, {"expected_last_subject_seq": last + 10}):
        batch = js.atomic_batch()
        batch.add("t.a", b"1", **options)  # type: ignore[arg-type]
        batch.add("t.a", b"2")
        with pytest.raises(errors.WrongLastSequence):
            batch.commit()
    assert [message.data for message in stored(stream)] == [b"before"]


def test_ab_403_another_message_before_the_commit(js: JetStream, stream: Stream) -> None:
    last = js.publish("t.a", b"before").seq
    batch = js.atomic_batch()
    batch.add("t.a", b"1", expected_last_seq=last)
    batch.add("t.a", b"2")
    js.publish("t.b", b"between")
    with pytest.raises(errors.WrongLastSequence):
        batch.commit()
    assert [message.data for message in stored(stream)] == [b"before", b"between"]


def test_ab_404_405_expectations_that_a_batch_cannot_have(js: JetStream, stream: Stream) -> None:
    batch = js.atomic_batch()
    batch.add("t.a", b"1")
    with pytest.raises(errors.JsClientError):
        batch.add("t.a", b"2", expected_last_seq=7)
        batch.commit()
    other = js.atomic_batch()
    with pytest.raises((errors.BatchRefused, errors.ConfigError)):
        other.add("t.a", b"1", expected_last_msg_id="foo")
        other.commit()
    assert stored(stream) == []


def test_ab_412_a_subject_that_the_batch_has_written_to(js: JetStream, stream: Stream) -> None:
    """The case also accepts a batch that is stored; nats-server 2.15.1 refuses it at the commit."""
    last = js.publish("t.a", b"before").seq
    batch = next_nuid()
    assert send(js, batch, 1) == {}
    more = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": "2", "Nats-Expected-Last-Subject-Sequence": str(last)}
    js.nc.publish("t.a", b"", headers=more)
    answer = send(js, batch, 3, "1")
    assert stream.info().state.messages == 1 + (0 if "error" in answer else 3)


# --- 500: message ids -------------------------------------------------------------------------------------------


def with_ids(js: JetStream, *ids: str) -> PubAck:
    batch = js.atomic_batch()
    for one in ids:
        batch.add("t.a", b"x", msg_id=one)
    return batch.commit()


def test_ab_501_502_503_ids_in_a_batch(js: JetStream, stream: Stream) -> None:
    assert with_ids(js, "m1", "m2", "m3").count == 3
    assert [message.headers["Nats-Msg-Id"] for message in stored(stream)] == ["m1", "m2", "m3"]
    for ids in (("dup", "dup", "m4"), ("m1", "m5", "m6")):
        with pytest.raises((errors.BatchRefused, errors.NotStored)):
            with_ids(js, *ids)
    assert stream.info().state.messages == 3


# --- 600: the level of the API ----------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [0, 1, 2])
def test_ab_601_602_603_604_a_level_that_the_server_lacks(js: JetStream, stream: Stream, late: int) -> None:
    level = js.api_level()
    assert level is not None
    batch, wrong = next_nuid(), {"Nats-Required-Api-Level": str(level + 99)}
    with js.nc.subscribe(ABANDONED) as abandoned:
        js.nc.flush()
        if late:
            assert send(js, batch, 1) == {}
        number = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": "2" if late else "1"}
        if late == 2:
            js.nc.publish("t.a", b"", headers={**number, **wrong})
        else:
            assert "error" in json.loads(js.nc.request("t.a", b"", headers={**number, **wrong}, timeout=5).data)
        assert reason(abandoned) == "unsupported"
    if late == 2:
        assert "error" in send(js, batch, 3, "1")
    assert stored(stream) == []
    enough = {"Nats-Batch-Id": "ok", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"}
    answer = js.nc.request("t.a", b"", headers={**enough, "Nats-Required-Api-Level": str(level)}, timeout=5)
    assert json.loads(answer.data)["count"] == 1


# --- 700: commits -----------------------------------------------------------------------------------------------


def test_ab_702_an_end_is_not_counted(js: JetStream, stream: Stream) -> None:
    if not js.nc.server_info.at_least(2, 14):
        pytest.skip("needs nats-server 2.14")
    batch = next_nuid()
    assert send(js, batch, 1) == send(js, batch, 2) == {}
    ack = send(js, batch, 3, "eob")
    assert (ack["count"], ack["seq"], stream.info().state.last_seq) == (2, 2, 2)
    assert stored(stream)[-1].headers["Nats-Batch-Commit"] == "1"


def test_ab_703_an_end_alone_stores_nothing(js: JetStream, stream: Stream) -> None:
    """The case accepts an error, too; nats-server 2.15.1 answers with one."""
    if not js.nc.server_info.at_least(2, 14):
        pytest.skip("needs nats-server 2.14")
    answer = send(js, next_nuid(), 1, "eob", b"ignored")
    assert "error" in answer or answer["count"] == 0
    assert stored(stream) == []


def test_ab_704_an_unknown_commit(js: JetStream, stream: Stream) -> None:
    batch = next_nuid()
    assert send(js, batch, 1) == {}
    assert "error" in send(js, batch, 2, "nope")
    assert stored(stream) == []


# --- 800 to 1200: many at a time, other messages ----------------------------------------------------------------


def test_ab_803_a_stream_has_at_most_50_open_batches(js: JetStream, stream: Stream) -> None:
    batches = [next_nuid() for _ in range(50)]
    assert [send(js, batch, 1) for batch in batches] == [{}] * 50
    assert "error" in send(js, next_nuid(), 1)
    assert send(js, batches[0], 2, "1")["count"] == 2
    assert send(js, next_nuid(), 1) == {}


def test_ab_804_a_server_has_at_most_1000_open_batches(js: JetStream, stream: Stream) -> None:
    for number in range(20):
        new_stream(js, f"AB{number}", subjects=[f"many.{number}"])
        for _ in range(50):
            first = {"Nats-Batch-Id": next_nuid(), "Nats-Batch-Sequence": "1"}
            assert js.nc.request(f"many.{number}", b"", headers=first, timeout=5).data == b""
    assert "error" in send(js, next_nuid(), 1)
    js.delete_stream("AB0")
    assert send(js, next_nuid(), 1) == {}


@pytest.mark.slow
def test_ab_801_802_805_1001_an_idle_batch_is_abandoned(js: JetStream, stream: Stream) -> None:
    idle, quiet, busy = (next_nuid() for _ in range(3))
    inbox = js.nc.new_inbox()
    with js.nc.subscribe(ABANDONED) as abandoned, js.nc.subscribe(inbox) as answers:
        for batch in (idle, busy):
            assert send(js, batch, 1) == {}
        js.nc.publish("t.a", b"", reply=inbox, headers={"Nats-Batch-Id": quiet, "Nats-Batch-Sequence": "1"})
        assert answers.next(timeout=5).data == b""
        js.nc.publish("t.a", b"", headers={"Nats-Batch-Id": quiet, "Nats-Batch-Sequence": "2"})
        for number in (2, 3, 4):
            time_passes(5.0, "the server abandons a batch after 10 s without a message")
            assert send(js, busy, number) == {}
        advisories = [json.loads(abandoned.next(timeout=5).data) for _ in range(2)]
        assert code(send(js, idle, 2)) == 10176
        assert send(js, busy, 5, "1")["count"] == 5
        js.nc.flush()
        assert (abandoned.pending, answers.pending) == (0, 0)
    assert {advisory["batch"] for advisory in advisories} == {idle, quiet}
    for advisory in advisories:
        assert advisory["type"] == "io.nats.jetstream.advisory.v1.stream_batch_abandoned"
        assert (advisory["stream"], advisory["reason"]) == ("AB", "timeout")
        assert advisory["id"]
        assert dt.datetime.fromisoformat(advisory["timestamp"][:19])
    assert [message.headers["Nats-Batch-Id"] for message in stored(stream)] == [busy] * 5


def test_ab_901_902_a_new_leader_has_all_of_a_batch_or_nothing(server: NatsServer) -> None:
    if server.version < (2, 12, 0):
        pytest.skip("atomic batches need nats-server 2.12")
    with Cluster(3) as cluster, jsclient.connect(cluster.url) as nc:
        js = JetStream(nc)
        stream = new_stream(js, num_replicas=3, storage="file")
        ack = commit(js, b"1", b"2", b"3", b"4", b"5")
        stream.step_down()
        assert (ack.count, ack.seq, stream.info().state.last_seq) == (5, 5, 5)
        wait_until(lambda: [message.data for message in stored(stream)] == [b"1", b"2", b"3", b"4", b"5"], 10)
        batch = next_nuid()
        assert [send(js, batch, number) for number in range(1, 6)] == [{}] * 5
        stream.step_down()
        answer = send(js, batch, 6, "1")
        assert stream.info().state.last_seq == 5 + (0 if "error" in answer else answer["count"])
        assert answer.get("count", 6) == 6


def test_ab_1002_1003_1004_why_a_batch_is_abandoned(js: JetStream, stream: Stream) -> None:
    """`large` and `unsupported` are in the tests of AB-310 and AB-602."""
    batch = next_nuid()
    with js.nc.subscribe(ABANDONED) as abandoned:
        js.nc.flush()
        send(js, batch, 1)
        send(js, batch, 3)
        assert reason(abandoned) == "incomplete"


def test_ab_1101_1102_batches_and_messages_at_the_same_time(js: JetStream, stream: Stream) -> None:
    first, second = js.atomic_batch(), js.atomic_batch()
    for data in (b"1", b"2", b"3"):
        first.add("t.a", b"a" + data)
        second.add("t.a", b"b" + data)
    js.publish("t.a", b"alone")
    assert (first.commit().seq, second.commit().seq) == (4, 7)
    assert b" ".join(message.data for message in stored(stream)) == b"alone a1 a2 a3 b1 b2 b3"


def test_ab_1201_1202_empty_payloads_and_headers(js: JetStream, stream: Stream) -> None:
    batch = js.atomic_batch()
    batch.add("t.a", b"", headers={"X-Test-Tag": "1"})
    batch.add("t.a", b"", headers={"X-Test-Tag": "2"})
    assert batch.commit().count == 2
    assert [(message.data, message.headers["X-Test-Tag"]) for message in stored(stream)] == [(b"", "1"), (b"", "2")]


def test_ab_1203_a_commit_without_batch(js: JetStream, stream: Stream) -> None:
    answer = json.loads(js.nc.request("t.a", b"x", headers={"Nats-Batch-Commit": "1"}, timeout=5).data)
    assert "batch" not in answer
    assert "count" not in answer
