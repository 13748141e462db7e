"""Two servers that lead one stream for a moment: an error first, perhaps an ack second. No server does it on demand."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.connection import engine_of
from jsclient.jetstream import JetStream
from jsclient.jetstream.publishing import outcome as publish_verdict
from jsclient.testing import FakeServer
from jsclient.testing.fake import FakeClient

SYNC, ASYNC = "publish", "publish_async"
both_ways = pytest.mark.parametrize("way", [SYNC, ASYNC])

INFO = "$JS.API.STREAM.INFO.S"
GET = "$JS.API.STREAM.MSG.GET.S"
DIRECT = "$JS.API.DIRECT.GET.S"


def refusal(err_code: int, text: str) -> bytes:
    error = {"code": 400, "err_code": err_code, "description": text}
    return json.dumps({"error": error, "stream": "S", "seq": 0}).encode()


STALE_NUMBER = refusal(10071, "wrong last sequence: 3")
STALE = refusal(10164, "wrong last sequence")
ACK = b'{"stream":"S", "seq":6}'
NOTHING = b'{"error":{"code":404,"err_code":10037,"description":"no message found"}}'
NO_LEADER = b'{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}'


def info(replicas: int) -> bytes:
    config = {"name": "S", "subjects": ["s.>"], "num_replicas": replicas, "duplicate_window": 120 * 10**9}
    return json.dumps({"config": config, "state": {}, "created": "2026-01-01T00:00:00Z"}).encode()


def stored(seq: int, subject: str = "s.a") -> bytes:
    return json.dumps({"message": {"subject": subject, "seq": seq, "data": "b3RoZXI="}}).encode()


class Cluster:
    """A script that answers every publish on a subject with all of its `answers`, the last one again and again."""

    def __init__(self, answers: dict[str, list[list[bytes]]]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.sids: dict[bytes, bytes] = {}

    def __call__(self, client: FakeClient) -> None:
        client.handshake(version="2.14.0", jetstream=True)
        while True:
            words = client.line(60).split()
            verb = words[0].upper()
            if verb == b"PING":
                client.send(b"PONG\r\n")
            elif verb == b"SUB":
                self.sids[words[1].removesuffix(b"*")] = words[-1]
            elif verb in (b"PUB", b"HPUB"):
                while len(client.received) - client.taken < int(words[-1]) + 2:
                    client.fill()
                client.taken += int(words[-1]) + 2
                self.answer(client, words[1].decode(), words[2])

    def answer(self, client: FakeClient, subject: str, reply: bytes) -> None:
        self.asked.append(subject)
        script = self.answers.get(subject, [[]])
        sid = next(sid for start, sid in self.sids.items() if reply.startswith(start))
        for payload in script.pop(0) if len(script) > 1 else script[0]:
            if payload.startswith(b"-ERR"):
                client.send(payload)
            else:
                client.send(b"MSG %b %b %d\r\n%b\r\n" % (reply, sid, len(payload), payload))


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inquiries end soon."""
    monkeypatch.setattr(publish_verdict, "PAUSES", (0.02, 0.05, 0.3))


@contextmanager
def connected(answers: dict[str, list[list[bytes]]]) -> Iterator[tuple[JetStream, Cluster]]:
    cluster = Cluster(answers)

    def script(client: FakeClient) -> None:
        try:
            cluster(client)
        except AssertionError as error:
            if "the client closed" not in str(error):
                raise

    with FakeServer(script) as server, jsclient.connect(server.url) as nc:
        yield JetStream(nc), cluster


def publish(js: JetStream, way: str, **options: Any) -> Any:
    if way == SYNC:
        return js.publish("s.a", b"x", **options)
    return js.publish_async("s.a", b"x", **options).result(20)


@both_ways
@pytest.mark.parametrize("refused", [STALE, STALE_NUMBER], ids=["10164", "10071"])
def test_the_second_answer_counts(way: str, refused: bytes) -> None:
    with connected({"s.a": [[refused, ACK]], INFO: [[info(3)]], GET: [[NOTHING]]}) as (js, _):
        assert publish(js, way, expected_last_subject_seq=5).seq == 6


@both_ways
def test_the_second_answer_comes_while_we_look(way: str) -> None:
    """The ack goes out together with the answer to the third look."""

    class Late(Cluster):
        def answer(self, client: FakeClient, subject: str, reply: bytes) -> None:
            if subject == "s.a":
                self.reply = reply
            super().answer(client, subject, reply)
            if self.asked.count(GET) == 3:
                super().answer(client, "ack", self.reply)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(__name__ + ".Cluster", Late)
        with connected({"s.a": [[STALE]], INFO: [[info(3)]], GET: [[NOTHING]], "ack": [[ACK]]}) as (js, cluster):
            assert publish(js, way, expected_last_subject_seq=5).seq == 6
            assert cluster.asked.count(GET) == 3


@both_ways
def test_somebody_else_was_faster(way: str) -> None:
    """Not there yet at the first look: the other publish is still being stored."""
    with connected({"s.a": [[STALE]], INFO: [[info(3)]], GET: [[NOTHING], [stored(6)]]}) as (js, cluster):
        with pytest.raises(errors.WrongLastSequence):
            publish(js, way, expected_last_subject_seq=5)
        assert cluster.asked.count(GET) == 2


@both_ways
@pytest.mark.parametrize("number", [STALE_NUMBER], ids=["10071"])
def test_one_replica_has_one_leader(way: str, number: bytes) -> None:
    with connected({"s.a": [[number]], INFO: [[info(1)]], GET: [[NOTHING]]}) as (js, _):
        with pytest.raises(errors.WrongLastSequence):
            publish(js, way, expected_last_subject_seq=5)


@both_ways
def test_no_second_answer_and_nothing_stored(way: str, soon: None) -> None:
    """The application expects something that is not there yet, or no more."""
    with connected({"s.a": [[STALE_NUMBER]], INFO: [[info(3)]], GET: [[NOTHING]]}) as (js, _):
        with pytest.raises(errors.WrongLastSequence):
            publish(js, way, expected_last_subject_seq=5)


@both_ways
def test_nobody_can_tell(way: str, soon: None) -> None:
    with connected({"s.a": [[STALE]], INFO: [[info(3)]], GET: [[NO_LEADER]]}) as (js, _):
        with pytest.raises(errors.PublishUnknown, match="may not lead"):
            publish(js, way, expected_last_subject_seq=5)


@both_ways
def test_who_may_not_look_does_not_know(way: str, soon: None) -> None:
    forbidden = b"-ERR 'Permissions Violation for Publish to \"%b\"'\r\n"
    answers = {
        "s.a": [[STALE]],
        INFO: [[forbidden % INFO.encode()]],
        GET: [[forbidden % GET.encode()]],
        DIRECT: [[forbidden % DIRECT.encode()]],
    }
    with connected(answers) as (js, cluster):
        for _ in range(3):
            with pytest.raises(errors.PublishUnknown, match="may not look"):
                publish(js, way, expected_last_subject_seq=5)
        assert cluster.asked.count(GET) == cluster.asked.count(DIRECT) == 1  # and not again and again


@both_ways
def test_who_may_not_look_hears_an_ordinary_refusal_at_once(way: str) -> None:
    forbidden = b"-ERR 'Permissions Violation for Publish to \"%b\"'\r\n"
    answers = {"s.a": [[refusal(10071, "wrong last sequence: 9")]]}
    answers |= {name: [[forbidden % name.encode()]] for name in (GET, DIRECT)}
    with connected(answers) as (js, _):
        start = time.monotonic()
        for _ in range(3):
            with pytest.raises(errors.WrongLastSequence):
                publish(js, way, expected_last_seq=5, msg_id="1")
        assert time.monotonic() - start < 2


@both_ways
def test_an_ordinary_refusal_is_told_at_once(way: str) -> None:
    with connected({"s.a": [[refusal(10071, "wrong last sequence: 9")]]}) as (js, cluster):
        with pytest.raises(errors.WrongLastSequence):
            publish(js, way, expected_last_subject_seq=5)
        assert cluster.asked == ["s.a"]


def test_an_ack_that_follows_a_refusal_which_passes_is_heard() -> None:
    """ "raft: not leader" from the one, stored by the other: sending it again would store it twice."""
    passing = b'{"error":{"code":503,"description":"raft: not leader"},"stream":"S","seq":0}'
    with connected({"s.a": [[passing, ACK]]}) as (js, cluster):
        assert js.publish("s.a", b"x").seq == 6
        assert cluster.asked == ["s.a"]
        assert not engine_of(js.nc).requests.waiting


def test_a_key_that_was_created_by_oneself_does_not_exist_already() -> None:
    """`create` and `update` of key-value buckets go through the same door."""
    subject = "$KV.B.k"
    answers = {
        subject: [[refusal(10164, "wrong last sequence"), b'{"stream":"KV_B","seq":1}']],
        "$JS.API.STREAM.INFO.S": [[info(3)]],
        "$JS.API.STREAM.MSG.GET.S": [[NOTHING]],
    }
    from jsclient.keyvalue import KeyValue

    with connected(answers) as (js, _):
        assert KeyValue(js, "B").create("k", b"x") == 1
        assert KeyValue(js, "B").update("k", b"x", 7) == 1


# --- commits of atomic batches ----------------------------------------------------------------------------------------


LEVEL = {"$JS.API.INFO": [[b'{"api":{"level":4}}']]}


def commit(js: JetStream) -> Any:
    batch = js.atomic_batch(timeout=10)
    batch.add("s.a", b"one", expected_last_subject_seq=5)
    return batch.commit()


@pytest.mark.parametrize("refused", [STALE, STALE_NUMBER], ids=["10164", "10071"])
def test_the_second_answer_to_a_commit_counts(refused: bytes) -> None:
    with connected({"s.a": [[refused, ACK]], INFO: [[info(3)]], GET: [[NOTHING]], **LEVEL}) as (js, _):
        assert commit(js).seq == 6


@pytest.mark.slow
@pytest.mark.usefixtures("soon")
def test_a_commit_that_a_stale_leader_refused_is_unknown_where_nothing_decides_it() -> None:
    with (
        connected({"s.a": [[STALE]], INFO: [[info(3)]], GET: [[]], DIRECT: [[]], **LEVEL}) as (js, _),
        pytest.raises(errors.PublishUnknown, match="completely or not at all"),
    ):
        commit(js)


def test_with_one_replica_the_refusal_of_a_commit_is_believed() -> None:
    with (
        connected({"s.a": [[STALE]], INFO: [[info(1)]], GET: [[NOTHING]], **LEVEL}) as (js, _),
        pytest.raises(errors.WrongLastSequence),
    ):
        commit(js)


NAMES, NAMED = "$JS.API.STREAM.NAMES", b'{"streams":["S"],"total":1}'
STAGED = b'{"stream":"S", "seq":0,"duplicate": true}'


@both_ways
def test_a_copy_whose_id_is_only_noted_is_sent_again(way: str) -> None:
    """2.10 with replicas answers the second copy like this until the first one is stored."""
    acked = b'{"stream":"S", "seq":6,"duplicate": true}'
    with connected({"s.a": [[STAGED], [STAGED], [acked]], INFO: [[info(3)]], NAMES: [[NAMED]]}) as (js, cluster):
        ack = publish(js, way, msg_id="1")
        assert (ack.seq, ack.duplicate) == (6, True)
        assert cluster.asked.count("s.a") == 3


def test_an_id_that_stays_noted_is_an_unknown_end() -> None:
    """The first copy may be lost for good: no more is known when the time is up."""
    with (
        connected({"s.a": [[STAGED]], INFO: [[info(3)]], NAMES: [[NAMED]]}) as (js, _),
        pytest.raises(errors.PublishUnknown),
    ):
        js.publish("s.a", b"x", msg_id="1", timeout=2)
