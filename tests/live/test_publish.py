"""Synchronous publish against a real server: acks, expectations, 503 rules, refusals."""

from __future__ import annotations

import threading
import time

import pytest

import jsclient
from jsclient import errors
from jsclient._connection import Engine
from jsclient.connection import engine_of
from jsclient.jetstream import JetStream, PubMsg, StreamConfig
from jsclient.testing import NatsServer, wait_until


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="S", subjects=["s.>"], storage="memory", allow_rollup_hdrs=True))
    return js


def test_ack_and_duplicate(js: JetStream) -> None:
    first = js.publish("s.a", b"one", msg_id="1")
    assert (first.stream, first.seq, first.duplicate) == ("S", 1, False)
    again = js.publish("s.a", "one", msg_id="1")
    assert (again.seq, again.duplicate) == (1, True)
    stored = js.stream("S").get_msg(1)
    assert stored.data == b"one"
    assert stored.headers is not None
    assert stored.headers["Nats-Msg-Id"] == "1"


def test_the_three_ways_to_give_a_message_id(js: JetStream) -> None:
    js.publish("s.a", b"x", msg_id="same")
    assert js.publish("s.a", b"x", headers={"Nats-Msg-Id": "same"}).duplicate
    assert js.publish_msg(PubMsg("s.a", b"x", {"Nats-Msg-Id": "same"})).duplicate
    assert js.publish_msg(PubMsg("s.a", b"x"), msg_id="same").duplicate


def test_expectations(js: JetStream) -> None:
    assert js.publish("s.a", b"1", msg_id="m1", expected_last_seq=0, expected_stream="S").seq == 1
    assert js.publish("s.a", b"2", expected_last_msg_id="m1").seq == 2
    assert js.publish("s.b", b"3", expected_last_subject_seq=0).seq == 3
    with pytest.raises(errors.WrongLastSequence) as wrong:
        js.publish("s.a", b"x", expected_last_seq=1)
    assert wrong.value.last_sequence == 3
    with pytest.raises(errors.WrongLastSequence):
        js.publish("s.a", b"x", expected_last_subject_seq=1)
    with pytest.raises(errors.WrongLastMsgId):
        js.publish("s.a", b"x", expected_last_msg_id="m9")
    with pytest.raises(errors.StreamMismatch):
        js.publish("s.a", b"x", expected_stream="T")
    assert js.stream("S").info().state.messages == 3


def test_expectation_with_a_filter(js: JetStream) -> None:
    js.publish("s.a.1", b"1")
    js.publish("s.a.2", b"2")
    if (js.api_level() or 0) < 1:
        with pytest.raises(errors.NotSupported, match=r"2\.11"):
            js.publish("s.a.1", b"3", expected_last_subject_seq=2, expected_last_subject="s.a.*")
        return
    assert js.publish("s.a.1", b"3", expected_last_subject_seq=2, expected_last_subject="s.a.*").seq == 3
    with pytest.raises(errors.WrongLastSequence):
        js.publish("s.a.1", b"x", expected_last_subject_seq=2, expected_last_subject="s.a.*")


def test_rollup(js: JetStream) -> None:
    for _ in range(3):
        js.publish("s.a", b"x")
    js.publish("s.b", b"y")
    js.publish("s.a", b"state", rollup="sub")
    assert js.stream("S").info().state.messages == 2
    js.publish("s.a", b"all", rollup="all")
    assert js.stream("S").info().state.messages == 1


def test_typo_is_told_in_under_a_second(js: JetStream) -> None:
    start = time.monotonic()
    with pytest.raises(errors.NoStreamForSubject) as caught:
        js.publish("nosuchstream", b"x")
    assert time.monotonic() - start < 1
    assert isinstance(caught.value, errors.NotStored)
    assert isinstance(caught.value, errors.NoResponders)


def test_a_stream_that_comes_in_time_is_found(js: JetStream) -> None:
    timer = threading.Timer(0.15, lambda: js.create_stream(StreamConfig(name="L", subjects=["late"])))
    timer.start()
    assert js.publish("late", b"x").stream == "L"
    timer.join()


def test_timeout_is_an_unknown_outcome(js: JetStream) -> None:
    js.create_stream(StreamConfig(name="N", subjects=["n"], no_ack=True))
    start = time.monotonic()
    with pytest.raises(errors.PublishUnknown) as caught:
        js.publish("n", b"x", timeout=0.3)
    assert isinstance(caught.value, errors.UnknownOutcome)
    assert 0.25 < time.monotonic() - start < 2
    wait_until(lambda: js.stream("N").info().state.messages == 1)


def test_without_permission_to_ask_two_retries() -> None:
    config = """
    authorization { users = [
      {user: all, password: all}
      {user: pub, password: pub, permissions: {publish: ["s.>", "typo"], subscribe: ["_INBOX.>"]}}
    ] }"""
    seen: list[BaseException] = []
    with NatsServer(config) as server:
        with jsclient.connect(server.url, user="all", password="all") as nc:
            JetStream(nc).create_stream(StreamConfig(name="S", subjects=["s.>"]))
        with jsclient.connect(
            server.url, user="pub", password="pub", on_error=lambda nc, error, sub: seen.append(error)
        ) as nc:
            js = JetStream(nc)
            assert js.publish("s.a", b"x").seq == 1
            start = time.monotonic()
            with pytest.raises(errors.NoStreamResponse, match="3 attempts"):
                js.publish("typo", b"x")
            assert 0.4 < time.monotonic() - start < 2
            with pytest.raises(errors.PermissionViolation):
                js.publish("forbidden", b"x")
            start = time.monotonic()
            with pytest.raises(errors.NoStreamResponse):
                js.publish_async("typo", b"x").result(10)
            assert time.monotonic() - start < 5
            with pytest.raises(errors.PermissionViolation):
                js.publish_async("forbidden", b"x").result(10)


def test_somebody_else_answers(js: JetStream) -> None:
    with js.nc.subscribe("service", lambda msg: msg.respond(b"I am no stream")):
        js.nc.flush()
        with pytest.raises(errors.InvalidPubAck):
            js.publish("service", b"x")
        with pytest.raises(errors.InvalidPubAck):
            js.publish_async("service", b"x").result(5)


def test_what_must_not_reach_the_wire(js: JetStream) -> None:
    for publish in (js.publish, js.publish_async):
        for subject in ("", "a b", "a.*", "a.>", "a..b", "a\r\nPUB x 0\r\n", "s." + "x" * 5000):
            with pytest.raises(errors.InvalidSubject):
                publish(subject, b"x")
        with pytest.raises(errors.PayloadTooLarge):
            publish("s.a", bytes(js.nc.max_payload + 1))
        with pytest.raises(errors.PayloadTooLarge):
            publish("s.a", bytes(js.nc.max_payload - 10), headers={"A": "b"})
        with pytest.raises(errors.PayloadTooLarge):
            publish("s.a", b"", headers={"A": "x" * 70_000})
        with pytest.raises(errors.InvalidHeader):
            publish("s.a", b"", headers={"A\r\n": "x"})
    assert js.publish("s.a", bytes(js.nc.max_payload)).seq == 1
    assert js.publish_async("s.a", bytes(js.nc.max_payload)).result(5).seq == 2
    assert js.publish("s.a", b"", headers={"A": "x" * 65_000}).seq == 3
    assert js.stream("S").info().state.messages == 3


def test_closed_connection(js: JetStream, server: NatsServer) -> None:
    nc = jsclient.connect(server.url)
    other = JetStream(nc)
    other.publish("s.a", b"x")
    nc.close()
    with pytest.raises(errors.ConnectionClosed):
        other.publish("s.a", b"x")
    with pytest.raises(errors.ConnectionClosed):
        other.publish_async("s.a", b"x")


def test_close_ends_the_wait_between_two_attempts(
    js: JetStream, server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    nc = jsclient.connect(server.url)
    ended: list[BaseException] = []
    waits = threading.Event()
    pause = Engine.pause

    def waiting(engine: Engine, seconds: float) -> None:
        waits.set()
        pause(engine, seconds)

    monkeypatch.setattr(Engine, "pause", waiting)

    def work() -> None:
        try:
            JetStream(nc).publish("nosuchstream", b"x", retry_attempts=5, retry_wait=20, timeout=None)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert waits.wait(10)
    start = time.monotonic()
    nc.close()
    thread.join(5)
    assert isinstance(ended[0], errors.ConnectionClosed)
    assert time.monotonic() - start < 2


def test_sixty_four_threads(js: JetStream) -> None:
    problems: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for count in range(20):
                js.publish(f"s.{number}", b"%d" % count)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not problems
    assert js.stream("S").info().state.messages == 64 * 20


def test_a_service_that_answers_a_publish_leaves_nothing_behind(js: JetStream, server: NatsServer) -> None:
    """Each such call stayed in the table, and the connection never lent its reading again."""
    with jsclient.connect(server.url) as other:
        other.subscribe("plain.service", lambda message: message.respond(b'{"error":"text"}'))
        other.flush()
        requests = engine_of(js.nc).requests
        for _ in range(3):
            with pytest.raises(errors.InvalidPubAck):
                js.publish("plain.service", b"x")
            assert not requests.waiting
            assert not requests.further
