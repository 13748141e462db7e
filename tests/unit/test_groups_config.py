"""The stored state of groups, against what orbit.go's pcgroups wrote (recorded in November 2026), and assignments."""

from __future__ import annotations

import random
from typing import Any

import pytest

from jsclient import errors
from jsclient.groups import Filter, Group, balanced, partition_of
from jsclient.groups import config as stored

#: The value in the bucket -> how the group is made here. Written by Go, byte for byte.
RECORDED = {
    b'{"max_members":4,"partitioning_filters":[{"filter":"src.*","partitioning_wildcards":[1]}]}': stored.elastic(
        4, [Filter("src.*", [1])]
    ),
    b'{"max_members":4,"partitioning_filters":null}': stored.elastic(4, []),
    b'{"max_members":4,"partitioning_filters":null,"members":["m1","m2"]}': (
        stored.elastic(4, []).with_members(["m2", "m1"])
    ),
    b'{"max_members":4,"filters":["src.*"],"members":["m1","m2"]}': stored.static(4, ["src.*"], ["m1", "m2"], {}),
    b'{"max_members":2,"filters":["\\u003e"],"member_mappings":[{"member":"a","partitions":[0,1]}]}': stored.static(
        2, [">"], [], {"a": [0, 1]}
    ),
}


@pytest.mark.parametrize(("subject", "wildcards"), [(object(), ()), ("a.*", object()), ("a.*", ["1"]), ("a.*", "1")])
def test_a_filter_of_other_types(subject: Any, wildcards: Any) -> None:
    with pytest.raises(errors.ConfigError, match=r"^(subject|wildcards) must be"):
        Filter(subject, wildcards)


@pytest.mark.parametrize("raw", RECORDED)
def test_what_is_stored_is_what_go_stores(raw: bytes) -> None:
    ours = RECORDED[raw]
    assert ours.encode() == raw
    assert Group.decode(raw, elastic=ours.elastic) == ours


def test_a_change_of_members_keeps_everything_else_as_it_came() -> None:
    raw = b'{"max_members":4,"partitioning_filters":null,"max_buffered_msg":5,"new_in_2030":[]}'
    changed = Group.decode(raw, elastic=True).with_members(["b", "a", "a"])
    assert changed.encode() == raw[:-1] + b',"members":["a","b"]}'
    assert changed.with_members([]).encode() == raw
    assert changed.same_shape(Group.decode(raw, elastic=True))
    other = Group.decode(raw.replace(b"null", b"[]"), elastic=True)
    assert not changed.same_shape(other), "running Go members end when null becomes []"


@pytest.mark.parametrize(
    ("given", "destination"),
    [
        (Filter("src.*", [1]), "{{Partition(4,1)}}.src.{{Wildcard(1)}}"),
        (Filter(">"), "{{Partition(4)}}.>"),
        (Filter("a.*.b.*.>", [2, 1]), "{{Partition(4,2,1)}}.a.{{Wildcard(1)}}.b.{{Wildcard(2)}}.>"),
        (Filter("a.*"), "{{Partition(4)}}.a.{{Wildcard(1)}}"),
    ],
)
def test_transforms_are_those_of_go(given: Filter, destination: str) -> None:
    assert given.destination(4) == destination


def test_members_share_partitions_by_the_rule_of_go() -> None:
    group = stored.elastic(10, [Filter("s.*", [1]), Filter("t.>")]).with_members(["c", "a", "b"])
    assert group.assignment() == {"a": [0, 1, 2, 9], "b": [3, 4, 5], "c": [6, 7, 8]}
    assert group.filters_of("b") == ["3.s.*", "4.s.*", "5.s.*", "3.t.>", "4.t.>", "5.t.>"]
    assert group.filters_of("nobody") == []
    few = stored.elastic(2, []).with_members(["c", "a", "b"])
    assert few.assignment() == {"a": [0], "b": [1]}
    mapped = stored.elastic(2, [Filter("s.*", [1]), Filter("t.>")]).with_mappings({"a": [1, 0]})
    assert mapped.filters_of("a") == ["0.>", "1.>"], "once, however many filters there are"


@pytest.mark.parametrize(
    "raw",
    [
        b"[]",
        b"{}",
        b'{"max_members":0}',
        b'{"max_members":2,"members":["a"],"member_mappings":[{"member":"b","partitions":[0,1]}]}',
        b'{"max_members":2,"member_mappings":[{"member":"b","partitions":[0]}]}',
        b'{"max_members":2,"member_mappings":[{"member":"b","partitions":[0,1]},{"member":"b","partitions":null}]}',
        b'{"max_members":2,"partitioning_filters":[{"filter":"a.b"}]}',
        b'{"max_members":2,"partitioning_filters":[{"filter":"a.*","partitioning_wildcards":[2]}]}',
    ],
)
def test_what_go_refuses_is_refused(raw: bytes) -> None:
    with pytest.raises(errors.ConfigError):
        Group.decode(raw, elastic=True)


def test_names_that_would_break_a_key_are_refused() -> None:
    for name in ("", "a.b", "a b", "*", "a>", "x\n"):
        with pytest.raises(errors.InvalidName):
            stored.check_name(name, "group")


def test_partitions_as_the_server_counts_them() -> None:
    """Seen on 2.15.1: `src.k0` .. `src.k9` by the first wildcard, four partitions."""
    assert [partition_of([f"k{number}"], 4) for number in range(10)] == [2, 1, 0, 3, 2, 1, 0, 3, 2, 1]


def test_few_partitions_move() -> None:
    before = balanced({}, [f"m{number}" for number in range(8)], 64)
    assert all(len(mine) == 8 for mine in before.values())
    after = balanced(before, [*before, "m8"], 64)
    assert moved(before, after) == 7
    sixteen = balanced({}, [f"m{number:02}" for number in range(16)], 64)
    assert moved(sixteen, balanced(sixteen, list(sixteen)[1:], 64)) == 4


def test_any_history_of_members_is_balanced_with_the_fewest_moves() -> None:
    chance = random.Random(5)
    current: dict[str, list[int]] = {}
    for _ in range(300):
        partitions = 12
        members = chance.sample("abcdefghijklmnop", chance.randint(1, 14))
        after = balanced(current, members, partitions)
        assert sorted(partition for mine in after.values() for partition in mine) == list(range(partitions))
        sizes = [len(mine) for mine in after.values()]
        assert max(sizes) - min(sizes) <= 1
        assert len(after) == min(len(members), partitions)
        assert set(after) <= set(members)
        share, extra = divmod(partitions, len(after))
        held = sorted((len(current.get(name, ())) for name in after), reverse=True)
        kept = sum(min(size, share + (place < extra)) for place, size in enumerate(held))
        if current:
            assert moved(current, after) == partitions - kept
        current = after


def moved(before: dict[str, list[int]], after: dict[str, list[int]]) -> int:
    owner = {partition: name for name, mine in before.items() for partition in mine}
    return sum(owner.get(partition) != name for name, mine in after.items() for partition in mine)


@pytest.mark.parametrize("wildcards", [[0], [3], [-1], [1, 1], [1, 0]])
def test_wildcards_are_counted_from_one(wildcards: list[int]) -> None:
    with pytest.raises(errors.ConfigError, match="different numbers of 1 to 2"):
        Filter("a.*.*", wildcards)
    assert Filter("a.*.*", [2, 1]).wildcards == (2, 1)


def test_the_signs_that_go_escapes() -> None:
    raw = Group({"max_members": 1, "partitioning_filters": None, "note": "<&>"}, elastic=True).encode()
    assert b'"\\u003c\\u0026\\u003e"' in raw
