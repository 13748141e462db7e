"""Keys, buckets and entries, without a server."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsclient import errors
from jsclient.jetstream import ExternalStream, StreamSource, SubjectTransform
from jsclient.keyvalue import KeyValueConfig, KeyValueEntry, Operation
from jsclient.keyvalue.entry import operation_of_block
from jsclient.keyvalue.keys import check_bucket, check_filter, check_key
from jsclient.keyvalue.watch import WatchOptions, common_filter
from jsclient.protocol import Headers

BAD_NAMES: list[Any] = ["", " ", "a b", "a.b", "a*", ">", "ü", "a\r\nPUB x", "a\0", "x" * 10_000, None, 7, b"a", ["a"]]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_bad_bucket_names_are_refused_with_a_reason(name: Any) -> None:
    with pytest.raises(errors.InvalidName) as caught:
        check_bucket(name)
    assert "name" in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("", "empty"),
        (" ", "letters"),
        ("a b", "letters"),
        ("a\tb", "letters"),
        ("a\r\nPUB x 1", "letters"),
        ("a*", "wildcard"),
        ("a.>", "wildcard"),
        ("*", "wildcard"),
        (".a", "start or end"),
        ("a.", "start or end"),
        ("a..b", "contain '..'"),
        ("ключ", "letters"),
        ("a\0", "letters"),
        ("a\n", "letters"),
        ("x" * 10_000, "longer"),
        (None, "str"),
        (7, "str"),
        (b"a", "str"),
        (["a"], "str"),
    ],
)
def test_bad_keys_are_refused_with_a_reason(key: Any, reason: str) -> None:
    with pytest.raises(errors.InvalidName) as caught:
        check_key(key)
    assert reason in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("key", ["a", "a.b", "A-Z_/=9", "=", "/a/b", "a.b.c.d", "x" * 3000, "_kv.internal"])
def test_good_keys(key: str) -> None:
    assert check_key(key) == key
    assert check_filter(key) == key


@pytest.mark.parametrize("pattern", [">", "*", "a.*", "a.>", "*.b", "a.*.c", "*.*.>"])
def test_good_patterns(pattern: str) -> None:
    assert check_filter(pattern) == pattern


@pytest.mark.parametrize(
    "pattern", ["", "a>", ">.a", "a*", "*a", "a..b", ".", "a b", "a.>.b", ">>", None, "x" * 10_000]
)
def test_bad_patterns(pattern: Any) -> None:
    with pytest.raises(errors.InvalidName):
        check_filter(pattern)


@given(st.text(alphabet="ab.*>- \n/", max_size=8))
def test_whatever_passes_is_a_valid_subject(key: str) -> None:
    try:
        check_key(key)
    except errors.InvalidName:
        return
    assert key
    assert all(key.split("."))
    assert not set(key) & set("*> \n")


# --- configuration ------------------------------------------------------------------------------------------


def test_a_bucket_is_the_stream_that_nats_go_makes() -> None:
    stream = KeyValueConfig(bucket="b", ttl=60, history=5, max_value_size=10, description="d").to_stream()
    assert stream.to_dict() == {
        "name": "KV_b",
        "description": "d",
        "subjects": ["$KV.b.>"],
        "max_consumers": -1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_msgs_per_subject": 5,
        "max_msg_size": 10,
        "max_age": 60_000_000_000,
        "discard": "new",
        "storage": "file",
        "num_replicas": 1,
        "duplicate_window": 60_000_000_000,
        "deny_delete": True,
        "allow_rollup_hdrs": True,
        "allow_direct": True,
    }


def test_the_duplicate_window_is_two_minutes_at_most() -> None:
    assert KeyValueConfig(bucket="b").to_stream().duplicate_window == 120
    assert KeyValueConfig(bucket="b", ttl=dt.timedelta(hours=1)).to_stream().duplicate_window == 120


def test_markers_compression_and_metadata() -> None:
    stream = KeyValueConfig(bucket="b", limit_marker_ttl=5, compression=True, metadata={"a": "b"}).to_stream()
    assert (stream.allow_msg_ttl, stream.subject_delete_marker_ttl) == (True, 5.0)
    assert (stream.compression, stream.metadata) == ("s2", {"a": "b"})


def test_mirror_and_sources_get_their_prefixes_and_transforms() -> None:
    mirror = KeyValueConfig(bucket="m", mirror=StreamSource(name="b")).to_stream()
    assert mirror.mirror is not None
    assert (mirror.mirror.name, mirror.mirror_direct, mirror.subjects) == ("KV_b", True, None)
    own = StreamSource(name="plain", subject_transforms=[SubjectTransform(src="x.>", dest="$KV.m.>")])
    away = StreamSource(name="m", external=ExternalStream(api="$JS.hub.API"))
    stream = KeyValueConfig(bucket="m", sources=[StreamSource(name="b"), own, away]).to_stream()
    assert stream.sources is not None
    first, second, third = stream.sources
    assert first.name == "KV_b"
    assert first.subject_transforms == [SubjectTransform(src="$KV.b.>", dest="$KV.m.>")]
    assert second == own
    assert (third.name, third.subject_transforms) == ("KV_m", None)
    assert stream.subjects == ["$KV.m.>"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: KeyValueConfig(bucket="b", history=0),
        lambda: KeyValueConfig(bucket="b", history=65),
        lambda: KeyValueConfig(bucket="b", ttl=-1),
        lambda: KeyValueConfig(bucket="b", limit_marker_ttl=0.5),
        lambda: KeyValueConfig(bucket="b", mirror=StreamSource(name="a"), sources=[StreamSource(name="c")]),
        lambda: WatchOptions(include_history=True, updates_only=True),
        lambda: WatchOptions(updates_only=True, resume_from_revision=5),
        lambda: WatchOptions(resume_from_revision=0),
    ],
)
def test_contradictions_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(errors.ConfigError):
        make()


def test_configurations_pickle() -> None:
    config = KeyValueConfig(bucket="b", ttl=60, mirror=StreamSource(name="a"))
    assert pickle.loads(pickle.dumps(config)) == config


# --- entries ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "operation"),
    [
        (None, Operation.PUT),
        ({"a": "b"}, Operation.PUT),
        ({"KV-Operation": "DEL"}, Operation.DELETE),
        ({"KV-Operation": "PURGE", "Nats-Rollup": "sub"}, Operation.PURGE),
        ({"Nats-Marker-Reason": "MaxAge"}, Operation.PURGE),
        ({"Nats-Marker-Reason": "Purge"}, Operation.PURGE),
        ({"Nats-Marker-Reason": "Remove"}, Operation.DELETE),
        ({"note": "KV-Operation: DEL"}, Operation.PUT),
    ],
)
def test_operations_by_header(headers: dict[str, str] | None, operation: Operation) -> None:
    block = None if headers is None else Headers(headers).encode()
    assert operation_of_block(block) is operation


@pytest.mark.parametrize("end", [b"\r\n\r\n", b"\r\n", b""])
def test_the_operation_of_a_strange_block_is_found_in_its_bytes(end: bytes) -> None:
    assert operation_of_block(b"NATS/2.0\r\nKV-Operation: DEL" + end) is Operation.DELETE
    assert operation_of_block(b"NATS/2.0\r\nA: 1\r\nNats-Marker-Reason: MaxAge" + end) is Operation.PURGE
    assert operation_of_block(b"NATS/2.0\r\nNot-KV-Operation: DEL" + end) is Operation.PUT


def test_created_is_aware_whatever_it_came_from() -> None:
    from_text = KeyValueEntry("b", "k", b"", 1, stamp=b"2026-11-21T10:20:30.123456789Z")
    from_number = KeyValueEntry("b", "k", b"", 1, stamp=1_795_256_430_123_456_789)
    assert from_text.created == from_number.created == dt.datetime(2026, 11, 21, 10, 20, 30, 123456, dt.timezone.utc)


def test_entries_print_and_pickle() -> None:
    entry = KeyValueEntry("b", "sue.color", b"blue", 1)
    assert str(entry) == "sue.color @ 1 -> b'blue'"
    assert pickle.loads(pickle.dumps(entry)) == entry
    assert entry.is_put


@pytest.mark.parametrize(
    ("subjects", "common"),
    [
        (["$KV.b.a", "$KV.b.c"], "$KV.b.>"),
        (["$KV.b.a.x", "$KV.b.a.y"], "$KV.b.a.>"),
        (["$KV.b.a.*", "$KV.b.a.y"], "$KV.b.a.>"),
        (["$KV.b.a", "$KV.b.a.b"], "$KV.b.>"),
        (["$KV.b.>", "$KV.b.a"], "$KV.b.>"),
    ],
)
def test_the_common_filter_covers_all(subjects: list[str], common: str) -> None:
    assert common_filter(subjects) == common


def test_a_bucket_name_has_at_most_250_characters() -> None:
    assert check_bucket("b" * 250) == "b" * 250
    with pytest.raises(errors.InvalidName, match="251 characters"):
        check_bucket("b" * 251)
