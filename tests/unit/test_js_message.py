"""Acks and metadata of delivered messages, with a connection that only records."""

from __future__ import annotations

import datetime as dt
import pickle
import threading
from operator import attrgetter
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream.dead_letters import DELIVERIES, letter_of
from jsclient.jetstream.message import JetStreamMsg, consumer_position, parse_ack_subject, timestamp_ns
from jsclient.message import Msg
from jsclient.protocol import ServerInfo

V1 = b"$JS.ACK.S.C.2.30.20.1700000000123456789.5"
V2 = b"$JS.ACK.hub.acchash.S.C.2.30.20.1700000000123456789.5"
NUMBERS = ("stream_seq", "consumer_seq", "num_delivered", "num_pending", "timestamp_ns")


class Recorder:
    def __init__(self, version: str = "2.15.1") -> None:
        self.frames: list[bytes] = []
        self.requests: list[tuple[str, bytes]] = []
        self.fail: Exception | None = None
        self.connection = self._engine = self
        self.server_info = ServerInfo(version=version)
        self.options = jsclient.ConnectOptions()

    def enqueue(self, frame: bytes) -> None:
        if self.fail is not None:
            raise self.fail
        self.frames.append(frame)

    def request(self, subject: str, payload: bytes, *, timeout: Any, start: bytes) -> None:
        assert start == b"PUB " + subject.encode()
        if self.fail is not None:
            raise self.fail
        self.requests.append((subject, payload))

    def refuse_pickle(self, what: object) -> None:
        raise TypeError(f"cannot pickle {type(what).__name__}")


def message(reply: bytes | None = V1, connection: Any = None, headers: bytes | None = None) -> JetStreamMsg:
    engine: Any = connection or Recorder()
    return JetStreamMsg(Msg(b"s.a", b"1", reply, b"hello", headers), engine)


@pytest.mark.parametrize(
    ("raw", "domain"),
    [
        (V1, ""),
        (V2, "hub"),
        (V2.replace(b"hub", b"_"), ""),
        (V2 + b".random", "hub"),
        (V2 + b".random.and.more", "hub"),
    ],
)
def test_metadata_of_both_forms(raw: bytes, domain: str) -> None:
    found = parse_ack_subject(raw)
    assert (found.stream, found.consumer, found.domain) == ("S", "C", domain)
    assert (found.num_delivered, found.stream_seq, found.consumer_seq, found.num_pending) == (2, 30, 20, 5)
    assert found.timestamp_ns == 1_700_000_000_123_456_789
    assert found.timestamp == dt.datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=dt.timezone.utc)
    if raw in (V1, V2):
        assert consumer_position(raw) == (b"C", 20, 30)


@pytest.mark.parametrize(
    "raw",
    [None, b"", b"_INBOX.x", b"$JS.ACK.S.C.2.30.20.1", b"$JS.ACK.x.S.C.2.30.20.1.5"],
)
def test_other_replies_are_no_ack_subjects(raw: bytes | None) -> None:
    with pytest.raises(errors.NotJetStreamMessage):
        parse_ack_subject(raw)
    for name in ("metadata", "stream_seq", "num_delivered"):
        with pytest.raises(errors.NotJetStreamMessage):
            getattr(message(raw), name)


@pytest.mark.parametrize("raw", [V1, V2, V2 + b".more"])
def test_single_parts_of_the_metadata(raw: bytes) -> None:
    msg = message(raw)
    assert (msg.stream_seq, msg.num_delivered) == (30, 2)
    assert (msg.metadata.stream_seq, msg.metadata.num_delivered) == (30, 2)


def test_a_part_that_is_no_number_says_so_when_it_is_asked_for() -> None:
    msg = message(b"$JS.ACK.S.C.x.y.20.1.5")
    assert msg.metadata.consumer_seq == 20
    for path in ("stream_seq", "num_delivered", "metadata.num_delivered"):
        with pytest.raises(errors.NotJetStreamMessage):
            attrgetter(path)(msg)
    with pytest.raises(errors.NotJetStreamMessage):
        _ = message(b"$JS.ACK.\xff.C.1.2.3.4.5").metadata.stream


@pytest.mark.parametrize("word", [b"", b"x", b"-1", b"+1", b"1_0", b" 1", b"9" * 5_000, "\u0661".encode()])
def test_only_digits_are_a_number(word: bytes) -> None:
    for form in (b"$JS.ACK.S.C.%b.%b.%b.%b.%b", b"$JS.ACK._.hash.S.C.%b.%b.%b.%b.%b.more"):
        msg = message(form % ((word,) * 5))
        for path in ("stream_seq", "num_delivered", *(f"metadata.{name}" for name in NUMBERS)):
            with pytest.raises(errors.NotJetStreamMessage):
                attrgetter(path)(msg)
        with pytest.raises(errors.NotJetStreamMessage):
            consumer_position(form % ((word,) * 5))
        nobody: Any = None  # the context is asked for its domain only where all parts are known
        headers, _ = letter_of(nobody, msg, "broken", 1)
        assert DELIVERIES not in headers


def test_metadata_is_a_value() -> None:
    one, same, other = parse_ack_subject(V1), parse_ack_subject(V1), parse_ack_subject(V1.replace(b"30", b"31"))
    assert one == same != other
    assert parse_ack_subject(V2.replace(b"hub", b"_")) == one, "both forms say the same"
    assert len({one, same, other}) == 2
    assert pickle.loads(pickle.dumps(one)) == one
    assert repr(one).startswith("Metadata(stream='S', consumer='C', stream_seq=30, ")
    with pytest.raises(AttributeError):
        one.stream_seq = 1  # type: ignore[misc]


def test_a_message_shows_what_came() -> None:
    msg = message(headers=b"NATS/1.0\r\nA: b\r\n\r\n")
    assert (msg.subject, msg.data, msg.data, msg.reply) == ("s.a", b"hello", b"hello", V1.decode())
    assert msg.headers is not None
    assert msg.headers["A"] == "b"
    assert msg.metadata is msg.metadata
    assert msg.size == 3 + len(V1) + 5 + len(b"NATS/1.0\r\nA: b\r\n\r\n")
    assert "s.a" in repr(msg)


@pytest.mark.parametrize(
    ("act", "body"),
    [
        (lambda m: m.ack(), b"+ACK"),
        (lambda m: m.nak(), b"-NAK"),
        (lambda m: m.nak(0.5), b'-NAK {"delay":500000000}'),
        (lambda m: m.nak(dt.timedelta(seconds=2)), b'-NAK {"delay":2000000000}'),
        (lambda m: m.term(), b"+TERM"),
        (lambda m: m.term("bad data"), b"+TERM bad data"),
        (lambda m: m.in_progress(), b"+WPI"),
    ],
)
def test_the_frames_of_the_ack_family(act: Any, body: bytes) -> None:
    recorder = Recorder()
    act(message(connection=recorder))
    assert recorder.frames == [b"PUB %b %d\r\n%b\r\n" % (V1, len(body), body)]


@pytest.mark.parametrize("first", ["ack", "nak", "term", "double_ack"])
@pytest.mark.parametrize("second", ["ack", "nak", "term", "in_progress", "double_ack"])
def test_a_message_is_finished_once(first: str, second: str) -> None:
    recorder = Recorder()
    msg = message(connection=recorder)
    assert not msg.is_acked
    getattr(msg, first)()
    assert msg.is_acked
    sent = len(recorder.frames), len(recorder.requests)
    with pytest.raises(errors.MsgAlreadyAcked):
        getattr(msg, second)()
    assert (len(recorder.frames), len(recorder.requests)) == sent
    assert "acked" in repr(msg)


def test_in_progress_may_be_repeated() -> None:
    recorder = Recorder()
    msg = message(connection=recorder)
    msg.in_progress()
    msg.in_progress()
    msg.ack()
    assert len(recorder.frames) == 3


@pytest.mark.parametrize("verb", ["ack", "nak", "term", "in_progress", "double_ack"])
def test_without_a_reply_there_is_nothing_to_ack(verb: str) -> None:
    with pytest.raises(errors.MsgNoReply):
        getattr(message(reply=None), verb)()


@pytest.mark.parametrize("verb", ["ack", "nak", "term", "double_ack"])
def test_an_ack_that_was_not_sent_may_be_repeated(verb: str) -> None:
    recorder = Recorder()
    msg = message(connection=recorder)
    recorder.fail = errors.BufferFull("full")
    with pytest.raises(errors.BufferFull):
        getattr(msg, verb)()
    recorder.fail = None
    getattr(msg, verb)()


def test_a_rewritten_reply_can_be_acked_but_has_no_metadata() -> None:
    recorder = Recorder()
    msg = message(b"_R_.abc.def", recorder)
    msg.ack()
    assert recorder.frames == [b"PUB _R_.abc.def 4\r\n+ACK\r\n"]
    with pytest.raises(errors.NotJetStreamMessage):
        _ = msg.metadata


@pytest.mark.parametrize("delay", [-1, float("nan")])
def test_a_bad_delay_is_refused(delay: float) -> None:
    msg = message()
    with pytest.raises(ValueError):
        msg.nak(delay)
    assert not msg.is_acked


def test_term_with_a_reason_is_refused_where_it_would_be_ignored() -> None:
    msg = message(connection=Recorder("2.9.10"))
    with pytest.raises(errors.NotSupported, match=r"2\.10\.4"):
        msg.term("why")
    msg.term()


def test_of_many_threads_one_acks() -> None:
    recorder = Recorder()
    for _ in range(200):
        msg = message(connection=recorder)
        barrier = threading.Barrier(4)
        refused: list[int] = []

        def run(msg: JetStreamMsg = msg, barrier: threading.Barrier = barrier, refused: list[int] = refused) -> None:
            barrier.wait()
            try:
                msg.ack()
            except errors.MsgAlreadyAcked:
                refused.append(1)

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(refused) == 3
    assert len(recorder.frames) == 200


def test_a_message_does_not_pickle() -> None:
    with pytest.raises(TypeError, match="JetStreamMsg"):
        pickle.dumps(message())


def test_times_keep_their_microseconds() -> None:
    moment = dt.datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=dt.timezone.utc)
    assert timestamp_ns(moment) == 1_700_000_000_123_456_000
    with pytest.raises(errors.ConfigError):
        timestamp_ns(moment.replace(tzinfo=None))
