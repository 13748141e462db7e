"""Many stored messages by one call: batches, and the newest of each subject; the same on every server."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import JetStream, RawStreamMsg, Stream, StreamConfig
from jsclient.jetstream.api.requests import Api
from jsclient.jetstream.batch_get import BatchGets, Lost
from jsclient.testing import NatsServer, Proxy

SUBJECTS = ["s.a", "s.b", "s.a", "s.c", "s.b", "s.a"]


@pytest.fixture(params=["leader", "direct"])
def stream(js: JetStream, request: pytest.FixtureRequest) -> Stream:
    stream = js.create_stream(StreamConfig(name="S", subjects=["s.>"], allow_direct=request.param == "direct"))
    for number, subject in enumerate(SUBJECTS, 1):
        js.publish(subject, b"m%d" % number, headers={"X-Number": str(number)})
    return stream


def pairs(messages: Iterator[RawStreamMsg]) -> list[tuple[int, str]]:
    return [(message.seq, message.subject) for message in messages]


def test_batch(stream: Stream, js: JetStream) -> None:
    everything = list(enumerate(SUBJECTS, 1))
    assert pairs(stream.get_batch(100)) == everything
    assert pairs(stream.get_batch(2)) == everything[:2]
    assert pairs(stream.get_batch(2, seq=4)) == everything[3:5]
    assert pairs(stream.get_batch(10, subject="s.b")) == [(2, "s.b"), (5, "s.b")]
    assert pairs(stream.get_batch(10, seq=3, subject="s.a")) == [(3, "s.a"), (6, "s.a")]
    assert pairs(stream.get_batch(10, seq=50)) == []
    assert pairs(stream.get_batch(10, subject="s.none")) == []
    first = next(stream.get_batch(3))
    assert first == stream.get_msg(1, direct=False)
    stream.delete_msg(3)
    assert [seq for seq, _ in pairs(stream.get_batch(10, seq=2))] == [2, 4, 5, 6]
    wrong: dict[str, Any]
    for wrong in ({"batch": 0}, {"batch": 1, "seq": 0}, {"batch": 1, "seq": 1, "start_time": dt.datetime.now()}):
        with pytest.raises(errors.ConfigError):
            stream.get_batch(**wrong)


def test_batch_from_a_time(stream: Stream) -> None:
    """Also where the server does not look for it itself (before 2.11, without direct gets)."""
    at = stream.get_msg(4).time
    assert at is not None
    assert [seq for seq, _ in pairs(stream.get_batch(10, start_time=at))] == [4, 5, 6]
    with pytest.raises(errors.ConfigError, match="time zone"):
        stream.get_batch(10, start_time=dt.datetime(2026, 1, 1))


def test_long_batches_come_in_parts(js: JetStream, count: Callable[[int, int], int]) -> None:
    """More messages than one answer of the server holds, by number and by bytes."""
    wanted = count(12_000, 1_200)
    stream = js.create_stream(StreamConfig(name="L", subjects=["l.*"], allow_direct=True, storage="memory"))
    for number in range(wanted):
        js.publish_async(f"l.{number % 7}", b"x" * 100)
    js.publish_async_complete(30)
    assert [message.seq for message in stream.get_batch(wanted + 5)] == list(range(1, wanted + 1))
    assert [message.seq for message in stream.get_batch(400, max_bytes=2_000)] == list(range(1, 401))


def losing(seq: int, times: int) -> Callable[[bytes], bytes]:
    """A change for a proxy: the stored message `seq` gets lost on its way, this many times."""
    left = [times]

    def change(data: bytes) -> bytes:
        at = data.find(b"Nats-Sequence: %d\r\n" % seq)
        if at < 0 or not left[0]:
            return data
        left[0] -= 1
        start = data.rindex(b"HMSG ", 0, at)
        line_end = data.index(b"\r\n", start)
        size = int(data[start:line_end].split()[-1])
        return data[:start] + data[line_end + 2 + size + 2 :]

    return change


@pytest.mark.parametrize("seq", [1, 4, 6])
def test_a_message_that_is_lost_on_the_way_is_asked_for_again(js: JetStream, server: NatsServer, seq: int) -> None:
    """Answers are plain messages: a broken route of a cluster loses some of them without a sign on our link."""
    js.create_stream(StreamConfig(name="S", subjects=["s.>"], allow_direct=True))
    for number in range(6):
        js.publish(f"s.{number}", b"")
    if server.version < (2, 11):
        return  # read one by one
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        far = JetStream(nc).stream("S")
        assert len(list(far.get_batch(10))) == 6
        reads: list[Callable[[], Iterator[RawStreamMsg]]] = [
            lambda: far.get_batch(10, seq=1),
            lambda: far.get_batch(6),
            lambda: far.get_last_msgs("s.*"),
        ]
        for read in reads:
            proxy.mutate(losing(seq, 1))
            assert [message.seq for message in read()] == [1, 2, 3, 4, 5, 6]
            proxy.mutate(losing(seq, 100))
            with pytest.raises(errors.ListingIncomplete, match="lost on the way"):
                list(read())


def whole(gets: BatchGets) -> tuple[list[int], int]:
    """The sequences of an answer, and the code of the status behind them."""
    found: list[int] = []
    while True:
        messages, parts, end = gets.next(10)
        assert len(messages) == len(parts)
        found += [part.sequence for part in parts]
        if end is not None:
            assert end.status is not None
            return found, end.status.code


def test_answers_in_chunks(js: JetStream, server: NatsServer) -> None:
    """As the readers of columns take them: each belongs to what was asked last, and is whole."""
    js.create_stream(StreamConfig(name="S", subjects=["s.>"], allow_direct=True))
    for number in range(100):
        js.publish(f"s.{number % 2}", b"%d" % number)
    if server.version < (2, 11):
        return  # one message answers, however many are asked for
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc, closing(BatchGets(Api(nc), "S")) as gets:
        with pytest.raises(errors.RequestTimeout, match="no answer"):
            gets.next(0)
        gets.ask({"batch": 100, "seq": 1})
        assert gets.next(10).parts[0].sequence == 1
        gets.ask({"batch": 10, "seq": 41, "next_by_subj": "s.1"})  # nobody wants the rest of the one before
        assert whole(gets) == (list(range(42, 61, 2)), 204)
        gets.ask({"batch": 1, "seq": 500, "next_by_subj": ">"})
        assert whole(gets) == ([], 404)
        # Each asks for others: what is left of the answer before may still be on its way, and would take the loss.
        for first, lost in ((1, 1), (21, 27), (41, 60)):
            proxy.mutate(losing(lost, 1))
            gets.ask({"batch": 20, "seq": first})
            with pytest.raises(Lost):
                whole(gets)
        gets.ask({"batch": 20, "seq": 1})
        assert whole(gets) == (list(range(1, 21)), 204)
        proxy.cut()
        with pytest.raises(errors.ConnectionLost):
            whole(gets)


def test_newest_of_each_subject(stream: Stream, js: JetStream, server: NatsServer) -> None:
    assert pairs(stream.get_last_msgs("s.*")) == [(4, "s.c"), (5, "s.b"), (6, "s.a")]
    assert pairs(stream.get_last_msgs(["s.a", "s.c"])) == [(4, "s.c"), (6, "s.a")]
    assert pairs(stream.get_last_msgs("s.none")) == []
    at = stream.get_msg(4).time
    if server.version < (2, 11) or not stream.reads_direct():
        with pytest.raises(errors.NotSupported):
            stream.get_last_msgs("s.*", up_to_seq=4)
    else:
        assert pairs(stream.get_last_msgs("s.*", up_to_seq=4)) == [(2, "s.b"), (3, "s.a"), (4, "s.c")]
        assert at is not None
        later = at + dt.timedelta(microseconds=1)
        assert [seq for seq, _ in pairs(stream.get_last_msgs("s.*", up_to_time=later))][:2] == [2, 3]
    wrong: list[dict[str, Any]] = [
        {"subjects": []},
        {"subjects": "s.a", "up_to_seq": 1, "up_to_time": at},
        {"subjects": "a..b"},
        {"subjects": "s.a", "up_to_seq": 0},
    ]
    for arguments in wrong:
        with pytest.raises(errors.ConfigError):
            stream.get_last_msgs(**arguments)
