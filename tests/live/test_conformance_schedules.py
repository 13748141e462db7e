"""Cases of the conformance framework for schedules (ADR-51): the name of a test has the numbers of its cases."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest
from tests.pauses import time_passes

from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, RawStreamMsg, Schedule, Stream, StreamConfig, StreamSource
from jsclient.testing import NatsServer, wait_until

pytestmark = pytest.mark.slow  # schedules take seconds

WHY = "a schedule that has ended publishes nothing, for longer than its interval"


@pytest.fixture
def js(server: NatsServer, js: JetStream) -> JetStream:
    if server.version < (2, 14, 0):
        pytest.skip("all of schedules needs nats-server 2.14")
    return js


def new_stream(js: JetStream, name: str = "SCH", **config: Any) -> Stream:
    settings = {
        "subjects": ["schedules.>", "target.>"],
        "allow_msg_schedules": True,
        "allow_msg_ttl": True,
        "allow_direct": True,
        "storage": "memory",
    }
    return js.create_stream(StreamConfig(name=name, **{**settings, **config}))


@pytest.fixture
def stream(js: JetStream) -> Stream:
    return new_stream(js)


def send(js: JetStream, subject: str, data: bytes = b"", **headers: str) -> dict[str, Any]:
    """The answer to a message with headers that the client might not write: `Nats_TTL` is Nats-TTL."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    found: dict[str, Any] = json.loads(js.nc.request(subject, data, headers=named, timeout=5).data)
    return found


def plan(js: JetStream, spec: str, data: bytes = b"body", key: str = "a", **headers: str) -> dict[str, Any]:
    """The answer to a schedule on `schedules.<key>` for `target.<key>`."""
    given = {"Nats_Schedule": spec, "Nats_Schedule_Target": f"target.{key}", **headers}
    return send(js, f"schedules.{key}", data, **given)


def soon(seconds: float = 1.0) -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=seconds)


def at(seconds: float = 1.0) -> str:
    return f"@at {soon(seconds).strftime('%Y-%m-%dT%H:%M:%S.%fZ')}"


def found(stream: Stream, subject: str) -> list[RawStreamMsg]:
    return list(stream.get_batch(100, subject=subject))


def fired(stream: Stream, count: int = 1, key: str = "a", seconds: float = 10) -> list[RawStreamMsg]:
    """The messages that a schedule has published, at least so many."""
    subject = f"target.{key}"
    wait_until(lambda: len(found(stream, subject)) >= count, seconds)
    return found(stream, subject)


def is_moment(text: str) -> bool:
    return dt.datetime.fromisoformat(text.replace("Z", "+00:00")).tzinfo is not None


# --- 100: the setting -------------------------------------------------------------------------------------------


def test_sch_101_103_the_setting(js: JetStream) -> None:
    stream = new_stream(js, deny_purge=None)
    config = stream.info().config
    assert (config.allow_msg_schedules, config.allow_rollup_hdrs) == (True, True)
    assert not config.deny_purge
    assert config.metadata is not None
    assert int(config.metadata["_nats.req.level"]) >= 2
    with pytest.raises(errors.ApiError):
        js.update_stream(config.replace(allow_msg_schedules=False))
    assert stream.info().config.allow_msg_schedules


def test_sch_102_104_it_is_off_and_can_be_switched_on(js: JetStream) -> None:
    stream = new_stream(js, allow_msg_schedules=None)
    config = stream.info().config
    assert not config.allow_msg_schedules
    assert "error" in plan(js, "@hourly")
    config = js.update_stream(config.replace(allow_msg_schedules=True)).info().config
    assert config.allow_rollup_hdrs
    assert "error" not in plan(js, at())
    fired(stream)


@pytest.mark.parametrize("kind", ["mirror", "sources"])
def test_sch_105_106_copies_cannot_have_it(js: JetStream, stream: Stream, kind: str) -> None:
    source = StreamSource(name="SCH")
    given: dict[str, Any] = {"mirror": source} if kind == "mirror" else {"sources": [source]}
    with pytest.raises((errors.ApiError, errors.ConfigError)):
        new_stream(js, "COPY", subjects=None, **given)


def test_sch_107_a_ttl_needs_its_own_setting(js: JetStream) -> None:
    stream = new_stream(js, allow_msg_ttl=None)
    assert "error" in plan(js, "@hourly", Nats_Schedule_TTL="5m")
    assert stream.info().state.messages == 0


def test_sch_108_a_schedule_is_rolled_up(js: JetStream, stream: Stream) -> None:
    plan(js, "@hourly")
    assert stream.get_last_msg("schedules.a").headers["Nats-Rollup"] == "sub"


# --- 200: once --------------------------------------------------------------------------------------------------


def test_sch_201_204_205_508_609_once(js: JetStream, stream: Stream) -> None:
    schedule = Schedule.at(soon(), "target.a", ttl=300, rollup="sub")
    js.publish("schedules.a", b"body", schedule=schedule, headers={"X-Custom": "test-42"})
    (message,) = fired(stream)
    assert message.data == b"body"
    assert message.headers.to_dict() == {
        "X-Custom": ["test-42"],
        "Nats-Scheduler": ["schedules.a"],
        "Nats-Schedule-Next": ["purge"],
        "Nats-TTL": ["300"],
        "Nats-Rollup": ["sub"],
    }
    wait_until(lambda: not found(stream, "schedules.a"))


def test_sch_202_203_past_times_and_other_zones(js: JetStream, stream: Stream) -> None:
    plan(js, "@at 2009-11-10T23:00:00Z")
    assert fired(stream)[0].headers["Nats-Schedule-Next"] == "purge"
    moment = soon().astimezone(dt.timezone(dt.timedelta(hours=2)))
    plan(js, f"@at {moment.isoformat()}", key="b")
    fired(stream, key="b")


@pytest.mark.slow
def test_sch_206_308_706_a_schedule_ends_with_its_message(js: JetStream) -> None:
    stream = new_stream(js, subjects=["schedules.o.*", "target.o.*"])
    aged = new_stream(js, "AGED", subjects=["schedules.aged", "target.aged"], max_age=2.0)
    plan(js, at(30), key="o.once", Nats_TTL="2s")
    plan(js, "* * * * * *", key="o.often", Nats_TTL="3s")
    plan(js, "@every 10s", key="aged")
    wait_until(lambda: not found(stream, "schedules.o.once") and not found(stream, "schedules.o.often"), 15)
    wait_until(lambda: not found(aged, "schedules.aged"), 15)
    times = len(found(stream, "target.o.often"))
    time_passes(3.0, WHY)
    assert 1 <= len(found(stream, "target.o.often")) <= times + 1 <= 6
    assert found(stream, "target.o.once") == found(aged, "target.aged") == []


# --- 300: again and again ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", ["* * * * * *", "@every 1s"])
def test_sch_301_304_305_307_701_each_second(js: JetStream, stream: Stream, spec: str) -> None:
    plan(js, spec, Nats_Schedule_TTL="1m")
    for message in fired(stream, 3):
        assert message.headers["Nats-Scheduler"] == "schedules.a"
        assert message.headers["Nats-TTL"] == "1m"
        assert message.time is not None
        assert is_moment(message.headers["Nats-Schedule-Next"])
    (schedule,) = found(stream, "schedules.a")
    assert (schedule.data, schedule.headers["Nats-Schedule"]) == (b"body", spec)


WORDS = ["@hourly", "@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight"]


@pytest.mark.parametrize("spec", WORDS)
def test_sch_302_303_predefined_schedules(js: JetStream, stream: Stream, spec: str) -> None:
    js.publish("schedules.a", b"", schedule=Schedule.cron(spec, "target.a"))
    assert stream.get_last_msg("schedules.a").headers["Nats-Schedule"] == spec


@pytest.mark.parametrize("spec", ["not a valid cron", "@every 500ms", "@every 100ms", "@every 0s"])
def test_sch_306_309_what_is_no_schedule(js: JetStream, stream: Stream, spec: str) -> None:
    assert "error" in plan(js, spec)
    assert stream.info().state.messages == 0
    assert "error" not in plan(js, "@every 1s")


# --- 400: the last message of another subject -------------------------------------------------------------------


def test_sch_401_404_the_last_value_of_a_source(js: JetStream) -> None:
    stream = new_stream(js, subjects=["schedules.>", "target.>", "sensors.>"])
    for number in range(1, 6):
        js.publish("sensors.a", b"%d" % number)
    js.publish("schedules.a", b"", schedule=Schedule.every(1, "target.a", source="sensors.a"))
    first = fired(stream)[0]
    assert (first.data, first.headers["Nats-Scheduler"]) == (b"5", "schedules.a")
    assert is_moment(first.headers["Nats-Schedule-Next"])
    js.publish("sensors.a", b"9")
    wait_until(lambda: found(stream, "target.a")[-1].data == b"9", 10)


def test_sch_402_403_sources_without_a_value(js: JetStream) -> None:
    stream = new_stream(js, subjects=["schedules.>", "target.>", "sensors.>"])
    assert "error" in plan(js, "@every 1s", Nats_Schedule_Source="sensors.*")
    assert stream.info().state.messages == 0
    plan(js, "@every 1s", b"fallback", Nats_Schedule_Source="sensors.empty", X_Marker="body")
    message = fired(stream)[0]
    assert (message.data, message.headers["X-Marker"]) == (b"fallback", "body")
    assert message.headers["Nats-Scheduler"] == "schedules.a"
    assert is_moment(message.headers["Nats-Schedule-Next"])


# --- 500: headers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_sch_501_time_zones(js: JetStream, stream: Stream, zone: str) -> None:
    answer = plan(js, "0 30 9 * * *", Nats_Schedule_Time_Zone=zone)
    if "error" in answer and zone != "UTC":
        pytest.skip("the machine of the server does not know the time zone")
    assert stream.get_last_msg("schedules.a").headers["Nats-Schedule-Time-Zone"] == zone


@pytest.mark.parametrize(
    ("spec", "zone"),
    [
        *(("@at 2099-01-01T00:00:00Z", "Europe/Amsterdam"), ("@every 1m", "Europe/Amsterdam")),
        *(("* * * * * *", "Not/A_Zone"), ("* * * * * *", "+02:00")),
        ("* * * * * *", ""),
    ],
)
def test_sch_502_503_time_zones_that_are_refused(js: JetStream, stream: Stream, spec: str, zone: str) -> None:
    assert "error" in plan(js, spec, Nats_Schedule_Time_Zone=zone)
    assert stream.info().state.messages == 0


def test_sch_505_506_507_rollups_and_targets(js: JetStream, stream: Stream) -> None:
    assert "error" in plan(js, "@hourly", Nats_Schedule_Rollup="all")
    assert "error" in plan(js, "@hourly", Nats_Schedule_Target="nope.elsewhere")
    assert stream.info().state.messages == 0
    plan(js, at(), Nats_Schedule_Rollup="sub")
    assert fired(stream)[0].headers["Nats-Rollup"] == "sub"


# --- 600: other schedules, and ends -----------------------------------------------------------------------------


def test_sch_601_a_schedule_is_replaced(js: JetStream, stream: Stream) -> None:
    plan(js, "@every 1s", b"A")
    assert fired(stream)[0].data == b"A"
    plan(js, "@every 1s", b"B")
    assert [message.data for message in found(stream, "schedules.a")] == [b"B"]
    wait_until(lambda: found(stream, "target.a")[-1].data == b"B", 10)


def test_sch_602_603_604_schedules_are_deleted_and_purged(js: JetStream, stream: Stream) -> None:
    deleted = plan(js, "@every 1s", key="deleted")["seq"]
    keys = ["deleted", "purged", "multi.a", "multi.b", "multi.c"]
    for key in keys[1:]:
        plan(js, "@every 1s", key=key)
    for key in keys:
        fired(stream, key=key)
    stream.delete_msg(deleted)
    stream.purge(subject="schedules.purged")
    stream.purge(subject="schedules.multi.>")
    assert found(stream, "schedules.>") == []
    before = {key: len(found(stream, f"target.{key}")) for key in keys}
    time_passes(3.0, WHY)
    assert all(len(found(stream, f"target.{key}")) <= times + 1 for key, times in before.items())


def end(js: JetStream, subject: str, schedule: str, data: bytes = b"end", **headers: str) -> dict[str, Any]:
    return send(js, subject, data, Nats_Schedule_Next="purge", Nats_Scheduler=schedule, **headers)


def test_sch_605_608_a_message_ends_a_schedule(js: JetStream, stream: Stream) -> None:
    plan(js, at(3), b"slow", key="delayed")
    plan(js, at(3), b"slow", key="early")
    assert "error" not in end(js, "schedules.canceled", "schedules.delayed")
    assert "error" not in end(js, "target.early", "schedules.early", b"fast")
    assert [message.subject for message in found(stream, ">")] == ["schedules.canceled", "target.early"]
    time_passes(4.0, WHY)
    assert [message.data for message in found(stream, "target.>")] == [b"fast"]


def test_sch_606_only_if_the_schedule_is_there(js: JetStream, stream: Stream) -> None:
    last = plan(js, "@every 1s")["seq"]
    conditions = {
        "Nats_Expected_Last_Subject_Sequence": str(last),
        "Nats_Expected_Last_Subject_Sequence_Subject": "schedules.a",
    }
    assert "error" not in end(js, "schedules.signal", "schedules.a", b"", **conditions)
    assert "error" in end(js, "schedules.signal", "schedules.a", b"", **conditions)
    assert len(found(stream, "schedules.signal")) == 1
    assert found(stream, "schedules.a") == []


@pytest.mark.parametrize("scheduler", ["schedules.a", "", " ", "bad subject with spaces", "*.>", ".leading.dot"])
def test_sch_607_610_611_what_names_no_other_schedule(js: JetStream, stream: Stream, scheduler: str) -> None:
    plan(js, "@every 1s")
    assert end(js, "schedules.a", scheduler)["error"]["err_code"] == 10212
    assert [message.data for message in found(stream, "schedules.a")] == [b"body"]


# --- 700: retention ---------------------------------------------------------------------------------------------


def test_sch_702_703_work_queues(js: JetStream) -> None:
    stream = new_stream(js, retention="workqueue")
    plan(js, "@every 1s")
    fired(stream, 2)
    assert len(found(stream, "schedules.a")) == 1
    consumer = stream.create_consumer(ConsumerConfig(name="C", durable_name="C", filter_subject="schedules.a"))
    (message,) = consumer.fetch(1, timeout=5)
    message.double_ack()
    assert found(stream, "schedules.a") == []
    before = len(found(stream, "target.a"))
    time_passes(3.0, WHY)
    assert len(found(stream, "target.a")) <= before + 1


def test_sch_704_705_interest(js: JetStream) -> None:
    stream = new_stream(js, retention="interest")
    plan(js, "@every 1s", key="unheld")
    for name in ("schedules", "target"):
        config = ConsumerConfig(name=name, durable_name=name, filter_subject=f"{name}.>", ack_policy="none")
        stream.create_consumer(config)
    plan(js, "@every 1s")
    fired(stream, 3)
    assert len(found(stream, "schedules.a")) == 1
    assert found(stream, "schedules.unheld") == found(stream, "target.unheld") == []


def test_sch_707_a_work_queue_and_a_copy_by_interest(js: JetStream) -> None:
    new_stream(js, "WQ", retention="workqueue")
    copy = new_stream(
        js,
        "INT",
        subjects=None,
        retention="interest",
        allow_msg_schedules=None,
        sources=[StreamSource(name="WQ", filter_subject="target.>")],
    )
    consumer = copy.create_consumer(ConsumerConfig(name="C", durable_name="C", filter_subject="target.>"))
    plan(js, "@every 1s")
    batch = consumer.fetch(3, timeout=15)
    assert [message.data for message in batch] == [b"body"] * 3


# --- 800: time zones --------------------------------------------------------------------------------------------


def test_sch_801_times_are_utc(js: JetStream, stream: Stream) -> None:
    moment = soon(3)
    plan(js, f"{moment.second} {moment.minute} {moment.hour} * * *")
    message = fired(stream)[0]
    assert message.time is not None
    assert abs((message.time - moment.replace(microsecond=0)).total_seconds()) < 2


def test_sch_802_a_time_zone_moves_the_times(js: JetStream, stream: Stream) -> None:
    """Two schedules for one moment; the zone shows in the next time of the second."""
    moment = soon(3)
    # Not a zone whose clocks may change in this hour of the night.
    zone = "America/New_York" if moment.astimezone(dt.timezone(dt.timedelta(hours=-5))).hour > 3 else "Asia/Tokyo"
    try:
        local = moment.astimezone(ZoneInfo(zone))
    except ZoneInfoNotFoundError:
        pytest.skip("this machine does not know the time zone")
    for key, there, name in (("utc", moment, "UTC"), ("zone", local, zone)):
        spec = f"{there.second} {there.minute} {there.hour} * * *"
        if "error" in plan(js, spec, key=key, Nats_Schedule_Time_Zone=name):
            pytest.skip("the machine of the server does not know the time zone")
    for key, there in (("utc", moment), ("zone", local)):
        message = fired(stream, key=key)[0]
        assert message.time is not None
        assert abs((message.time - moment.replace(microsecond=0)).total_seconds()) < 2
        tomorrow = dt.datetime.fromisoformat(message.headers["Nats-Schedule-Next"].replace("Z", "+00:00"))
        assert tomorrow == there.replace(microsecond=0) + dt.timedelta(days=1)
