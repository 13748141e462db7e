"""The body of a pull, and the terms that the pulls of a call share."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jsclient.durations import DEFAULT
from jsclient.errors import ConfigError
from jsclient.jetstream.consuming.pull_options import PullTerms, terms_for


def test_a_request_says_what_is_set() -> None:
    terms = PullTerms(expires=2.0, heartbeat=0.5, group="g", min_pending=3, min_ack_pending=4, priority=0, no_wait=True)
    assert json.loads(terms.request(5, 100, "pin")) == {
        "batch": 5,
        "expires": 2_000_000_000,
        "max_bytes": 100,
        "no_wait": True,
        "idle_heartbeat": 500_000_000,
        "group": "g",
        "min_pending": 3,
        "min_ack_pending": 4,
        "id": "pin",
        "priority": 0,
    }
    assert json.loads(PullTerms(expires=1.0).request(1)) == {"batch": 1, "expires": 1_000_000_000}


@pytest.mark.parametrize(
    ("timeout", "heartbeat", "expires", "beat"),
    [
        (None, DEFAULT, 30.0, 5.0),
        (10.0, DEFAULT, 10.0, 5.0),
        (9.9, DEFAULT, 9.9, 0.0),
        (9.9, None, 9.9, 0.0),
        (1.0, 0.5, 1.0, 0.5),
    ],
)
def test_heartbeats_are_asked_for_when_there_is_time(
    timeout: float | None, heartbeat: Any, expires: float, beat: float
) -> None:
    terms = terms_for(timeout, heartbeat)
    assert (terms.expires, terms.heartbeat) == (expires, beat)


def test_the_rest_of_the_time_may_be_too_short_for_a_heartbeat() -> None:
    terms = PullTerms(expires=30.0, heartbeat=5.0)
    assert (terms.within(10.0).heartbeat, terms.within(9.0).heartbeat) == (5.0, 0.0)


@pytest.mark.parametrize(
    "given",
    [
        {"heartbeat": 0.01},
        {"heartbeat": 6.0},
        {"min_pending": 1},
        {"priority": 0},
        {"group": "g", "min_pending": -1},
        {"group": "g", "min_ack_pending": -1},
        {"group": "g", "priority": 10},
    ],
)
def test_what_the_server_would_refuse_or_ignore(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        terms_for(10.0, given.pop("heartbeat", DEFAULT), **given)
