"""What a look of `jsclient top` costs: requests, and CPU."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.live.terminal import Terminal
from tests.live.test_cli import cli, environ, lines

import jsclient
from jsclient.cli.output import width_of
from jsclient.cli.top import CONSUMERS, STREAMS, arranged, layout, spark
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.monitor import Monitor
from jsclient.testing import NatsServer, wait_until

Count = Callable[[int, int], int]

INTERVAL = 2.0
"""Seconds between two looks of `jsclient top`."""


def test_a_look_costs_few_requests_and_little_cpu(js: JetStream, server: NatsServer, count: Count) -> None:
    """100 streams and 1,000 consumers: below 20 requests, and below 2 % of a core.

    The cheapest look counts of those that know all consumers (the first do not): a loaded machine takes up to twice
    the CPU for the same work.
    """
    streams = count(100, 10)
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        for number in range(streams):
            stream = js.create_stream(StreamConfig(name=f"T{number}", storage="memory"))
            for name in "abcdefghij":
                stream.create_consumer(ConsumerConfig(durable_name=name))
        monitor = Monitor(js)
        monitor.snapshot()
        looks, sent, used = 30, nc.stats().messages_out, []
        for _ in range(looks):
            start = time.process_time()
            monitor.first = [f"T{number}" for number in range(5)]
            snapshot = monitor.snapshot()
            assert snapshot.requests < 20
            layout(arranged(snapshot.streams, STREAMS, "t", "")[:50], STREAMS, "t", 160)
            layout(arranged(snapshot.consumers, CONSUMERS, "t", "")[:50], CONSUMERS, "t", 160)
            if len(snapshot.consumers) == 10 * streams:
                used.append(time.process_time() - start)
        per_look = min(used)
        sent = nc.stats().messages_out - sent
        assert sent < 20 * looks, "counted on the connection, too"
        assert len(snapshot.streams) == streams
        assert len(used) >= 20, "all consumers are known soon"
        print(f"{sent / looks:.1f} requests and {per_look * 1000:.1f} ms of CPU per look")
        assert per_look < 0.02 * INTERVAL


def shows(terminal: Terminal, text: str, row: int = 0, begins: str = "") -> list[str]:
    """Wait until a text is on the screen, and a row begins as said; the screen."""

    def drawn() -> bool:
        assert terminal.read(0.2), "it has ended"
        rows = terminal.rows
        return any(text in one for one in rows) and rows[row].startswith(begins)

    wait_until(drawn, 20)
    return terminal.rows


def top(server: NatsServer, columns: int = 80, lines: int = 24, more: dict[str, str] | None = None) -> Terminal:
    return Terminal(["top", "--interval", "0.2"], environ(server.url, **(more or {})), columns, lines)


def test_trouble_comes_first_and_is_never_cut(js: JetStream, server: NatsServer) -> None:
    for number in range(4):
        js.create_stream(StreamConfig(name=f"S{number}", subjects=[f"s{number}"], storage="memory"))
    long = "the-consumer-of-the-accounting-department-in-the-second-building"
    js.create_consumer("S2", ConsumerConfig(durable_name=long, max_ack_pending=1))
    js.create_consumer("S0", ConsumerConfig(durable_name="well"))
    for _ in range(2):
        js.publish("s2", b"x")
    js.consumer("S2", long).next(5)
    for columns in (50, 160):
        with top(server, columns) as terminal:
            shows(terminal, "1-4 of 4")
            terminal.type("2")
            shows(terminal, "stuck: acks are missing", 4, "S0/well")
            screen = shows(terminal, "1-2 of 2", 3, "S2/the-consumer")
            titles, first, second = screen[2:5]
            assert titles.split()[1] == "TROUBLE*"
            assert all(len(row) < columns for row in screen)
            assert ("S2/" + long in first) == (columns == 160)
            if columns == 160:
                end = titles.index("LAG") + len("LAG")
                assert first[:end].endswith(" 2"), "figures are on the right"
                assert second[:end].endswith(" 0")
            terminal.type("q")
            assert terminal.end() == 0


def test_keys_are_shown_sort_scroll_and_filter(js: JetStream, server: NatsServer) -> None:
    for number in range(30):
        js.create_stream(StreamConfig(name=f"T{number:02}", subjects=[f"t{number}"], storage="memory"))
    for _ in range(3):
        js.publish("t17", b"x")
    with top(server, lines=15) as terminal:
        shows(terminal, "1-10 of 30", 3, "T17")  # without trouble the fullest stream is first
        shows(terminal, "1-10 of 30", 13, "sort by  n stream  t trouble  m messages  b bytes")
        terminal.type("n")
        shows(terminal, "STREAM*", 3, "T00")
        terminal.type("\x1bOB")
        shows(terminal, "2-11 of 30", 3, "T01")
        terminal.type("\x1b[6~")
        shows(terminal, "12-21 of 30", 3, "T11")
        terminal.type("\x1bOF")
        shows(terminal, "21-30 of 30", 3, "T20")
        terminal.type("m")
        shows(terminal, "MESSAGES*", 3, "T17")
        terminal.type("/T2\n")
        shows(terminal, "1-10 of 10", 14, "1-10 of 10  /T2")
        terminal.type("q")
        assert terminal.end() == 0


def test_colors_lie_on_the_background_of_the_terminal(js: JetStream, server: NatsServer) -> None:
    js.create_stream(StreamConfig(name="C", subjects=["c"], storage="memory"))
    js.create_consumer("C", ConsumerConfig(durable_name="idle"))
    js.publish("c", b"x")
    seen = {}
    ways: dict[str, dict[str, str]] = {"colors": {}, "none": {"NO_COLOR": "1"}}
    for name, environment in ways.items():
        with top(server, more=environment) as terminal:
            shows(terminal, "1 consumer")
            terminal.type("2")
            shows(terminal, "nobody pulls")
            terminal.type("q")
            assert terminal.end() == 0
            seen[name] = {code for part in re.findall(rb"\x1b\[([0-9;]*)m", terminal.raw) for code in part.split(b";")}
    assert b"31" in seen["colors"]
    assert not {code for code in seen["colors"] if code[:1] == b"4" and code not in (b"4", b"49")}, "no background"
    assert not {code for code in seen["none"] if len(code) == 2 and code[:1] in b"349" and code != b"24"}


def test_a_look_can_be_printed(js: JetStream, server: NatsServer) -> None:
    for number in range(3):
        js.create_stream(StreamConfig(name=f"V{number}", storage="memory"))
    js.create_consumer("V1", ConsumerConfig(durable_name="c"))
    js.publish("V1", b"x")
    printed = cli(server, "top", "--once", "--interval", "0.1").stdout.splitlines()
    assert printed[1].split()[:2] == ["STREAM", "TROUBLE"]
    assert printed[2].startswith("V1"), "without trouble the fullest one is first"
    assert printed[6].split()[:3] == ["CONSUMER", "TROUBLE", "LAG"]
    assert printed[7].startswith("V1/c      nobody pulls")
    (plain,) = lines(cli(server, "top", "--json", "--interval", "0.1"))
    assert len(plain["streams"]) == 3
    assert spark([0, 5, 10]) == "▁▅█"


def test_wide_names_keep_the_columns(js: JetStream) -> None:
    for name in ("注文", "ABCD", "e\u0301cole"):
        js.create_stream(StreamConfig(name=name, storage="memory", subjects=[f"wide.{len(name)}{name[0]}"]))
    drawn = layout(arranged(Monitor(js).snapshot().streams, STREAMS, "n", ""), STREAMS, "n", 200)
    assert len({width_of(text.rpartition("  ")[0]) for text, _ in drawn[1:]}) == 1, drawn


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="CPU time is read from /proc")
def test_the_command_on_a_terminal_uses_little_cpu(server: NatsServer, count: Count) -> None:
    """The same of the whole process: what it draws, and what it asks as the server sees it."""
    looks = count(20, 5)
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        for number in range(100):
            stream = js.create_or_update_stream(StreamConfig(name=f"T{number}", storage="memory"))
            for name in "abcdefghij":
                stream.create_or_update_consumer(ConsumerConfig(durable_name=name))
        asked: Counter[str] = Counter()
        nc.subscribe("$JS.API.>", lambda message: asked.update([message.subject]))
        nc.flush()

        def seen() -> int:
            return asked["$JS.API.STREAM.LIST"]

        child, terminal = pty.fork()
        if child == 0:
            command = [sys.executable, "-m", "jsclient", "top", "--interval", str(INTERVAL)]
            os.execve(
                sys.executable, command, {**environ(server.url), "TERM": "xterm", "LINES": "50", "COLUMNS": "160"}
            )
        reading = threading.Thread(target=drain, args=(terminal,))
        reading.start()
        try:
            wait_until(lambda: seen() > 1, 30)
            os.write(terminal, b"2")  # the consumers: the larger of the two views
            first, requests, cpu, start = seen(), sum(asked.values()), cpu_of(child), time.monotonic()
            wait_until(lambda: seen() >= first + looks, 20 + 2 * INTERVAL * looks)
            share = (cpu_of(child) - cpu) / (time.monotonic() - start)
            per_look = (sum(asked.values()) - requests) / (seen() - first)
        finally:
            os.write(terminal, b"q")
            reading.join(20)
            assert os.waitpid(child, 0)[1] == 0
            os.close(terminal)
        print(f"{per_look:.1f} requests per look, {share:.2%} of a core")
        assert per_look < 20
        assert share < 0.02


def drain(terminal: int) -> None:
    """Read what is drawn, as a terminal does, until its program has ended."""
    with contextlib.suppress(OSError):
        while os.read(terminal, 65536):
            pass


def cpu_of(process: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
