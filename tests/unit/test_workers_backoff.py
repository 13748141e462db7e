"""The delays of a pool between two tries of a message, without a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jsclient.workers.options import RETRY_DELAY, PoolOptions
from jsclient.workers.outcomes import Retry
from jsclient.workers.settle import Settler


def settler(consumer: tuple[float, ...] = (), **options: Any) -> Settler:
    pool: Any = SimpleNamespace(options=PoolOptions(**options), consumer=None)
    return Settler(pool, consumer)


def test_each_try_has_its_entry_and_the_last_one_holds_for_all_that_follow() -> None:
    pool = settler(backoff=(1.0, 5.0, 9.0))
    assert [pool.delay(RuntimeError(), tries) for tries in (1, 2, 3, 4, 50)] == [1.0, 5.0, 9.0, 9.0, 9.0]


def test_without_a_back_off_the_consumers_counts_and_then_the_default() -> None:
    assert [settler((2.0, 3.0)).delay(RuntimeError(), tries) for tries in (1, 2, 3)] == [2.0, 3.0, 3.0]
    assert settler((2.0,), backoff=(7.0,)).delay(RuntimeError(), 1) == 7.0
    assert settler().delay(RuntimeError(), 3) == RETRY_DELAY


def test_the_handler_may_choose_the_delay() -> None:
    pool = settler(backoff=(1.0, 5.0))
    assert pool.delay(Retry(0), 2) == 0
    assert pool.delay(Retry(30), 1) == 30
    assert pool.delay(Retry(), 2) == 5.0


def test_jitter_spreads_a_delay_by_its_part() -> None:
    pool = settler(backoff=(10.0,), jitter=0.2)
    delays = [pool.delay(RuntimeError(), 1) for _ in range(300)]
    assert 8.0 <= min(delays) < 8.5
    assert 11.5 < max(delays) <= 12.0


@pytest.mark.parametrize(
    ("options", "allowed"),
    [({}, None), ({"attempts": 5}, 100), ({"attempts": 5, "retries": 0}, 0), ({"retries": 7}, 7)],
)
def test_the_retries_that_a_handler_may_ask_for(options: dict[str, Any], allowed: int | None) -> None:
    assert PoolOptions(**options).retries_allowed == allowed


@pytest.mark.parametrize("jitter", [-0.1, 1.1, float("nan")])
def test_jitter_is_from_none_to_all(jitter: float) -> None:
    with pytest.raises(ValueError, match="jitter"):
        PoolOptions(jitter=jitter)
