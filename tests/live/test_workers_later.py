"""Retries that wait as schedules: they hold no place, keep their count, and end as dead letters like any other."""

from __future__ import annotations

from typing import Any

import pytest

from jsclient import errors
from jsclient.jetstream import Consumer, ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer, wait_until
from jsclient.workers import DeadLetters, Retry, WorkerPool


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="DEAD", subjects=["dead.>"]))
    return js


def queue(js: JetStream, server: NatsServer, **changes: Any) -> Consumer:
    settings: dict[str, Any] = {"retention": "workqueue"}
    if server.version >= (2, 12):
        settings["allow_msg_schedules"] = True
    js.create_stream(StreamConfig(name="JOBS", subjects=["jobs.*", "later.jobs.*"], **{**settings, **changes}))
    return js.create_consumer("JOBS", ConsumerConfig(durable_name="w", max_ack_pending=1, filter_subject="jobs.*"))


def test_a_retry_that_waits_holds_nothing_up(js: JetStream, server: NatsServer) -> None:
    """With one place of max_ack_pending others are handled meanwhile: by a schedule; the same code naks before 2.12."""
    calls: list[tuple[bytes, str]] = []

    def handle(message: Any) -> None:
        calls.append((message.data, message.subject))
        if message.data == b"late" and len([1 for data, _ in calls if data == b"late"]) < 3:
            raise Retry(0.5)

    with WorkerPool(queue(js, server), handle, threads=1, later="later.jobs", later_from=0.2, attempts=5) as pool:
        js.publish("jobs.a", b"late", headers={"X": "kept"}, msg_id="own")
        js.publish("jobs.b", b"quick")
        wait_until(lambda: pool.snapshot().handled == 2, 20)
        js.publish("jobs.b", b"end")
        wait_until(lambda: pool.snapshot().handled == 3, 20)
    order = [data for data, _ in calls]
    assert order.count(b"late") == 3
    assert {subject for data, subject in calls if data == b"late"} == {"jobs.a"}
    if server.version >= (2, 12):
        assert order[:2] == [b"late", b"quick"], "the place was free at once"
    wait_until(lambda: js.stream("JOBS").info().state.messages == 0, 5)


def test_attempts_are_counted_through_schedules(js: JetStream, server: NatsServer) -> None:
    seen: list[str] = []

    def handle(message: Any) -> None:
        seen.append(message.headers["X"])
        raise RuntimeError("never")

    options: dict[str, Any] = {"later": "later.jobs", "later_from": 0.0, "attempts": 3, "backoff": [0.1]}
    with WorkerPool(queue(js, server), handle, threads=1, dead_letter="dead.jobs", **options) as pool:
        js.publish("jobs.a", b"bad", headers={"X": "kept"})
        wait_until(lambda: pool.snapshot().dead == 1, 20)
    assert seen == ["kept"] * 3
    letter = js.stream("DEAD").get_msg(1)
    assert letter.headers is not None
    assert letter.headers["Dead-Letter-Subject"] == "jobs.a"
    assert letter.headers["Dead-Letter-Deliveries"] == "3"
    wait_until(lambda: js.stream("JOBS").info().state.messages == 0, 5)


def test_messages_of_the_same_first_sequence_are_not_taken_for_one(js: JetStream, server: NatsServer) -> None:
    """One of them was moved here from another stream, with its headers."""
    calls: list[bytes] = []

    def handle(message: Any) -> None:
        calls.append(message.data)
        if calls.count(message.data) < 3:
            raise RuntimeError("not yet")

    options: dict[str, Any] = {"later": "later.jobs", "later_from": 0.0, "backoff": [0.1]}
    with WorkerPool(queue(js, server), handle, threads=1, **options) as pool:
        js.publish("jobs.a", b"own")
        js.publish("jobs.a", b"moved", headers={"Retry-First-Sequence": "1"})
        wait_until(lambda: pool.snapshot().handled == 2, 20)
    assert sorted(calls) == [b"moved"] * 3 + [b"own"] * 3
    wait_until(lambda: js.stream("JOBS").info().state.messages == 0, 5)


@pytest.mark.parametrize("to", [None, "jobs.b"])
def test_a_replayed_letter_has_all_its_attempts_again(js: JetStream, server: NatsServer, to: str | None) -> None:
    seen: list[bytes] = []

    def handle(message: Any) -> None:
        seen.append(message.data)
        raise RuntimeError("never")

    options: dict[str, Any] = {"later": "later.jobs", "later_from": 0.0, "attempts": 3, "backoff": [0.1]}
    letters = DeadLetters(js)
    with WorkerPool(queue(js, server), handle, threads=1, dead_letter="dead.jobs", **options) as pool:
        js.publish("jobs.a", b"bad")
        for round_ in (1, 2, 3):
            wait_until(lambda round_=round_: pool.snapshot().dead == round_, 20)  # type: ignore[misc]
            (letter,) = letters.list()
            assert len(seen) == 3 * round_
            assert letter.deliveries == 3
            letters.replay(letter, to=to)


def test_where_a_retry_would_go_wrong_it_is_refused(js: JetStream, server: NatsServer) -> None:
    consumer = queue(js, server)
    with pytest.raises(errors.ConfigError, match="excludes key= and manual="):
        WorkerPool(consumer, print, later="later.jobs", key=str)
    if server.version < (2, 12):
        return
    with pytest.raises(errors.ConfigError, match="must be among the subjects"):
        WorkerPool(consumer, print, later="elsewhere")
    with pytest.raises(errors.ConfigError, match="leave jobs"):
        WorkerPool(consumer, print, later="jobs")
    js.delete_stream("JOBS")
    with pytest.raises(errors.ConfigError, match="needs a work queue"):
        WorkerPool(queue(js, server, retention="limits"), print, later="later.jobs")
