"""`jsclient worker`: processes that share the work, crash, are replaced and stop."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.live.test_cli import cli, environ

import jsclient
from jsclient import groups
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer, wait_until

APP = """
import os

def handle(message):
    if message.data == b"kill":
        os.kill(os.getpid(), 9)
    with open("log", "a") as log:
        print(os.getpid(), VERSION, message.subject, message.data.decode(), file=log)

def customer(message):
    return message.subject.split(".")[1]

VERSION = 1
nothing = 3
"""


@pytest.fixture
def js(js: JetStream) -> JetStream:
    stream = js.create_stream(StreamConfig(name="JOBS", subjects=["jobs.*"]))
    stream.create_consumer(ConsumerConfig(durable_name="workers", ack_wait=1.0))
    js.create_stream(StreamConfig(name="DEAD", subjects=["dead.>"]))
    return js


class Service:
    """A running `jsclient worker` in a folder of its own."""

    def __init__(self, server: NatsServer, folder: Path, *arguments: str, app: str = APP) -> None:
        self.folder = folder
        (folder / "app.py").write_text(app)
        where = () if "--http" in arguments else ("--stream", "JOBS", "--http", "127.0.0.1:0")
        command = [sys.executable, "-m", "jsclient", "worker", "app:handle", *where]
        root = str(Path(jsclient.__file__).parents[1])
        environment = {**environ(server.url), "PYTHONPATH": root}
        self.process = subprocess.Popen(
            [*command, *arguments],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        found = re.search(r"http on port (\d+)", self.said)
        self.port = int(found.group(1)) if found else 0

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def health(self) -> Any:
        return json.loads(self.get("/healthz")[1])

    def log(self) -> list[list[str]]:
        log = self.folder / "log"
        # Whole lines: a process may be writing the last one.
        return [line.split() for line in log.read_text().split("\n")[:-1]] if log.exists() else []

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, stderr = self.process.communicate(timeout=30)
        return self.process.returncode, stderr

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=30)


def test_processes_share_the_work_are_replaced_and_stop(js: JetStream, server: NatsServer, tmp_path: Path) -> None:
    with Service(server, tmp_path, "--consumer", "workers", "--processes", "2", "--threads", "2") as service:
        assert service.said.startswith("2 processes work"), service.end()
        for number in range(200):
            js.publish_async("jobs.a", str(number))
        js.publish_async_complete(10)
        wait_until(lambda: len(service.log()) == 200, 20)
        before = {pid for pid, *_ in service.log()}
        assert service.get("/healthz")[0] == 200
        wait_until(lambda: sum(told["handled"] for told in service.health()["processes"]) == 200, 10)
        status, page = service.get("/metrics")
        if status == 200:
            assert re.search(r'jsclient_pool_handled_total\{process="1"\} \d', page)
        else:
            assert "jsclient[metrics]" in page
        assert service.get("/other")[0] == 404

        (tmp_path / "app.py").write_text(APP.replace("VERSION = 1", "VERSION = 22"))
        service.process.send_signal(signal.SIGHUP)

        def one_more() -> bool:
            js.publish("jobs.a", "more")
            return {version for _, version, *_ in service.log()[-4:]} == {"22"}

        wait_until(one_more, 20)
        wait_until(lambda: not any(_lives(pid) for pid in before), 20)
        assert service.health()["restarts"] == 0
        code, stderr = service.end()
        assert code == 0, stderr
    wait_until(lambda: js.consumer("JOBS", "workers").info().num_ack_pending == 0, 10)


def _lives(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_a_message_that_kills_its_process_goes_to_the_dead_letters(
    js: JetStream, server: NatsServer, tmp_path: Path
) -> None:
    """After `attempts` and five more deliveries that nobody finished; all others are handled meanwhile."""
    options = ("--consumer", "workers", "--threads", "2", "--attempts", "1", "--dead-letter", "dead.jobs")
    with Service(server, tmp_path, *options) as service:
        js.publish("jobs.a", "before")
        js.publish("jobs.a", "kill")
        for number in range(10):
            js.publish("jobs.a", str(number))
        wait_until(lambda: js.stream("DEAD").info().state.messages == 1, 50)
        letter = js.stream("DEAD").get_msg(1)
        assert letter.data == b"kill"
        wait_until(lambda: {data for *_, data in service.log()} == {"before", *map(str, range(10))}, 20)
        assert service.health()["restarts"] == 7 - 1
        code, stderr = service.end()
        assert code == 0
        assert stderr.count("was killed by signal 9") == 6


def test_a_group_keeps_order_in_processes(js: JetStream, server: NatsServer, tmp_path: Path) -> None:
    if server.version < (2, 11):
        pytest.skip("partitioned groups begin with nats-server 2.11")
    groups.create_elastic(js, "JOBS", "work", partitions=4, filters=[groups.Filter("jobs.*", [1])])
    options = ("--group", "work", "--key", "app:customer", "--processes", "2", "--threads", "4")
    with Service(server, tmp_path, *options) as service:
        for number in range(20):
            for key in range(10):
                js.publish_async(f"jobs.k{key}", str(number))
        js.publish_async_complete(10)
        wait_until(lambda: len(service.log()) == 200, 30)
        code, stderr = service.end()
        assert code == 0, stderr
    for key in range(10):
        assert [int(data) for *_, subject, data in service.log() if subject == f"jobs.k{key}"] == list(range(20))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("no_such:handle", "--consumer", "workers"), "cannot be loaded"),
        (("json:nothing", "--consumer", "workers"), "cannot be loaded"),
        (("json", "--consumer", "workers"), "MODULE:FUNCTION"),
        (("json:__name__", "--consumer", "workers"), "must be a function"),
        (("json:dumps", "--consumer", "workers", "--key", "json:dumps"), "--key needs --group"),
        (("json:dumps", "--consumer", "workers", "--processes", "0"), "--processes is a number"),
    ],
)
def test_wrong_usage_is_said_before_anything_starts(server: NatsServer, arguments: tuple[str, ...], says: str) -> None:
    done = cli(server, "worker", *arguments, "--stream", "JOBS")
    assert done.returncode == 2
    assert says in done.stderr


def test_a_service_without_its_consumer_ends(server: NatsServer, js: JetStream) -> None:
    js.delete_consumer("JOBS", "workers")
    done = cli(server, "worker", "json:dumps", "--stream", "JOBS", "--consumer", "workers")
    assert done.returncode == 3
    assert "consumer not found" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_worked_example_of_the_chapter(js: JetStream, server: NatsServer, tmp_path: Path) -> None:
    """Three processes, a rolling deploy and a crash: every customer's orders in order, none lost."""
    if server.version < (2, 11):
        pytest.skip("partitioned groups begin with nats-server 2.11")
    chapter = (Path(jsclient.__file__).parent / "workers" / "README.md").read_text(encoding="utf-8")
    (app,) = re.findall(r"^```python\n(# app\.py\n.*?)^```", chapter, re.MULTILINE | re.DOTALL)
    (shell,) = re.findall(r"^```sh\n(jsclient stream add BOOKINGS .*?)^```", chapter, re.MULTILINE | re.DOTALL)
    *before, work = (shlex.split(command)[1:] for command in shell.replace("\\\n", " ").strip().splitlines())
    work[work.index("--http") + 1] = "127.0.0.1:0"
    for command in before:
        assert cli(server, *command).returncode == 0
    published: dict[str, list[str]] = {}

    def order(numbers: range) -> None:
        for number in numbers:
            for customer in range(15):
                data = "unlucky" if number == 7 and customer % 5 == 0 else str(number)
                js.publish(f"bookings.c{customer}.new", data)
                published.setdefault(f"c{customer}", []).append(data)

    def booked() -> dict[str, list[str]]:
        ledger = tmp_path / "ledger"
        found: dict[str, list[str]] = {}
        for line in ledger.read_text().splitlines() if ledger.exists() else []:
            customer, data, _ = line.split()
            if data not in found.setdefault(customer, []):  # at least once: a crash repeats what was not acked
                found[customer].append(data)
        return found

    with Service(server, tmp_path, *work[2:], app=app) as service:
        assert service.said.startswith("3 processes work"), service.end()
        order(range(20))
        wait_until(lambda: len(groups.open_group(js, "BOOKINGS", "ledger").config().members) == 3, 30)
        wait_until(lambda: booked() == published, 30)
        members = groups.open_group(js, "BOOKINGS", "ledger").config().members

        service.process.send_signal(signal.SIGHUP)  # a rolling deploy
        order(range(20, 40))
        wait_until(lambda: not set(members) & set(groups.open_group(js, "BOOKINGS", "ledger").config().members), 40)
        wait_until(lambda: booked() == published, 40)

        wait_until(lambda: len(children(service.process.pid)) == 3, 30)  # the last predecessor has ended, too
        os.kill(children(service.process.pid)[0], signal.SIGKILL)  # a crash
        order(range(40, 60))
        wait_until(lambda: service.health()["restarts"] == 1, 20)
        wait_until(lambda: booked() == published, 60)
        wait_until(lambda: service.get("/readyz")[0] == 200, 20)
        code, stderr = service.end()
        assert code == 0, stderr


def test_a_service_is_live_while_it_heals_and_ready_when_it_works(tmp_path: Path) -> None:
    with NatsServer() as own:
        with jsclient.connect(own.url) as nc:
            stream = JetStream(nc).create_stream(StreamConfig(name="JOBS", subjects=["jobs.*"]))
            stream.create_consumer(ConsumerConfig(durable_name="workers"))
        with Service(own, tmp_path, "--consumer", "workers", "--processes", "2") as service:
            wait_until(lambda: service.get("/readyz")[0] == 200, 20)

            os.kill(children(service.process.pid)[0], signal.SIGKILL)
            wait_until(lambda: service.get("/readyz")[0] == 503, 10)
            assert service.get("/healthz")[0] == 200
            wait_until(lambda: service.get("/readyz")[0] == 200, 20)

            own.stop()
            wait_until(lambda: service.get("/readyz")[0] == 503, 10)
            assert service.get("/healthz")[0] == 200
            assert not json.loads(service.get("/readyz")[1])["ready"]
            own.start()
            wait_until(lambda: service.get("/readyz")[0] == 200, 20)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
