"""Cases of the conformance framework for counters (ADR-49): the name of a test has the numbers of its cases."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jsclient import errors
from jsclient.jetstream import (
    Counters,
    JetStream,
    RawStreamMsg,
    Stream,
    StreamConfig,
    StreamSource,
    SubjectTransform,
    counter_sources,
)
from jsclient.testing import NatsServer, wait_until

HITS = "counter.hits"


@pytest.fixture
def js(server: NatsServer, js: JetStream) -> JetStream:
    if server.version < (2, 12, 0):
        pytest.skip("counters need nats-server 2.12")
    return js


def new_stream(js: JetStream, name: str = "CTR", **config: Any) -> Stream:
    settings = {"subjects": ["counter.>"], "allow_msg_counter": True, "allow_direct": True, "storage": "memory"}
    return js.create_stream(StreamConfig(name=name, **{**settings, **config}))


@pytest.fixture
def stream(js: JetStream) -> Stream:
    return new_stream(js)


def add(js: JetStream, *increments: int, subject: str = HITS) -> list[str]:
    """The values after each increment, as the acks say them."""
    return [js.publish(subject, b"", incr=increment).val for increment in increments]


def count(stream: Stream) -> int:
    return stream.info().state.messages


def stored(stream: Stream) -> list[RawStreamMsg]:
    return list(stream.get_batch(100))


def header(message: RawStreamMsg, name: str = "Nats-Incr") -> str | None:
    return message.headers.get(name)


# --- 100: the setting -------------------------------------------------------------------------------------------


def test_ctr_101_a_stream_of_counters(stream: Stream) -> None:
    config = stream.info().config
    assert config.allow_msg_counter
    assert config.metadata is not None
    assert int(config.metadata["_nats.req.level"]) >= 2


def test_ctr_102_103_207_other_streams_take_no_increments(js: JetStream) -> None:
    stream = new_stream(js, allow_msg_counter=False)
    config = stream.info().config
    assert not config.allow_msg_counter
    with pytest.raises(errors.ApiError):
        js.update_stream(config.replace(allow_msg_counter=True))
    assert not stream.info().config.allow_msg_counter
    with pytest.raises(errors.ApiError, match=r"err_code 101(68|69|7[0-3])"):
        add(js, 1)
    with pytest.raises(errors.ConfigError):
        Counters(js.stream("CTR"))
    assert count(stream) == 0


def test_ctr_104_it_cannot_be_switched_off(js: JetStream, stream: Stream) -> None:
    with pytest.raises(errors.ApiError):
        js.update_stream(stream.info().config.replace(allow_msg_counter=False))
    assert stream.info().config.allow_msg_counter


@pytest.mark.parametrize(
    "config",
    [
        {"subjects": None, "mirror": StreamSource(name="CTR")},
        {"retention": "workqueue"},
        {"retention": "interest"},
        {"discard": "new"},
        {"allow_msg_ttl": True},
    ],
    ids=lambda config: "-".join(config),
)
def test_ctr_105_106_107_108_settings_that_exclude_it(js: JetStream, config: dict[str, Any]) -> None:
    if "mirror" in config:
        new_stream(js)
    with pytest.raises((errors.ApiError, errors.ConfigError)):
        new_stream(js, "OTHER", **config)


def test_ctr_109_it_may_have_sources(js: JetStream, stream: Stream) -> None:
    assert new_stream(js, "AGG", subjects=None, sources=[StreamSource(name="CTR")]).info().config.allow_msg_counter


# --- 200: increments --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [None, {"X": "1"}])
def test_ctr_201_404_other_messages_are_refused(js: JetStream, stream: Stream, headers: dict[str, str] | None) -> None:
    for subject in (HITS, "counter.misc"):
        with pytest.raises(errors.ApiError, match=r"err_code 101(68|69|7[0-3])"):
            js.publish(subject, b"x", headers=headers)
    assert count(stream) == 0


def test_ctr_202_203_403_increments_add_up(js: JetStream, stream: Stream) -> None:
    assert add(js, 1, 99, -10, -100) == ["1", "100", "90", "-10"]
    assert [json.loads(message.data)["val"] for message in stored(stream)] == ["1", "100", "90", "-10"]
    assert [header(message) for message in stored(stream)] == ["+1", "+99", "-10", "-100"]
    assert Counters(stream).add(HITS, -3) == -13
    ack = js.publish(HITS, b"", incr=1)
    assert (ack.stream, ack.seq, ack.val) == ("CTR", 6, "-12")


def test_ctr_204_a_signed_zero_changes_nothing(js: JetStream, stream: Stream) -> None:
    assert add(js, 5, 0) == ["5", "5"]
    for text in ("+0", "-0"):
        assert js.publish(HITS, b"", headers={"Nats-Incr": text}).val == "5"
    assert Counters(stream).load(HITS, direct=False) == 5


@pytest.mark.parametrize("text", ["+", "-", "++1", "+1.5", "+1e3", "abc", "+ 1"])
def test_ctr_205_what_is_no_number_is_refused(js: JetStream, stream: Stream, text: str) -> None:
    with pytest.raises(errors.ApiError, match=r"err_code 101(68|69|7[0-3])"):
        js.publish(HITS, b"", headers={"Nats-Incr": text})
    assert count(stream) == 0


def test_ctr_206_numbers_of_any_size(js: JetStream, stream: Stream) -> None:
    assert add(js, 2**128, -(2**64))[1] == str(2**128 - 2**64)
    assert Counters(stream).load(HITS, direct=False) == 2**128 - 2**64


# --- 300: other headers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"rollup": "sub"},
        {"rollup": "all"},
        {"expected_last_seq": 1},
        {"expected_last_seq": 0},
        {"expected_last_subject_seq": 1},
        {"expected_stream": "CTR"},
        {"expected_last_msg_id": "anything"},
    ],
    ids=str,
)
def test_ctr_301_302_303_304_305_headers_that_exclude_it(
    js: JetStream, stream: Stream, options: dict[str, Any]
) -> None:
    add(js, 1)
    with pytest.raises((errors.ApiError, errors.ConfigError)):
        js.publish(HITS, b"", incr=1, **options)
    assert count(stream) == 1


# --- 400, 500: what is stored -----------------------------------------------------------------------------------


def test_ctr_401_402_the_stored_message(js: JetStream, stream: Stream) -> None:
    js.publish(HITS, b"", incr=42, headers={"X-Trace": "abc123"})
    message = stream.get_last_msg(HITS, direct=False)
    assert json.loads(message.data) == {"val": "42"}
    assert (header(message), header(message, "X-Trace")) == ("+42", "abc123")


def test_ctr_501_the_subject_after_a_transform_counts(js: JetStream) -> None:
    stream = new_stream(
        js,
        subjects=["counter.es.>"],
        subject_transform=SubjectTransform(src="counter.es.>", dest="counter.>"),
    )
    assert add(js, 1, 1, subject="counter.es.hits") == ["1", "2"]
    assert json.loads(stream.get_last_msg(HITS, direct=False).data) == {"val": "2"}


# --- 600: sources -----------------------------------------------------------------------------------------------


def value(stream: Stream, subject: str = HITS) -> int | None:
    try:
        return Counters(stream).load(subject, direct=False)
    except errors.MessageNotFound:
        return None


def aggregate(js: JetStream, **config: Any) -> Stream:
    return new_stream(js, "AGG", **{"subjects": None, "sources": [StreamSource(name="CTR")], **config})


def test_ctr_601_sources_are_told_apart(js: JetStream, stream: Stream) -> None:
    total = aggregate(js)
    for increment, wanted in ((3, 3), (4, 7)):
        add(js, increment)
        wait_until(lambda wanted=wanted: value(total) == wanted, 10)  # type: ignore[misc]
    message = total.get_last_msg(HITS, direct=False)
    assert counter_sources(message) == {"CTR": {HITS: 7}}
    assert int(str(header(message))) == 4


def test_ctr_602_messages_that_are_lost_on_the_way(js: JetStream) -> None:
    new_stream(js, max_msgs=1)
    add(js, 2, 5)
    total = aggregate(js)
    wait_until(lambda: value(total) == 7, 10)
    add(js, 10)
    wait_until(lambda: value(total) == 17, 10)
    assert sum(int(str(header(message))) for message in stored(total)) == 17


def test_ctr_603_a_source_that_has_a_value(js: JetStream, stream: Stream) -> None:
    add(js, 4, 6)
    stream.purge(keep=1)
    total = new_stream(js, "AGG", subjects=["local.>"])
    js.update_stream(total.info().config.replace(sources=[StreamSource(name="CTR")]))
    wait_until(lambda: value(total) == 10, 10)
    assert int(str(header(total.get_last_msg(HITS, direct=False)))) == 10


def test_ctr_604_605_606_sources_are_kept(js: JetStream, stream: Stream) -> None:
    add(js, 5)
    total = aggregate(js, subjects=["local.>"])
    wait_until(lambda: value(total) == 5, 10)
    config = total.info().config
    js.update_stream(config.replace(sources=None))
    add(js, 10, 10)
    assert value(total) == 5
    js.update_stream(config)
    wait_until(lambda: value(total) == 25, 10)
    assert counter_sources(total.get_last_msg(HITS, direct=False)) == {"CTR": {HITS: 25}}
    assert sum(int(str(header(message))) for message in stored(total)) == 25


# --- 700: mirrors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["mirror", "sources"])
def test_ctr_701_702_copies_are_verbatim(js: JetStream, stream: Stream, way: str) -> None:
    source = StreamSource(name="CTR")
    config: dict[str, Any] = {"mirror": source} if way == "mirror" else {"sources": [source]}
    copy = new_stream(js, "COPY", subjects=None, allow_msg_counter=False, **config)
    add(js, 1, 2, 3)
    wait_until(lambda: count(copy) == 3, 10)
    assert [json.loads(message.data)["val"] for message in stored(copy)] == ["1", "3", "6"]
    assert [header(message) for message in stored(copy)] == ["+1", "+2", "+3"]
    assert header(stored(copy)[-1], "Nats-Counter-Sources") is None


# --- 800, 900: resets and audits --------------------------------------------------------------------------------


def test_ctr_801_a_purge_resets(js: JetStream, stream: Stream) -> None:
    add(js, 42)
    stream.purge(subject=HITS)
    with pytest.raises(errors.MessageNotFound):
        stream.get_last_msg(HITS, direct=False)
    assert add(js, 1) == ["1"]


def test_ctr_802_a_negative_value_and_a_purge_reset(js: JetStream, stream: Stream) -> None:
    assert add(js, 60, 40, -100)[-1] == "0"
    stream.purge(subject=HITS, keep=1)
    assert [json.loads(message.data) for message in stored(stream)] == [{"val": "0"}]
    assert add(js, 5) == ["5"]


def test_ctr_901_the_increments_give_the_total(js: JetStream, stream: Stream) -> None:
    add(js, 1, 5, -2, 10, -3)
    assert sum(int(str(header(message))) for message in stored(stream)) == 11
    assert Counters(stream).load(HITS, direct=False) == 11
