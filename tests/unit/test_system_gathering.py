"""What the answers of single servers say about all of them."""

from __future__ import annotations

from typing import Any

import pytest

from jsclient.errors import BadResponse, TimedOut
from jsclient.system.gathering import Answer, Gathered, Refusal, decode_event, servers_known_to, sort_answer


@pytest.mark.parametrize(
    ("statsz", "servers"),
    [
        ({}, 1),
        ({"active_servers": 3}, 3),
        # It has just started: its routes are up (2.10 has several to each), and it has heard of nobody yet.
        ({"active_servers": 1, "routes": [{"rid": 1, "name": "a"}, {"rid": 2, "name": "b"}, {"name": "a"}]}, 3),
        ({"active_servers": 5, "routes": [{"name": "a"}]}, 5),  # a supercluster
        ({"active_servers": 2, "routes": [{"rid": 7}]}, 2),
    ],
)
def test_as_many_servers_as_one_of_them_knows_of(statsz: dict[str, Any], servers: int) -> None:
    assert servers_known_to(statsz) == servers


SERVER = b'{"server":{"id":"N","name":"n1","ver":"2.15.1"},'


def test_an_envelope_holds_an_answer_or_an_error() -> None:
    assert sort_answer(SERVER + b'"data":{"cpu":1}}') == Answer("N", "n1", "2.15.1", "", "", {"cpu": 1})
    assert sort_answer(SERVER + b'"statsz":{"cpu":1}}', key="statsz").data == {"cpu": 1}
    refused = sort_answer(SERVER + b'"data":{},"error":{"code":404,"description":"no"}}')
    assert refused == Refusal("N", "n1", 404, "no", {})


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"server":{"id":5}}',
        b'{"server":{"id":"N","name":5}}',
        SERVER + b'"data":[]}',
        SERVER + b'"error":"no"}',
        SERVER + b'"error":{"code":"x"}}',
    ],
)
def test_what_no_server_answers(payload: bytes) -> None:
    with pytest.raises(BadResponse):
        sort_answer(payload)


@pytest.mark.parametrize("statsz", [{"active_servers": "x"}, {"routes": 5}, {"routes": [5]}])
def test_figures_that_no_server_tells(statsz: dict[str, Any]) -> None:
    with pytest.raises(BadResponse):
        servers_known_to(statsz)


def test_events() -> None:
    assert decode_event(b'{"type":"x"}') == {"type": "x"}
    for payload in (b"", b"{", b"[]"):
        with pytest.raises(BadResponse):
            decode_event(payload)


ANSWER: Answer[Any] = Answer("N", "n1", "2.15.1", "", "", {})
REFUSAL = Refusal("N", "n1", 404, "no")


@pytest.mark.parametrize(
    ("gathered", "complete"),
    [
        (Gathered((ANSWER,)), True),
        (Gathered((), errors=(REFUSAL,)), True),
        (Gathered(()), False),
        (Gathered((ANSWER,), missing=("n2",)), False),
        (Gathered((ANSWER,), unknown=1), False),
        (Gathered((ANSWER,), errors=(REFUSAL,), missing=("n2",), unknown=2), False),
    ],
)
def test_answers_are_complete_when_no_server_is_missing(gathered: Gathered[Any], complete: bool) -> None:
    assert gathered.complete == complete
    if complete:
        assert gathered.raise_unless_complete() is gathered
        return
    with pytest.raises(TimedOut, match=f"{len(gathered.missing) + gathered.unknown} servers"):
        gathered.raise_unless_complete()
