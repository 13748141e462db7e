from __future__ import annotations

import copy
import enum
import pickle
from collections.abc import MutableMapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jsclient.protocol import Headers, InvalidHeader, MalformedHeaders, Msg, Status
from jsclient.protocol.headers import encode_plain


def status(block: bytes) -> Status | None:
    return Msg(b"a", b"1", None, b"", block).status


def test_several_values_and_case() -> None:
    headers = Headers.decode(b"NATS/1.0\r\nA: 1\r\na: 2\r\nA: 3\r\n\r\n")
    assert headers["A"] == "1"
    assert headers.get_all("A") == ["1", "3"]
    assert headers.get("a") == "2"
    assert headers.get("b") is None
    assert headers.get("b", "x") == "x"
    assert headers.items() == [("A", "1"), ("a", "2"), ("A", "3")]
    assert list(headers) == list(headers.keys()) == ["A", "a"]
    assert headers.to_dict() == {"A": ["1", "3"], "a": ["2"]}
    assert (len(headers), "a" in headers, "b" in headers) == (2, True, False)
    assert 1 not in headers  # type: ignore[comparison-overlap]
    with pytest.raises(KeyError):
        headers["b"]


def test_building() -> None:
    headers = Headers({"A": "1", "B": ["2", "3"], "C": ("4",)})
    assert headers == Headers([("B", "2"), ("A", "1"), ("B", "3"), ("C", "4")])
    assert headers != Headers([("B", "3"), ("A", "1"), ("B", "2"), ("C", "4")])
    assert headers != {"A": "1"}
    headers["B"] = "5"
    headers.add("A", "6")
    del headers["C"]
    assert headers.to_dict() == {"A": ["1", "6"], "B": ["5"]}
    with pytest.raises(KeyError):
        del headers["C"]
    other = Headers(headers)
    other.add("D", "7")
    assert "D" not in headers
    assert not Headers()
    assert headers
    assert pickle.loads(pickle.dumps(headers)) == copy.deepcopy(headers) == headers
    assert repr(Headers({"A": "1"})) == "Headers([('A', '1')])"


def test_they_are_a_mapping() -> None:
    """What takes mappings takes them, and so does `match`; only `items` also tells what is repeated."""
    headers = Headers([("A", "1"), ("B", "2"), ("A", "3")])
    assert isinstance(headers, MutableMapping)
    assert dict(headers) == {**headers} == {"A": "1", "B": "2"}
    assert headers.keys() & {"A", "C"} == {"A"}
    assert list(headers.values()) == ["1", "2"]
    match headers:
        case {"A": first}:
            assert first == "1"
        case _:
            raise AssertionError("a mapping has its keys")
    assert headers.pop("A") == "1"
    assert headers.setdefault("C", "4") == "4"
    headers.update({"B": "5"})
    assert headers == Headers({"B": "5", "C": "4"})
    headers.clear()
    assert not headers


def test_encoding() -> None:
    assert Headers().encode() == b"NATS/1.0\r\n\r\n"
    assert Headers([("A", "1"), ("B", "é"), ("A", "")]).encode() == b"NATS/1.0\r\nA: 1\r\nB: \xc3\xa9\r\nA: \r\n\r\n"


@pytest.mark.parametrize("name", ["", " ", "a b", "a:b", "a\r\nb", "a\n", "\x7f", "é", "a\x00", "\t", "a ", "a\u0085"])
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(InvalidHeader):
        Headers({name: "v"})
    with pytest.raises(InvalidHeader):
        Headers([(name, "v")])
    headers = Headers()
    with pytest.raises(InvalidHeader):
        headers[name] = "v"


@pytest.mark.parametrize("value", ["\r", "\n", "a\r\nInjected: 1", "a\n b", "\x00", "x\r\n\r\nPUB a 0"])
def test_values_that_are_refused(value: str) -> None:
    with pytest.raises(InvalidHeader):
        Headers({"K": value})
    with pytest.raises(InvalidHeader):
        Headers({"K": ["ok", value]})


@pytest.mark.parametrize("value", [1, None, b"x"])
def test_values_are_str(value: object) -> None:
    with pytest.raises(InvalidHeader):
        Headers([("K", value)])  # type: ignore[list-item]
    with pytest.raises(InvalidHeader):
        Headers({"K": value})  # type: ignore[arg-type]


def test_what_cannot_be_encoded_is_a_value_error() -> None:
    with pytest.raises(InvalidHeader):
        Headers({"K": "\ud800"}).encode()


def test_what_other_clients_send_is_read() -> None:
    block = b"NATS/1.0\r\n Key : \t v w \t\r\nEmpty:\r\nC:a:b\r\nB: \xff\x85\r\nV:\x0bx\x0c\r\n\r\n"
    headers = Headers.decode(block)
    expected = [("Key", "v w"), ("Empty", ""), ("C", "a:b"), ("B", "\udcff\udc85"), ("V", "\x0bx\x0c")]
    assert headers.items() == expected
    assert Headers.decode(headers.encode()) == headers


@pytest.mark.parametrize("line", [b"a b: v", b"n\xc3\xa4me: v", b"K: a\x00b", b"K: a\nb", b"K: a\rb"])
def test_what_must_not_be_sent_is_read_and_not_written(line: bytes) -> None:
    headers = Headers.decode(b"NATS/1.0\r\n" + line + b"\r\nOk: 1\r\n\r\n")
    name, _, value = line.decode().partition(": ")
    assert headers.items() == [(name, value), ("Ok", "1")]
    for copied in (headers, Headers(headers), copy.deepcopy(headers), pickle.loads(pickle.dumps(headers))):
        assert copied.items() == headers.items()
        with pytest.raises(InvalidHeader):
            copied.encode()
    assert headers.sendable().items() == [("Ok", "1")]
    headers.pop(name)
    assert headers.encode() == b"NATS/1.0\r\nOk: 1\r\n\r\n"


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"NATS/2.0\r\n\r\n",
        b"NATS/1.01\r\n\r\n",
        b"nats/1.0\r\n\r\n",
        b"A: b\r\n\r\n",
    ],
)
def test_malformed_blocks(block: bytes) -> None:
    with pytest.raises(MalformedHeaders):
        Headers.decode(block)


@pytest.mark.parametrize(
    "block",
    [
        b"NATS/1.0\r\nA: b",
        b"NATS/1.0\r\nA: b\r\n",
        b"NATS/1.0\r\nno colon\r\nA: b\r\n\r\n",
        b"NATS/1.0\r\n: no name\r\nA: b\r\n\r\n",
        b"NATS/1.0\r\n\r\nA: b\r\n\r\n",
        b"NATS/1.0\r\nA: b\r\n folded\r\n\r\n",
        b"NATS/1.0 503 No: Responders\r\nA: b\r\n\r\n",
    ],
)
def test_lines_that_are_no_headers_are_left_out(block: bytes) -> None:
    assert Headers.decode(block).items() == [("A", "b")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"NATS/1.0 503", (503, "")),
        (b"NATS/1.0 503 ", (503, "")),
        (b"NATS/1.0 409 Consumer Deleted", (409, "Consumer Deleted")),
        (b"NATS/1.0  100   FlowControl Request  ", (100, "FlowControl Request")),
        (b"NATS/1.0\t404\tNo Messages", (404, "No Messages")),
        (b"NATS/1.0 409 \xff", (409, "\udcff")),
        (b"NATS/1.0", None),
        (b"NATS/1.0 ", None),
        (b"NATS/1.0 40", None),
        (b"NATS/1.0 4040", None),
        (b"NATS/1.0 404x", None),
        (b"NATS/1.0 +40", None),
        (b"NATS/1.1 404", None),
    ],
)
def test_inline_status(line: bytes, expected: tuple[int, str] | None) -> None:
    assert status(line + b"\r\nK: v\r\n\r\n") == expected
    assert status(line + b"\r\n\r\n") == expected


def test_a_status_header_of_a_user_is_no_status() -> None:
    block = Headers({"Status": "404", "Description": "No Messages"}).encode()
    assert status(block) is None
    assert Headers.decode(block)["Status"] == "404"


def test_headers_beside_a_status() -> None:
    message = Msg(b"a", b"1", None, b"", b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 3\r\n\r\n")
    assert message.status == Status(408, "Request Timeout")
    assert message.headers is not None
    assert message.headers.items() == [("Nats-Pending-Messages", "3")]


names = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=":"), min_size=1)
values = st.text(st.characters(exclude_characters="\r\n\x00", exclude_categories=["Cs"])).map(lambda v: v.strip(" \t"))


@given(st.lists(st.tuples(names, values)))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_round_trip(pairs: list[tuple[str, str]]) -> None:
    assert Headers.decode(Headers(pairs).encode()).items() == pairs


@given(st.binary(max_size=60))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_block_is_read_or_malformed(noise: bytes) -> None:
    for block in (noise, b"NATS/1.0" + noise, b"NATS/1.0\r\n" + noise + b"\r\n\r\n"):
        status(block)
        try:
            Headers.decode(block)
        except MalformedHeaders:
            pass


@pytest.mark.parametrize(
    "pairs",
    [{}, {"A": "b"}, {"A": ""}, {"A": "b", "a": "c"}, {"X-Y!": "äöü 漢字"}, {"A": " blanks "}, {"A~": "1" * 5000}],
)
def test_the_short_way_for_plain_dicts_writes_the_same_block(pairs: dict[str, str]) -> None:
    assert encode_plain(pairs) == Headers(pairs).encode()


@pytest.mark.parametrize(
    "pairs", [{"A": "x\r\ny"}, {"A": "x\0"}, {"A:": "x"}, {"": "x"}, {"A": 1}, {1: "x"}, {"A": ["x"]}, {"A": "\udcff"}]
)
def test_the_short_way_leaves_everything_else_to_headers(pairs: dict[str, str]) -> None:
    assert encode_plain(pairs) is None
    assert encode_plain({"A": "fine", **pairs}) is None


class Code(str, enum.Enum):
    FULL = "full"


def test_an_enum_of_str_is_written_as_its_value() -> None:
    """Since Python 3.12 an f-string writes "Code.FULL" of it, which nobody has checked."""
    block = b"NATS/1.0\r\nfull: full\r\n\r\n"
    pairs: dict[str, str] = {Code.FULL: Code.FULL}
    headers = Headers(pairs)
    headers[Code.FULL] = Code.FULL
    assert headers.encode() == block
    assert encode_plain({Code.FULL: "full"}) is None
    assert encode_plain({"full": Code.FULL}) is None
    assert encode_plain({"full": "full"}) == block
    assert encode_plain({Code.FULL: "full"}) is None  # also a known name


@pytest.mark.parametrize("block", [b"NATS/1.0\r\nA: b\r\n\r\n", 7, ["A"], {"A": 1}])
def test_the_advice_fits_a_wrong_type(block: Any) -> None:
    with pytest.raises(InvalidHeader) as caught:
        Headers(block).encode()
    assert "base64" not in str(caught.value)


def test_the_advice_fits_a_value_that_cannot_be_sent() -> None:
    with pytest.raises(InvalidHeader, match="base64"):
        Headers({"A": "b\r\nc"}).encode()
