"""Requests of the JetStream API against a scripted connection: errors, retries, paging, hooks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.api_rig import FakeConnection

from jsclient import errors
from jsclient.jetstream.api.models import Success
from jsclient.jetstream.api.requests import Api, check_error, error_of
from jsclient.protocol import Headers


def api(*answers: Any, **options: Any) -> tuple[Api, FakeConnection]:
    connection = FakeConnection(*answers)
    return Api(connection, **options), connection  # type: ignore[arg-type]


OK = {"success": True}


@pytest.mark.parametrize(
    ("options", "prefix"),
    [
        ({}, "$JS.API."),
        ({"domain": "hub"}, "$JS.hub.API."),
        ({"prefix": "JS.acc@hub.API"}, "JS.acc@hub.API."),
        ({"prefix": "JS.acc@hub.API."}, "JS.acc@hub.API."),
    ],
)
def test_prefixes(options: dict[str, str], prefix: str) -> None:
    js, connection = api(OK, **options)
    assert js.request("STREAM.DELETE.S", None, Success).success
    assert connection.calls == [(prefix + "STREAM.DELETE.S", None, 5.0)]
    assert js.subject("INFO") == prefix + "INFO"


@pytest.mark.parametrize(
    "options",
    [
        {"domain": ""},
        {"domain": "a.b"},
        {"domain": "*"},
        {"domain": "a\r\nb"},
        {"prefix": ""},
        {"prefix": "."},
        {"prefix": "a..b"},
        {"prefix": "a.>"},
        {"prefix": "a b"},
        {"domain": "hub", "prefix": "x"},
        {"timeout": -1},
    ],
)
def test_bad_prefixes_and_timeouts(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        api(**options)


def test_errors_are_typed_by_err_code() -> None:
    js, _ = api({"error": {"code": 404, "err_code": 10059, "description": "stream not found"}})
    with pytest.raises(errors.StreamNotFound) as caught:
        js.request("STREAM.INFO.S")
    assert (caught.value.code, caught.value.err_code, caught.value.description) == (404, 10059, "stream not found")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 400, "err_code": 99999, "description": "new"}, errors.ApiError),
        ({"code": 500}, errors.ApiError),
        ("text", errors.ApiError),
        ({"code": "x", "err_code": None}, errors.ApiError),
        ({"code": 503, "err_code": 10039}, errors.JetStreamNotEnabledForAccount),
        ({"code": 400, "err_code": 10149}, errors.ConsumerDoesNotExist),
    ],
)
def test_error_objects(error: Any, kind: type[errors.ApiError]) -> None:
    assert type(error_of(error)) is kind


@pytest.mark.parametrize(
    ("err_code", "text", "last"),
    [(10071, "wrong last sequence: 17", 17), (10164, "wrong last sequence", None)],
)
def test_the_last_sequence_is_in_the_text_only(err_code: int, text: str, last: int | None) -> None:
    error = errors.api_error(400, err_code, text)
    assert isinstance(error, errors.WrongLastSequence)
    assert error.last_sequence == last


@pytest.mark.parametrize("payload", [b"", b"+OK", b"[]", b"5", b'"x"', b"{", b"\xff"])
def test_answers_that_are_not_ours(payload: bytes) -> None:
    with pytest.raises(errors.BadResponse):
        check_error(payload)


def test_nobody_answers() -> None:
    for options, says in (({}, "no JetStream"), ({"domain": "nope"}, r"\$JS\.nope\.API"), ({"prefix": "I"}, "'I'")):
        js, _ = api(errors.NoResponders("no responders"), **options)
        with pytest.raises(errors.JetStreamUnavailable, match=says) as caught:
            js.request("INFO", read=True)
        assert isinstance(caught.value, errors.NoResponders)
        assert caught.value.subject.endswith("INFO")


def test_reads_are_sent_again_within_the_same_timeout() -> None:
    """An overloaded server drops its queue of requests without a word."""
    js, connection = api(errors.RequestTimeout("none"), OK)
    assert js.request("STREAM.NAMES", read=True, timeout=2) == OK
    first, second = (call[2] for call in connection.calls)
    assert first is not None
    assert second is not None
    assert 1.6 < first < 1.9
    assert second <= 2
    js, connection = api(errors.ConnectionLost("gone"), errors.RequestTimeout("none"))
    with pytest.raises(errors.RequestTimeout):
        js.request("STREAM.NAMES", read=True)
    assert len(connection.calls) == 2


def test_what_changes_something_is_sent_once() -> None:
    for error in (errors.RequestTimeout("none"), errors.ConnectionLost("gone")):
        js, connection = api(error)
        with pytest.raises(type(error)):
            js.request("STREAM.CREATE.S", {"name": "S"}, timeout=3)
        assert [call[2] for call in connection.calls] == [3]


def test_reads_wait_for_a_leader() -> None:
    gone = {"error": {"code": 503, "err_code": 10008, "description": "JetStream system temporarily unavailable"}}
    js, connection = api(gone, gone, OK)
    assert js.request("STREAM.NAMES", read=True, timeout=5) == OK
    assert len(connection.calls) == 3
    js, connection = api(gone, OK)
    with pytest.raises(errors.JetStreamTemporarilyUnavailable):
        js.request("STREAM.CREATE.S", {"name": "S"})
    js, connection = api(gone, OK)
    with pytest.raises(errors.JetStreamTemporarilyUnavailable):
        js.request("STREAM.NAMES", read=True, timeout=0.1)
    assert len(connection.calls) == 1


def test_waiting_for_ever_still_asks_again() -> None:
    js, connection = api(errors.RequestTimeout("none"), OK)
    assert js.request("STREAM.NAMES", read=True, timeout=None) == OK
    assert connection.calls[0][2] is not None
    assert connection.calls[1][2] is None


def names(start: int, end: int) -> list[str]:
    return [f"S{number:02}" for number in range(start, end)]


def pages(total: int, size: int, key: str = "streams") -> Callable[[str, bytes], dict[str, Any]]:
    def answer(subject: str, payload: bytes) -> dict[str, Any]:
        offset = json.loads(payload or b"{}").get("offset", 0)
        return {key: names(offset, min(total, offset + size)), "total": total, "offset": offset}

    return answer


@pytest.mark.parametrize(
    ("total", "size", "requests"), [(0, 4, 1), (3, 4, 1), (4, 4, 1), (5, 4, 2), (10, 4, 3), (12, 4, 4)]
)
def test_paging(total: int, size: int, requests: int) -> None:
    js, connection = api(*[pages(total, size)] * requests)
    assert list(js.items("STREAM.NAMES", "streams", {"subject": "x"})) == names(0, total)
    assert len(connection.calls) == requests
    assert all(call[1]["subject"] == "x" for call in connection.calls)


def test_paging_is_lazy_and_does_not_end_in_silence() -> None:
    nothing = {"streams": None, "total": 8}
    js, connection = api(pages(8, 4), nothing, nothing)
    items = js.items("STREAM.NAMES", "streams")
    assert connection.calls == []
    assert [next(items) for _ in range(4)] == names(0, 4)
    assert len(connection.calls) == 1
    with pytest.raises(errors.ListingIncomplete):
        list(items)


def test_what_is_deleted_between_two_pages_hides_no_other() -> None:
    """A name that is deleted from the first page moves one of the second into its place."""

    def listing(all_names: list[str]) -> Callable[[str, bytes], dict[str, Any]]:
        def answer(subject: str, payload: bytes) -> dict[str, Any]:
            offset = json.loads(payload or b"{}").get("offset", 0)
            return {"streams": all_names[offset : offset + 4], "total": len(all_names), "offset": offset}

        return answer

    before, after = names(0, 6), names(2, 6)
    js, connection = api(listing(before), listing(after), listing(after), listing(after))
    assert list(js.items("STREAM.NAMES", "streams")) == before
    added = ["R", *names(0, 6)]
    js, connection = api(listing(before), listing(added))
    assert list(js.items("STREAM.NAMES", "streams")) == before
    assert len(connection.calls) == 2
    other = ["X1", "X2", "X3", "X4", "X5"]
    js, connection = api(listing(before), listing(other), listing(other))
    with pytest.raises(errors.ListingIncomplete):
        list(js.items("STREAM.NAMES", "streams"))


def test_listings_of_a_cluster_that_does_not_answer_in_full() -> None:
    """Those that are missing count for the offset, so that nothing comes twice; and the end says that it is not all."""
    first = {"streams": [{"config": {"name": "A"}}, {"config": {"name": "C"}}], "missing": ["B"], "total": 5}
    second = {
        "streams": [{"config": {"name": "C"}}, {"config": {"name": "D"}}],
        "missing": ["E"],
        "offline": {"E": "too new"},
        "total": 5,
    }
    js, connection = api(first, second)
    seen = []
    with pytest.raises(errors.ListingIncomplete, match="B, E") as caught:
        for item in js.items("STREAM.LIST", "streams"):
            seen.append(item["config"]["name"])  # noqa: PERF401
    assert seen == ["A", "C", "D"]
    assert caught.value.missing == ["B", "E"]
    assert [call[1] for call in connection.calls] == [None, {"offset": 2}]


@pytest.mark.parametrize(
    ("key", "page"),
    [
        ("streams", {"streams": "x", "total": 1}),
        ("streams", {"streams": {"S": 1}, "total": 1}),
        ("streams", {"streams": ["S"], "total": ["x"]}),
        ("streams", {"streams": ["S"], "total": 1, "missing": 7}),
        ("state.subjects", {"state": {"subjects": ["s.a"]}, "total": 1}),
        ("state.subjects", {"state": "x", "total": 1}),
    ],
)
def test_what_is_no_page_of_a_listing(key: str, page: dict[str, Any]) -> None:
    js, _ = api(page)
    with pytest.raises(errors.BadResponse):
        list(js.items("STREAM.LIST", key))


def test_an_element_without_a_configuration_has_no_name() -> None:
    js, _ = api({"streams": [{"config": "x"}], "total": 1})
    assert list(js.items("STREAM.LIST", "streams")) == [{"config": "x"}]


def test_trace_hooks(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[tuple[Any, ...]] = []
    js, _ = api(OK, on_request=lambda *a: seen.append(a), on_response=lambda *a: seen.append(a))
    js.request("STREAM.DELETE.S", {"a": 1})
    assert seen == [
        ("$JS.API.STREAM.DELETE.S", b'{"a":1}'),
        ("$JS.API.STREAM.DELETE.S", b'{"success": true}', Headers()),
    ]

    def broken(*args: Any) -> None:
        raise RuntimeError("of the user")

    js, _ = api(OK, on_request=broken, on_response=broken)
    assert js.request("X") == OK
    assert caplog.text.count("a trace hook failed") == 2
