"""Locks, semaphores and elections while servers are killed, paused and parted; and the checker of it."""

from __future__ import annotations

import os

import pytest
from tests.chaos.leases import Hold, Resource, check, run
from tests.chaos.rig import Rig


def hold(holder: str, token: int, asked: float, had: float, valid: float, key: str = "lock") -> Hold:
    return Hold(holder, key, token, asked, had, valid)


def test_the_checker_finds_what_is_wrong() -> None:
    first = hold("a", 1, 0.0, 1.0, 3.0)
    assert check([first, hold("b", 2, 0.5, 3.5, 4.0), hold("c", 1, 0.0, 1.0, 3.0, key="other")]) == []
    assert [text.partition(":")[0] for text in check([first, hold("b", 2, 0.5, 2.0, 4.0)])] == ["two at a time"]
    # One that covers several others is found with each of them.
    many = [first, hold("b", 2, 0.5, 1.1, 1.2), hold("c", 3, 0.5, 1.3, 1.4)]
    assert len(check(many)) == 2
    assert check([first, hold("b", 2, 0.5, 2.0, -1.0)]) == [], "it was never valid: nothing was done with it"
    assert [text.partition(":")[0] for text in check([first, hold("b", 1, 0.5, 3.5, 4.0)])] == ["one token twice"]
    falling = check([hold("a", 5, 0.0, 1.0, 2.0), hold("b", 4, 1.5, 2.5, 3.0)])
    assert [text.partition(":")[0] for text in falling] == ["a token that does not rise"]
    # One that asked before the other had it may get the lower token.
    assert check([hold("a", 5, 0.0, 3.0, 4.0), hold("b", 4, 0.0, 1.0, 2.0)]) == []
    resource = Resource()
    assert resource.write("lock", 2)
    assert resource.write("lock", 2)
    assert not resource.write("lock", 1)
    assert resource.refused == 1


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(400)
def test_never_two_valid_holders_and_tokens_rise() -> None:
    seed = int(os.environ.get("JSCLIENT_CHAOS_SEED", "19"))
    with Rig(tap=False) as rig:
        result = run(rig, seed, float(os.environ.get("JSCLIENT_CHAOS_SECONDS", "60")))
    print(result)
    assert not result.findings, str(result)
    assert len(result.holds) > 100, str(result)
