"""Every command ends within its --timeout when the server falls silent, and says so with exit status 1.

The commands are found by introspection, as the calls are in test_deadlines.py: each stands in one of the tables.
"""

from __future__ import annotations

import argparse
import io
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.conftest import FULL
from tests.deadline_rig import Lateness
from tests.live.test_cli import environ

import jsclient
from jsclient.cli import main
from jsclient.cli.commands import parser
from jsclient.testing import NatsServer, Proxy

TIMEOUT = 0.3
ALLOWED = 0.3
CLOSING = 3.0
"""Seconds that the end of a connection may take, for what was not sent yet."""
WAIT = 0.3
"""Seconds of --wait: for messages, before the server is asked, within --timeout, whether it is there at all."""

#: path of a command -> the arguments with which it asks the server. FOLDER is one of its own.
WAITS: dict[str, str] = {
    "pub": "x y", "request": "x y", "rtt": "", "bench": "--messages 1", "next": f"S C --wait {WAIT}",
    "stream ls": "", "stream info": "S", "stream add": "S --subjects x",
    "stream edit": "S --max-age 1h", "stream rm": "S -f", "stream purge": "S -f",
    "stream subjects": "S", "stream view": "S", "stream get": "S 1", "stream seal": "S -f",
    "stream gaps": "S",
    "stream backup": "S FOLDER", "stream restore": "BACKUP",
    "consumer ls": "S", "consumer report": "S", "consumer info": "S C", "consumer add": "S C",
    "consumer edit": "S C --ack-wait 1m", "consumer rm": "S C -f", "consumer pause": "S C 60", "consumer resume": "S C",
    "consumer reset": "S C", "consumer unpin": "S C G", "consumer next": f"S C --wait {WAIT}",
    "kv ls": "B", "kv add": "B", "kv info": "B", "kv get": "B k", "kv put": "B k v", "kv create": "B k v",
    "kv update": "B k v 1", "kv del": "B k -f", "kv purge": "B k -f", "kv history": "B k", "kv compact": "B -f",
    "kv watch": "B --once", "kv edit": "B --history 2",
    "object ls": "B", "object add": "B", "object put": "B FILE", "object get": "B o --output FOLDER",
    "object info": "B o", "object del": "B o -f", "object seal": "B -f",
    "service ls": "", "service info": "", "service stats": "",
    "group ls": "S", "group info": "S G", "group create": "S G --partitions 2", "group add": "S G m",
    "group drop": "S G m", "group step-down": "S G m", "group rm": "S G -f",
    "lock ls": "", "lock release": "l -f",
    "dead ls": "", "dead report": "", "dead show": "1", "dead replay": "-f", "dead purge": "-f",
    "check": "", "top": "--once --interval 0.01",
    **{
        f"check {kind}": words
        for kind, words in {
            "connection": "", "jetstream": "", "stream": "--stream S", "consumer": "--stream S --consumer C",
            "kv": "--bucket B", "request": "--subject x",
        }.items()
    },
}  # fmt: skip

#: Exit status where it is another than 1. What asks all there are, and hears of none, cannot tell silence from absence.
STATUS = {
    **dict.fromkeys(("request", "service ls", "service info", "service stats"), 3),
    **{
        f"check {kind}": 2 if kind in ("connection", "request") else 3
        for kind in ("connection", "jetstream", "stream", "consumer", "kv", "request")
    },
}  # fmt: skip

#: These go on until they are ended, or ask no server.
OTHERS = {
    "sub", "events", "worker", "object watch", "server run", "completion",
    "context ls", "context info", "context select", "context unselect", "context add", "context copy", "context edit",
    "context validate", "context rm", "errors lookup", "check credential",
    "backup inspect", "backup verify",
}  # fmt: skip


def commands(parsed: argparse.ArgumentParser, path: str = "") -> Iterator[str]:
    """Paths of all commands, each in its first spelling."""
    deeper = [action for action in parsed._actions if isinstance(action, argparse._SubParsersAction)]
    if not deeper or not deeper[0].required:
        yield path
    if not deeper:
        return
    seen = set()
    for name, made in deeper[0].choices.items():
        if id(made) not in seen:
            seen.add(id(made))
            yield from commands(made, f"{path} {name}".strip())


def test_every_command_is_in_one_of_the_tables() -> None:
    known = {path.replace("obj ", "object ").replace("micro ", "service ") for path in commands(parser())}
    assert known == {*WAITS, *OTHERS}


@pytest.fixture
def folder(server: NatsServer, tmp_path: Path) -> Path:
    """With a backup."""
    from jsclient import backup
    from jsclient.jetstream import JetStream, StreamConfig

    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        stream = js.create_stream(StreamConfig(name="BACKED", subjects=["backed"]))
        js.publish("backed", b"x")
        backup.backup_stream(js, "BACKED", tmp_path / "backups" / "BACKED")
        stream.delete()
    (tmp_path / "file").write_bytes(b"x")
    return tmp_path


def test_every_command_ends_within_its_timeout(server: NatsServer, folder: Path) -> None:
    # One of four in the short tier.
    chosen = [(path, text) for number, (path, text) in enumerate(WAITS.items()) if FULL or number % 4 == 0]
    found: queue.SimpleQueue[tuple[str, float, Any]] = queue.SimpleQueue()
    real = jsclient.connect

    def run(path: str, text: str, number: int) -> None:
        places = {"FOLDER": folder / f"new-{number}", "BACKUP": folder / "backups" / "BACKED"}
        places["FILE"] = folder / "file"
        arguments = [str(places.get(word, word)) for word in text.split()]
        with Proxy(server.port) as proxy:

            def connect(**options: Any) -> jsclient.Connection:
                options["servers"] = proxy.url
                if path not in connected:  # so many at once take longer; their time begins when the server is silent
                    options["connect_timeout"] = 60.0
                nc = real(**options)
                connected.add(path)
                proxy.stall("down")
                silent[path] = time.monotonic()
                return nc

            connects[threadname()] = connect
            silent[path] = time.monotonic()  # for a command that does not get as far as a connection
            try:
                status: Any = main([*path.split(), *arguments, "--timeout", str(TIMEOUT)])
            except SystemExit as end:
                status = f"exit {end.code}"
            except BaseException as error:
                status = error
            # Not from its start: so many at once read their arguments and connect for more than a second.
            found.put((path, time.monotonic() - silent[path], status))

    connects: dict[str, Any] = {}
    silent: dict[str, float] = {}
    connected: set[str] = set()
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with (
        mock.patch.dict(os.environ, environ(server.url), clear=True),
        mock.patch.multiple(sys, stdin=io.StringIO(), stdout=out, stderr=out),
        mock.patch("jsclient.connect", lambda **options: connects[threadname()](**options)),
        Lateness() as lateness,
        ThreadPoolExecutor(24) as pool,
    ):
        for number, (path, text) in enumerate(chosen):
            pool.submit(run, path, text, number)
    late, odd = [], []
    for _ in chosen:
        path, took, status = found.get_nowait()
        waits = WAIT if "--wait" in WAITS[path] else 0.0
        if took > waits + TIMEOUT + CLOSING + ALLOWED + 3 * lateness.worst:
            late.append(f"{path}: {took:.2f} s ({status!r})")
        if status != STATUS.get(path, 1):
            odd.append(f"{path}: {status!r}")
    assert not late, f"the machine was up to {lateness.worst:.2f} s late: {sorted(late)}"
    assert not odd, sorted(odd)
    assert connected == {path for path, _ in chosen}


def threadname() -> str:
    return threading.current_thread().name


@pytest.mark.parametrize("command", ["rtt", "req x y", "service ls", "check connection"])
def test_connecting_ends_within_the_timeout(server: NatsServer, command: str) -> None:
    """With status 1, also where an answer of nobody has another one, and 2 for a check: this server is not there."""
    began: list[float] = []
    real = jsclient.connect

    def connect(**options: Any) -> jsclient.Connection:
        began.append(time.monotonic())
        return real(**options)

    with Proxy(server.port) as proxy, Lateness() as lateness:
        proxy.stall()
        with mock.patch.dict(os.environ, environ(proxy.url), clear=True), mock.patch("jsclient.connect", connect):
            assert main([*command.split(), "--timeout", str(TIMEOUT)]) == (2 if "check" in command else 1)
        # Not from its start: reading the arguments of all commands takes a busy machine longer than what is allowed.
        took = time.monotonic() - began[0]
        assert took < TIMEOUT + ALLOWED + 3 * lateness.worst
