"""Publish options and headers: what becomes of them, and what is refused before anything is sent."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from jsclient import errors
from jsclient.jetstream import Schedule
from jsclient.jetstream.publishing import options
from jsclient.jetstream.publishing.attempts import decode_ack, has_id
from jsclient.jetstream.publishing.streams import names_answer
from protocol import Headers


def capabilities(level: int = 5) -> options.Capabilities:
    return options.Capabilities(lambda timeout: level)


def block(headers: Any = None, msg_id: str | None = None, **more: Any) -> bytes | None:
    return capabilities().block(headers, msg_id, more)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"expected_stream": "S"}, b"Nats-Expected-Stream: S"),
        ({"expected_last_seq": 0}, b"Nats-Expected-Last-Sequence: 0"),
        ({"expected_last_subject_seq": 7}, b"Nats-Expected-Last-Subject-Sequence: 7"),
        ({"expected_last_msg_id": "x"}, b"Nats-Expected-Last-Msg-Id: x"),
        ({"ttl": 5}, b"Nats-TTL: 5"),
        ({"ttl": 1.5}, b"Nats-TTL: 1500ms"),
        ({"ttl": dt.timedelta(minutes=2)}, b"Nats-TTL: 120"),
        ({"ttl": "never"}, b"Nats-TTL: never"),
        ({"rollup": "sub"}, b"Nats-Rollup: sub"),
        ({"rollup": "all"}, b"Nats-Rollup: all"),
        ({"incr": 5}, b"Nats-Incr: +5"),
        ({"incr": -(10**30)}, b"Nats-Incr: -1000000000000000000000000000000"),
        ({"incr": 0}, b"Nats-Incr: +0"),
        ({"msg_id": "id-1"}, b"Nats-Msg-Id: id-1"),
        ({"msg_id": "mit Lücke"}, "Nats-Msg-Id: mit Lücke".encode()),
    ],
)
def test_option_becomes_a_header(given: dict[str, Any], line: bytes) -> None:
    assert block(**given) == b"NATS/1.0\r\n" + line + b"\r\n\r\n"


def test_nothing_given_means_no_headers() -> None:
    assert block() is None
    assert block(headers={}) is None
    assert block(ttl=None, expected_stream=None) is None


def test_filter_of_an_expectation_needs_the_sequence() -> None:
    made = block(expected_last_subject_seq=3, expected_last_subject="a.*")
    assert made is not None
    assert Headers.decode(made).get("Nats-Expected-Last-Subject-Sequence-Subject") == "a.*"
    with pytest.raises(errors.ConfigError, match="expected_last_subject_seq"):
        block(expected_last_subject="a.*")


@pytest.mark.parametrize(
    "given",
    [
        {"ttl": 0.5},
        {"ttl": -1},
        {"ttl": float("nan")},
        {"ttl": "5s"},
        {"ttl": True},
        {"rollup": "all subjects"},
        {"incr": 1.5},
        {"incr": "1"},
        {"expected_last_seq": -1},
        {"expected_last_seq": "1"},
        {"msg_id": ""},
        {"headers": {"Nats-Msg-Id": ""}},
        {"headers": {"Nats-Msg-Id": "a"}, "msg_id": "b"},
        {"headers": {"Nats-TTL": "5"}, "ttl": 6},
        {"headers": {"Nats-Rollup": "all"}, "rollup": "sub"},
    ],
)
def test_bad_options_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigError):
        block(**given)


def test_unknown_option_is_a_type_error_that_lists_the_known_ones() -> None:
    with pytest.raises(TypeError, match=r"exspected_stream.*expected_stream"):
        block(exspected_stream="S")


@pytest.mark.parametrize("bad", ["a\r\nX: y", "a\nb", "a\rb", "a\0b"])
def test_values_that_would_inject_headers_are_refused(bad: str) -> None:
    block(headers={"Known": "fine"})
    for given in ({"msg_id": bad}, {"headers": {"Known": bad}}, {"headers": {"A": "b", "Known": bad}}):
        with pytest.raises(errors.InvalidHeader):
            block(**given)


@pytest.mark.parametrize("bad", ["", "a b", "a:b", "a\r\nb", "ü"])
def test_bad_header_names_are_refused(bad: str) -> None:
    with pytest.raises(errors.InvalidHeader):
        block(headers={bad: "x"})


def test_the_quick_and_the_thorough_way_make_the_same_block() -> None:
    headers = {"Trace": "abc", "Other": " blanks kept "}
    thorough = Headers(headers).encode()
    assert block(headers=headers) == thorough
    assert block(headers=headers) == thorough  # the names are known now: the quick way
    assert (
        block(headers=Headers([("Trace", "1"), ("Trace", "2")])) == Headers([("Trace", "1"), ("Trace", "2")]).encode()
    )
    assert block(headers={"Trace": ["1", "2"]}) == Headers([("Trace", "1"), ("Trace", "2")]).encode()


def test_user_headers_are_not_changed() -> None:
    headers = Headers({"A": "1"})
    block(headers=headers, msg_id="x", ttl=2)
    assert headers.items() == [("A", "1")]


@pytest.mark.parametrize(
    ("given", "level"),
    [
        ({"ttl": 5}, 1),
        ({"headers": {"Nats-TTL": "5"}}, 1),
        ({"incr": 1}, 2),
        ({"headers": {"Nats-Incr": "1"}}, 2),
        ({"schedule": Schedule.every(5, "t")}, 2),
        ({"schedule": Schedule.every(5, "t", source="s")}, 4),
        ({"headers": {"Nats-Batch-Id": "x"}}, 2),
    ],
)
def test_what_an_old_server_would_ignore_is_refused(given: dict[str, Any], level: int) -> None:
    arguments = {"headers": None, "msg_id": None, **given}
    more = {key: value for key, value in given.items() if key not in ("headers", "msg_id")}
    for have in range(6):
        if have >= level:
            assert capabilities(have).block(arguments["headers"], None, more)
        else:
            for _ in range(2):
                with pytest.raises(errors.NotSupported, match="needs nats-server 2.1"):
                    capabilities(have).block(arguments["headers"], None, more)


def test_the_level_is_not_asked_for_ordinary_headers() -> None:
    def ask(timeout: object) -> int:
        raise AssertionError("asked for the level")

    check = options.Capabilities(ask)
    assert check.block({"A": "b"}, "id", {"expected_stream": "S"})


def test_headers_beyond_what_a_stream_takes_are_refused() -> None:
    for headers in ({"Known": "x" * 65_536}, {"First": "x" * 65_536}):
        with pytest.raises(errors.PayloadTooLarge):
            block(headers=headers)
        with pytest.raises(errors.PayloadTooLarge):
            block(headers=headers)


def test_has_id() -> None:
    assert has_id(block(msg_id="1"))
    assert has_id(block(headers={"A": "b", "Nats-Msg-Id": "1"}))
    assert not has_id(block(headers={"A": "Nats-Msg-Id: 1"}))
    assert not has_id(None)


# --- schedules ----------------------------------------------------------------------------------------------------


def test_schedule_headers() -> None:
    moment = dt.datetime(2030, 1, 2, 3, 4, 5, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    assert Schedule.at(moment, "t.x").headers() == [
        ("Nats-Schedule", "@at 2030-01-02T01:04:05Z"),
        ("Nats-Schedule-Target", "t.x"),
    ]
    assert Schedule.every(90, "t").spec == "@every 90s"
    assert Schedule.every(1.5, "t").spec == "@every 1500ms"
    assert Schedule.cron("@daily", "t").spec == "@daily"
    full = Schedule.cron("0 0 6 * * *", "t", source="s", ttl=5, rollup="sub", time_zone="Europe/Berlin")
    assert dict(full.headers()) == {
        "Nats-Schedule": "0 0 6 * * *",
        "Nats-Schedule-Target": "t",
        "Nats-Schedule-Source": "s",
        "Nats-Schedule-TTL": "5",
        "Nats-Schedule-Rollup": "sub",
        "Nats-Schedule-Time-Zone": "Europe/Berlin",
    }


def test_bad_schedules_are_refused() -> None:
    with pytest.raises(errors.ConfigError):
        Schedule.at(dt.datetime(2030, 1, 1), "t")
    with pytest.raises(errors.ConfigError):
        Schedule.every(0.5, "t")
    with pytest.raises(errors.ConfigError):
        Schedule.cron("* * * * *", "t")
    with pytest.raises(ValueError):
        Schedule.every(5, "a.*")
    with pytest.raises(errors.ConfigError):
        Schedule.every(5, "t", time_zone="Europe/Berlin")
    with pytest.raises(errors.ConfigError):
        Schedule.every(5, "t", rollup="x")


# --- answers ------------------------------------------------------------------------------------------------------


def test_answers_to_a_publish() -> None:
    assert decode_ack(b'{"stream":"T5", "seq":6}').seq == 6
    ack = decode_ack(b'{"stream":"S","seq":9,"duplicate":true,"domain":"hub","val":"8","unknown":[1]}')
    assert (ack.stream, ack.seq, ack.duplicate, ack.domain, ack.val) == ("S", 9, True, "hub", "8")
    with pytest.raises(errors.WrongLastSequence) as caught:
        decode_ack(
            b'{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 5"},"stream":"S","seq":0}'
        )
    assert caught.value.last_sequence == 5


def test_a_duplicate_that_is_not_stored_yet_is_no_ack() -> None:
    """Replicated streams of 2.10 note the id before the message is stored, and answer a second copy like this."""
    with pytest.raises(errors.DuplicateInProcess):
        decode_ack(b'{"stream":"S", "seq":0,"duplicate": true}')


@pytest.mark.parametrize(
    "garbage", [b"", b"hello", b"[]", b"{}", b"\xff", b'{"seq":1}', b'{"stream":"S"}', b'"x"', b'{"error":7}']
)
def test_garbage_is_no_ack(garbage: bytes) -> None:
    with pytest.raises(errors.InvalidPubAck):
        decode_ack(garbage)


def test_answers_about_streams() -> None:
    assert names_answer(b'{"streams":["S"],"total":1}') == "exists"
    assert names_answer(b'{"streams":null,"total":0}') == "none"
    assert names_answer(b'{"total":0}') == "none"
    assert names_answer(b'{"error":{"code":503}}') == "unavailable"
    assert names_answer(b"nonsense") == "unavailable"
