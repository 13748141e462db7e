"""`jsclient worker`: wrong settings are found before the first message, and limits replace a process."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.live.test_cli import cli, environ
from tests.live.test_worker_service import Service

import jsclient
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer, wait_until

APP = """
import os
import time

tried = set()

def handle(message):
    text = message.data.decode()
    with open("log", "a") as log:
        print(os.getpid(), text, time.time(), file=log)
    if text == "hang" and message.num_delivered == 1:
        time.sleep(60)
    if text.startswith("fail") and message.num_delivered == 1:
        raise RuntimeError
"""


@pytest.fixture
def js(js: JetStream) -> JetStream:
    stream = js.create_stream(StreamConfig(name="JOBS", subjects=["jobs.*"]))
    stream.create_consumer(ConsumerConfig(durable_name="workers", ack_wait=1.0))
    stream.create_push_consumer(ConsumerConfig(durable_name="pushed", deliver_subject="to.me"))
    stream.create_consumer(ConsumerConfig(durable_name="acks-all", ack_policy="all"))
    return js


def test_wrong_settings_are_one_sentence_before_the_first_message(
    js: JetStream, server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong_syntax.py").write_text("def handle(message:\n    pass\n")
    (tmp_path / "wrong_code.py").write_text("1 / 0\n")
    cases = {
        ("wrong_syntax:handle", "workers"): ("SyntaxError", "wrong_syntax.py, line 1"),
        ("wrong_code:handle", "workers"): ("ZeroDivisionError: division by zero",),
        ("json:dumps", "pushed"): ("is a push consumer; a worker needs a pull consumer",),
        ("json:dumps", "acks-all"): ("needs ack policy explicit",),
        ("json:dumps", "workers", "--dead-letter", "dead.jobs"): (
            "no stream stores the dead letters of 'dead.jobs'",
            "jsclient stream add DEAD --subjects dead.jobs",
        ),
        ("json:dumps", "workers", "--jitter", "2"): ("jitter must be from 0 to 1",),
    }
    for (handler, consumer, *more), texts in cases.items():
        done = cli(server, "worker", handler, "--stream", "JOBS", "--consumer", consumer, *more)
        assert done.returncode == 2, done.stderr
        assert all(text in done.stderr for text in texts), done.stderr
        assert done.stderr.count("\n") == 1, done.stderr


def test_the_default_stop_timeout_is_below_that_of_kubernetes() -> None:
    found = re.search(r"running handlers \(default (\d+)\)", " ".join(cli("", "worker", "--help").stdout.split()))
    assert found is not None
    assert int(found[1]) + 5 < 30, "the parent kills 5 s later"


@pytest.mark.slow
def test_a_process_is_replaced_after_its_messages(js: JetStream, server: NatsServer, tmp_path: Path) -> None:
    words = ("--consumer", "workers", "--threads", "1", "--max-tasks-per-child", "3")
    with Service(server, tmp_path, *words, app=APP) as service:
        for number in range(7):
            js.publish("jobs.a", str(number))
        wait_until(lambda: len(service.log()) >= 7, 20)
        assert sorted(text for _, text, _ in service.log()) == [str(number) for number in range(7)]
        counts = [len(list(calls)) for _, calls in itertools.groupby(pid for pid, *_ in service.log())]
        assert counts == [3, 3, 1]
        assert service.health()["restarts"] == 0
        assert service.end()[0] == 0


def test_a_message_that_takes_too_long_costs_its_process(js: JetStream, server: NatsServer, tmp_path: Path) -> None:
    words = ("--consumer", "workers", "--threads", "2", "--time-limit", "0.3", "--stop-timeout", "0.5")
    with Service(server, tmp_path, *words, app=APP) as service:
        js.publish("jobs.a", "hang")
        wait_until(lambda: len(service.log()) == 2, 20)
        (first, *_), (second, *_) = service.log()
        assert first != second
        wait_until(lambda: js.consumer_info("JOBS", "workers").num_ack_pending == 0, 10)
        code, stderr = service.end()
        assert code == 0
        assert "has reached its limit" in stderr
        assert "was cut off; the server delivers the message again" in stderr


def test_a_stop_names_what_it_waits_for_and_cuts_off(js: JetStream, server: NatsServer, tmp_path: Path) -> None:
    with Service(server, tmp_path, "--consumer", "workers", "--stop-timeout", "1.2", app=APP) as service:
        js.publish("jobs.a", "hang")
        wait_until(lambda: len(service.log()) == 1, 20)
        code, stderr = service.end()
    assert code == 1
    assert "running handlers may end within 1.2 s" in stderr
    assert "waits up to 1.2 s for 1 handlers" in stderr
    assert re.search(r"the handler of <.*jobs.a.*> was cut off", stderr), stderr


@pytest.mark.slow
def test_jitter_spreads_the_next_attempts(js: JetStream, server: NatsServer, tmp_path: Path) -> None:
    words = ("--consumer", "workers", "--threads", "16", "--backoff", "0.4", "--jitter", "1")
    with Service(server, tmp_path, *words, app=APP) as service:
        for number in range(16):
            js.publish_async("jobs.a", f"fail{number}")
        js.publish_async_complete(10)
        wait_until(lambda: len(service.log()) == 32, 20)
        times: dict[str, list[float]] = {}
        for _, text, when in service.log():
            times.setdefault(text, []).append(float(when))
        delays = [second - first for first, second in times.values()]
        assert max(delays) - min(delays) > 0.2, delays
        assert service.end()[0] == 0


@pytest.mark.slow
def test_a_service_may_start_before_its_server(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    words = ["worker", "app:handle", "--stream", "JOBS", "--consumer", "workers"]
    said, logged = tmp_path / "said", tmp_path / "logged"
    with NatsServer() as own, said.open("w") as out, logged.open("w") as err:
        with jsclient.connect(own.url) as nc:
            stream = JetStream(nc).create_stream(StreamConfig(name="JOBS", subjects=["jobs.*"]))
            stream.create_consumer(ConsumerConfig(durable_name="workers"))
        own.stop()
        environment = {**environ(own.url), "PYTHONPATH": str(Path(jsclient.__file__).parents[1])}
        command = [sys.executable, "-m", "jsclient", *words]
        with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=out, stderr=err) as process:
            try:
                wait_until(lambda: "The processes try again" in logged.read_text(), 20)
                own.start()
                wait_until(lambda: "1 process works" in said.read_text(), 40)
                process.terminate()
                assert process.wait(20) == 0
            finally:
                process.kill()
