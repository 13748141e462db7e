"""Stored messages: get, next, last, direct, batches, delete; the same results in every way and on every server."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import JetStream, RawStreamMsg, Stream, StreamConfig
from jsclient.testing import NatsServer

SUBJECTS = ["s.a", "s.b", "s.a", "s.c", "s.b", "s.a"]


@pytest.fixture(params=["leader", "direct"])
def stream(js: JetStream, request: pytest.FixtureRequest) -> Stream:
    stream = js.create_stream(StreamConfig(name="S", subjects=["s.>"], allow_direct=request.param == "direct"))
    for number, subject in enumerate(SUBJECTS, 1):
        js.publish(subject, b"m%d" % number, headers={"X-Number": str(number)})
    return stream


def pairs(messages: Iterator[RawStreamMsg]) -> list[tuple[int, str]]:
    return [(message.seq, message.subject) for message in messages]


def test_get_by_sequence(stream: Stream) -> None:
    before = dt.datetime.now(dt.timezone.utc) - dt.timedelta(minutes=1)
    message = stream.get_msg(3)
    assert (message.seq, message.subject, message.data, message.stream) == (3, "s.a", b"m3", "S")
    assert message.headers is not None
    assert list(message.headers.items()) == [("X-Number", "3")]
    assert message.time is not None
    assert before < message.time < before + dt.timedelta(minutes=2)
    assert message == stream.get_msg(3, direct=False)
    with pytest.raises(errors.MessageNotFound):
        stream.get_msg(7)
    with pytest.raises(errors.ConfigError):
        stream.get_msg(0)


@pytest.mark.parametrize("direct", [None, True, False])
def test_the_payload_alone(stream: Stream, server: NatsServer, direct: bool | None) -> None:
    if direct and not stream.info().config.allow_direct:
        pytest.skip("the stream has no direct gets")
    js = stream.js
    js.publish("s.a", b"")
    heard: list[tuple[bytes, Any]] = []
    own = JetStream(js.nc, on_response=lambda subject, data, headers: heard.append((data, headers))).stream("S")
    own.get_data(1)  # asks what the server is able to
    heard.clear()
    assert own.get_data(3, direct=direct) == b"m3"
    assert own.get_data(4, subject="s.a", direct=direct) == b"m6"
    assert own.get_data(7, direct=direct) == b""
    with_headers = [b'"hdrs"' in data or "X-Number" in headers for data, headers in heard]
    assert with_headers == [server.version < (2, 12, 0)] * 2 + [False]
    calls: list[Callable[[], object]] = [
        lambda: own.get_data(8, direct=direct),
        lambda: own.get_data(5, subject="s.c", direct=direct),
    ]
    for call in calls:
        with pytest.raises(errors.MessageNotFound):
            call()
    with pytest.raises(errors.ConfigError):
        own.get_data(0, direct=direct)


def test_next_and_last_by_subject(stream: Stream) -> None:
    assert stream.get_msg(2, subject="s.a").seq == 3
    assert stream.get_msg(4, subject="s.*").seq == 4
    assert stream.get_last_msg("s.a").seq == 6
    assert stream.get_last_msg("s.b").data == b"m5"
    assert stream.get_last_msg("s.>").seq == 6
    calls: list[Callable[[], object]] = [
        lambda: stream.get_msg(1, subject="s.none"),
        lambda: stream.get_msg(6, subject="s.b"),
        lambda: stream.get_last_msg("s.none"),
    ]
    for call in calls:
        with pytest.raises(errors.MessageNotFound) as caught:
            call()
        assert caught.value.err_code == 10037


def test_binary_payloads_and_headers(stream: Stream, js: JetStream) -> None:
    payload = bytes(range(256))
    headers = jsclient.Headers([("A", "1"), ("a", "2"), ("A", "3"), ("Empty", "")])
    js.publish("s.bin", payload, headers=headers)
    for direct in (False, stream.reads_direct()):
        message = stream.get_last_msg("s.bin", direct=direct)
        assert message.data == payload
        assert message.headers is not None
        assert list(message.headers.items()) == list(headers.items())
    js.publish("s.bare")
    for direct in (False, stream.reads_direct()):
        bare = stream.get_last_msg("s.bare", direct=direct)
        assert (bare.data, len(bare.headers)) == (b"", 0)


def test_stored_headers_with_the_names_of_the_server(stream: Stream, js: JetStream) -> None:
    """A republished message that was stored again carries such headers of its own."""
    headers = {"Nats-Stream": "OLD", "Nats-Sequence": "77", "Nats-Subject": "old", "X": "y"}
    js.publish("s.again", b"x", headers=headers)
    for direct in (False, stream.reads_direct()):
        message = stream.get_last_msg("s.again", direct=direct)
        assert (message.seq, message.subject, message.stream) == (7, "s.again", "S")
        assert message.headers is not None
        assert dict(message.headers.items()) == headers
    batch = list(stream.get_batch(10, seq=7))
    assert [dict(message.headers.items()) for message in batch if message.headers] == [headers]


def test_which_way_is_chosen(stream: Stream, js: JetStream) -> None:
    calls: list[str] = []

    def traced(**options: bool | None) -> JetStream:
        return JetStream(js.nc, on_request=lambda subject, payload: calls.append(subject), **options)  # type: ignore[arg-type]

    allowed = stream.reads_direct()
    auto = traced().stream("S")
    auto.get_msg(1)
    auto.get_last_msg("s.a")
    auto.get_msg(1, direct=False)
    auto_calls = [call.removeprefix("$JS.API.") for call in calls[1:]]
    if allowed:
        assert auto_calls == ["DIRECT.GET.S", "DIRECT.GET.S.s.a", "STREAM.MSG.GET.S"]
    else:
        assert auto_calls == ["STREAM.MSG.GET.S"] * 3
    calls.clear()
    traced(direct_get=False).stream("S").get_msg(1)
    assert calls[1:] == ["$JS.API.STREAM.MSG.GET.S"]
    blind = traced().stream("S", fetch_info=False)
    calls.clear()
    blind.get_msg(1)
    assert calls == ["$JS.API.STREAM.MSG.GET.S"]


def test_direct_where_it_is_not_allowed(js: JetStream) -> None:
    stream = js.create_stream(StreamConfig(name="N", subjects=["n"]))
    js.publish("n")
    with pytest.raises((errors.NoResponders, errors.RequestTimeout)):  # 2.9 does not answer
        stream.get_msg(1, direct=True, timeout=1)
    assert JetStream(js.nc, direct_get=True).stream("N").get_msg(1).seq == 1  # a wish, not an order


def test_direct_was_switched_off_meanwhile(js: JetStream) -> None:
    stream = js.create_stream(StreamConfig(name="N", subjects=["n"], allow_direct=True))
    js.publish("n")
    assert stream.get_msg(1).seq == 1
    assert stream.cached_info is not None
    js.update_stream(stream.cached_info.config.replace(allow_direct=False))
    assert stream.get_msg(1).seq == 1


def test_delete_and_secure_delete(stream: Stream) -> None:
    stream.delete_msg(1)
    stream.secure_delete_msg(2)
    for seq in (1, 2):
        with pytest.raises(errors.MessageNotFound):
            stream.get_msg(seq)
        with pytest.raises(errors.MessageDeleteFailed):
            stream.delete_msg(seq)
    with pytest.raises(errors.ConfigError):
        stream.delete_msg(0)
    assert stream.info(deleted_details=True).state.messages == 4


def test_a_deleted_stream(js: JetStream, stream: Stream) -> None:
    stream.delete()
    with pytest.raises((errors.StreamNotFound, errors.NoResponders)):
        stream.get_msg(1)
    with pytest.raises((errors.StreamNotFound, errors.NoResponders)):
        list(stream.get_batch(3))
