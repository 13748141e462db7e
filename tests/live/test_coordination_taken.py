"""Leases that an operator takes away, values of other programs in the bucket, and the age that `once_per` wants."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jsclient import coordination, errors, keyvalue
from jsclient.coordination import Election, once_per
from jsclient.jetstream import JetStream
from jsclient.keyvalue import KeyValue, KeyValueConfig
from jsclient.testing import NatsServer, wait_until


@pytest.fixture
def ttl(server: NatsServer) -> float:
    return 2.0 if server.version >= (2, 11, 0) else 5.0


@pytest.fixture
def kv(js: JetStream, ttl: float) -> Iterator[KeyValue]:
    yield coordination.lease_bucket(js, ttl=ttl)
    keyvalue.delete_key_value(js, "leases")


def test_a_leader_that_was_evicted_notices_it(kv: KeyValue, ttl: float) -> None:
    gained: list[int] = []
    lost: list[int] = []
    with Election(
        kv,
        "chief",
        ttl=ttl,
        on_gain=lambda lease: gained.append(lease.token),
        on_loss=lambda lease: lost.append(lease.token),
    ) as election:
        wait_until(lambda: election.leading)
        (holder,) = coordination.holders(kv)
        coordination.evict(kv, holder)
        wait_until(lambda: lost, 3 * ttl)
        assert lost == gained[:1]
        wait_until(lambda: len(gained) == 2, 3 * ttl)
        assert gained[1] > gained[0]


def test_values_of_other_programs_name_no_holder(kv: KeyValue) -> None:
    for key, value in {
        "a": b"text",
        "b": b'{"pid": 3}',
        "c": b"[]",
        "d": b'{"host": "h", "pid": 1, "since": "x"}',
    }.items():
        kv.put(key, value)
    found = coordination.holders(kv)
    assert [holder.key for holder in found] == ["a", "b", "c", "d"]
    assert all((holder.host, holder.pid, holder.since) == (None, None, None) for holder in found)


def test_a_bucket_that_forgets_before_two_intervals_is_refused(js: JetStream) -> None:
    jobs = keyvalue.create_key_value(js, KeyValueConfig(bucket="jobs", ttl=120.0))
    try:
        assert once_per(jobs, "nightly", 60.0) is not None
        with pytest.raises(errors.ConfigError, match="two intervals"):
            once_per(jobs, "weekly", 60.5)
    finally:
        keyvalue.delete_key_value(js, "jobs")
