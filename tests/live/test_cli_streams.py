"""The commands about streams, consumers, buckets, objects and backups."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.test_cli import cli, lines

import jsclient
from jsclient.jetstream import JetStream
from jsclient.testing import NatsServer


@pytest.fixture
def stream(server: NatsServer) -> Iterator[str]:
    made = cli(server, "stream", "add", "S", "--subjects", "s.>", "--storage", "file", "--max-msgs", "1000")
    assert made.returncode == 0, made.stderr
    cli(server, "pub", "s.a", "message {{n}}", "--count", "3", "-J")
    cli(server, "pub", "s.b", "other", "-J")
    yield "S"
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        for name in list(js.stream_names()):
            js.delete_stream(name)


def test_streams_are_seen_changed_copied_and_removed(server: NatsServer, stream: str, tmp_path: Path) -> None:
    assert cli(server, "stream", "ls", "-n").stdout == "S\n"
    assert lines(cli(server, "stream", "subjects", stream, "--json")) == [{"s.a": 3, "s.b": 1}]
    assert "s.a" in cli(server, "stream", "subjects", stream, "s.*").stdout
    dry = cli(server, "stream", "edit", stream, "--max-age", "60", "--dry-run")
    assert "max_age" in dry.stdout
    (info,) = lines(cli(server, "stream", "edit", stream, "--max-age", "3600", "--json"))
    assert info["config"]["max_age"] == 3600 * 10**9
    assert info["config"]["max_msgs"] == 1000
    assert cli(server, "stream", "edit", stream).returncode == 2
    file = tmp_path / "S.json"
    file.write_text(cli(server, "stream", "info", stream, "--json").stdout)
    assert cli(server, "stream", "add", "T", "--config", str(file)).returncode == 1, "the subjects are taken"
    (copy,) = lines(cli(server, "stream", "add", "T", "--config", str(file), "--subjects", "t.>", "--json"))
    assert copy["config"]["max_msgs"] == 1000
    refused = cli(server, "stream", "rm", "T")
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    assert cli(server, "stream", "rm", "T", "-f").stdout == "deleted T with 0 messages\n"
    assert cli(server, "stream", "info", "T").returncode == 3


def test_stored_messages_are_printed(server: NatsServer, stream: str) -> None:
    assert cli(server, "stream", "view", stream, "2", "--raw").stdout == "message 1\nmessage 2\n"
    assert [one["seq"] for one in lines(cli(server, "stream", "view", stream, "--subject", "s.b", "--json"))] == [4]
    assert cli(server, "stream", "view", stream, "--id", "9").returncode == 3
    assert cli(server, "stream", "get", stream, "3", "--raw").stdout == "message 3"
    assert lines(cli(server, "stream", "get", stream, "-S", "s.a", "--json"))[0]["seq"] == 3
    assert cli(server, "stream", "get", stream).returncode == 2
    assert cli(server, "stream", "get", stream, "9").returncode == 3


def test_a_backup_from_the_shell(server: NatsServer, stream: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "b")
    assert "4 messages" in cli(server, "stream", "backup", stream, folder).stdout
    assert cli(server, "backup", "verify", folder).stdout.endswith("whole\n")
    (seen,) = lines(cli(server, "backup", "inspect", folder, "--json"))
    assert (seen["stream"], seen["messages"]) == (stream, 4)
    cli(server, "stream", "rm", stream, "-f")
    (info,) = lines(cli(server, "stream", "restore", folder, "--json"))
    assert info["state"]["messages"] == 4
    (tmp_path / "b" / "stream.tar.s2").write_bytes(b"broken")
    assert cli(server, "backup", "verify", folder).returncode == 1


def test_consumers_from_creation_to_removal(server: NatsServer, stream: str) -> None:
    (info,) = lines(cli(server, "consumer", "add", stream, "C", "--filter", "s.a", "--ack-wait", "20", "--json"))
    assert info["config"]["filter_subject"] == "s.a"
    assert cli(server, "consumer", "ls", stream, "-n").stdout == "C\n"
    assert cli(server, "consumer", "next", stream, "C", "--raw", "--nak").stdout == "message 1"
    assert "message 1" in cli(server, "consumer", "next", stream, "C", "--raw").stdout
    assert cli(server, "consumer", "next", stream, "C", "--term").returncode == 0
    report = cli(server, "consumer", "report", stream).stdout
    assert "UNPROCESSED" in report
    (info,) = lines(cli(server, "consumer", "edit", stream, "C", "--ack-wait", "40", "--json"))
    assert info["config"]["ack_wait"] == 40 * 10**9
    assert info["config"]["filter_subject"] == "s.a"
    assert cli(server, "consumer", "edit", stream, "C").returncode == 2
    later = cli(server, "consumer", "add", stream, "D", "--deliver", "3", "--ephemeral", "--json")
    assert lines(later)[0]["config"]["opt_start_seq"] == 3
    assert cli(server, "consumer", "add", stream, "E", "--deliver", "yesterday").returncode == 2
    if server.version >= (2, 11, 0):
        assert "paused C until" in cli(server, "consumer", "pause", stream, "C", "3600").stdout
        assert "paused" in cli(server, "consumer", "report", stream).stdout
        assert cli(server, "consumer", "resume", stream, "C").stdout == "resumed C\n"
    else:
        assert cli(server, "consumer", "pause", stream, "C", "3600").returncode == 1
    assert cli(server, "consumer", "rm", stream, "C", "-f").stdout == "deleted C\n"
    assert cli(server, "consumer", "info", stream, "C").returncode == 3


def test_a_bucket_from_the_shell(server: NatsServer) -> None:
    (made,) = lines(cli(server, "kv", "add", "b", "--history", "5", "--json"))
    assert made["history"] == 5
    assert cli(server, "kv", "create", "b", "k", "one").stdout == "1\n"
    assert cli(server, "kv", "create", "b", "k", "two").returncode == 1
    assert cli(server, "kv", "update", "b", "k", "two", "1").stdout == "2\n"
    assert cli(server, "kv", "ls", "b").stdout == "k\n"
    assert "b" in cli(server, "kv", "ls").stdout
    assert [one["value"] for one in lines(cli(server, "kv", "history", "b", "k", "--json"))] == ["one", "two"]
    assert cli(server, "kv", "del", "b", "k", "-f").stdout == "deleted k\n"
    assert cli(server, "kv", "get", "b", "k").returncode == 3
    assert cli(server, "kv", "compact", "b", "--older-than", "0", "-f").stdout == "removed 1 markers\n"
    assert "history" in cli(server, "kv", "info", "b").stdout
    assert cli(server, "kv", "del", "b").returncode == 2
    assert cli(server, "kv", "del", "b", "-f").stdout == "deleted b\n"
    assert cli(server, "kv", "info", "b").returncode == 3


def test_an_object_store_from_the_shell(server: NatsServer, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 300_000)
    assert cli(server, "obj", "add", "o").stdout == "created o\n"
    assert "stored mine" in cli(server, "obj", "put", "o", str(file), "--name", "mine").stdout
    assert cli(server, "object", "ls", "o").stdout.startswith("NAME")
    assert "o" in cli(server, "obj", "ls").stdout
    (info,) = lines(cli(server, "obj", "info", "o", "mine", "--json"))
    assert info["size"] == 300_000
    assert cli(server, "obj", "get", "o", "mine", "-O", str(tmp_path / "out")).returncode == 0
    assert (tmp_path / "out").read_bytes() == file.read_bytes()
    assert cli(server, "obj", "get", "o", "mine").stdout == "x" * 300_000
    assert lines(cli(server, "obj", "watch", "o", "--once", "--json"))[0]["name"] == "mine"
    assert cli(server, "obj", "del", "o", "mine", "-f").stdout == "deleted mine\n"
    assert cli(server, "obj", "get", "o", "mine").returncode == 3
    assert cli(server, "obj", "del", "o", "-f").returncode == 0


def test_a_context_is_kept_as_the_nats_cli_keeps_it(server: NatsServer, tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path), "NATS_URL": ""}

    def run(*arguments: str) -> str:
        done = cli(server, "context", *arguments, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(
        "add",
        "mine",
        "--url",
        server.url,
        "--user",
        "u",
        "--password",
        "hidden",
        "--description",
        "for tests",
        "--select",
    )
    assert "mine*" in run("ls")
    shown = run("info")
    assert server.url in shown
    assert "hidden" not in shown
    path = tmp_path / "nats" / "context" / "mine.json"
    assert json.loads(path.read_text())["password"] == "hidden"
    assert path.stat().st_mode & 0o777 == 0o600
    assert cli(server, "rtt", **environment).stdout.startswith(server.url)
    assert cli(server, "context", "add", "mine", "--url", "x", **environment).returncode == 2
    assert cli(server, "context", "add", "../x", **environment).returncode == 2
    run("rm", "mine", "-f")
    assert run("ls") == "no contexts\n"
