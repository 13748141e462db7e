"""The text by which a batch is read again. No server."""

from __future__ import annotations

import json

import attrs
import pytest

from jsclient.arrow.settings import Refused
from jsclient.planning.offsets import Offset, StreamOffset, shape_of

PART = StreamOffset("2026-01-01T00:00:00Z", 90, start=5, parts=3, mark=(89, 1795318963220001234), soft=True)
OFFSET = Offset({"S": PART}, id="q", shape="0123456x")


def test_offsets_keep_their_text() -> None:
    text = (
        '{"v":2,"id":"q","shape":"0123456x","s":{"S":{"made":"2026-01-01T00:00:00Z","from":5,"next":90,'
        '"mark":[89,1795318963220001234],"soft":true}},"plan":{"S":3}}'
    )
    assert json.dumps(OFFSET.to_dict(), separators=(",", ":")) == text
    assert Offset.from_dict(json.loads(text), Refused) == OFFSET
    by_subject = Offset({"S": attrs.evolve(PART, by_subject=True, mark=None, soft=False)}, id="q")
    assert by_subject.to_dict()["plan"] == {"S": ["subject", 3]}
    assert Offset.from_dict(json.loads(json.dumps(by_subject.to_dict())), Refused) == by_subject


def test_offsets_of_many_streams_keep_their_text() -> None:
    resting = PART.resting()
    assert resting == StreamOffset(PART.made, 90, start=90, mark=PART.mark)
    assert StreamOffset("c", 7, start=7, soft=True).resting().soft, "nothing was promised yet"
    many = Offset({"T": resting, "S": PART, "R": attrs.evolve(PART, soft=False, mark=None)}, id="q", shape="x")
    text = json.dumps(many.to_dict())
    assert list(json.loads(text)["s"]) == ["R", "S", "T"]
    assert json.loads(text)["plan"] == {"R": 3, "S": 3}
    assert Offset.from_dict(json.loads(text), Refused) == many
    assert json.dumps(Offset.from_dict(json.loads(text), Refused).to_dict()) == text
    assert Offset.from_dict(Offset({}, id="q").to_dict(), Refused) == Offset({}, id="q")
    cuts = Offset({"S": attrs.evolve(PART, cuts=(20, 70))}, id="q")
    assert cuts.to_dict()["plan"] == {"S": [20, 70]}
    assert Offset.from_dict(cuts.to_dict(), Refused) == cuts


@pytest.mark.parametrize(
    "value",
    [
        {**OFFSET.to_dict(), "v": 3},
        {**OFFSET.to_dict(), "v": None},
        {**OFFSET.to_dict(), "s": {}},
        {**OFFSET.to_dict(), "s": {"S": {"made": "c", "from": 1, "next": "9"}}},
        {**OFFSET.to_dict(), "s": {"S": {"made": "c", "from": 1, "next": 1 << 63}}},
        {**OFFSET.to_dict(), "plan": {"S": 0}},
        {**OFFSET.to_dict(), "plan": {"S": ["other", 1]}},
        {**OFFSET.to_dict(), "plan": {"S": [20, 20]}},
        {**OFFSET.to_dict(), "plan": {"S": [20, 90]}},
        {**OFFSET.to_dict(), "plan": {"S": []}},
        {**OFFSET.to_dict(), "plan": {"T": 1}},
        {**OFFSET.to_dict(), "s": {"T": {"made": "c", "from": 1, "next": 9}}},
        {"v": 1, "stream": "S", "created": "c", "base": 700, "seq": 791, "parts": 4},
    ],
)
def test_strange_offsets_are_refused(value: dict[str, object]) -> None:
    with pytest.raises(Refused) as caught:
        Offset.from_dict(value, Refused)
    assert caught.value.token == "JETSTREAM_OFFSET_VERSION"


def test_the_shape_tells_which_option_was_changed() -> None:
    plain = shape_of((), "seq")
    assert plain == shape_of((), "seq")
    assert shape_of(("a", "b"), "seq") == shape_of(("b", "a"), "seq") != plain
    assert shape_of((), "subject")[:-1] == plain[:-1]
    assert shape_of((), "subject") != plain
