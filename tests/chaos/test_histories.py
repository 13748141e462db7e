"""The short form of `make chaos`: no wrong answer of the client while servers are killed, paused and parted."""

from __future__ import annotations

import os

import pytest
from tests.chaos.report import text_of
from tests.chaos.rig import Rig
from tests.chaos.run import Run


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(600)
def test_a_history_has_no_wrong_answer_of_the_client() -> None:
    seed = int(os.environ.get("JSCLIENT_CHAOS_SEED", "11"))
    with Rig() as rig:
        result = Run(rig, seed, 40)()
    text = text_of(result, rig.wire)
    print(text)
    assert not result.of("client") + result.of("undecided"), text
    assert sum(op.outcome == "ok" for op in result.history.ops) > 500
