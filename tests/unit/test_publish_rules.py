"""How long a publisher waits, and how often it looks."""

from __future__ import annotations

import pytest

from jsclient.jetstream.publishing.outcome import Rules


@pytest.mark.parametrize(
    ("ack_timeout", "resend_after", "tick"),
    [(30.0, 5.0, 0.5), (9.0, 3.0, 0.5), (3.0, 1.0, 0.3), (0.3, 0.1, 0.03)],
)
def test_messages_are_looked_at_often_enough(ack_timeout: float, resend_after: float, tick: float) -> None:
    rules = Rules(ack_timeout=ack_timeout)
    assert rules.resend_after == pytest.approx(resend_after)
    assert rules.tick == pytest.approx(tick)
    assert 2 * rules.tick <= rules.resend_after < rules.ack_timeout


def test_a_shorter_silence_may_be_asked_for() -> None:
    assert Rules(resend_after=0.2).tick == 0.1
