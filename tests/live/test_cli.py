"""The command line, as a script would use it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import jsclient
from jsclient import keyvalue
from jsclient.cli import main
from jsclient.jetstream import ConsumerConfig, JetStream
from jsclient.testing import LeafPair, NatsServer


def environ(url: str, **more: str) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("NATS_") or key == "NATS_SERVER"}
    return {**clean, "NATS_URL": url, **more}


def cli(
    server: NatsServer | str, *arguments: str, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in this process: a new interpreter takes a third of a second, and does the same."""
    url = server if isinstance(server, str) else server.url
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    given = io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")
    with (
        mock.patch.dict(os.environ, environ(url, **environment), clear=True),
        mock.patch.multiple(sys, stdin=given, stdout=out, stderr=err, argv=["jsclient", *arguments]),
    ):
        try:
            status = main(arguments)
        except SystemExit as end:
            status = int(end.code or 0)
    printed = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return subprocess.CompletedProcess(arguments, status, *printed)


def test_it_runs_as_a_program(server: NatsServer) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "jsclient", *arguments]
        options: dict[str, Any] = {"input": "one\ntwo\n", "capture_output": True, "text": True, "timeout": 30}
        return subprocess.run(command, env=environ(server.url), check=False, **options)

    assert run("pub", "program").stdout == "published 1\n"
    assert run("pub", "program", "--lines").stdout == "published 2\n"
    assert run("stream", "info", "nothing").returncode == 3
    wrong = run("--wrong")
    assert wrong.returncode == 2
    assert "usage: jsclient" in wrong.stderr


def lines(done: subprocess.CompletedProcess[str]) -> list[Any]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def stream(server: NatsServer) -> Iterator[str]:
    cli(server, "stream", "add", "CLI", "--subjects", "cli.>,more.cli", "--storage", "memory", "--max-age", "3600")
    yield "CLI"
    with jsclient.connect(server.url) as nc:
        JetStream(nc).delete_stream("CLI")


def test_streams_from_creation_to_purge(server: NatsServer, stream: str) -> None:
    (info,) = lines(cli(server, "stream", "info", stream, "--json"))
    assert info["config"]["subjects"] == ["cli.>", "more.cli"]
    assert info["config"]["max_age"] == 3600 * 10**9
    stored = lines(cli(server, "pub", "cli.a", "hello", "--msg-id", "1", "-H", "A:b", "--json"))
    assert stored == [{"stream": "CLI", "seq": 1, "duplicate": False}]
    assert "(duplicate)" in cli(server, "pub", "cli.a", "hello", "--msg-id", "1").stdout
    assert lines(cli(server, "pub", "cli.b", "--json", "--lines", stdin="one\ntwo\n")) == [{"published": 2}]
    assert "CLI" in cli(server, "stream", "ls").stdout
    assert lines(cli(server, "stream", "ls", "--subject", "other", "--json")) == []
    assert lines(cli(server, "stream", "purge", stream, "--keep", "1", "--json", "-f")) == [{"purged": 2}]


def test_next_takes_and_acks(server: NatsServer, stream: str) -> None:
    cli(server, "pub", "cli.x", "--lines", stdin="one\ntwo\n")
    with jsclient.connect(server.url) as nc:
        consumer = JetStream(nc).create_consumer(stream, ConsumerConfig(durable_name="c"))
        first = cli(server, "next", stream, "c", "--json")
        assert lines(first) == [{"subject": "cli.x", "data": "one", "seq": 1}]
        assert cli(server, "next", stream, "c", "--raw").stdout == "two"
        assert consumer.info().num_ack_pending == 0
    assert cli(server, "next", stream, "c", "--wait", "0.2").returncode == 3
    assert "c" in cli(server, "consumer", "ls", stream).stdout
    (info,) = lines(cli(server, "consumer", "info", stream, "c", "--json"))
    assert info["ack_floor"]["stream_seq"] == 2


def test_key_value(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        keyvalue.create_key_value(JetStream(nc), keyvalue.KeyValueConfig(bucket="cli", history=5, storage="memory"))
    assert cli(server, "kv", "put", "cli", "a.b", "one").stdout == "1\n"
    assert cli(server, "kv", "update", "cli", "a.b", "two", "1").stdout == "2\n"
    assert cli(server, "kv", "update", "cli", "a.b", "three", "1").returncode == 1
    assert cli(server, "kv", "get", "cli", "a.b").stdout == "two\n"
    assert lines(cli(server, "kv", "get", "cli", "a.b", "--revision", "1", "--json"))[0]["value"] == "one"
    assert cli(server, "kv", "get", "cli", "nothing").returncode == 3
    assert cli(server, "kv", "get", "nobucket", "a").returncode == 3
    assert lines(cli(server, "kv", "watch", "cli", "a.*", "--once", "--json"))[0]["revision"] == 2


def test_sub_prints_what_comes(server: NatsServer) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "jsclient", "sub", "cli.sub.>", "--count", "2", "--json", "-s", server.url],
        stdout=subprocess.PIPE,
        text=True,
    )
    with jsclient.connect(server.url) as nc:
        while process.poll() is None:
            nc.publish("cli.sub.a", b"\xff\x00", headers={"K": ["1", "2"]})
            nc.flush()
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    process.stdout.close()
    assert first == {"subject": "cli.sub.a", "headers": {"K": ["1", "2"]}, "data": {"base64": "/wA="}}


def test_exit_codes_are_honest(server: NatsServer) -> None:
    absent = cli(server, "stream", "info", "NOPE")
    assert (absent.returncode, absent.stderr[:39]) == (3, "jsclient: stream NOPE: stream not found")
    assert cli(server, "pub", "a b", "x").returncode == 2
    assert cli(server, "nonsense").returncode == 2
    refused = cli("nats://127.0.0.1:1", "pub", "a", "x")
    assert refused.returncode == 1
    assert refused.stderr.startswith("jsclient: ")
    assert "Traceback" not in refused.stderr


def test_a_context_of_the_nats_cli_is_respected(server: NatsServer, tmp_path: Path) -> None:
    folder = tmp_path / "nats" / "context"
    folder.mkdir(parents=True)
    (folder / "mine.json").write_text(json.dumps({"url": server.url, "jetstream_domain": "nowhere"}))
    environment = {"XDG_CONFIG_HOME": str(tmp_path), "NATS_URL": "", "NATS_CONTEXT": "mine"}
    assert cli(server, "pub", "a", "x", **environment).returncode == 0
    assert cli(server, "stream", "ls", **environment).returncode == 1  # there is no such domain
    selected = {"XDG_CONFIG_HOME": str(tmp_path), "NATS_URL": ""}
    (tmp_path / "nats" / "context.txt").write_text("mine")
    assert cli(server, "pub", "a", "x", **selected).returncode == 0


def test_domain_and_prefix(tmp_path: Path) -> None:
    with LeafPair() as pair:
        made = cli(pair.leaf, "stream", "add", "HUBSTREAM", "--subjects", "hs.>", "--domain", "hub")
        assert made.returncode == 0, made.stderr
        assert "HUBSTREAM" in cli(pair.hub, "stream", "ls").stdout
        assert "HUBSTREAM" in cli(pair.leaf, "stream", "ls", "--api-prefix", "$JS.hub.API").stdout
        assert "HUBSTREAM" not in cli(pair.leaf, "stream", "ls").stdout


def test_server_runs_until_it_is_told_to_end() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "jsclient", "server", "run", "--port", "0", "--json"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())
    with jsclient.connect(told["url"]) as nc:
        assert JetStream(nc).account_info().streams == 0
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    process.stdout.close()


@pytest.mark.parametrize(
    "arguments",
    [
        ("pub", "a b", "x"),
        ("pub", "x", "y", "--timeout", "-1"),
        ("pub", "x", "y", "--timeout", "nan"),
        ("pub", "x", "y", "--reply", "z", "-J"),
        ("sub", "x", "--count", "0"),
        ("sub", "x", "--wait", "-1"),
        ("next", "S", "c", "--wait", "inf"),
        ("next", "S", "c", "--count", "0"),
        ("stream", "info", "bad name"),
        ("stream", "ls", "--domain", "a", "--api-prefix", "b"),
        ("stream", "ls", "--context", "nope"),
    ],
)
def test_wrong_usage_is_two(server: NatsServer, arguments: tuple[str, ...]) -> None:
    done = cli(server, *arguments)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_there_is_three(server: NatsServer, stream: str) -> None:
    assert cli(server, "sub", "silent", "--wait", "0.1").returncode == 3
    absent = cli(server, "next", stream, "nope", "--wait", "1")
    assert (absent.returncode, absent.stderr.startswith(f"jsclient: consumer nope of stream {stream}: ")) == (3, True)
    assert cli(server, "next", "NOPE", "nope", "--wait", "1").returncode == 3


def test_the_server_in_the_foreground_notices_its_end() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "jsclient", "server", "run", "--port", "0", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        os.kill(json.loads(process.stdout.readline())["pid"], signal.SIGKILL)
        _, complaint = process.communicate(timeout=10)
    assert process.returncode == 1
    assert "ended by itself" in complaint
