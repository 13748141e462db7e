"""Message schedules: the headers that they become, and what is refused."""

from __future__ import annotations

import datetime as dt

import pytest

from jsclient import errors
from jsclient.jetstream import Schedule


def test_schedule_headers() -> None:
    moment = dt.datetime(2030, 1, 2, 3, 4, 5, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    assert Schedule.at(moment, "t.x").headers() == [
        ("Nats-Schedule", "@at 2030-01-02T01:04:05Z"),
        ("Nats-Schedule-Target", "t.x"),
    ]
    assert Schedule.every(90, "t").spec == "@every 90s"
    assert Schedule.every(1.5, "t").spec == "@every 1500ms"
    assert Schedule.cron("@daily", "t").spec == "@daily"
    full = Schedule.cron("0 0 6 * * *", "t", source="s", ttl=5, rollup="sub", time_zone="Europe/Berlin")
    assert dict(full.headers()) == {
        "Nats-Schedule": "0 0 6 * * *",
        "Nats-Schedule-Target": "t",
        "Nats-Schedule-Source": "s",
        "Nats-Schedule-TTL": "5",
        "Nats-Schedule-Rollup": "sub",
        "Nats-Schedule-Time-Zone": "Europe/Berlin",
    }


def test_bad_schedules_are_refused() -> None:
    with pytest.raises(errors.ConfigError):
        Schedule.at(dt.datetime(2030, 1, 1), "t")
    with pytest.raises(errors.ConfigError):
        Schedule.every(0.5, "t")
    with pytest.raises(errors.ConfigError):
        Schedule.cron("* * * * *", "t")
    with pytest.raises(ValueError):
        Schedule.every(5, "a.*")
    with pytest.raises(errors.ConfigError):
        Schedule(spec="@every 5s", target="t", time_zone="Europe/Berlin")
    with pytest.raises(TypeError):
        Schedule.every(5, "t", time_zone="Europe/Berlin")  # type: ignore[call-arg]
    with pytest.raises(errors.ConfigError):
        Schedule.every(5, "t", rollup="x")  # type: ignore[arg-type]
    with pytest.raises(errors.ConfigError):
        Schedule.every(5, "t", rollup="all")  # type: ignore[arg-type]


def test_an_interval_of_one_second_is_the_shortest() -> None:
    assert Schedule.every(1, "t").spec == "@every 1s"
    with pytest.raises(errors.ConfigError, match="at least 1 second"):
        Schedule.every(0.999, "t")
