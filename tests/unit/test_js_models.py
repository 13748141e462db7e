"""Wire models: what is sent, what is kept, seconds and times to the nanosecond, unknown fields."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsclient.errors import BadResponse, ConfigError, InvalidName, InvalidSubject
from jsclient.jetstream.api import capabilities, model_base, models
from jsclient.jetstream.api.models import (
    AccountInfo,
    ConsumerConfig,
    ConsumerInfo,
    PubAck,
    StreamConfig,
    StreamInfo,
    StreamSource,
)
from jsclient.jetstream.api.models_stream import user_metadata
from jsclient.jetstream.api.models_stream_parts import ExternalStream

UTC = dt.timezone.utc


def wire_of(config: model_base.Wire | dict[str, StreamConfig]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(model_base.encode(config))
    return plain


def test_only_what_was_set_is_sent() -> None:
    assert wire_of(StreamConfig(name="S")) == {"name": "S"}
    assert wire_of(StreamConfig(name="S", subjects=[], max_msgs=0, sealed=False)) == {
        "name": "S",
        "subjects": [],
        "max_msgs": 0,
        "sealed": False,
    }


def test_the_ack_policy_is_explicit_and_visible() -> None:
    """The server's own default is "none": every message would count as processed when it is sent."""
    assert wire_of(ConsumerConfig(durable_name="C")) == {"durable_name": "C", "ack_policy": "explicit"}
    assert ConsumerConfig().ack_policy == "explicit"
    assert wire_of(ConsumerConfig(ack_policy="none")) == {"ack_policy": "none"}


@pytest.mark.parametrize(
    ("given_", "seconds", "ns"),
    [
        (30, 30.0, 30_000_000_000),
        (0.25, 0.25, 250_000_000),
        (0, 0.0, 0),
        (dt.timedelta(days=400, microseconds=1), 34_560_000.000001, 34_560_000_000_001_000),
        (1e-9, 1e-9, 1),
    ],
)
def test_durations_are_seconds_here_and_nanoseconds_there(given_: Any, seconds: float, ns: int) -> None:
    config = StreamConfig(name="S", max_age=given_)
    assert config.max_age == seconds
    assert isinstance(config.max_age, float)
    assert wire_of(config)["max_age"] == ns


@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_durations_of_the_server_go_back_exactly(ns: int) -> None:
    """Also those that a float cannot hold: 104 days and a nanosecond."""
    config = model_base.from_wire({"name": "S", "max_age": ns}, StreamConfig)
    assert wire_of(config)["max_age"] == ns
    assert wire_of(config.replace(max_msgs=1))["max_age"] == ns
    assert wire_of(pickle.loads(pickle.dumps(config)))["max_age"] == ns


@pytest.mark.parametrize("value", ["30s", "30", None, True, float("nan"), float("inf"), [1], dt.datetime.now(UTC)])
def test_wrong_durations_are_refused_when_made(value: Any) -> None:
    if value is None:
        assert ConsumerConfig(ack_wait=None).ack_wait is None
        return
    with pytest.raises(ConfigError, match="ack_wait"):
        ConsumerConfig(ack_wait=value)
    with pytest.raises(ConfigError, match="backoff"):
        ConsumerConfig(backoff=[1, value] if not isinstance(value, str) else value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "microsecond"),
    [
        ("2026-11-21T11:29:57.123456789Z", 123456),
        ("2026-11-21T11:29:57.999999999Z", 999999),
        ("2026-11-21T11:29:57Z", 0),
        ("2026-11-21T11:29:57.1Z", 100000),
        ("2026-11-21T13:29:57.5+02:00", 500000),
    ],
)
def test_times_of_the_server(text: str, microsecond: int) -> None:
    stamp = model_base.parse_time(text)
    assert stamp.microsecond == microsecond
    assert stamp.astimezone(UTC).replace(microsecond=0) == dt.datetime(2026, 11, 21, 11, 29, 57, tzinfo=UTC)
    assert model_base.format_time(stamp) == text
    copy = pickle.loads(pickle.dumps(stamp))
    assert (copy, model_base.format_time(copy)) == (stamp, text)
    # A time derived from it has left the server's text behind.
    assert model_base.format_time(stamp + dt.timedelta(hours=1)) != text


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-21", "2026-11-21T11:29:57", "2026-13-41T11:29:57Z"])
def test_broken_times(text: str) -> None:
    with pytest.raises(ValueError, match="time|month|range"):
        model_base.parse_time(text)
    with pytest.raises(BadResponse):
        model_base.from_wire({"config": {"name": "S"}, "created": text}, StreamInfo)


def test_the_zero_time_means_not_set() -> None:
    info = model_base.from_wire({"config": {"name": "S"}, "created": "0001-01-01T00:00:00Z"}, StreamInfo)
    assert info.created is None


def test_times_of_the_user_need_a_zone() -> None:
    naive = dt.datetime(2026, 1, 1)
    with pytest.raises(ConfigError, match="opt_start_time has no time zone"):
        ConsumerConfig(opt_start_time=naive)
    with pytest.raises(ConfigError, match="datetime"):
        ConsumerConfig(opt_start_time="2026-01-01T00:00:00Z")  # type: ignore[arg-type]
    berlin = dt.datetime(2026, 7, 1, 12, 30, 0, 250_000, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    assert wire_of(ConsumerConfig(opt_start_time=berlin))["opt_start_time"] == "2026-07-01T10:30:00.250000Z"


def test_a_domain_is_short_for_an_external_prefix() -> None:
    source = StreamSource(name="A", domain="hub")
    assert source.external == ExternalStream(api="$JS.hub.API")
    assert wire_of(source) == {"name": "A", "external": {"api": "$JS.hub.API"}}
    with pytest.raises(ConfigError, match="exclude"):
        StreamSource(name="A", domain="hub", external=ExternalStream(api="x"))
    with pytest.raises(InvalidName):
        StreamSource(name="A", domain="a.b")


ANSWER = {
    "type": "io.nats.jetstream.api.v1.stream_info_response",
    "config": {
        "name": "S",
        "retention": "some-later-policy",
        "quantum": {"on": True},
        "placement": {"cluster": "c", "zone": "z"},
        "sources": [{"name": "A"}, {"name": "B", "speed": 5, "external": {"api": "x", "via": "y"}}],
    },
    "state": {"messages": 1, "something": 5},
    "newer": 1,
}


def test_a_newer_server_is_understood_and_its_settings_go_back_untouched() -> None:
    info = model_base.from_wire(json.loads(json.dumps(ANSWER)), StreamInfo)
    config = info.config
    assert str(config.retention) == "some-later-policy"
    assert (info.extra, info.state.extra) == ({"newer": 1}, {"something": 5})
    assert config.extra == {"quantum": {"on": True}}
    assert sorted(model_base.unknown_names(config)) == [
        "placement.zone",
        "quantum",
        "sources[1].external.via",
        "sources[1].speed",
    ]
    assert wire_of(config) == ANSWER["config"]
    assert wire_of({"config": config}) == {"config": ANSWER["config"]}  # as in the request about a consumer
    changed = wire_of(config.replace(max_msgs=5, metadata={"extra": "mine"}))
    assert changed == {**ANSWER["config"], "max_msgs": 5, "metadata": {"extra": "mine"}}
    assert list(model_base.unknown_names(model_base.without_unknown(config))) == []
    assert "quantum" not in wire_of(model_base.without_unknown(config))
    copy = pickle.loads(pickle.dumps(info))
    assert copy == info


def test_what_a_server_calls_extra_does_not_become_other_fields() -> None:
    """It would be put in their places when it goes back."""
    config = model_base.from_wire({"name": "S", "extra": {"sealed": True}}, StreamConfig)
    assert config.extra == {"extra": {"sealed": True}}
    assert wire_of(config) == {"name": "S", "extra": {"sealed": True}}
    forged = StreamConfig(name="S", extra={"name": "T", "later": 1})
    assert wire_of(forged) == {"name": "S", "later": 1}  # what we know is ours to say


@pytest.mark.parametrize(
    "raw", [b"", b"+OK", b"[]", b'{"config":5}', b'{"config":{"name":7}}', b"\xff\xfe", b'{"state":{}}', b"null"]
)
def test_answers_that_do_not_fit(raw: bytes) -> None:
    with pytest.raises(BadResponse) as caught:
        model_base.decode(raw, StreamInfo)
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), BadResponse)


def test_replace_checks_names() -> None:
    config = StreamConfig(name="S", max_age=5)
    assert config.replace(max_age=dt.timedelta(minutes=1)).max_age == 60.0
    assert config.replace(max_age=None).max_age is None
    with pytest.raises(ConfigError, match="max_mags"):
        config.replace(max_mags=5)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        config.max_msgs = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("fields", "error", "says"),
    [
        ({"name": "a.b"}, InvalidName, "stream name"),
        ({"subjects": "s.*"}, ConfigError, r"write \['s.\*'\]"),
        ({"subjects": ["s. x"]}, InvalidSubject, "subjects"),
        ({"retention": "work_queue"}, ConfigError, "limits, interest, workqueue"),
        ({"storage": "disk"}, ConfigError, "file, memory"),
        ({"max_msgs": 5.0}, ConfigError, "max_msgs must be an int"),
        ({"max_msgs": True}, ConfigError, "max_msgs must be an int"),
        ({"allow_direct": 1}, ConfigError, "allow_direct must be True or False"),
        ({"max_age": -1}, ConfigError, "max_age must not be negative"),
        ({"num_replicas": 6}, ConfigError, "num_replicas"),
        ({"sources": ["A"]}, ConfigError, "StreamSource"),
        ({"mirror": StreamSource(name="A"), "subjects": ["x"]}, ConfigError, "mirror"),
        ({"sources": [StreamSource(name="a b")]}, InvalidName, "source"),
        ({"metadata": {"a": 1}}, ConfigError, "metadata"),
    ],
)
def test_bad_stream_configurations_name_the_field(fields: dict[str, Any], error: type[Exception], says: str) -> None:
    config = StreamConfig(**{"name": "S", **fields})
    with pytest.raises(error, match=says):
        config.check()


def test_metadata_of_the_server_is_left_out() -> None:
    assert user_metadata({"_nats.ver": "2.15", "team": "blue", "_nats.level": "5"}) == {"team": "blue"}
    assert user_metadata(None) is None


def test_every_model_survives_a_round_trip_as_json_and_pickle() -> None:
    for cls in vars(models).values():
        if not (isinstance(cls, type) and issubclass(cls, model_base.Wire)) or cls is model_base.Wire:
            continue
        required = {
            field.name: {"name": "x"}
            if field.name == "config"
            else {"subject": "x"}
            if field.name == "message"
            else "x"
            for field in msgspec.structs.fields(cls)
            if field.required
        }
        value = model_base.from_wire(required, cls)
        assert model_base.from_wire(model_base.to_wire(value), cls) == value
        assert pickle.loads(pickle.dumps(value)) == value
        assert "None" not in repr(value)


def test_infos() -> None:
    info = model_base.from_wire(
        {
            "stream_name": "S",
            "name": "C",
            "config": {"durable_name": "C", "ack_wait": 5_000_000_000, "backoff": [1_000_000_000]},
            "delivered": {"consumer_seq": 3, "stream_seq": 9, "last_active": "2026-11-21T11:29:57.1Z"},
            "pause_remaining": 1_500_000_000,
            "cluster": {"leader": "n1", "replicas": [{"name": "n2", "active": 250_000_000, "lag": 4}]},
        },
        ConsumerInfo,
    )
    assert (info.config.ack_wait, info.config.backoff, info.pause_remaining) == (5.0, [1.0], 1.5)
    assert info.delivered.last_active is not None
    assert info.cluster is not None
    assert info.cluster.replicas is not None
    assert info.cluster.replicas[0].active == 0.25
    account = model_base.from_wire({"api": {"level": 5}, "tiers": {"R1": {"memory": 1}}}, AccountInfo)
    assert account.api.level == 5
    assert account.tiers is not None
    assert account.tiers["R1"].memory == 1
    never = model_base.from_wire({"config": {"name": "S"}, "mirror": {"name": "A", "active": -1}}, StreamInfo)
    assert never.mirror is not None
    assert never.mirror.active is None


def test_pub_acks() -> None:
    decoder = msgspec.json.Decoder(PubAck)
    assert decoder.decode(b'{"stream":"T5", "seq":6}') == PubAck(stream="T5", seq=6)  # 2.9 writes a blank
    assert decoder.decode(b'{"stream":"S","seq":1,"duplicate":true,"domain":"hub"}').duplicate


def test_what_needs_a_newer_server() -> None:
    def needed(config: StreamConfig | ConsumerConfig) -> dict[str, tuple[int, int]]:
        return dict(capabilities.needed(config))

    assert needed(StreamConfig(name="S", compression="none", metadata={}, allow_msg_ttl=False, first_seq=0)) == {}
    assert needed(StreamConfig(name="S", compression="s2", allow_batched=True)) == {
        "compression": (2, 10),
        "allow_batched": (2, 14),
    }
    source = StreamSource(name="A", subject_transforms=[models.SubjectTransform(src="a", dest="b")])
    assert needed(StreamConfig(name="S", sources=[StreamSource(name="B"), source])) == {
        "sources[1].subject_transforms": (2, 10)
    }
    mirror = StreamSource(name="A", consumer=models.SourceConsumer(name="c"))
    assert needed(StreamConfig(name="S", mirror=mirror)) == {"mirror.consumer": (2, 14)}
    assert needed(ConsumerConfig(filter_subjects=["a"], priority_groups=["g"])) == {
        "filter_subjects": (2, 10),
        "priority_groups": (2, 11),
    }
    assert needed(ConsumerConfig(ack_policy="flow_control", priority_policy="prioritized")) == {
        "ack_policy='flow_control'": (2, 14),
        "priority_policy": (2, 11),
        "priority_policy='prioritized'": (2, 12),
    }
    placed = StreamConfig(name="S", placement=models.Placement(cluster="c", preferred="n1"))
    assert needed(placed) == {"placement.preferred": (2, 11)}
