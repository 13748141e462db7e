"""Checks for monitoring systems, contexts, errors and bucket settings by the command line."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import pytest
from tests.live.test_cli import cli, lines

import jsclient
from jsclient import contexts
from jsclient.jetstream import JetStream, StreamConfig
from jsclient.testing import NatsServer


def check(server: NatsServer | str, *words: str) -> tuple[int, str]:
    done = cli(server, "check", *words)
    return done.returncode, done.stdout + done.stderr


def test_both_spellings_and_options_around_the_kind(server: NatsServer) -> None:
    dead = "nats://127.0.0.1:1"
    assert cli(dead, "check", "-s", server.url, "jetstream").returncode == 0
    assert cli(dead, "-s", server.url, "check", "jetstream").returncode == 0
    assert cli(dead, "check", "jetstream", "-s", server.url).returncode == 0
    assert cli(server, "check").stdout.startswith("ok    connection"), "without a kind it looks at everything"


def test_numbers_have_all_their_digits_and_no_exponent(server: NatsServer, js: JetStream) -> None:
    js.create_stream(StreamConfig(name="BIG", subjects=["big"]))
    for _ in range(3):
        js.publish("big", bytes(500_000))
    status, text = check(server, "stream", "--stream", "BIG", "--msgs-critical", "12345678")
    assert status == 2
    assert "at least 12345678" in text
    assert f" bytes={js.stream('BIG').info().state.bytes} " in text
    for words in (["stream", "--stream", "BIG"], ["connection"], ["jetstream"]):
        figures = check(server, *words)[1].partition("|")[2].split()
        assert figures
        assert all(set(one.partition("=")[2].strip()) <= set("0123456789.") for one in figures), figures


def test_unknown_is_3(server: NatsServer) -> None:
    dead = "nats://127.0.0.1:1"
    for words in (["jetstream"], ["stream", "--stream", "S"], ["kv", "--bucket", "B"], ["request", "--subject", "x"]):
        assert check(dead, *words)[0] == 3, words
    assert check(dead, "connection")[0] == 2
    assert check(server, "stream")[0] == 3
    assert check(server, "stream", "--stream", "a.b")[0] == 3
    assert check(server, "jetstream", "--mem-warn", "many")[0] == 3
    with NatsServer(jetstream=False) as without:
        status, text = check(without, "jetstream")
        assert status == 3
        assert text.startswith("UNKNOWN jetstream")


LIMITED = """
accounts {
  A { jetstream: { max_mem: 1M, max_streams: 10 }, users: [ { user: a, password: p } ] }
}
"""


def test_the_use_of_limits() -> None:
    with NatsServer(LIMITED) as own:
        with jsclient.connect(own.url, user="a", password="p") as nc:
            JetStream(nc).create_stream(StreamConfig(name="M", subjects=["m"], storage="memory"))
            JetStream(nc).publish("m", bytes(840_000))
        login = ("--user", "a", "--password", "p")
        status, text = check(own, "jetstream", *login)
        assert status == 1
        assert "percent of memory: 84, limit 75" in text
        assert check(own, "jetstream", "--mem-warn", "85", *login)[0] == 0
        assert check(own, "jetstream", "--mem-critical", "50", *login)[0] == 2
        assert check(own, "jetstream", "--mem-warn", "85", "--streams-critical", "0", *login)[0] == 2


def test_a_bucket(server: NatsServer, js: JetStream) -> None:
    assert check(server, "kv", "--bucket", "B")[0] == 2
    cli(server, "kv", "add", "B")
    cli(server, "kv", "put", "B", "a", "1")
    assert check(server, "kv", "--bucket", "B", "--key", "a")[0] == 0
    assert check(server, "kv", "--bucket", "B", "--key", "b")[0] == 2
    assert check(server, "kv", "--bucket", "B", "--values-warn", "0", "--values-critical", "5")[0] == 1
    assert check(server, "kv", "--bucket", "B", "--values-warn", "5", "--values-critical", "0")[0] == 1
    assert check(server, "kv", "--bucket", "B", "--values-warn", "5", "--values-critical", "2")[0] == 2


def test_a_service(server: NatsServer) -> None:
    assert check(server, "request", "--subject", "svc")[0] == 2
    with jsclient.connect(server.url) as nc:
        nc.subscribe("svc", callback=lambda message: message.respond(b"ok " + message.data))
        nc.flush()
        assert check(server, "request", "--subject", "svc", "--payload", "x", "--match-payload", "^ok x$")[0] == 0
        assert check(server, "request", "--subject", "svc", "--match-payload", "^no")[0] == 2
        assert check(server, "request", "--subject", "svc", "--response-critical", "1ns")[0] == 2
        assert check(server, "request", "--subject", "svc", "--match-payload", "(")[0] == 3


def creds(path: Path, **claims: object) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    path.write_text(
        f"-----BEGIN NATS USER JWT-----\nhead.{body}.sig\n------END NATS USER JWT------\n"
        "-----BEGIN USER NKEY SEED-----\nSUABC\n------END USER NKEY SEED------\n"
    )
    return str(path)


def test_a_credential(tmp_path: Path) -> None:
    def found(file: str, *words: str) -> int:
        return check("nats://127.0.0.1:1", "credential", "--credential", file, *words)[0]

    hour = creds(tmp_path / "hour", exp=int(time.time()) + 3600)
    assert found(hour) == 0
    assert found(hour, "--validity-warn", "5d", "--validity-critical", "10m") == 1
    assert found(hour, "--validity-critical", "1d") == 2
    assert found(creds(tmp_path / "old", exp=1000)) == 2
    forever = creds(tmp_path / "forever", name="x")
    assert found(forever) == 0
    assert found(forever, "--require-expiry") == 2
    assert found(str(tmp_path / "none")) == 2
    (tmp_path / "bad").write_bytes(b"\xff")
    assert found(str(tmp_path / "bad")) == 2
    assert found(str(tmp_path)) == 3, "a folder cannot be read"


def test_contexts_are_copied_edited_validated_and_unselected(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = {"XDG_CONFIG_HOME": str(tmp_path)}
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def run(*words: str) -> int:
        return cli("nats://127.0.0.1:1", "context", *words, **home).returncode

    assert run("add", "a", "--server", server.url, "--description", "first", "--select") == 0
    assert contexts.selected_context() == "a"
    assert run("copy", "a", "b", "--description", "second") == 0
    assert contexts.load_context("b")["servers"] == server.url
    assert contexts.read_context("b")["description"] == "second"
    assert run("copy", "none", "c") == 2
    assert run("edit", "b", "--server", "nats://127.0.0.1:1", "--description", "") == 0
    assert contexts.load_context("b")["servers"] == "nats://127.0.0.1:1"
    assert contexts.read_context("b")["description"] == ""
    assert run("edit", "b") == 2
    assert run("edit", "none", "--user", "x") == 2
    assert run("edit", "b", "--creds", "nsc://operator/account/user") == 2
    assert "credentials" not in contexts.load_context("b"), "a setting that cannot be used is not saved"
    assert run("validate") == 0
    assert run("validate", "a", "--connect") == 0
    assert run("validate", "b", "--connect") == 1
    (tmp_path / "nats" / "context" / "bad.json").write_text("{")
    assert run("validate") == 1
    told = cli(server, "context", "validate", "--json", **home).stdout
    assert [bool(one["error"]) for one in map(json.loads, told.splitlines())] == [False, False, True]
    assert run("unselect") == 0
    assert contexts.selected_context() is None
    assert run("unselect") == 0


def test_errors_are_looked_up() -> None:
    nowhere = "nats://127.0.0.1:1"
    (found,) = lines(cli(nowhere, "errors", "lookup", "10059", "--json"))
    assert found["name"] == "StreamNotFound"
    assert 10059 in found["codes"]
    page = cli(nowhere, "error", "lookup", "StreamNotFound").stdout
    assert "10059" in page
    assert "advice" in page
    (sealed,) = lines(cli(nowhere, "errors", "lookup", "StreamSealed", "--json"))
    assert (sealed["name"], sealed["class"], sealed["codes"]) == ("StreamSealed", "ApiError", [10109])
    assert "UnknownOutcome" in cli(nowhere, "errors", "lookup", "UnknownOutcome").stdout
    for code in ("99", "Nothing", "JsClientErro", "core"):
        assert cli(nowhere, "errors", "lookup", code).returncode == 3


def test_settings_of_a_bucket_change(server: NatsServer, js: JetStream) -> None:
    assert cli(server, "kv", "edit", "B", "--history", "5").returncode == 3
    cli(server, "kv", "add", "B", "--ttl", "1h", "--description", "kept")
    cli(server, "kv", "put", "B", "a", "1")
    (told,) = lines(cli(server, "kv", "edit", "B", "--history", "5", "--max-value-size", "1KB", "--json"))
    assert (told["history"], told["ttl"], told["description"], told["values"]) == (5, 3600, "kept", 1)
    (told,) = lines(cli(server, "kv", "edit", "B", "--ttl", "0", "--max-value-size", "-1", "--json"))
    assert told["ttl"] is None
    assert told["stream"]["config"].get("max_msg_size", -1) == -1
    assert cli(server, "kv", "edit", "B").returncode == 2


def test_templates_of_pub(server: NatsServer, js: JetStream) -> None:
    js.create_stream(StreamConfig(name="T", subjects=["t"]))
    cli(server, "pub", "t", "{{Count}} {{ Count }} {{ Time }} {{other}}", "--count", "2", "-J")
    for number, message in enumerate(js.stream("T").get_batch(2), 1):
        first, second, clock, other = message.data.decode().split()
        assert (first, second, other) == (str(number), str(number), "{{other}}")
        assert time.strptime(clock, "%H:%M:%S")
