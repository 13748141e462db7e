"""Streams: create, update, info, purge, seal, delete, on whatever server runs."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from jsclient import errors
from jsclient.jetstream import (
    ConsumerConfig,
    JetStream,
    Placement,
    Republish,
    Retention,
    Storage,
    StreamConfig,
    StreamConsumerLimits,
    StreamSource,
    SubjectTransform,
)
from jsclient.testing import NatsServer, wait_until


def fill(js: JetStream, *subjects: str) -> None:
    for number, subject in enumerate(subjects, 1):
        js.nc.request(subject, b"m%d" % number)


def test_create_is_strict_and_repeatable(js: JetStream) -> None:
    config = StreamConfig(name="S", subjects=["s.*"], max_age=3600.5, description="one")
    stream = js.create_stream(config)
    assert stream.name == "S"
    assert stream.cached_info is not None
    assert stream.cached_info.did_create
    kept = stream.cached_info.config
    assert (kept.subjects, kept.max_age, kept.description) == (["s.*"], 3600.5, "one")
    assert (kept.retention, kept.storage, kept.num_replicas, kept.max_msgs) == ("limits", "file", 1, -1)
    assert kept.duplicate_window == 120.0
    js.create_stream(config)
    with pytest.raises(errors.StreamNameInUse) as caught:
        js.create_stream(config.replace(description="two"))
    assert (caught.value.code, caught.value.err_code) == (400, 10058)
    assert "create_or_update_stream" in str(caught.value)
    with pytest.raises(errors.InvalidStreamConfig, match="stream_name_by_subject"):
        js.create_stream(StreamConfig(name="T", subjects=["s.x"]))


def test_update_replaces_the_configuration(js: JetStream) -> None:
    with pytest.raises(errors.StreamNotFound):
        js.update_stream(StreamConfig(name="S", subjects=["s.*"]))
    stream = js.create_stream(StreamConfig(name="S", subjects=["s.*"], max_age=dt.timedelta(hours=2)))
    changed = js.update_stream(stream.info().config.replace(max_msgs=10, max_age=dt.timedelta(minutes=90)))
    assert changed.cached_info is not None
    assert (changed.cached_info.config.max_msgs, changed.cached_info.config.max_age) == (10, 5400.0)
    with pytest.raises(errors.InvalidStreamConfig):
        js.update_stream(stream.info().config.replace(storage=Storage.MEMORY))


def test_a_configuration_goes_back_unchanged(js: JetStream) -> None:
    """Read, send back, read: exact in every field, also in what only the server had set."""
    js.create_stream(StreamConfig(name="S", subjects=["s.*"], max_age=1.000000001, storage=Storage.MEMORY))
    first = js.stream("S").info().config
    assert first.extra is None
    assert js.update_stream(first).info().config == first


def test_create_or_update_and_get_or_create(js: JetStream) -> None:
    config = StreamConfig(name="S", subjects=["s.*"], max_msgs=5)
    assert js.create_or_update_stream(config).info().config.max_msgs == 5
    assert js.create_or_update_stream(config.replace(max_msgs=6)).info().config.max_msgs == 6
    found = js.get_or_create_stream(config.replace(max_msgs=7))
    assert found.cached_info is not None
    assert found.cached_info.config.max_msgs == 6
    assert js.get_or_create_stream(StreamConfig(name="N")).info().config.subjects == ["N"]


def test_handles_without_a_round_trip(js: JetStream) -> None:
    calls: list[str] = []
    traced = JetStream(js.nc, on_request=lambda subject, payload: calls.append(subject))
    stream = traced.stream("NOBODY", fetch_info=False)
    assert stream.cached_info is None
    assert calls == []
    with pytest.raises(errors.StreamNotFound):
        stream.info()
    with pytest.raises(errors.StreamNotFound):
        traced.stream("NOBODY")
    assert calls == ["$JS.API.STREAM.INFO.NOBODY"] * 2


def test_info_with_deleted_and_subjects(js: JetStream) -> None:
    stream = js.create_stream(StreamConfig(name="S", subjects=["s.>"]))
    fill(js, "s.a", "s.a", "s.b", "s.c.d")
    stream.delete_msg(2)
    info = stream.info()
    assert (info.state.messages, info.state.first_seq, info.state.last_seq, info.state.num_subjects) == (3, 1, 4, 3)
    assert info.state.num_deleted == 1
    assert info.state.deleted is None
    assert info.state.subjects is None
    assert info.state.last_ts is not None
    assert abs((dt.datetime.now(dt.timezone.utc) - info.state.last_ts).total_seconds()) < 60
    assert info.created is not None
    assert stream.info(deleted_details=True).state.deleted == [2]
    assert stream.info(subjects_filter="s.*").state.subjects == {"s.a": 1, "s.b": 1}
    assert dict(stream.subjects()) == {"s.a": 1, "s.b": 1, "s.c.d": 1}
    assert dict(stream.subjects("s.none")) == {}
    assert stream.cached_info is not None


def test_purge_family(js: JetStream) -> None:
    stream = js.create_stream(StreamConfig(name="S", subjects=["s.>"]))
    fill(js, *["s.a", "s.b"] * 5)
    assert stream.purge(subject="s.a", keep=2) == 3
    assert stream.purge(seq=5) == 2  # what is left of 1-4; 5 itself stays
    assert stream.info().state.messages == 5
    assert stream.purge(subject="s.b") == 3
    assert stream.purge() == 2
    assert stream.info().state.last_seq == 10
    fill(js, "s.a", "s.b", "s.a")
    assert stream.purge(keep=1) == 2
    assert stream.info().state.first_seq == 13


def test_purge_refuses_what_would_mean_everything(js: JetStream) -> None:
    stream = js.create_stream(StreamConfig(name="S", subjects=["s.>"]))
    fill(js, "s.a")
    with pytest.raises(errors.ConfigError, match="exclude"):
        stream.purge(seq=2, keep=1)
    with pytest.raises(errors.ConfigError, match="1 or more"):
        stream.purge(seq=0)
    with pytest.raises(errors.ConfigError, match="1 or more"):
        stream.purge(keep=0)
    assert stream.info().state.messages == 1


def test_seal_and_denials(js: JetStream) -> None:
    stream = js.create_stream(StreamConfig(name="S", subjects=["s"], deny_delete=True, deny_purge=True))
    fill(js, "s")
    with pytest.raises(errors.MessageDeleteFailed):
        stream.delete_msg(1)
    with pytest.raises(errors.PurgeFailed):
        stream.purge()
    assert stream.seal().config.sealed is True
    js.delete_stream("S")
    other = js.create_stream(StreamConfig(name="T", subjects=["t"]))
    fill(js, "t")
    other.seal()
    with pytest.raises(errors.ApiError, match="err_code 10109"):
        other.purge()
    with pytest.raises(errors.ApiError, match="err_code 10109"):
        other.delete_msg(1)


def test_delete(js: JetStream) -> None:
    stream = js.create_stream(StreamConfig(name="S"))
    stream.delete()
    with pytest.raises(errors.StreamNotFound) as caught:
        js.delete_stream("S")
    assert caught.value.err_code == 10059


def test_streams_by_subject(js: JetStream) -> None:
    js.create_stream(StreamConfig(name="A", subjects=["a.*"]))
    js.create_stream(StreamConfig(name="B", subjects=["b.*"]))
    assert js.stream_name_by_subject("a.1") == "A"
    assert list(js.stream_names(subject="b.>")) == ["B"]
    assert [info.name for info in js.streams()] == ["A", "B"]
    assert [info.config.name for info in js.streams(subject="a.x")] == ["A"]
    with pytest.raises(errors.NoStreamForSubject):
        js.stream_name_by_subject("c")


def test_every_field_of_all_servers(js: JetStream) -> None:
    config = StreamConfig(
        name="S",
        description="everything",
        subjects=["s.>"],
        retention=Retention.INTEREST,
        max_consumers=7,
        max_msgs=100,
        max_bytes=1 << 20,
        max_msgs_per_subject=3,
        max_msg_size=1024,
        max_age=600.25,
        discard="new",
        discard_new_per_subject=True,
        storage=Storage.MEMORY,
        num_replicas=1,
        no_ack=False,
        duplicate_window=30,
        placement=Placement(tags=[]),
        deny_delete=True,
        deny_purge=False,
        allow_rollup_hdrs=True,
        allow_direct=True,
        republish=Republish(src="s.a", dest="copy.a", headers_only=True),
    )
    kept = js.create_stream(config).info().config
    sent = config.to_dict()
    del sent["placement"]
    echoed = kept.to_dict()
    assert {name: echoed.get(name) for name in sent if sent[name]} == {name: v for name, v in sent.items() if v}


def test_mirror_and_sources(js: JetStream) -> None:
    new = js.nc.server_info.at_least(2, 15)
    js.create_stream(StreamConfig(name="A", subjects=["a.*"]))
    js.create_stream(StreamConfig(name="B", subjects=["b.*"]))
    fill(js, "a.1", "a.2", "b.1")
    mirror = js.create_stream(StreamConfig(name="M", mirror=StreamSource(name="A", opt_start_seq=2)))
    both = js.create_stream(
        StreamConfig(name="X", sources=[StreamSource(name="A", filter_subject="a.1"), StreamSource(name="B")])
    )
    wait_until(lambda: mirror.info().state.messages == 1 and both.info().state.messages == 2, 10)
    info = mirror.info()
    assert info.mirror is not None
    assert (info.mirror.name, info.mirror.lag) == ("A", 0)
    assert info.config.subjects is None
    sources = sorted(both.info().sources or (), key=lambda source: source.name)
    assert [(source.name, source.seq) for source in sources] == [("A", int(new)), ("B", int(new))]
    with pytest.raises(errors.ConfigError, match="mirror"):
        js.create_stream(StreamConfig(name="Y", subjects=["y"], mirror=StreamSource(name="A")))


FIELDS_OF_210: dict[str, Any] = {
    "compression": "s2",
    "first_seq": 100,
    "subject_transform": SubjectTransform(src="s.*", dest="t.{{wildcard(1)}}"),
    "consumer_limits": StreamConsumerLimits(inactive_threshold=30, max_ack_pending=50),
    "metadata": {"team": "blue"},
}


@pytest.mark.parametrize("field", FIELDS_OF_210)
def test_fields_since_2_10(js: JetStream, server: NatsServer, field: str) -> None:
    config = StreamConfig(name="S", subjects=["s.*"]).replace(**{field: FIELDS_OF_210[field]})
    if server.version < (2, 10):
        with pytest.raises(errors.NotSupported, match=rf"{field} needs nats-server 2\.10"):
            js.create_stream(config)
        assert list(js.stream_names()) == []
        return
    kept = getattr(js.create_stream(config).info().config, field)
    if field == "metadata":
        kept = {key: value for key, value in kept.items() if not key.startswith("_nats.")}
    assert kept == FIELDS_OF_210[field]


@pytest.mark.parametrize(
    ("fields", "version"),
    [
        ({"allow_msg_ttl": True, "subject_delete_marker_ttl": 5.0, "allow_rollup_hdrs": True}, (2, 11)),
        ({"allow_atomic": True}, (2, 12)),
        ({"allow_msg_counter": True}, (2, 12)),
        ({"allow_msg_schedules": True}, (2, 12)),
        ({"persist_mode": "async"}, (2, 12)),
        ({"allow_batched": True}, (2, 14)),
    ],
)
def test_fields_of_newer_servers(
    js: JetStream, server: NatsServer, fields: dict[str, Any], version: tuple[int, int]
) -> None:
    config = StreamConfig(name="S", subjects=["s.*"]).replace(**fields)
    if server.version[:2] < version:
        with pytest.raises(errors.NotSupported, match=rf"needs nats-server {version[0]}\.{version[1]}"):
            js.create_stream(config)
        assert list(js.stream_names()) == []
        return
    kept = js.create_stream(config).info().config
    assert {name: getattr(kept, name) for name in fields} == fields
    assert kept.extra is None
    assert js.update_stream(kept).info().config == kept  # the server's own metadata does not get in the way


def test_unknown_settings_are_not_reset_in_silence(js: JetStream) -> None:
    """They go back as they came. A server that does not know them either refuses them (2.12 on), or it is told here."""
    stream = js.create_stream(StreamConfig(name="S", subjects=["s.*"]))
    newer = stream.info().config.replace(extra={"quantum": {"on": True}})  # type: ignore[call-arg]
    with pytest.raises((errors.NotSupported, errors.ApiError), match="quantum|JSON"):
        js.update_stream(newer)
    assert js.update_stream(newer, drop_unknown=True).name == "S"


def test_pedantic(js: JetStream, server: NatsServer) -> None:
    """A duplicate window of 2 minutes does not fit a max_age of one: adjusted in silence, unless asked not to."""
    config = StreamConfig(name="S", subjects=["s"], max_age=60)
    if server.version < (2, 11):
        with pytest.raises(errors.NotSupported, match="pedantic"):
            js.create_stream(config, pedantic=True)
    else:
        with pytest.raises(errors.PedanticError):
            js.create_stream(config, pedantic=True)
    assert js.create_stream(config).info().config.duplicate_window == 60


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a*", ">", "a/b", "a\\b", "a\tb", "a\r\nb", "x" * 256, 5, None])
def test_bad_stream_names_never_reach_the_wire(js: JetStream, name: str) -> None:
    calls: list[str] = []
    traced = JetStream(js.nc, on_request=lambda subject, payload: calls.append(subject))
    for call in (
        lambda: traced.stream(name),
        lambda: traced.stream(name, fetch_info=False),
        lambda: traced.delete_stream(name),
        lambda: traced.create_stream(StreamConfig(name=name)),
        lambda: traced.consumer_info(name, "c"),
        lambda: traced.consumer_info("S", name),
        lambda: traced.delete_consumer("S", name),
    ):
        with pytest.raises(errors.InvalidName if isinstance(name, str) else errors.ConfigError):
            call()
    assert calls == []


def test_live_objects_refuse_to_be_pickled(js: JetStream) -> None:
    import pickle

    stream = js.create_stream(StreamConfig(name="S", subjects=["s"]))
    consumer = stream.create_consumer(ConsumerConfig(durable_name="C"))
    js.publish("s")
    for thing in (js, stream, consumer, consumer.next(timeout=5)):
        with pytest.raises(TypeError):
            pickle.dumps(thing)
    info = stream.info()
    assert pickle.loads(pickle.dumps(info)) == info
