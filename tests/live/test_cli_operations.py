"""The commands for operating: requests, services, events, servers, checks and the live view."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import attrs
import pytest
from tests.live.test_cli import cli, environ, lines

import jsclient
from jsclient import coordination, errors, services
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.monitor import Monitor
from jsclient.testing import NatsServer, Proxy, wait_until
from jsclient.waiting import Gate

ACCOUNTS = """
system_account: SYS
no_auth_user: app
accounts {
  SYS: { users: [{user: sys, password: s}] }
  APP: { jetstream: enabled, users: [{user: app, password: a}] }
}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with NatsServer(ACCOUNTS, name="alone") as running:
        yield running


def test_requests_and_answers(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        with nc.subscribe("cli.ask", lambda message: message.respond(b"got " + message.data)):
            nc.flush()
            assert cli(server, "request", "cli.ask", "x", "--raw").stdout == "got x"
    assert cli(server, "req", "cli.nobody", "x").returncode == 1


def test_services_are_listed(server: NatsServer) -> None:
    assert cli(server, "service", "ls").returncode == 3
    with jsclient.connect(server.url) as nc:
        config = services.ServiceConfig(name="adder", version="1.0.0", description="adds")
        with services.add_service(nc, config) as service:
            service.add_endpoint("add", lambda request: request.respond(b"3"))
            assert cli(server, "request", "add", "1 2", "--raw").stdout == "3"
            assert "adder" in cli(server, "service", "ls").stdout
            assert "adder" in cli(server, "micro", "ls").stdout
            assert lines(cli(server, "service", "info", "adder", "--json"))[0]["endpoints"][0]["subject"] == "add"
            assert lines(cli(server, "service", "stats", "--json"))[0]["endpoints"][0]["num_requests"] == 1
            assert "add" in cli(server, "service", "stats").stdout


def test_events_are_printed(server: NatsServer, js: JetStream) -> None:
    command = [sys.executable, "-m", "jsclient", "events", "--count", "1", "--json", "--stream", "EV"]
    with subprocess.Popen(command, env=environ(server.url), stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            js.create_stream(StreamConfig(name="EV", storage="memory"))
            js.delete_stream("EV")
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["stream"] == "EV"
    assert cli(server, "events", "--wait", "0.1").returncode == 3


def test_the_time_of_a_round_trip(server: NatsServer) -> None:
    assert lines(cli(server, "rtt", "--json"))[0]["server"] == "alone"


def test_check_says_what_is_wrong(server: NatsServer, js: JetStream) -> None:
    fine = cli(server, "check")
    assert fine.returncode == 0, fine.stdout
    assert "answers reach us" in fine.stdout
    down = cli("nats://127.0.0.1:1", "check")
    assert down.returncode == 1
    assert "-> is the server up" in down.stdout


def checked(server: NatsServer, between: Callable[[Proxy], None], *arguments: str) -> dict[str, Any]:
    """What `check` finds, by name, when the line becomes what `between` makes of it once the link is there."""
    real = jsclient.connect

    def connect(**options: Any) -> jsclient.Connection:
        nc = real(**options)
        between(proxy)
        return nc

    with Proxy(server.port) as proxy, mock.patch("jsclient.connect", connect):
        start = time.monotonic()
        done = cli(proxy.url, "check", "--json", *arguments)
        took = time.monotonic() - start
    assert took < 10 + 3, "it ends in ten seconds, and closes its connection"
    return {one["what"]: one for one in lines_of(done)}


@pytest.mark.slow
def test_check_of_a_slow_server_says_what_it_could_not_see(server: NatsServer, js: JetStream) -> None:
    slow = checked(server, lambda proxy: proxy.delay(0.3))
    assert slow["round trip"]["level"] == "warn"
    assert {name: one["level"] for name, one in slow.items() if one["level"] == "fail"} == {}
    # Each answer takes 2.8 s: after the third there is no time left, and none of it is a finding about rights.
    slower = checked(server, lambda proxy: proxy.delay(1.4), "--timeout", "4")
    assert slower["round trip"]["level"] == "warn"
    assert slower["inbox"]["level"] == slower["JetStream"]["level"] == "ok"
    assert slower["delivery"]["text"] == "not looked at whole: the time was over"
    silent = checked(server, lambda proxy: proxy.stall("down"), "--timeout", "1")
    assert {one["advice"] for one in silent.values() if one["level"] == "fail"} == {
        "is the server overloaded, or the line cut?"
    }


def test_check_of_a_user_with_few_rights(js: JetStream) -> None:
    """To listen on an inbox is what answers need; to publish there is nobody's business."""
    rights = 'publish: ["$JS.API.INFO", "$JS.API.STREAM.NAMES"], subscribe: ["_INBOX.>"]'
    accounts = (
        f"accounts {{ A {{ jetstream: enabled, users: [{{user: few, password: p, permissions: {{{rights}}}}}] }} }}"
    )
    with NatsServer(accounts) as own:
        told = {one["what"]: one for one in lines_of(cli(own, "check", "--json", "--user", "few", "--password", "p"))}
        assert told["inbox"]["level"] == "ok"
        assert told["JetStream"]["level"] == "ok"


def test_locks_are_shown_and_taken_away(server: NatsServer, js: JetStream) -> None:
    ttl = 5.0
    kv = coordination.lease_bucket(js, ttl=ttl)
    assert cli(server, "lock", "ls").stdout == "nothing is held\n"
    assert cli(server, "lock", "release", "report", "-f").returncode == 3
    lost = Gate()
    lease = coordination.Lock(kv, "report", ttl=ttl, on_lost=lambda lease: lost.set()).acquire(5)
    (held,) = lines(cli(server, "lock", "ls", "--json"))
    assert (held["key"], held["pid"]) == ("report", os.getpid())
    assert str(os.getpid()) in cli(server, "lock", "list").stdout
    asked = cli(server, "lock", "release", "report")
    assert asked.returncode == 2
    assert "--force" in asked.stderr
    assert "released report" in cli(server, "lock", "release", "report", "--force").stdout
    with coordination.Lock(kv, "report", ttl=ttl).acquire(5) as successor:
        assert successor.token > lease.token
        assert lost.wait(30), "the holder learns at its next renewal that it was taken away"
        assert not lease.valid
        # What was read before is not taken away from somebody else.
        (theirs,) = coordination.holders(kv)
        lease_before = attrs.evolve(theirs, revision=theirs.revision - 1)
        with pytest.raises(errors.RevisionMismatch):
            coordination.evict(kv, lease_before)
        assert successor.valid
    kv.put("foreign", b"{")
    assert [(one.key, one.host) for one in coordination.holders(kv)] == [("foreign", None)]
    js.delete_stream("KV_leases")


def test_a_lock_may_be_renewed_while_the_question_is_answered(server: NatsServer, js: JetStream) -> None:
    ttl = 2.0 if server.version >= (2, 11) else 5.0  # before, the whole bucket has one time
    kv = coordination.lease_bucket(js, ttl=ttl)
    coordination.Lock(kv, "report", ttl=ttl).acquire(5)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "jsclient", "lock", "release", "report"]
    with subprocess.Popen(command, env=environ(server.url), stdin=theirs, stdout=theirs, stderr=theirs) as process:
        asked = b""
        while not asked.endswith(b"[y/N] "):
            asked += os.read(ours, 4096)
        (read,) = coordination.holders(kv)
        wait_until(lambda: coordination.holders(kv)[0].revision > read.revision, 10)
        os.write(ours, b"y\n")
        assert process.wait(30) == 0
    os.close(ours)
    os.close(theirs)
    assert coordination.holders(kv) == []
    js.delete_stream("KV_leases")


def test_checks_for_monitoring_systems(server: NatsServer, js: JetStream) -> None:
    fine = cli(server, "check", "connection", "--connect-warn", "1m", "--connect-critical", "1m")
    assert fine.returncode == 0, fine.stdout
    assert fine.stdout.startswith("OK connection: as it should be | connect_time=")
    (slow,) = [json.loads(cli(server, "check", "connection", "--rtt-critical", "1ns", "--json").stdout)]
    assert slow["status"] == "CRITICAL"
    assert cli("nats://127.0.0.1:1", "check", "connection").returncode == 2
    assert cli("nats://127.0.0.1:1", "check", "stream", "--stream", "MON").returncode == 3
    assert cli(server, "check", "stream", "--stream", "MON").returncode == 2
    assert cli(server, "check", "stream").returncode == 3, "wrong usage is not a critical stream"

    stream = js.create_stream(StreamConfig(name="MON", subjects=["mon"], storage="memory"))
    js.publish("mon", b"1")
    js.publish("mon", b"2")

    def stream_check(*limits: str) -> int:
        return cli(server, "check", "stream", "--stream", "MON", *limits).returncode

    assert stream_check() == 0
    assert stream_check("--msgs-warn", "3") == 1
    assert stream_check("--msgs-warn", "3", "--msgs-critical", "3") == 2
    assert stream_check("--subjects-critical", "0") == 2
    assert stream_check("--msgs-critical", "2") == 0

    consumer = stream.create_consumer(ConsumerConfig(durable_name="c"))

    def consumer_check(*limits: str) -> int:
        return cli(server, "check", "consumer", "--stream", "MON", "--consumer", "c", *limits).returncode

    assert consumer_check("--unprocessed-critical", "2", "--outstanding-ack-critical", "0") == 0
    assert consumer_check("--unprocessed-critical", "1") == 2
    assert consumer_check("--last-delivery-critical", "1h") == 2, "there was none"
    consumer.next(5).double_ack()
    assert consumer_check("--last-delivery-critical", "1h", "--last-ack-critical", "1h") == 0
    assert consumer_check("--last-delivery-critical", "1us") == 2
    assert consumer_check("--pinned") == 2
    stream.delete_consumer("c")
    assert consumer_check() == 2


def lines_of(done: subprocess.CompletedProcess[str]) -> list[dict[str, str]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_monitor_knows_rates_and_lag_with_few_requests(js: JetStream) -> None:
    for number in range(30):
        js.create_stream(StreamConfig(name=f"M{number}", storage="memory"))
        js.create_consumer(f"M{number}", ConsumerConfig(durable_name="c"))
    monitor = Monitor(js)
    first = monitor.snapshot()
    assert len(first.streams) == 30
    assert first.requests <= 20
    for _ in range(10):
        js.publish("M7", b"x")
    monitor.first = ["M7"]
    second = monitor.snapshot()
    assert second.requests <= 20
    assert len(second.consumers) == 30  # all have had their turn
    (stream,) = [row for row in second.streams if row.name == "M7"]
    (consumer,) = [row for row in second.consumers if row.stream == "M7"]
    assert stream.in_per_second is not None
    assert stream.in_per_second > 0
    assert (consumer.lag, consumer.trouble) == (10, "nobody pulls")
    js.delete_stream("M7")
    third = monitor.snapshot()
    assert not [row for row in third.consumers if row.stream == "M7"]


def test_a_server_that_is_not_installed_is_one_sentence(server: NatsServer) -> None:
    before = signal.getsignal(signal.SIGINT)  # another test of this process may have set one, as Spark does
    done = cli(server, "server", "run", "--port", "0", NATS_SERVER="/nowhere/nats-server", PATH="")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert signal.getsignal(signal.SIGINT) is before, "the handlers are those of before"


def test_a_port_that_is_in_use_is_one_sentence(server: NatsServer) -> None:
    done = cli(server, "server", "run", "--port", str(server.port))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert f"port {server.port} is in use" in done.stderr
    assert "--port" in done.stderr


def test_a_server_that_cannot_start_is_no_traceback(server: NatsServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = cli(server, "server", "run", "--port", "0", "--store", str(tmp_path / "file" / "store"))
    assert done.returncode == 1
    assert "nats-server did not start" in done.stderr
    assert "Traceback" not in done.stderr
