"""Options of continuous pulls: what they mean together, and what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from jsclient.errors import ConfigError
from jsclient.jetstream import ConsumerConfig
from jsclient.jetstream.consuming.hooks import error_hook
from jsclient.jetstream.consuming.pull_options import (
    MAX_MESSAGES,
    MOST_MESSAGES,
    MOST_UNMEASURED,
    PullOptions,
    options_for,
)

ERROR, MESSAGE = ValueError("x"), object()


class Silent:
    """A callable that does not say what it takes."""

    __signature__ = 5

    def __init__(self) -> None:
        self.given: tuple[Any, ...] = ()

    def __call__(self, *given: Any) -> None:
        self.given = given


@pytest.mark.parametrize(
    ("hook", "given"),
    [
        (lambda error: (error,), (ERROR,)),
        (lambda error, message: (error, message), (ERROR, MESSAGE)),
        (lambda error, message=None: (error, message), (ERROR, None)),
        (lambda *given: given, (ERROR, MESSAGE)),
        (lambda error, **more: (error, more), (ERROR, {})),
    ],
)
def test_a_hook_gets_the_message_if_it_takes_two(hook: Any, given: tuple[Any, ...]) -> None:
    called = error_hook(hook)
    assert called is not None
    assert called(ERROR, MESSAGE) == given


def test_a_hook_that_does_not_say_what_it_takes_gets_the_error() -> None:
    hook = Silent()
    called = error_hook(hook)
    assert called is not None
    called(ERROR, MESSAGE)
    assert hook.given == (ERROR,)
    assert error_hook(None) is None


@pytest.mark.parametrize(
    "given",
    [
        {"max_messages": -1},
        {"max_bytes": -1},
        {"max_messages": 0, "max_bytes": 0},
        {"expires": 0.5},
        {"expires": float("nan")},
        {"heartbeat": 0.01},
        {"heartbeat": 20.0},
        {"threshold_messages": 0},
        {"max_messages": 10, "threshold_messages": 11},
        {"max_bytes": 10, "threshold_bytes": 11},
        {"stop_after": 0},
        {"min_pending": 1},
    ],
)
def test_what_makes_no_sense(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        PullOptions(**given)


@pytest.mark.parametrize(
    ("given", "first", "most"),
    [
        ({}, MAX_MESSAGES, MOST_MESSAGES),
        ({"max_messages": 10}, 10, 0),
        ({"threshold_messages": 10}, MAX_MESSAGES, 0),
        ({"first_messages": 7, "most_messages": 70}, 7, 70),
        ({"max_messages": 0}, 1_000_000, 0),
    ],
)
def test_a_window_that_was_not_given_may_grow(given: dict[str, Any], first: int, most: int) -> None:
    options = PullOptions(**given)
    state = options.state(itertools.count(1).__next__)
    assert options.batch_limit == first
    assert state.max_messages == first
    assert state._most_messages == most


@pytest.mark.parametrize(
    ("given", "beat"), [({}, 5.0), ({"expires": 4.0}, 2.0), ({"heartbeat": None}, 0.0), ({"heartbeat": 1.0}, 1.0)]
)
def test_heartbeats(given: dict[str, Any], beat: float) -> None:
    options = PullOptions(**given)
    assert options.terms().heartbeat == beat
    assert options.terms().expires == options.expires


@pytest.mark.parametrize(
    ("config", "given", "expected"),
    [
        ({}, {}, (16 << 20, 30.0)),
        ({"deliver_policy": "last_per_subject"}, {}, (0, 30.0)),
        ({"max_bytes": 1000}, {}, (1000, 30.0)),
        ({"max_bytes": 1000}, {"max_bytes": 10}, (10, 30.0)),
        ({"max_expires": 4.0}, {}, (16 << 20, 4.0)),
        ({"max_expires": 0.5}, {}, (16 << 20, 1.0)),
        ({"max_expires": 4.0}, {"expires": 8.0}, (16 << 20, 8.0)),
        ({"priority_policy": "pinned_client", "priority_timeout": 20.0}, {}, (16 << 20, 10.0)),
        ({"priority_policy": "pinned_client", "priority_timeout": 20.0}, {"expires": 3.0}, (16 << 20, 3.0)),
    ],
)
def test_defaults_keep_to_the_limits_of_the_consumer(
    config: dict[str, Any], given: Any, expected: tuple[int, float]
) -> None:
    found = options_for(given, ConsumerConfig(**config))
    assert (found.max_bytes, found.expires) == expected


def test_where_bytes_are_not_limited_the_window_stays_small() -> None:
    """Pulls of such a consumer ask for no bytes, because servers then forget messages."""
    for headers_only, most in ((None, MOST_UNMEASURED), (True, MOST_MESSAGES)):
        config = ConsumerConfig(deliver_policy="last_per_subject", headers_only=headers_only, ack_policy="none")
        found = options_for({}, config)
        assert (found.max_bytes, found.most_messages) == (0, most)
