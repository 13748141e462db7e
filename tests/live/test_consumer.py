"""Consumers as objects of the server: strict create and update, listings, pause, reset, unpin, refusals."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, Stream, StreamConfig
from jsclient.testing import NatsServer


@pytest.fixture
def stream(js: JetStream) -> Stream:
    stream = js.create_stream(StreamConfig(name="S", subjects=["s.>"], storage="memory"))
    for number in range(1, 6):
        js.publish(f"s.{number}", b"x")
    return stream


def test_create_is_strict(stream: Stream, js: JetStream) -> None:
    config = ConsumerConfig(durable_name="C", max_deliver=4, ack_wait=7.5, description="one")
    consumer = stream.create_consumer(config)
    info = consumer.info()
    assert (info.name, info.stream_name, info.num_pending) == ("C", "S", 5)
    assert (info.config.ack_policy, info.config.ack_wait, info.config.max_deliver) == ("explicit", 7.5, 4)
    assert info.config.extra is None
    stream.create_consumer(config)
    with pytest.raises(errors.ConsumerExists) as caught:
        stream.create_consumer(config.replace(max_deliver=5))
    assert caught.value.err_code == 10148
    assert js.consumer_info("S", "C").config.max_deliver == 4
    with pytest.raises(errors.StreamNotFound):
        js.create_consumer("NONE", config)


def test_update_is_strict(stream: Stream, js: JetStream) -> None:
    with pytest.raises(errors.ConsumerDoesNotExist) as caught:
        stream.update_consumer(ConsumerConfig(durable_name="C"))
    assert caught.value.err_code == 10149
    assert isinstance(caught.value, errors.ConsumerNotFound)
    assert list(stream.consumer_names()) == []
    stream.create_consumer(ConsumerConfig(durable_name="C"))
    changed = js.consumer_info("S", "C").config.replace(max_ack_pending=5)
    assert stream.update_consumer(changed).info().config.max_ack_pending == 5
    with pytest.raises(errors.InvalidConsumerConfig):
        stream.update_consumer(changed.replace(deliver_policy="new"))
    newer = changed.replace(extra={"quantum": 1})  # type: ignore[call-arg]
    with pytest.raises((errors.NotSupported, errors.ApiError), match="quantum|JSON"):
        stream.update_consumer(newer)
    stream.update_consumer(newer, drop_unknown=True)


def test_create_or_update_and_get_or_create(stream: Stream, js: JetStream) -> None:
    config = ConsumerConfig(durable_name="C", max_deliver=4)
    assert stream.create_or_update_consumer(config).info().config.max_deliver == 4
    assert stream.create_or_update_consumer(config.replace(max_deliver=6)).info().config.max_deliver == 6
    found = js.get_or_create_consumer("S", config.replace(max_deliver=8))
    assert found.info().config.max_deliver == 6
    assert stream.get_or_create_consumer(ConsumerConfig(durable_name="D")).info().config.durable_name == "D"


def test_ephemeral_consumers_have_a_name_of_ours(stream: Stream) -> None:
    subjects: list[str] = []
    traced = JetStream(stream.js.nc, on_request=lambda subject, payload: subjects.append(subject))
    one = traced.create_consumer("S", ConsumerConfig())
    two = traced.create_consumer("S", ConsumerConfig(name="mine", inactive_threshold=60))
    names = sorted(stream.consumer_names())
    assert len(names) == 2
    assert "mine" in names
    assert subjects[-1] == "$JS.API.CONSUMER.CREATE.S.mine"
    assert all(len(name) == 22 for name in names if name != "mine")
    assert one.info().config.durable_name is None
    assert two.info().config.inactive_threshold == 60


def test_one_filter_is_part_of_the_subject(stream: Stream) -> None:
    """So that permissions can be given for it; several are not part of it."""
    subjects: list[str] = []
    traced = JetStream(stream.js.nc, on_request=lambda subject, payload: subjects.append(subject))
    for number, (pattern, token) in enumerate((("s.1", ".s.1"), ("s.*", ".s.*"), ("s.>", ".s.>"))):
        info = traced.create_consumer("S", ConsumerConfig(durable_name=f"C{number}", filter_subject=pattern)).info()
        assert info.config.filter_subject == pattern
        assert f"$JS.API.CONSUMER.CREATE.S.C{number}{token}" in subjects
    with pytest.raises(errors.InvalidSubject):  # nothing else may be published to
        stream.js.nc.publish("$JS.API.CONSUMER.CREATE.S.C2.s.>", b"{}")


def test_permission_by_filter(stream: Stream) -> None:
    """A user that may create consumers for one filter only."""
    allowed = '["$JS.API.CONSUMER.CREATE.S.*.s.1.>", "$JS.API.INFO"]'
    config = f"""accounts: {{ A: {{ jetstream: enabled, users: [
      {{ user: all, password: x }}
      {{ user: some, password: x, permissions: {{ publish: {{ allow: {allowed} }}, subscribe: "_INBOX.>" }} }}
    ] }} }}"""
    with NatsServer(config) as own:
        with jsclient.connect(own.url, user="all", password="x") as nc:
            JetStream(nc).create_stream(StreamConfig(name="S", subjects=["s.>"]))
        with jsclient.connect(own.url, user="some", password="x") as nc:
            js = JetStream(nc)
            assert js.create_or_update_consumer("S", ConsumerConfig(durable_name="C", filter_subject="s.1.>"))
            with pytest.raises(errors.PermissionViolation):
                js.create_or_update_consumer("S", ConsumerConfig(durable_name="D", filter_subject="s.2.>"))


def test_several_filters(stream: Stream, server: NatsServer) -> None:
    config = ConsumerConfig(durable_name="C", filter_subjects=["s.1", "s.3"])
    if server.version < (2, 10):
        with pytest.raises(errors.NotSupported, match="filter_subjects"):
            stream.create_consumer(config)
        assert list(stream.consumer_names()) == []
        return
    info = stream.create_consumer(config).info()
    assert info.config.filter_subjects == ["s.1", "s.3"]
    assert info.num_pending == 2
    with pytest.raises(errors.ConsumerFilterError):
        stream.create_consumer(ConsumerConfig(durable_name="D", filter_subjects=["s.*", "s.1"]))


def test_every_field_of_all_servers(stream: Stream) -> None:
    config = ConsumerConfig(
        durable_name="C",
        description="everything",
        deliver_policy="by_start_sequence",
        opt_start_seq=3,
        ack_policy="explicit",
        max_deliver=5,
        backoff=[1.0, 2.5, dt.timedelta(seconds=30)],
        filter_subject="s.*",
        replay_policy="original",
        sample_freq="50",
        max_waiting=7,
        max_ack_pending=8,
        headers_only=True,
        max_batch=9,
        max_expires=20,
        max_bytes=10_000,
        inactive_threshold=3600,
        num_replicas=1,
        mem_storage=True,
    )
    echoed = stream.create_consumer(config).info().config.to_dict()
    # With a backoff the server takes its first entry for ack_wait.
    assert {name: echoed.get(name) for name in config.to_dict()} == config.to_dict()
    assert echoed["ack_wait"] == 1_000_000_000


def test_start_time_goes_there_and_back(stream: Stream) -> None:
    at = stream.get_msg(3).time
    consumer = stream.create_consumer(
        ConsumerConfig(durable_name="C", deliver_policy="by_start_time", opt_start_time=at)
    )
    assert consumer.info().config.opt_start_time == at
    # The time is exact to the nanosecond because it came from the server.
    assert [msg.metadata.stream_seq for msg in consumer.fetch(3, timeout=5)] == [3, 4, 5]


def test_configurations_go_back_unchanged(stream: Stream, server: NatsServer) -> None:
    config = ConsumerConfig(durable_name="C", max_deliver=5, ack_wait=1.000000001)
    if server.version >= (2, 10):
        config = config.replace(metadata={"team": "blue"})
    first = stream.create_consumer(config).info().config
    assert stream.update_consumer(first).info().config == first


def test_fields_since_2_11(stream: Stream, server: NatsServer) -> None:
    later = dt.datetime.now(dt.timezone.utc) + dt.timedelta(hours=1)
    new: list[dict[str, Any]] = [
        {"priority_groups": ["g"], "priority_policy": "overflow"},
        {"priority_groups": ["g"], "priority_policy": "pinned_client", "priority_timeout": 30.0},
        {"pause_until": later},
    ]
    for number, fields in enumerate(new):
        config = ConsumerConfig(durable_name=f"C{number}").replace(**fields)
        if server.version < (2, 11):
            with pytest.raises(errors.NotSupported, match=r"needs nats-server 2\.11"):
                stream.create_consumer(config)
            continue
        kept = stream.create_consumer(config).info()
        assert {name: getattr(kept.config, name) for name in fields} == fields
        assert kept.paused == ("pause_until" in fields)
    assert len(list(stream.consumer_names())) == (3 if server.version >= (2, 11) else 0)


def test_pause_and_resume(stream: Stream, js: JetStream, server: NatsServer) -> None:
    stream.create_consumer(ConsumerConfig(durable_name="C"))
    if server.version < (2, 11):
        with pytest.raises(errors.NotSupported):
            stream.pause_consumer("C", 60)
        with pytest.raises(errors.NotSupported):
            stream.resume_consumer("C")
        return
    state = stream.pause_consumer("C", 60)
    assert state.paused
    assert state.pause_remaining is not None
    assert 50 < state.pause_remaining <= 61
    info = js.consumer_info("S", "C")
    assert info.paused
    assert info.pause_remaining is not None
    until = dt.datetime.now(dt.timezone.utc) + dt.timedelta(minutes=5)
    assert js.pause_consumer("S", "C", until).pause_until == until
    assert js.pause_consumer("S", "C", dt.timedelta(minutes=1)).paused
    assert not js.resume_consumer("S", "C").paused
    assert not stream.resume_consumer("C").paused
    assert not js.consumer_info("S", "C").paused
    with pytest.raises(errors.ConfigError, match="time zone"):
        stream.pause_consumer("C", dt.datetime(2030, 1, 1))
    with pytest.raises(errors.ConfigError, match="negative"):
        stream.pause_consumer("C", -5)
    with pytest.raises(errors.ConsumerNotFound):
        stream.pause_consumer("NONE", 60)


def test_reset(stream: Stream, js: JetStream, server: NatsServer) -> None:
    consumer = stream.create_consumer(ConsumerConfig(durable_name="C"))
    if server.version < (2, 14):
        with pytest.raises(errors.NotSupported, match=r"2\.14"):
            stream.reset_consumer("C", 2)
        return
    for msg in consumer.fetch(5, timeout=5):
        msg.ack()
    js.nc.flush()
    assert js.consumer_info("S", "C").num_pending == 0
    answer = stream.reset_consumer("C", 3)
    assert answer.reset_seq == 3
    assert answer.num_pending == 3
    assert [msg.metadata.stream_seq for msg in consumer.fetch(3, timeout=5)] == [3, 4, 5]
    assert js.reset_consumer("S", "C").reset_seq == 3  # nothing was acknowledged since
    with pytest.raises(errors.ConfigError):
        stream.reset_consumer("C", 0)
    stream.create_consumer(ConsumerConfig(durable_name="N", deliver_policy="new"))
    with pytest.raises(errors.InvalidConsumerReset):
        stream.reset_consumer("N", 1)


def test_unpin(stream: Stream, server: NatsServer) -> None:
    if server.version < (2, 11):
        stream.create_consumer(ConsumerConfig(durable_name="C"))
        with pytest.raises(errors.NotSupported):
            stream.unpin_consumer("C", "g")
        return
    stream.create_consumer(ConsumerConfig(durable_name="C", priority_groups=["g"], priority_policy="pinned_client"))
    stream.unpin_consumer("C", "g")
    for group in ("other", ""):
        with pytest.raises((errors.InvalidConsumerConfig, errors.ConfigError)):
            stream.unpin_consumer("C", group)


def test_delete(stream: Stream) -> None:
    stream.create_consumer(ConsumerConfig(durable_name="C"))
    stream.delete_consumer("C")
    for call in (
        lambda: stream.delete_consumer("C"),
        lambda: stream.consumer("C"),
        lambda: stream.consumer_info("C"),
        lambda: stream.push_consumer("C"),
    ):
        with pytest.raises(errors.ConsumerNotFound) as caught:
            call()
        assert caught.value.err_code == 10014


def test_handles(stream: Stream, js: JetStream) -> None:
    stream.create_consumer(ConsumerConfig(durable_name="C"))
    calls: list[str] = []
    traced = JetStream(js.nc, on_request=lambda subject, payload: calls.append(subject))
    blind = traced.consumer("S", "C", fetch_info=False)
    assert calls == []
    assert blind.cached_info is None
    known = traced.consumer("S", "C")
    assert calls == ["$JS.API.CONSUMER.INFO.S.C"]
    assert known.cached_info is not None
    assert known.cached_info.config.durable_name == "C"


def test_pull_and_push_are_told_apart(stream: Stream, js: JetStream) -> None:
    deliver = js.nc.new_inbox()
    stream.create_push_consumer(ConsumerConfig(durable_name="P", deliver_subject=deliver))
    stream.create_consumer(ConsumerConfig(durable_name="C"))
    with pytest.raises(errors.NotPullConsumer):
        stream.consumer("P")
    with pytest.raises(errors.NotPushConsumer):
        stream.push_consumer("C")
    assert stream.push_consumer("P").info().config.deliver_subject == deliver
    assert {info.name: info.config.is_push for info in stream.consumers()} == {"P": True, "C": False}


@pytest.mark.parametrize(
    "fields",
    [
        {"deliver_subject": "d"},
        {"deliver_group": "g"},
        {"flow_control": True},
        {"idle_heartbeat": 5},
        {"rate_limit_bps": 1},
        {"filter_subject": "s.1", "filter_subjects": ["s.2"]},
        {"filter_subjects": "s.1"},
        {"filter_subject": "s..1"},
        {"name": "a", "durable_name": "b"},
        {"name": "a.b"},
        {"durable_name": "a b"},
        {"opt_start_seq": 1},
        {"deliver_policy": "by_start_sequence"},
        {"deliver_policy": "by_start_time"},
        {"deliver_policy": "later"},
        {"ack_policy": "never"},
        {"max_deliver": 2, "backoff": [1, 2]},
        {"ack_wait": -1},
        {"max_ack_pending": "5"},
        {"priority_groups": "g"},
        {"metadata": {"a": 1}},
    ],
)
def test_bad_configurations_never_reach_the_wire(stream: Stream, fields: dict[str, object]) -> None:
    calls: list[str] = []
    traced = JetStream(stream.js.nc, on_request=lambda subject, payload: calls.append(subject)).stream(
        "S", fetch_info=False
    )
    for call in (
        traced.create_consumer,
        traced.update_consumer,
        traced.create_or_update_consumer,
        traced.get_or_create_consumer,
    ):
        with pytest.raises(errors.ConfigError):
            call(ConsumerConfig(**fields))  # type: ignore[arg-type]
    assert calls == []


@pytest.mark.parametrize("fields", [{}, {"max_waiting": 5}, {"flow_control": True}, {"deliver_subject": "d.*"}])
def test_bad_push_configurations(stream: Stream, fields: dict[str, Any]) -> None:
    config = ConsumerConfig(durable_name="P")
    if fields:
        config = config.replace(**{"deliver_subject": "d", **fields})
    for call in (stream.create_push_consumer, stream.update_push_consumer, stream.create_or_update_push_consumer):
        with pytest.raises(errors.ConfigError):
            call(config)


def test_errors_of_the_server_are_typed(js: JetStream) -> None:
    queue = js.create_stream(StreamConfig(name="W", subjects=["w.*"], retention="workqueue", storage="memory"))
    queue.create_consumer(ConsumerConfig(durable_name="A"))
    with pytest.raises(errors.WorkQueueConsumerError):
        queue.create_consumer(ConsumerConfig(durable_name="B"))
    with pytest.raises(errors.InvalidConsumerConfig):
        queue.create_consumer(ConsumerConfig(durable_name="B", ack_policy="none"))


def test_pedantic(stream: Stream, server: NatsServer) -> None:
    config = ConsumerConfig(durable_name="C", ack_wait=5, backoff=[1, 2])
    js = stream.js
    refused = errors.NotSupported if server.version < (2, 11) else errors.PedanticError
    for call in (stream.create_consumer, stream.create_or_update_consumer):
        with pytest.raises(refused, match="pedantic"):
            call(config, pedantic=True)
    for by_name in (js.create_consumer, js.create_or_update_consumer):
        with pytest.raises(refused, match="pedantic"):
            by_name(stream.name, config, pedantic=True)
    js.create_consumer(stream.name, ConsumerConfig(durable_name="C"))
    with pytest.raises(refused, match="pedantic"):
        js.update_consumer(stream.name, config, pedantic=True)


def test_the_answer_is_compared_with_what_was_sent(stream: Stream) -> None:
    """The second net: a server that drops a field although its level says otherwise."""
    sent = ConsumerConfig(durable_name="C", filter_subjects=["s.1", "s.2"])
    kept = ConsumerConfig(durable_name="C", ack_policy="explicit")
    with pytest.raises(errors.NotSupported, match=r"filter_subjects \(needs nats-server 2\.10\)"):
        stream.js.capabilities.check_echo(sent, kept, "consumer 'C' was made")
    stream.js.capabilities.check_echo(kept, kept, "consumer 'C' was made")
