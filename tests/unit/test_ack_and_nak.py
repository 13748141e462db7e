"""What is said to the server about a delivered message."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from jsclient import errors
from jsclient.jetstream.api import ack_and_nak


@pytest.mark.parametrize(
    ("delay", "body"),
    [
        (None, b"-NAK"),
        (0, b'-NAK {"delay":0}'),
        (1.5, b'-NAK {"delay":1500000000}'),
        (dt.timedelta(milliseconds=2), b'-NAK {"delay":2000000}'),
    ],
)
def test_the_delay_of_a_nak_is_json_in_nanoseconds(delay: float | dt.timedelta | None, body: bytes) -> None:
    assert ack_and_nak.nak_body(delay) == body


@pytest.mark.parametrize("delay", [-0.001, dt.timedelta(seconds=-1), float("nan"), float("inf"), "1", True, object()])
def test_delays_that_no_server_takes(delay: Any) -> None:
    with pytest.raises(errors.ConfigError, match="delay"):
        ack_and_nak.nak_body(delay)
