"""The command line: seal, gaps, configurations from files, and `sub` from a stream."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.live.test_cli import cli

from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="MORE", subjects=["more.*"]))
    for number in range(1, 11):
        js.publish(f"more.{number % 2}", b"%d" % number)
    return js


def test_gaps(server: NatsServer, js: JetStream) -> None:
    assert cli(server, "stream", "gaps", "MORE").stdout == "MORE has no gaps\n"
    for seq in (3, 4, 5, 8):
        js.stream("MORE").delete_msg(seq)
    assert [row.split() for row in cli(server, "stream", "gaps", "MORE").stdout.splitlines()] == [
        ["FIRST", "LAST", "MESSAGES"],
        ["3", "5", "3"],
        ["8", "8", "1"],
    ]
    found = json.loads(cli(server, "stream", "gaps", "MORE", "--json").stdout)
    assert found == {"stream": "MORE", "deleted": 4, "gaps": [[3, 5], [8, 8]]}


def test_seal(server: NatsServer, js: JetStream) -> None:
    assert cli(server, "stream", "seal", "MORE").returncode == 2
    assert cli(server, "stream", "seal", "MORE", "--force").stdout == "sealed MORE\n"
    assert js.stream("MORE").info().config.sealed


def test_a_consumer_is_edited_by_a_file(server: NatsServer, js: JetStream, tmp_path: Path) -> None:
    js.create_consumer("MORE", ConsumerConfig(durable_name="C", ack_wait=5))
    file = tmp_path / "consumer.json"
    file.write_text('{"ack_policy": "explicit", "ack_wait": 60000000000, "max_deliver": 4}')
    assert cli(server, "consumer", "edit", "MORE", "C", "--config", str(file)).returncode == 0
    config = js.consumer_info("MORE", "C").config
    assert (config.ack_wait, config.max_deliver) == (60, 4)


@pytest.mark.parametrize(
    ("words", "first", "count"),
    [
        (["--stream", "MORE"], "1", 10),
        (["--all"], "1", 10),
        (["--last"], "10", 1),
        (["--last-per-subject"], "9", 2),
        (["--start-sequence", "7"], "7", 4),
        (["--since", "1h"], "1", 10),
    ],
)
def test_sub_from_a_stream(server: NatsServer, js: JetStream, words: list[str], first: str, count: int) -> None:
    subject = [] if "--stream" in words else ["more.*"]
    done = cli(server, "sub", *subject, "--raw", "--wait", "0.5", *words)
    assert done.stdout.split()[0] == first
    assert len(done.stdout.split()) == count


def test_sub_shows_headers_alone(server: NatsServer, js: JetStream) -> None:
    js.publish("more.h", b"a payload", headers={"X": "y"})
    text = cli(server, "sub", "more.h", "--last", "--headers-only", "--count", "1").stdout
    assert "X: y" in text
    assert "a payload" not in text


def test_what_does_not_go_together(server: NatsServer, js: JetStream) -> None:
    assert cli(server, "sub", "--last").returncode == 2
    assert cli(server, "sub", "more.*", "--last", "--new").returncode == 2
    assert cli(server, "sub", "more.*", "--last", "--ack").returncode == 2


def test_sub_acknowledges_what_is_pushed(server: NatsServer, js: JetStream) -> None:
    js.create_push_consumer("MORE", ConsumerConfig(durable_name="P", deliver_subject="pushed", ack_policy="explicit"))
    done = cli(server, "sub", "pushed", "--ack", "--raw", "--count", "10", "--wait", "5")
    assert len(done.stdout.split()) == 10
    info = js.consumer_info("MORE", "P")
    assert (info.num_ack_pending, info.ack_floor.stream_seq) == (0, 10)
