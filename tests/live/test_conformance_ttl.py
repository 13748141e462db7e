"""Cases of the conformance framework for TTLs of messages (ADR-43): the name of a test has the numbers of its cases."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from jsclient import errors
from jsclient.jetstream import JetStream, Stream, StreamConfig, StreamSource
from jsclient.testing import NatsServer, wait_until

SUBJECT = "t.a"


@pytest.fixture
def js(server: NatsServer, js: JetStream) -> JetStream:
    if server.version < (2, 11, 0):
        pytest.skip("TTLs of messages need nats-server 2.11")
    return js


def new_stream(js: JetStream, name: str = "TTL", **config: Any) -> Stream:
    settings = {"subjects": ["t.>"], "allow_msg_ttl": True, "allow_direct": True, "storage": "memory"}
    return js.create_stream(StreamConfig(name=name, **{**settings, **config}))


def marked(js: JetStream, **config: Any) -> Stream:
    """A stream in which the server says with a marker that it has removed the last message of a subject."""
    return new_stream(js, **{"subject_delete_marker_ttl": 60, "allow_rollup_hdrs": True, **config})


def reason(stream: Stream, subject: str = SUBJECT) -> str | None:
    """What the last message of a subject says of a removal."""
    try:
        return stream.get_last_msg(subject, direct=False).headers.get("Nats-Marker-Reason")
    except errors.MessageNotFound:
        return None


def left(stream: Stream, subject: str) -> list[str | None]:
    """The reason of each message on a subject, None for a message that is no marker."""
    return [message.headers.get("Nats-Marker-Reason") for message in stream.get_batch(100, subject=subject)]


def count(stream: Stream) -> int:
    return stream.info().state.messages


# --- 100: settings ----------------------------------------------------------------------------------------------


def test_ttl_101_111_streams_with_ttls(js: JetStream) -> None:
    for stream in (new_stream(js), marked(js, name="MARKED", subjects=["m.>"])):
        config = stream.info().config
        assert config.allow_msg_ttl
        assert config.metadata is not None
        assert int(config.metadata["_nats.req.level"]) >= 1


def test_ttl_102_103_104_206_the_setting_can_only_be_switched_on(js: JetStream) -> None:
    stream = new_stream(js, allow_msg_ttl=False)
    config = stream.info().config
    assert not config.allow_msg_ttl
    with pytest.raises(errors.MessageTtlRefused):
        js.publish(SUBJECT, b"x", ttl=60)
    assert count(stream) == 0
    js.update_stream(config.replace(allow_msg_ttl=True))
    js.publish(SUBJECT, b"x", ttl=60)
    with pytest.raises(errors.ApiError):
        js.update_stream(config.replace(allow_msg_ttl=False))
    assert stream.info().config.allow_msg_ttl


def test_ttl_105_106_903_where_markers_are_refused(js: JetStream) -> None:
    with pytest.raises((errors.ApiError, errors.ConfigError)):
        marked(js, subject_delete_marker_ttl=0.5)
    new_stream(js)
    with pytest.raises((errors.ApiError, errors.ConfigError)):
        marked(js, name="MIR", subjects=None, mirror=StreamSource(name="TTL"))


def test_ttl_107_109_markers_bring_what_they_need(js: JetStream) -> None:
    config = marked(js, allow_rollup_hdrs=None, deny_purge=True).info().config
    assert config.allow_rollup_hdrs
    assert not config.deny_purge


@pytest.mark.parametrize("config", [{"allow_rollup_hdrs": None}, {"deny_purge": True}], ids=str)
def test_ttl_108_110_pedantic_requests_are_refused_instead(js: JetStream, config: dict[str, Any]) -> None:
    settings = {"subject_delete_marker_ttl": 60, "allow_msg_ttl": True, "allow_rollup_hdrs": True, **config}
    with pytest.raises(errors.ApiError):
        js.create_stream(StreamConfig(name="TTL", subjects=["t.>"], **settings), pedantic=True)


# --- 200: values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["5", "1m", "never"])
def test_ttl_201_202_values_that_are_taken(js: JetStream, text: str) -> None:
    stream = new_stream(js)
    js.publish(SUBJECT, b"x", headers={"Nats-TTL": text})
    assert stream.get_last_msg(SUBJECT, direct=False).headers["Nats-TTL"] == text


@pytest.mark.parametrize("text", ["0", "0s", "abc", "500ms", "-1"])
def test_ttl_203_204_205_values_that_are_refused(js: JetStream, text: str) -> None:
    stream = new_stream(js)
    with pytest.raises(errors.MessageTtlRefused):
        js.publish(SUBJECT, b"x", headers={"Nats-TTL": text})
    with pytest.raises(errors.ConfigError):
        js.publish(SUBJECT, b"x", ttl=0.5)
    assert count(stream) == 0


# --- 300, 400: the end of messages ------------------------------------------------------------------------------


def test_ttl_301_302_each_message_has_its_time(js: JetStream) -> None:
    stream = new_stream(js)
    js.publish("t.short", b"x", ttl=1)
    js.publish("t.long", b"x", ttl=60)
    js.publish("t.none", b"x")
    wait_until(lambda: count(stream) == 2, 10)
    assert dict(stream.subjects()) == {"t.long": 1, "t.none": 1}


def test_ttl_401_402_a_message_that_never_ends(js: JetStream) -> None:
    stream = new_stream(js, max_age=1)
    js.publish("t.kept", b"x", ttl="never")
    js.publish("t.gone", b"x")
    wait_until(lambda: count(stream) == 1, 10)
    assert stream.get_last_msg("t.kept", direct=False).data == b"x"


def test_ttl_303_the_time_counts_from_the_time_of_the_message(js: JetStream) -> None:
    stream = new_stream(js)
    js.publish(SUBJECT, b"x", ttl=2)
    stored = stream.get_last_msg(SUBJECT, direct=False).time
    assert stored is not None
    wait_until(lambda: count(stream) == 0, 10)
    assert dt.datetime.now(dt.timezone.utc) >= stored + dt.timedelta(seconds=2)


# --- 500 to 900: markers, copies --------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [{"max_age": 1}, {}], ids=["age", "ttl"])
def test_ttl_501_504_the_last_value_leaves_a_marker(js: JetStream, config: dict[str, Any]) -> None:
    stream = marked(js, subject_delete_marker_ttl=2, **config)  # a floor for the TTL of messages, too
    js.publish(SUBJECT, b"x", ttl=None if config else 2)
    wait_until(lambda: reason(stream) == "MaxAge", 10)


def test_ttl_502_no_marker_while_the_subject_has_a_message(js: JetStream) -> None:
    stream = marked(js, max_age=1)
    js.publish(SUBJECT, b"aged")
    js.publish(SUBJECT, b"kept", ttl="never")
    wait_until(lambda: stream.info().state.first_seq == 2, 10)
    assert stream.get_last_msg(SUBJECT, direct=False).data == b"kept"
    assert stream.info().state.last_seq == 2


def test_ttl_503_a_marker_ends_too(js: JetStream) -> None:
    stream = marked(js, subject_delete_marker_ttl=2, max_age=1)
    js.publish(SUBJECT, b"x")
    wait_until(lambda: reason(stream) == "MaxAge", 10)
    assert stream.get_last_msg(SUBJECT, direct=False).headers["Nats-TTL"] == "2s"
    wait_until(lambda: count(stream) == 0, 10)


def test_ttl_505_without_the_setting_there_are_none(js: JetStream) -> None:
    stream = new_stream(js)
    js.publish(SUBJECT, b"x", ttl=1)
    wait_until(lambda: count(stream) == 0, 10)
    assert reason(stream) is None


@pytest.mark.parametrize(("config", "stored"), [({}, "60"), ({"max_msgs_per_subject": 1}, "2")], ids=str)
def test_ttl_506_markers_raise_the_smallest_ttl(js: JetStream, config: dict[str, Any], stored: str) -> None:
    stream = marked(js, **config)
    js.publish(SUBJECT, b"x", ttl=2)
    assert stream.get_last_msg(SUBJECT, direct=False).headers["Nats-TTL"] == stored


def test_ttl_701_801_deletes_and_purges_may_leave_a_marker(js: JetStream) -> None:
    """The cases accept an empty subject, too; nats-server 2.15.1 leaves no marker."""
    stream = marked(js)
    stream.delete_msg(js.publish("t.deleted", b"x").seq)
    assert left(stream, "t.deleted") in ([], ["Remove"])
    for data in (b"1", b"2", b"3"):
        js.publish("t.purged", data)
    stream.purge(subject="t.purged")
    assert left(stream, "t.purged") in ([], ["Purge"])


def test_ttl_702_802_an_older_value_leaves_none(js: JetStream) -> None:
    stream = marked(js)
    for data in (b"1", b"2", b"3"):
        js.publish(SUBJECT, data)
    stream.delete_msg(1)
    stream.purge(subject=SUBJECT, keep=1)
    assert (count(stream), reason(stream)) == (1, None)


@pytest.mark.parametrize("honoured", [False, True])
def test_ttl_901_902_a_mirror_stores_them(js: JetStream, honoured: bool) -> None:
    new_stream(js)
    copy = new_stream(js, "MIR", subjects=None, allow_msg_ttl=honoured, mirror=StreamSource(name="TTL"))
    js.publish(SUBJECT, b"x", ttl=2)
    wait_until(lambda: count(copy) == 1, 10)
    assert copy.get_last_msg(SUBJECT, direct=False).headers["Nats-TTL"] == "2"
    if honoured:
        wait_until(lambda: count(copy) == 0, 10)


def test_ttl_904_a_stream_with_sources_has_markers(js: JetStream) -> None:
    new_stream(js)
    copy = marked(js, name="DST", subjects=None, max_age=1, sources=[StreamSource(name="TTL")])
    js.publish(SUBJECT, b"x")
    wait_until(lambda: reason(copy) == "MaxAge", 10)
