"""Message ids from contents. No server."""

from __future__ import annotations

from jsclient.exactly.ids import ContentIds, key_of

KEY = key_of("q", 1)


def test_ids_are_the_same_in_any_order_and_tell_equal_rows_apart() -> None:
    rows = [(b"s", b"", b"a"), (b"s", b"", b"b"), (b"s", b"", b"a"), (b"s", b"a", b""), (b"sa", b"", b"")]
    one, other = ContentIds(KEY, "0"), ContentIds(KEY, "0")
    ids = [one.next(*row) for row in rows]
    assert len(set(ids)) == len(rows)
    assert set(ids) == {other.next(*row) for row in reversed(rows)}
    assert set(ids).isdisjoint({ContentIds(KEY, "1").next(*row) for row in rows})
    assert all(len(each.split(b".")[0]) == 20 for each in ids)


def test_ids_depend_on_the_whole_of_query_and_batch() -> None:
    row = (b"s", b"", b"a")
    keys = [key_of("12345678-a", 1), key_of("12345678-b", 1), key_of("12345678-a", 11), key_of("12345678-a1", 1)]
    assert len({ContentIds(key, "0").next(*row) for key in keys}) == 4


def test_ids_of_many_rows_are_those_of_single_ones() -> None:
    one, other = ContentIds(KEY, "0"), ContentIds(KEY, "0")
    for subjects, values in (
        ([b"a", b"b", b"a"], [b"1", b"1", b"2"]),
        ([b"a", b"a", b"a"], [b"3", b"3", b"1"]),  # equal ones within the batch, and one of the batch before
        ([], []),
    ):
        single = [other.next(subject, b"", value) for subject, value in zip(subjects, values, strict=True)]
        assert one.plain(subjects, values) == single


def test_the_total_counts_each_row_times_its_occurrence() -> None:
    def total(*values: bytes) -> int:
        ids = ContentIds(key_of("job", 1), "0", adding=True)
        for value in values:
            ids.next(b"s", b"", value)
        return ids.total

    assert total(b"a", b"a") == 3 * total(b"a")
    assert total(b"a", b"b", b"a") == total(b"b", b"a", b"a") != total(b"a", b"b", b"b")


def test_rows_that_come_again_in_a_later_block_have_ids_of_their_own() -> None:
    plain, single = (ContentIds(key_of("job", 1), "0", adding=True) for _ in range(2))
    found = plain.plain([b"s"] * 2, [b"a", b"b"]) + plain.plain([b"s"] * 2, [b"c", b"a"])
    assert found == [single.next(b"s", b"", value) for value in (b"a", b"b", b"c", b"a")]
    assert len(set(found)) == 4
    assert plain.total == single.total
