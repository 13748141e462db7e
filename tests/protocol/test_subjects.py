from __future__ import annotations

from collections.abc import Callable

import pytest

from jsclient.protocol import NamingError, SubjectError, check_filter, check_name, check_queue, check_subject, matches

BLANKS = [" ", "\t", "\r", "\n", "\r\n", "\x00", "\x0b", "\x0c", "\x7f", "\x85", "\x1f"]
INJECTIONS = [
    before + blank + after for blank in BLANKS for before, after in (("a", "b"), ("a.", "b"), ("", "a"), ("a", ""))
]
INJECTIONS += ["", "a 0\r\n\r\nPUB b", "a\r\nSUB >"]


@pytest.mark.parametrize("subject", ["a", "a.b.c", "a*b", "a.b>", "$JS.API.INFO", "é.ü", "日本", "a-b_c/d", "x" * 4000])
def test_good_subjects(subject: str) -> None:
    assert check_subject(subject) == check_filter(subject) == subject.encode()


def test_foreign_bytes_round_trip() -> None:
    assert check_subject(b"a.\xff\x80".decode("utf-8", "surrogateescape")) == b"a.\xff\x80"


@pytest.mark.parametrize("subject", [*INJECTIONS, ".", ".a", "a.", "a..b", "\ud800", "a.\udc0a"])
def test_bad_subjects(subject: str) -> None:
    for check in (check_subject, check_filter):
        with pytest.raises(SubjectError):
            check(subject)


@pytest.mark.parametrize("subject", ["*", ">", "a.*", "a.*.b", "a.>", "*.>"])
def test_wildcards_are_for_filters(subject: str) -> None:
    assert check_filter(subject) == subject.encode()
    with pytest.raises(SubjectError, match="wildcard"):
        check_subject(subject)


@pytest.mark.parametrize("subject", [">.a", "a.>.b", ">.>"])
def test_the_full_wildcard_is_the_last_token(subject: str) -> None:
    with pytest.raises(SubjectError, match="last token"):
        check_filter(subject)


@pytest.mark.parametrize("queue", INJECTIONS)
def test_bad_queues(queue: str) -> None:
    with pytest.raises(SubjectError):
        check_queue(queue)


def test_good_queues() -> None:
    assert check_queue("a.b-é") == "a.b-é".encode()


@pytest.mark.parametrize("name", [*INJECTIONS, "a.b", "*", ">", "a*", "a/b", "a\\b", "x" * 256, "é" * 128, "\ud800"])
def test_bad_names(name: str) -> None:
    with pytest.raises(NamingError, match="stream name"):
        check_name(name, "stream name")


@pytest.mark.parametrize("name", ["ORDERS", "a-b_c", "é", "x" * 255])
def test_good_names(name: str) -> None:
    assert check_name(name) == name.encode()


@pytest.mark.parametrize("check", [check_subject, check_filter, check_queue, check_name])
@pytest.mark.parametrize("value", [None, 1, b"a", ["a"]])
def test_only_str(check: Callable[[object], bytes], value: object) -> None:
    with pytest.raises(ValueError):
        check(value)


def test_errors_are_short() -> None:
    with pytest.raises(SubjectError) as info:
        check_subject("a " * 10_000)
    assert len(info.value.what) < 200


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a", "a.b", False),
        ("a.b", "a", False),
        ("*", "a", True),
        ("*", "a.b", False),
        ("a.*", "a.b", True),
        ("a.*.c", "a.b.c", True),
        ("a.*.c", "a.b.d", False),
        (">", "a", True),
        (">", "a.b.c", True),
        ("a.>", "a", False),
        ("a.>", "a.b", True),
        ("a.>", "a.b.c", True),
        ("a.>", "b.c", False),
        ("*.b.>", "a.b.c.d", True),
        ("*.b.>", "a.c.c.d", False),
        ("a*b", "a*b", True),
        ("a*b", "axb", False),
    ],
)
def test_matches(pattern: str, subject: str, expected: bool) -> None:
    assert matches(pattern, subject) is expected
