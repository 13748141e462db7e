"""The command line: bytes go in and come out unchanged, and nothing binary reaches a terminal unasked."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jsclient import keyvalue, objectstore
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer

BINARY = b"one\ntwo\r\n\x00\xff\x1b[31m"


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="BYTES", subjects=["bytes.>"]))
    return js


def run(server: NatsServer, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("NATS_")}
    command = [sys.executable, "-m", "jsclient", *words, "-s", server.url]
    return subprocess.run(command, env=clean, input=given, capture_output=True, timeout=30, check=False)


def on_terminal(server: NatsServer, *words: str) -> tuple[int, bytes]:
    """(exit status, what a terminal got)."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "jsclient", *words, "-s", server.url]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL) as process:
        os.close(theirs)
        printed = b""
        try:
            while piece := os.read(ours, 65536):
                printed += piece
        except OSError:  # the end of a pseudo terminal
            pass
    os.close(ours)
    return process.returncode, printed.replace(b"\r\n", b"\n")


def stored(js: JetStream) -> list[bytes]:
    return [message.data for message in js.stream("BYTES").get_batch(100)]


def test_all_of_standard_input_is_one_message(server: NatsServer, js: JetStream) -> None:
    assert run(server, "pub", "-J", "bytes.a", given=BINARY).returncode == 0
    assert run(server, "pub", "-J", "bytes.a", "-", "--count", "2", given=b"x").returncode == 0
    assert stored(js) == [BINARY, b"x", b"x"]


def test_lines(server: NatsServer, js: JetStream) -> None:
    assert run(server, "pub", "-J", "bytes.a", "--lines", given=b"one\ntwo\r\n").returncode == 0
    assert stored(js) == [b"one", b"two"]
    nothing = run(server, "pub", "bytes.a", "--lines")
    assert nothing.returncode == 3
    assert nothing.stderr.decode() == "jsclient: standard input has no lines, so nothing was published\n"


@pytest.mark.parametrize("words", [("--msg-id", "1", "--lines"), ("--msg-id", "1", "--count", "2"), ("--lines", "x")])
def test_what_would_do_nothing_is_refused(server: NatsServer, js: JetStream, words: tuple[str, ...]) -> None:
    assert run(server, "pub", "bytes.a", *words, given=b"one\n").returncode == 2
    assert stored(js) == []


def test_templates(server: NatsServer, js: JetStream) -> None:
    words = ("pub", "-J", "bytes.a", "{{Count}} {{Unix}} {{Time}} {{ID}} {{other}}", "--count", "2")
    assert run(server, *words).returncode == 0
    first, second = (data.decode() for data in stored(js))
    assert re.fullmatch(r"1 \d{10} \d\d:\d\d:\d\d \w{22} {{other}}", first)
    assert second.startswith("2 ")


def test_a_request_reads_standard_input(server: NatsServer, js: JetStream) -> None:
    with js.nc.subscribe("ask", lambda message: message.respond(message.data)):
        js.nc.flush()
        assert run(server, "request", "ask", "--raw", given=BINARY).stdout == BINARY
        assert run(server, "request", "ask", "word", "--raw", given=BINARY).stdout == b"word"


def test_raw_adds_no_byte(server: NatsServer, js: JetStream, tmp_path: Path) -> None:
    js.publish("bytes.a", BINARY)
    js.stream("BYTES").create_consumer(ConsumerConfig(durable_name="C"))
    keyvalue.create_key_value(js, bucket="raw").put("k", BINARY)
    objectstore.create_object_store(js, bucket="raw").put("o", BINARY)
    assert run(server, "stream", "get", "BYTES", "1", "--raw").stdout == BINARY
    assert run(server, "next", "BYTES", "C", "--raw").stdout == BINARY
    assert run(server, "kv", "get", "raw", "k", "--raw").stdout == BINARY
    assert run(server, "obj", "get", "raw", "o", "-").stdout == BINARY
    assert run(server, "obj", "get", "raw", "o").stdout == BINARY
    target = tmp_path / "file"
    assert run(server, "obj", "get", "raw", "o", str(target)).returncode == 0
    assert target.read_bytes() == BINARY


def test_a_terminal_gets_nothing_that_it_may_obey(server: NatsServer, js: JetStream) -> None:
    js.publish("bytes.a", BINARY, headers={"X": "\x1b[31m"})
    keyvalue.create_key_value(js, bucket="shown").put("k", BINARY)
    objectstore.create_object_store(js, bucket="shown").put("o", BINARY)
    for words in (["stream", "get", "BYTES", "1"], ["kv", "get", "shown", "k"]):
        status, printed = on_terminal(server, *words)
        assert status == 0
        assert b"\x1b" not in printed
        assert rb"\x1b[31m" in printed
    status, printed = on_terminal(server, "obj", "get", "shown", "o")
    assert status == 2
    assert b"obj get shown o FILE" in printed
