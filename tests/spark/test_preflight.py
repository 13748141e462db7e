"""`jsclient.spark.check`: the table of what a job lacks, on the driver and on executors."""

from __future__ import annotations

import importlib
import json
import pickle
import sys
import time
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import jsclient
import jsclient.spark
from jsclient.spark import check, permissions, preflight, preflight_probe, preflight_server
from jsclient.spark.errors import JetStreamSparkError
from jsclient.testing import NatsServer

from .conftest import Js

READ = {"servers": "-", "stream": "ORDERS", "password": "quite-secret"}
WRITE = {"servers": "-", "subject": "orders.new", "password": "quite-secret"}
STRICT = {**WRITE, "deliverySemantics": "exactly-once"}
INFO = f'"{preflight_server.USER_INFO}"'
LITTLE = 'permissions: {{ publish: {{ allow: ["$JS.API.INFO"{more}] }}, subscribe: {{ allow: ["_INBOX.>"] }} }}'
USERS = f"""
accounts {{ A {{ jetstream: enabled, users = [
  {{ user: all, password: quite-secret }}
  {{ user: reads, password: quite-secret, {permissions({**READ, "user": "u"}, "read")} }}
  {{ user: little, password: quite-secret, {LITTLE.format(more="")} }}
  {{ user: told, password: quite-secret, {LITTLE.format(more=", " + INFO)} }}
  {{ user: deaf, password: quite-secret, permissions: {{ subscribe: {{ deny: ">" }} }} }}
] }} }}
"""


@pytest.fixture(scope="module")
def users() -> Iterator[NatsServer]:
    with NatsServer(USERS) as server:
        with jsclient.connect(server.url, user="all", password="quite-secret") as nc:
            Js(nc).create("ORDERS", subjects=["orders.>"], allow_direct=True)
        yield server


def findings(
    server: NatsServer, user: str, options: dict[str, str], way: str = "read"
) -> dict[tuple[str, str], list[str]]:
    """(level, check) -> texts, of one process."""
    given = preflight.settings_of({**options, "servers": server.url, "user": user}, way, "jetstream")
    found: dict[tuple[str, str], list[str]] = {}
    for level, what, text, _ in json.loads(preflight_probe.probe(pickle.dumps(given)))["findings"]:
        found.setdefault((level, what), []).append(text)
    return found


def test_who_may_do_everything(users: NatsServer) -> None:
    found = findings(users, "all", READ)
    assert found["ok", "stream"] == ["ORDERS"]
    assert found["ok", "permission"] == ["permitted: 8 subjects"] or users.version < (2, 10)
    assert {level for level, _ in found} == {"ok"}
    assert findings(users, "all", WRITE, "writeStream")["ok", "stream"] == ["ORDERS stores orders.new"]


def test_the_printed_permissions_are_enough(users: NatsServer) -> None:
    assert {level for level, _ in findings(users, "reads", READ)} == {"ok"}


@pytest.mark.parametrize("user", ["little", "told"])
def test_permissions_that_are_missing(users: NatsServer, user: str) -> None:
    found = findings(users, user, READ)
    (text,) = found["fail", "permission"]
    for operation in ("STREAM.INFO.ORDERS", "CONSUMER.CREATE.ORDERS.>", "CONSUMER.MSG.NEXT.ORDERS.>", "DIRECT.GET"):
        assert operation in text
    assert "$JS.API.INFO" not in text
    # The sink works without a journal, except if it has to be exactly once.
    assert ("fail", "permission") not in findings(users, "little", WRITE, "writeStream")
    assert "STREAM.CREATE.KV_spark_journal" in findings(users, user, STRICT, "writeStream")["fail", "permission"][-1]


def test_subjects_of_rows_need_the_word_of_the_server(users: NatsServer) -> None:
    """Nothing is published on them, so only the server can tell."""
    (text,) = [text for text in findings(users, "little", WRITE, "write")["warn", "permission"] if "proven" in text]
    assert text == "not proven: publish on orders.new"
    if users.version >= (2, 10):
        found = findings(users, "told", WRITE, "write")
        assert found["fail", "permission"] == ["not permitted: publish on orders.new"]


def test_an_inbox_that_is_not_permitted(users: NatsServer) -> None:
    found = findings(users, "deaf", READ)
    assert any("subscribe on _INBOX.>" in text for text in found["fail", "permission"])


def test_streams_that_do_not_exist(users: NatsServer) -> None:
    assert "stream not found" in findings(users, "all", {**READ, "stream": "NONE"})["fail", "stream"][0]
    found = findings(users, "all", {**WRITE, "subject": "none.new"}, "write")
    assert found["fail", "stream"] == ["no stream stores none.new"]


def test_servers_that_cannot_be_reached(users: NatsServer) -> None:
    (text,) = findings(users, "all", {**READ, "password": "another-secret"})["fail", "server"]
    assert "AuthError" in text
    assert "another-secret" not in text
    provider = {"servers": "-", "stream": "ORDERS", "credentialsProvider": "no_such_module:f"}
    given = preflight.settings_of({**provider, "servers": users.url}, "read", "jetstream")
    ((_, _, text, _),) = preflight_server.look(given)[0]
    assert "credentialsProvider 'no_such_module:f' failed with ModuleNotFoundError" in text


def test_nothing_is_written(users: NatsServer) -> None:
    with jsclient.connect(users.url, user="all", password="quite-secret") as nc:
        js = Js(nc)
        js.nc.publish("orders.old", b"1")
        js.settle("ORDERS", 1)
        queue = {**READ, "ackMode": "purge"}
        for way, options in (("read", READ), ("readStream", queue), ("write", WRITE), ("writeStream", STRICT)):
            findings(users, "little", options, way)
            findings(users, "all", options, way)
        assert js.state("ORDERS")["messages"] == 1
        assert js.consumers("ORDERS") == []
        assert js.api.request("STREAM.NAMES")["streams"] == ["ORDERS"]


def test_clocks_that_differ(users: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def off() -> float:
        given = preflight.settings_of({**READ, "servers": users.url, "user": "all"}, "read", "jetstream")
        clock = preflight_server.look(given)[1]
        assert clock is not None
        return clock

    now = time.time
    if users.version >= (2, 10):
        assert off() < 1
        for error in (-100, 100):
            monkeypatch.setattr(time, "time", lambda error=error: now() + error)
            assert 98 < off() < 101
    monkeypatch.undo()
    late = {"clock": None, "now": now() - 60}
    ((level, _, text, _),) = preflight.clock_finding(late, now() - 5)
    assert (level, text) == ("warn", "55.0 s from the driver's clock")


@pytest.mark.parametrize(
    ("allow", "deny", "needed", "lacks"),
    [
        ([], [], "a.>", ""),
        (["a.>"], [], "a.b.>", ""),
        (["a.*"], [], "a.b", ""),
        (["a.*"], [], "a.>", "only permitted for a.*"),
        (["a.b"], [], "a.*", "only permitted for a.b"),
        (["b.>"], [], "a.*", "not permitted"),
        ([], ["a.>"], "a.b", "denied"),
        ([">"], ["a.b"], "a.>", "only permitted without a.b"),
        ([">"], ["b.>"], "a.>", ""),
    ],
)
def test_what_the_permissions_of_a_user_lack(allow: list[str], deny: list[str], needed: str, lacks: str) -> None:
    assert preflight_server.lacking({"allow": allow, "deny": deny}, needed) == lacks


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    load = importlib.import_module

    def without(name: str) -> Any:
        if name == "msgspec":
            raise ModuleNotFoundError("No module named 'msgspec'")
        return load(name)

    monkeypatch.setattr(importlib, "import_module", without)
    found = json.loads(preflight_probe.probe(b"not looked at"))["findings"]
    assert [finding[:3] for finding in found] == [
        ["fail", "import", "msgspec: ModuleNotFoundError: No module named 'msgspec'"]
    ]


def test_a_package_without_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "no_metadata", ModuleType("no_metadata"))
    assert preflight_probe.version("no_metadata") == "?"
    assert preflight_probe.version("jsclient") == jsclient.__version__


def test_a_driver_that_cannot_start_python() -> None:
    """With PYSPARK_DRIVER_PYTHON the program runs, and the driver's other processes may not."""

    def fails(_: str) -> Any:
        raise RuntimeError('java.io.IOException: Cannot run program "./env/bin/python": error=2')

    (row,) = preflight.format_found(SimpleNamespace(read=SimpleNamespace(format=fails)), "jetstream")
    assert (row.level, row.text) == ("fail", 'Cannot run program "./env/bin/python": error=2')


def test_versions_that_differ() -> None:
    driver = {"python": "3.11.7", "jsclient": "0.1.0", "pyarrow": "20"}
    assert preflight.version_finding(driver, driver)[0] == "ok"
    level, _, text, _ = preflight.version_finding({**driver, "pyarrow": "19"}, driver)
    assert (level, text) == ("warn", "pyarrow 19 and not 20")
    assert preflight.version_finding({**driver, "jsclient": "0.0.9"}, driver)[0] == "fail"


def test_a_report_on_a_session(spark: Any, users: NatsServer) -> None:
    options = {**READ, "servers": users.url, "user": "all"}
    report = check(spark, options)
    assert report.ok
    rows = {row.check: row for row in report.rows}
    assert rows["executors"].text == "1 of 1 answered"
    assert rows["stream"].where == "driver, executor"
    assert rows["versions"].where == "driver, executor"
    assert rows["versions"].text.startswith("python 3.")
    assert rows["format"].level == "ok"
    lines = str(report).splitlines()
    assert any(line.startswith("ok    stream ") and line.endswith("ORDERS") for line in lines)
    assert repr(report) == str(report)
    assert "quite-secret" not in str(report)
    missing = check(spark, {**options, "stream": "NONE"})
    assert not missing.ok
    assert missing.rows[0].check == "stream"
    assert missing.rows[0].advice
    with pytest.raises(JetStreamSparkError, match="UNKNOWN_OPTION"):
        check(spark, {**options, "strem": "ORDERS"})


def test_tasks_that_do_not_run_are_a_finding(spark: Any, users: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError(
            'java.io.IOException: Cannot run program "./env/bin/python": error=2, No such file\n\tat ...'
        )

    monkeypatch.setattr(preflight, "from_executors", fails)
    report = check(spark, {**READ, "servers": users.url, "user": "all"})
    assert not report.ok
    assert report.rows[0].text == 'Cannot run program "./env/bin/python": error=2, No such file'


def test_register_passes_a_zip_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark gives the zip of --py-files to tasks, and not to the process of a streaming source."""
    environment = {"PYTHONPATH": "/site"}
    session = SimpleNamespace(
        sparkContext=SimpleNamespace(environment=environment), dataSource=SimpleNamespace(register=lambda _: None)
    )
    jsclient.spark.register(session)
    assert environment == {"PYTHONPATH": "/site"}
    monkeypatch.setattr(jsclient.spark.__spec__, "loader", SimpleNamespace(archive="/files/jsclient.zip"))
    for _ in range(2):
        jsclient.spark.register(session)
        assert environment == {"PYTHONPATH": "/site:/files/jsclient.zip"}
    connect = SimpleNamespace(dataSource=session.dataSource)
    jsclient.spark.register(connect)
