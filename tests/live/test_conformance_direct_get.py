"""Cases of the conformance framework for direct gets (ADR-31): the name of a test has the numbers of its cases."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import JetStream, Stream, StreamConfig, StreamSource
from jsclient.testing import Cluster, wait_until

API = "$JS.API.DIRECT.GET.DG"
NOBODY = (errors.JetStreamUnavailable, errors.RequestTimeout)


def new_stream(js: JetStream, *subjects: str, **config: Any) -> Stream:
    """A stream with direct gets, and with one message for each of the subjects: `m1`, `m2` ..."""
    settings = {"allow_direct": True, "storage": "memory", **config}
    stream = js.create_stream(StreamConfig(name="DG", subjects=["k.>"], **settings))
    for number, subject in enumerate(subjects, 1):
        js.publish(subject, f"m{number}")
    return stream


@pytest.fixture
def batched(js: JetStream) -> JetStream:
    if not js.nc.server_info.at_least(2, 11):
        pytest.skip("batched direct gets need nats-server 2.11")
    return js


def replies(js: JetStream, **request: Any) -> list[jsclient.Msg]:
    """Everything that the server answers to a batched request; the last one is its end."""
    found = []
    for message in js.nc.request_many(API, json.dumps(request).encode(), timeout=5):
        found.append(message)
        if message.status is not None:
            break
    return found


def number(message: jsclient.Msg, name: str) -> int:
    return int(message.headers[name])


# --- 100: allow_direct ------------------------------------------------------------------------------------------


def test_dg_101_104_allow_direct_serves_direct_gets(js: JetStream) -> None:
    stream = new_stream(js, "k.a")
    assert stream.info().config.allow_direct
    message = stream.get_last_msg("k.a", direct=True)
    assert (message.stream, message.subject, message.seq, message.data) == ("DG", "k.a", 1, b"m1")
    assert message.time is not None


@pytest.mark.parametrize("limit", [None, 5])
def test_dg_102_103_without_it_nobody_answers(js: JetStream, limit: int | None) -> None:
    stream = new_stream(js, "k.a", allow_direct=False, max_msgs_per_subject=limit)
    assert not stream.info().config.allow_direct
    with pytest.raises(NOBODY):
        stream.get_last_msg("k.a", direct=True, timeout=1)
    assert stream.get_last_msg("k.a").data == b"m1", "the leader answers instead"


def test_dg_105_it_can_be_switched(js: JetStream) -> None:
    stream = new_stream(js, "k.a", allow_direct=False)
    config = stream.info().config
    js.update_stream(config.replace(allow_direct=True))
    wait_until(lambda: serves(stream), 5)
    js.update_stream(config)
    wait_until(lambda: not serves(stream), 5)


def serves(stream: Stream) -> bool:
    try:
        return stream.get_msg(1, direct=True, timeout=0.5).seq == 1
    except NOBODY:
        return False


def test_dg_106_replicas_answer() -> None:
    with Cluster(3) as cluster, jsclient.connect(cluster.url) as nc:
        stream = new_stream(JetStream(nc), "k.a", num_replicas=3)
        wait_until(lambda: serves(stream), 10)
        assert stream.get_last_msg("k.a", direct=True).data == b"m1"


# --- 200: requests ----------------------------------------------------------------------------------------------


def test_dg_201_202_203_204_one_message(js: JetStream) -> None:
    stream = new_stream(js, "k.a", "k.b", "k.a")
    found = stream.get_msg(2, direct=True)
    assert (found.seq, found.subject, found.data) == (2, "k.b", b"m2")
    assert stream.get_last_msg("k.a", direct=True).data == b"m3"
    assert stream.get_msg(0, subject="k.a", direct=True).seq == 1
    assert stream.get_msg(2, subject="k.a", direct=True).seq == 3


def test_dg_205_the_first_since_a_time(js: JetStream) -> None:
    stream = new_stream(js, "k.a", "k.a", "k.a")
    second = stream.get_msg(2).time
    assert second is not None
    assert stream.get_first_msg(second).seq == 2


def test_dg_206_207_304_what_is_not_there(js: JetStream) -> None:
    stream = new_stream(js)
    with pytest.raises(errors.MessageNotFound):
        stream.get_msg(1, direct=True)
    with pytest.raises(errors.MessageNotFound):
        stream.get_last_msg("k.none", direct=True)


@pytest.mark.parametrize("body", [b"", b"{this is not json"])
def test_dg_208_209_requests_that_cannot_be_read(js: JetStream, body: bytes) -> None:
    new_stream(js, "k.a")
    status = js.nc.request(API, body, timeout=5).status
    assert status is not None
    assert status.code == 408


def test_dg_210_a_batch_begins_at_the_first_message(batched: JetStream) -> None:
    new_stream(batched, "k.a", "k.a", "k.a")
    found = replies(batched, batch=3, next_by_subj="k.a")
    assert [number(message, "Nats-Sequence") for message in found[:-1]] == [1, 2, 3]


# --- 300: the subject in the request ----------------------------------------------------------------------------


def test_dg_301_303_the_client_appends_the_subject(js: JetStream) -> None:
    new_stream(js, "k.a", "k.users.1234.name", "k.a")
    asked: list[tuple[str, bytes]] = []
    own = JetStream(js.nc, on_request=lambda subject, payload: asked.append((subject, payload)))
    stream = own.stream("DG", fetch_info=False)
    assert stream.get_last_msg("k.a", direct=True).data == b"m3"
    assert stream.get_last_msg("k.users.1234.name", direct=True).subject == "k.users.1234.name"
    assert [request for request in asked if "DIRECT" in request[0]] == [
        (f"{API}.k.a", b""),
        (f"{API}.k.users.1234.name", b""),
    ]


def test_dg_302_no_payload_beside_the_subject(js: JetStream) -> None:
    if not js.nc.server_info.at_least(2, 10):
        pytest.skip("2.9 reads the payload")
    new_stream(js, "k.a")
    status = js.nc.request(f"{API}.k.a", b'{"seq":1}', timeout=5).status
    assert status is not None
    assert status.code == 408


# --- 400: batches -----------------------------------------------------------------------------------------------


def test_dg_401_405_406_602_a_batch_and_its_end(batched: JetStream) -> None:
    stream = new_stream(batched, *["k.a"] * 5)
    assert [message.seq for message in stream.get_batch(3, subject="k.a")] == [1, 2, 3]
    *messages, end = replies(batched, batch=3, seq=1, next_by_subj="k.a")
    assert [number(message, "Nats-Sequence") for message in messages] == [1, 2, 3]
    assert "Nats-Num-Pending" in messages[0].headers
    assert [number(message, "Nats-Last-Sequence") for message in [*messages[1:], end]] == [1, 2, 3]
    assert (end.status, end.data, number(end, "Nats-Num-Pending")) == (jsclient.Status(204, "EOB"), b"", 2)


def test_dg_402_a_batch_since_a_time(batched: JetStream) -> None:
    stream = new_stream(batched, *["k.a"] * 5)
    third = stream.get_msg(3).time
    assert [message.seq for message in stream.get_batch(5, start_time=third, subject="k.a")] == [3, 4, 5]


def test_differs_from_dg_403_the_last_message_of_a_batch_may_be_too_much(batched: JetStream) -> None:
    stream = new_stream(batched)
    for _ in range(10):
        batched.publish("k.a", bytes(100))
    *messages, end = replies(batched, batch=10, max_bytes=250, seq=1, next_by_subj="k.a")
    assert len(messages) == 3, "300 bytes: the case expects two messages at most"
    assert number(end, "Nats-Num-Pending") > 0
    assert len(list(stream.get_batch(10, max_bytes=250, subject="k.a"))) == 10, "in several requests"


def test_dg_404_fewer_than_asked_for(batched: JetStream) -> None:
    stream = new_stream(batched, "k.a", "k.a")
    assert len(list(stream.get_batch(10, subject="k.a"))) == 2
    assert number(replies(batched, batch=10, seq=1, next_by_subj="k.a")[-1], "Nats-Num-Pending") == 0


def test_dg_407_a_batch_of_none_is_a_single_get(batched: JetStream) -> None:
    stream = new_stream(batched, "k.a", "k.a")
    message = batched.nc.request(API, b'{"batch":0,"seq":1,"next_by_subj":"k.a"}', timeout=5)
    assert message.status is None
    assert "Nats-Num-Pending" not in message.headers
    with pytest.raises(errors.ConfigError):
        stream.get_batch(0)


# --- 500: the last of several subjects --------------------------------------------------------------------------

USER = ["k.1.name", "k.1.surname", "k.1.address", "k.1.address"]


def values(stream: Stream, *subjects: str, **bound: Any) -> dict[str, bytes]:
    return {message.subject: message.data for message in stream.get_last_msgs(list(subjects), **bound)}


def test_dg_501_502_503_603_the_last_of_each_subject(batched: JetStream) -> None:
    stream = new_stream(batched, *USER)
    assert values(stream, "k.1.name", "k.1.address") == {"k.1.name": b"m1", "k.1.address": b"m4"}
    assert values(stream, "k.1.>") == {"k.1.name": b"m1", "k.1.surname": b"m2", "k.1.address": b"m4"}
    assert values(stream, "k.1.>", up_to_seq=3)["k.1.address"] == b"m3"
    end = replies(batched, multi_last=["k.1.>"])[-1]
    assert (number(end, "Nats-UpTo-Sequence"), number(end, "Nats-Num-Pending")) == (4, 0)
    assert number(replies(batched, multi_last=["k.1.>"], up_to_seq=3)[-1], "Nats-UpTo-Sequence") == 3


def test_dg_504_as_it_was_at_a_time(batched: JetStream) -> None:
    stream = new_stream(batched, *USER)
    second = stream.get_msg(4).time
    assert second is not None
    before = dt.datetime.fromisoformat(second.isoformat()) - dt.timedelta(microseconds=1)
    assert values(stream, "k.1.>", up_to_time=before)["k.1.address"] == b"m3"


def test_dg_505_508_pages_show_one_moment(batched: JetStream) -> None:
    new_stream(batched, "k.a", "k.b", "k.c", "k.d", "k.e")
    *first, end = replies(batched, multi_last=["k.>"], batch=2)
    assert number(end, "Nats-Num-Pending") > 0
    batched.publish("k.a", b"new")
    cursor = {"seq": number(end, "Nats-Last-Sequence") + 1, "up_to_seq": number(end, "Nats-UpTo-Sequence")}
    *second, end = replies(batched, multi_last=["k.>"], batch=5, **cursor)
    assert [message.data for message in [*first, *second]] == [b"m1", b"m2", b"m3", b"m4", b"m5"]
    assert number(end, "Nats-Num-Pending") == 0


@pytest.mark.parametrize("many", [1024, 1025])
def test_dg_506_507_at_most_1024_subjects_for_one_request(batched: JetStream, many: int) -> None:
    stream = new_stream(batched)
    for each in range(many):
        batched.publish_async(f"k.{each}", b"x")
    batched.publish_async_complete(10)
    found = replies(batched, multi_last=["k.>"])
    assert len(found) == (1025 if many == 1024 else 1)
    assert found[-1].status is not None
    assert found[-1].status.code == (204 if many == 1024 else 413)
    assert len(values(stream, "k.>")) == many, "the client asks for parts"


# --- 600: answers -----------------------------------------------------------------------------------------------


def test_dg_601_604_605_an_answer_is_the_stored_message(js: JetStream) -> None:
    stream = new_stream(js)
    js.publish("k.a", b'{"foo":"bar"}', headers={"X-Custom": "hello"})
    raw = js.nc.request(API, b'{"last_by_subj":"k.a"}', timeout=5)
    assert (raw.status, raw.data) == (None, b'{"foo":"bar"}')
    assert {"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "X-Custom"} == set(raw.headers)
    assert stream.get_last_msg("k.a", direct=True).headers.to_dict() == {"X-Custom": ["hello"]}


# --- 700: mirrors -----------------------------------------------------------------------------------------------


def mirror(js: JetStream, **config: Any) -> Stream:
    return js.create_stream(StreamConfig(name="MIR", mirror=StreamSource(name="DG"), storage="memory", **config))


def test_dg_701_a_mirror_answers_for_its_origin(js: JetStream) -> None:
    stream = new_stream(js, *["k.a"] * 5)
    copy = mirror(js)
    wait_until(lambda: copy.info().state.messages == 5, 10)
    assert {stream.get_last_msg("k.a", direct=True).data for _ in range(20)} == {b"m5"}


def test_dg_702_a_mirror_answers_while_its_origin_is_offline() -> None:
    with Cluster(3) as cluster, jsclient.connect(cluster.url) as nc:
        js = JetStream(nc)
        stream = new_stream(js, "k.a")
        copy = mirror(js, num_replicas=3)
        wait_until(lambda: copy.info().state.messages == 1, 10)
        cluster.stream_leader("DG").stop()
        wait_until(lambda: serves(stream), 20)


def test_dg_703_not_for_an_origin_without_direct_gets(js: JetStream) -> None:
    stream = new_stream(js, "k.a", allow_direct=False)
    copy = mirror(js)
    wait_until(lambda: copy.info().state.messages == 1, 10)
    assert not serves(stream)


@pytest.mark.parametrize("direct", [True, False])
def test_dg_704_705_a_mirror_takes_the_setting_of_its_origin(js: JetStream, direct: bool) -> None:
    new_stream(js, allow_direct=direct)
    assert bool(mirror(js).info().config.mirror_direct) is direct
    if direct:
        js.delete_stream("MIR")
        assert mirror(js, mirror_direct=True).info().config.mirror_direct


def test_dg_706_it_follows_at_its_next_update(js: JetStream) -> None:
    if not js.nc.server_info.at_least(2, 11):
        pytest.skip("older servers keep the setting of the mirror")
    stream = new_stream(js)
    copy = mirror(js)
    js.update_stream(stream.info().config.replace(allow_direct=False))
    config = copy.info().config
    assert config.mirror_direct
    assert not js.update_stream(config).info().config.mirror_direct
