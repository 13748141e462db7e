"""The short form of `make networks`: over a far, a slow and a lossy line no path is slower than nats-py."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from tools.bench import networks, report
from tools.bench.cases import ALL

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(400)]

ROUNDS = 2

NOISE = 0.8
"""Of the rate of nats-py, in few rounds beside other work."""

SHORT = {
    "net-300ms-fetch-100": 0.4,
    "net-300ms-object-get": 0.5,
    "net-loss-messages-ack": 0.2,
    "net-loss-publish-async": 0.2,
    "net-64k-ordered": 0.3,
    "net-64k-fetch-100": 0.4,
}
"""Cases, and the share of their messages: whole batches, or the last fetch waits for the rest of its own."""


@pytest.mark.skipif(importlib.util.find_spec("nats") is None, reason="nats-py is not installed")
@pytest.mark.parametrize("name", SHORT)
def test_a_bad_network_is_used_as_well_as_by_nats_py(name: str) -> None:
    from tools.bench.runner import BASELINE, Bench

    case = ALL[name]
    rows: list[dict[str, Any]] = []
    with Bench(ROUNDS, [BASELINE], SHORT[name]) as bench:
        rows += bench.run(case)
    results = report.summarize(case, rows)
    print(report.table(case, results))
    print(networks.table({name: results}, [case]))
    ours = results[0]
    assert not ours.errors
    assert ours.wall_ratio is not None
    assert ours.wall_ratio > NOISE
