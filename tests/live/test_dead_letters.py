"""Dead letters: found, replayed once, and removed."""

from __future__ import annotations

import json

import pytest
from tests.live.test_cli import cli, lines

import jsclient
from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer, wait_until
from jsclient.workers import DeadLetters, Reject, WorkerPool


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="JOBS", subjects=["jobs.>"], storage="memory"))
    js.create_stream(StreamConfig(name="DEAD", subjects=["dead.>"], storage="memory"))
    return js


def letters_of(js: JetStream, jobs: int = 10) -> DeadLetters:
    """Letters as a pool writes them: every third job is rejected, every fifth fails."""

    def handle(message: jsclient.jetstream.JetStreamMsg) -> None:
        number = int(message.data)
        if number % 3 == 0:
            raise Reject("no such customer: " + str(number))
        if number % 5 == 0:
            raise ValueError("broken")

    for number in range(1, jobs + 1):
        js.publish(f"jobs.{number % 2}", b"%d" % number, headers={"Kind": "job"}, msg_id=f"job-{number}")
    consumer = js.create_consumer("JOBS", ConsumerConfig(durable_name="C"))
    with WorkerPool(consumer, handle, attempts=1, dead_letter="dead.jobs", threads=1):
        wait_until(lambda: consumer.info().ack_floor.stream_seq == jobs)
    return DeadLetters(js)


def test_letters_are_found_and_counted(js: JetStream) -> None:
    letters = letters_of(js)
    found = list(letters.list())
    assert [int(letter.data) for letter in found] == [3, 5, 6, 9, 10]
    first = found[0]
    assert (first.original_subject, first.stream, first.consumer, first.stream_seq) == ("jobs.1", "JOBS", "C", 3)
    assert first.headers is not None
    assert first.headers.to_dict() == {"Kind": ["job"]}
    assert letters.summary() == {("JOBS", "C", "no such customer"): 3, ("JOBS", "C", "ValueError"): 2}
    assert [letter.seq for letter in letters.list(reason="^Value", limit=1)] == [2]
    assert list(letters.list(consumer="other")) == []
    with pytest.raises(errors.ConfigError, match="regular expression"):
        letters.list(reason="(")


def test_a_replay_removes_the_letter_and_is_stored_once(js: JetStream) -> None:
    letters = letters_of(js)
    first = next(letters.list())
    ack = letters.replay(first)
    assert (ack.stream, ack.seq, ack.duplicate) == ("JOBS", 11, False)
    stored = js.stream("JOBS").get_msg(11)
    assert (stored.subject, stored.data) == ("jobs.1", b"3")
    assert stored.headers is not None
    assert stored.headers["Kind"] == "job"
    assert stored.headers["Replayed-Reason"] == "no such customer: 3"
    assert stored.headers["Replayed-Count"] == "1"
    assert letters.replay(first).duplicate  # as after a crash before the letter was removed
    assert [int(letter.data) for letter in letters.list()] == [5, 6, 9, 10]
    done = letters.replay_all(reason="ValueError", rate=1000)
    assert (done.replayed, done.failed) == (2, ())
    assert letters.purge() == 2
    assert list(letters.list()) == []


def test_a_letter_cannot_make_us_call_the_api(js: JetStream) -> None:
    for number, subject in enumerate(("$JS.API.STREAM.DELETE.JOBS", "_INBOX.x", "", "jobs.*"), 1):
        js.publish("dead.forged", b"", headers={"Dead-Letter-Subject": subject, "Dead-Letter-Sequence": "x" * number})
    letters = DeadLetters(js)
    done = letters.replay_all()
    assert done.replayed == 0
    assert all(isinstance(error, errors.InvalidSubject) for _, error in done.failed)
    assert len(done.failed) == 4
    assert js.stream("JOBS").info().state.messages == 0


def test_letters_are_found_on_all_subjects_of_their_stream(js: JetStream, server: NatsServer) -> None:
    """What else is in the stream is not a letter: it is not shown, replayed or purged."""
    mine = js.create_stream(StreamConfig(name="MYSTREAM", subjects=["failed.*", "morgue"], storage="memory"))
    js.publish("failed.x", b"other")
    for number, subject in enumerate(("failed.jobs", "morgue")):
        js.publish("jobs.x", b"%d" % number)
        consumer = js.create_consumer("JOBS", ConsumerConfig(durable_name=f"C{number}"))
        with WorkerPool(consumer, rejects, dead_letter=subject, threads=1):
            wait_until(lambda number=number: mine.info().state.messages > 1 + 2 * number)  # type: ignore[misc]
        consumer.delete()
    letters = DeadLetters(js, "MYSTREAM")
    assert [(letter.subject, letter.data) for letter in letters.list()] == [
        ("failed.jobs", b"0"),
        ("morgue", b"0"),
        ("morgue", b"1"),
    ]
    assert [letter.subject for letter in DeadLetters(js, "MYSTREAM", "failed.*").list()] == ["failed.jobs"]
    assert len(lines(cli(server, "dead", "ls", "--letters", "MYSTREAM", "--json"))) == 3
    assert len(lines(cli(server, "dead", "ls", "--letters", "MYSTREAM", "--on", "morgue", "--json"))) == 2
    assert letters.summary() == {("JOBS", "C1", "no"): 2, ("JOBS", "C0", "no"): 1}
    assert letters.purge() == 3
    assert [message.data for message in mine.get_batch(10)] == [b"other"]
    with pytest.raises(errors.ConfigError):
        DeadLetters(js, "MYSTREAM", "")


def rejects(message: jsclient.jetstream.JetStreamMsg) -> None:
    raise Reject("no")


def test_letters_from_the_shell(js: JetStream, server: NatsServer) -> None:
    letters_of(js)
    assert [row["letters"] for row in lines(cli(server, "dead", "report", "--json"))] == [3, 2]
    assert "ValueError" in cli(server, "dead", "ls").stdout
    assert cli(server, "dead", "ls", "--reason", "nothing").returncode == 3
    assert "Kind: job" in cli(server, "dead", "show", "1").stdout
    assert len(lines(cli(server, "dead", "ls", "--reason", "Value", "--json"))) == 2
    assert "ValueError" in cli(server, "dead", "replay", "--reason", "Value", "--dry-run").stdout
    assert cli(server, "dead", "replay").returncode == 2
    assert cli(server, "dead", "replay", "--seq", "1", "-f").stdout == "replayed 1\n"
    assert cli(server, "dead", "replay", "--reason", "Value", "-f").stdout == "replayed 2\n"
    assert json.loads(cli(server, "dead", "purge", "-f", "--json").stdout) == {"removed": 2}
