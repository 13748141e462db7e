"""Publish options and headers: what becomes of them, and what is refused before anything is sent."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from jsclient import errors
from jsclient.jetstream import Schedule
from jsclient.jetstream.publishing import options
from jsclient.protocol import Headers


def capabilities(level: int = 5) -> options.HeaderCheck:
    return options.HeaderCheck(lambda timeout: level)


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

    check = options.HeaderCheck(ask)
    assert check.block({"A": "b"}, "id", {"expected_stream": "S"})


def test_headers_beyond_what_a_stream_takes_are_refused() -> None:
    for headers in ({"Known": "x" * 65_536}, {"First": "x" * 65_536}):
        with pytest.raises(errors.PayloadTooLarge):
            block(headers=headers)
        with pytest.raises(errors.PayloadTooLarge):
            block(headers=headers)


@pytest.mark.parametrize("given", [{"msg_id": "\ud800"}, {"headers": {"Known-Name": "\ud800"}}])
def test_text_that_is_no_text(given: dict[str, Any]) -> None:
    block(headers={"Known-Name": "x"})
    with pytest.raises(ValueError):
        block(**given)


def test_a_stream_takes_65_535_bytes_of_headers() -> None:
    empty = len(block(headers={"Long": ""}) or b"")
    assert len(block(headers={"Long": "x" * (65_535 - empty)}) or b"") == 65_535
    with pytest.raises(errors.PayloadTooLarge, match="65536 bytes"):
        block(headers={"Long": "x" * (65_536 - empty)})


@pytest.mark.parametrize(
    ("header", "level"),
    [
        *[(name, 1) for name in ("Nats-TTL", "Nats-Expected-Last-Subject-Sequence-Subject")],
        *[(name, 2) for name in ("Nats-Incr", "Nats-Schedule", "Nats-Schedule-Target", "Nats-Schedule-TTL")],
        *[(name, 2) for name in ("Nats-Batch-Id", "Nats-Batch-Sequence", "Nats-Batch-Commit")],
        *[(name, 4) for name in ("Nats-Schedule-Source", "Nats-Schedule-Rollup", "Nats-Schedule-Time-Zone")],
    ],
)
def test_the_level_that_a_header_needs(header: str, level: int) -> None:
    assert capabilities(level).encode(Headers({header: "1"}))
    with pytest.raises(errors.NotSupported, match=header):
        capabilities(level - 1).encode(Headers({header: "1"}))
