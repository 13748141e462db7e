"""The command line on a terminal: narrow windows, wide characters, escape sequences, Ctrl-D, broken files."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import socket
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from tests.live.test_cli import cli, environ

from jsclient import keyvalue
from jsclient.cli.output import width_of
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer

EVIL = "\x1b[2Jgone\x9b31m"


def on_terminal(
    server: NatsServer, *words: str, columns: int = 50, typed: bytes = b"", **more: str
) -> tuple[int, list[str]]:
    """(exit status, lines of a terminal with so many columns). `typed` is answered to the first question."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, "-m", "jsclient", *words]
    environment = {key: value for key, value in environ(server.url, **more).items() if key != "COLUMNS"}
    with subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        printed = b""
        try:
            while piece := os.read(ours, 65536):
                printed += piece
                if typed and printed.endswith(b"[y/N] "):
                    os.write(ours, typed)
        except OSError:  # the end of a pseudo terminal
            pass
    os.close(ours)
    return process.returncode, printed.decode().replace("\r\n", "\n").splitlines()


def test_a_narrow_terminal_drops_columns_and_no_letters(server: NatsServer, js: JetStream) -> None:
    long = [f"orders.of.the.warehouse.{number}.>" for number in range(4)]
    js.create_stream(StreamConfig(name="ORDERS_OF_TODAY", subjects=long))
    js.create_consumer("ORDERS_OF_TODAY", ConsumerConfig(durable_name="the-accounting-department"))
    status, shown = on_terminal(server, "stream", "ls")
    assert status == 0
    assert all(len(line) <= 50 for line in shown[:2]), shown
    assert shown[0].split() == ["NAME", "MESSAGES", "BYTES", "CONSUMERS"]
    assert shown[1].split() == ["ORDERS_OF_TODAY", "0", "0", "B", "1"]
    assert "too narrow for STORAGE, SUBJECTS" in "".join(shown[2:])
    _, shown = on_terminal(server, "consumer", "report", "ORDERS_OF_TODAY")
    assert all(len(line) <= 50 for line in shown[:2]), shown
    assert "UNPROCESSED" in shown[0]
    assert shown[1].startswith("the-accounting-department")
    _, shown = on_terminal(server, "stream", "ls", columns=200)
    assert ",".join(long) in shown[1]
    assert len(shown) == 2
    assert ",".join(long) in cli(server, "stream", "ls", COLUMNS="50").stdout, "a pipe has no width"


def test_wide_characters_are_measured(server: NatsServer, js: JetStream) -> None:
    assert [width_of(text) for text in ("abc", "注文", "e\u0301")] == [3, 4, 1]
    js.create_stream(StreamConfig(name="W", subjects=["w.>"]))
    for subject in ("w.注文", "w.abcd"):
        js.publish(subject, b"x")
    rows = cli(server, "stream", "subjects", "W").stdout.splitlines()
    assert len({width_of(row) for row in rows}) == 1, rows


def publish_raw(server: NatsServer, subject: bytes, payload: bytes) -> None:
    """As a client that checks nothing does it; the header is the payload, too."""
    header = b"NATS/1.0\r\nA: " + payload + b"\r\n\r\n"
    frame = b"HPUB %s %d %d\r\n%s\r\n" % (subject, len(header), len(header) + len(payload), header + payload)
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as link:
        link.sendall(b'CONNECT {"verbose":false,"headers":true}\r\n' + frame + b"PING\r\n")
        answer = b""
        while b"PONG" not in answer:
            answer += link.recv(4096)


def test_escape_sequences_of_values_are_shown(server: NatsServer, js: JetStream) -> None:
    js.create_stream(StreamConfig(name="E", subjects=["e.>"], description=EVIL))
    publish_raw(server, f"e.{EVIL}".encode(), EVIL.encode())
    kv = keyvalue.create_key_value(js, keyvalue.KeyValueConfig(bucket="B"))
    kv.put("key", EVIL)
    for words in (
        ["stream", "info", "E"], ["stream", "subjects", "E"], ["stream", "view", "E"], ["stream", "get", "E", "1"],
        ["kv", "history", "B", "key"], ["kv", "watch", "B", "--once"],
    ):  # fmt: skip
        text = cli(server, *words).stdout
        assert "\\x1b[2Jgone\\x9b31m" in text, words
        assert not {"\x1b", "\x9b"} & set(text), words
        plain = cli(server, *words, "--json").stdout
        assert not {"\x1b", "\x9b"} & set(plain), words
        assert all(json.loads(line) for line in plain.splitlines())
    assert "\x1b[2J" not in "".join(on_terminal(server, "kv", "get", "B", "key")[1])
    assert cli(server, "kv", "get", "B", "key", "--raw").stdout == EVIL


def test_the_end_of_input_is_a_no(server: NatsServer, js: JetStream) -> None:
    js.create_stream(StreamConfig(name="KEPT", subjects=["kept"]))
    for typed in (b"\x04", b"n\n", b"\n"):
        status, shown = on_terminal(server, "stream", "rm", "KEPT", typed=typed)
        assert status == 1
        assert "Traceback" not in "".join(shown)
    assert "KEPT" in list(js.stream_names())
    assert on_terminal(server, "stream", "rm", "KEPT", typed=b"y\n")[0] == 0
    assert list(js.stream_names()) == []


@pytest.mark.parametrize("text", [b"{", b"[1]", b"\xff\xfe", b'{"config": 3}', b'{"name": 7}', b""])
def test_a_broken_file_is_a_sentence(server: NatsServer, js: JetStream, tmp_path: Path, text: bytes) -> None:
    js.create_consumer(js.create_stream(StreamConfig(name="S", subjects=["s"])).name, ConsumerConfig(durable_name="c"))
    file = tmp_path / "file.json"
    file.write_bytes(text)
    folder = tmp_path / "nats" / "context"
    folder.mkdir(parents=True)
    (folder / "bad.json").write_bytes(text)
    for words in (
        ["stream", "add", "T", "--config", str(file)], ["stream", "edit", "S", "--config", str(file)],
        ["consumer", "add", "S", "d", "--config", str(file)], ["consumer", "edit", "S", "c", "--config", str(file)],
    ):  # fmt: skip
        done = cli(server, *words)
        assert done.returncode == 2, words
        assert str(file) in done.stderr
        assert done.stderr.count("\n") == 1
        assert "holds no configuration" in done.stderr or text == b"\xff\xfe"
    if not text.startswith(b'{"'):
        for words in (["context", "info", "bad"], ["rtt", "--context", "bad"]):
            done = cli(server, *words, XDG_CONFIG_HOME=str(tmp_path))
            assert done.returncode == 2, words
            assert "bad.json" in done.stderr
        assert "bad.json" in cli(server, "context", "ls", XDG_CONFIG_HOME=str(tmp_path)).stderr
    (tmp_path / "backup.json").write_bytes(text)
    done = cli(server, "backup", "inspect", str(tmp_path))
    assert done.returncode in (1, 2)
    assert "jsclient: " in done.stderr
