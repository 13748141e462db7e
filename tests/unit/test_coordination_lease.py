"""A lease on servers that answer with errors: nothing is raised where nothing may be, and its end is told."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from jsclient import errors
from jsclient.coordination import lease
from jsclient.coordination.lease import Lease, LeaseLost, Terms
from jsclient.durations import Deadline, elapsed
from jsclient.testing import wait_until
from jsclient.waiting import Gate

TTL = 0.6

REFUSALS = [
    errors.JetStreamTemporarilyUnavailable(503, 10008, "an election"),
    errors.RequestTimeout("no answer"),
    errors.NoResponders("nobody"),
]


class Bucket:
    """Takes the first value; what comes then is refused, and cannot be looked up."""

    def __init__(self, refusal: Exception) -> None:
        self.refusal = refusal

    def create(self, key: str, value: bytes, **options: Any) -> int:
        return 1

    def update(self, key: str, value: bytes, revision: int, **options: Any) -> int:
        raise errors.RevisionMismatch("another revision", "bucket", key)

    def purge(self, key: str, **options: Any) -> None:
        raise self.refusal

    def get(self, key: str, **options: Any) -> Any:
        raise self.refusal


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda error: type(error).__name__)
def test_a_lease_that_cannot_be_looked_at_ends_with_its_time_and_says_so(refusal: Exception) -> None:
    lost = Gate()
    lease = Lease(Bucket(refusal), "key", Terms(TTL, True), lambda lease: lost.set())  # type: ignore[arg-type]
    assert lease.take(Deadline(5))
    assert lost.wait(20)
    assert not lease.valid
    lease.release()


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda error: type(error).__name__)
def test_a_release_raises_nothing(refusal: Exception) -> None:
    lease = Lease(Bucket(refusal), "key", Terms(60.0, True), None)  # type: ignore[arg-type]
    assert lease.take(Deadline(5))
    lease.release()
    assert not lease.valid


class Contended(Bucket):
    """Had another value at each try, and none at each look."""

    def __init__(self, cause: Exception | None) -> None:
        super().__init__(errors.RequestTimeout("no answer"))
        self.cause = cause

    def create(self, key: str, value: bytes, **options: Any) -> int:
        raise errors.NotStored("refused 5 times") from self.cause


def test_a_key_that_others_take_and_release_all_the_time_is_taken() -> None:
    """Seen with four threads that hold a lock for microseconds: `acquire` raised NotStored, where it has to wait."""
    refused = Contended(errors.WrongLastSequence(400, 10071, "wrong last sequence: 7"))
    assert not Lease(refused, "key", Terms(TTL, True), None).take(Deadline(5))  # type: ignore[arg-type]


def test_what_was_not_stored_for_another_reason_is_raised() -> None:
    with pytest.raises(errors.NotStored):
        Lease(Contended(None), "key", Terms(TTL, True), None).take(Deadline(5))  # type: ignore[arg-type]


def test_a_lease_runs_out_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of timeouts stands still then; the server's does not."""
    told: list[Lease] = []
    holder = Lease(Bucket(errors.RequestTimeout("no answer")), "key", Terms(60.0, True), told.append)  # type: ignore[arg-type]
    assert holder.take(Deadline(5))
    assert holder.valid
    monkeypatch.setattr(lease, "elapsed", lambda: elapsed() + 55)
    assert not holder.valid
    assert holder.remaining == 0
    with pytest.raises(LeaseLost):
        holder.check()
    holder.release()


class Renewing(Bucket):
    """Renews after a while; `refused` renewals get no answer."""

    def __init__(self, pause: float = 0.0, refused: Callable[[], bool] = lambda: False) -> None:
        super().__init__(errors.RequestTimeout("no answer"))
        self.pause = pause
        self.refused = refused
        self.asked: list[float] = []
        self.timeouts: list[float] = []
        self.renewed = Gate()

    def update(self, key: str, value: bytes, revision: int, **options: Any) -> int:
        self.asked.append(elapsed())
        self.timeouts.append(options["timeout"].at_most(1000.0))
        if self.refused():
            raise errors.RequestTimeout("no answer")
        Gate().wait(self.pause)
        if len(self.asked) > 1:
            self.renewed.set()
        return revision + 1


def test_a_lease_is_valid_for_its_time_less_a_tenth() -> None:
    holder = Lease(Renewing(), "key", Terms(60.0, True), None)  # type: ignore[arg-type]
    assert holder.take(Deadline(5))
    assert holder.remaining <= 54
    holder.release()


def test_a_renewed_lease_counts_from_before_the_request() -> None:
    bucket = Renewing(pause=0.15)
    holder = Lease(bucket, "key", Terms(1.2, True), None)  # type: ignore[arg-type]
    assert holder.take(Deadline(5))
    assert bucket.renewed.wait(20)  # the second request has gone out, so the first renewal counts
    number = len(bucket.asked) - 1
    now = elapsed()
    assert now + holder.remaining <= bucket.asked[number] + 1.2 * 0.9 + 0.001
    assert max(bucket.timeouts) <= 1.2 / 3
    holder.release()


def test_a_lease_whose_time_ran_out_is_not_renewed_any_more() -> None:
    """Another process may have it by then: a renewal that came late would make two owners."""
    lost: list[Lease] = []
    bucket = Renewing()
    holder = Lease(bucket, "key", Terms(TTL, True), lost.append)  # type: ignore[arg-type]
    begun = elapsed()
    bucket.refused = lambda: elapsed() < begun + TTL * 0.9
    assert holder.take(Deadline(5))
    begun = elapsed()
    wait_until(lambda: lost or elapsed() > begun + 3 * TTL, 20)
    assert lost == [holder]
    assert not holder.valid
    assert all(asked < begun + TTL for asked in bucket.asked)


class Overtaken(Renewing):
    """The answer of the first renewal is lost: it is stored as revision 5, and refused when it is tried again."""

    def __init__(self) -> None:
        super().__init__()
        self.value = b""
        self.revisions: list[int] = []
        self.holder: Lease | None = None
        self.ends: list[float] = []

    def create(self, key: str, value: bytes, **options: Any) -> int:
        self.value = value
        return 1

    def update(self, key: str, value: bytes, revision: int, **options: Any) -> int:
        self.revisions.append(revision)
        if revision == 1:
            raise errors.RevisionMismatch("another revision", "bucket", key)
        assert self.holder is not None
        self.ends.append(elapsed() + self.holder.remaining)
        return super().update(key, value, revision, **options)

    def get(self, key: str, **options: Any) -> Any:
        return SimpleNamespace(value=self.value, revision=5)


def test_a_renewal_with_a_lost_answer_is_renewed_again_before_it_counts() -> None:
    bucket = Overtaken()
    holder = bucket.holder = Lease(bucket, "key", Terms(3.0, True), None)  # type: ignore[arg-type]
    assert holder.take(Deadline(5))
    taken = elapsed()
    assert bucket.renewed.wait(20)
    holder.release()
    assert bucket.revisions[:3] == [1, 5, 6]
    assert bucket.ends[0] <= taken + 3.0 * 0.9 + 0.001, "the lost answer has given no time"


def test_a_forked_child_has_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = Renewing()
    purged: list[str] = []
    bucket.purge = lambda key, **options: purged.append(key)  # type: ignore[method-assign]
    holder = Lease(bucket, "key", Terms(60.0, True), None)  # type: ignore[arg-type]
    assert holder.take(Deadline(5))
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        assert not holder.valid
        assert holder.remaining == 0
        holder.release()
        assert not purged
    assert holder.valid
    holder.release()
    assert purged == ["key"]


def test_the_hook_is_not_called_after_a_release() -> None:
    told: list[Lease] = []
    holder = Lease(Renewing(), "key", Terms(60.0, True), told.append)  # type: ignore[arg-type]
    assert holder.take(Deadline(5))
    holder.release()
    holder.release()
    assert not holder.valid
    assert told == []


@pytest.mark.parametrize(
    ("ttl", "bucket", "marker", "terms"),
    [
        (2.0, None, 60.0, Terms(2.0, True)),
        (1.9, None, 60.0, None),
        (float("nan"), None, 60.0, None),
        (10.0, None, None, None),
        (10.0, 10.0, None, Terms(10.0, False)),
        (10.1, 10.0, None, None),
    ],
)
def test_the_times_that_a_bucket_gives(
    ttl: float, bucket: float | None, marker: float | None, terms: Terms | None
) -> None:
    status = SimpleNamespace(ttl=bucket, limit_marker_ttl=marker)
    kv: Any = SimpleNamespace(bucket="b", status=lambda timeout: status)
    if terms is None:
        with pytest.raises(errors.ConfigError):
            lease.terms_of(kv, ttl)
    else:
        assert lease.terms_of(kv, ttl) == terms
