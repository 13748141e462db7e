"""Messages and commands for operators: warnings in the driver's log, hints for Kafka's names, the journal's command."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from jsclient.spark import close_idle, from_spark, journal
from jsclient.spark.committing import keep
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.options import READ, WRITE, parse
from jsclient.testing import NatsServer

from .conftest import Js
from .journal_rig import Sink
from .test_without_jvm import batches, read, reader, writer


@pytest.fixture(autouse=True)
def idle_connections_closed() -> Iterator[None]:
    yield
    close_idle()


@pytest.mark.parametrize(
    ("name", "way", "says"),
    [
        ("kafka.bootstrap.servers", READ, "write 'servers'"),
        ("kafka.group.id", READ, "Coming from Kafka"),
        ("subscribePattern", READ, "write 'stream'"),
        ("groupIdPrefix", READ, "no consumer groups"),
        ("startingOffsetsByTimestamp", READ, "write 'startingTimestamp'"),
        ("topic", WRITE, "write 'subject'"),
        ("key", WRITE, "the subject takes the place of the key"),
    ],
)
def test_names_of_kafka_get_their_equivalent(name: str, way: str, says: str) -> None:
    with pytest.raises(JetStreamSparkError, match="is an option of Kafka") as caught:
        parse({"servers": "nats://n1", name: "x"}, way)
    assert says in str(caught.value)
    assert "did you mean" not in str(caught.value)


def test_an_end_behind_the_stream_is_a_warning(
    js: Js, server: NatsServer, stream_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    js.create(stream_name)
    js.fill(stream_name, 10)
    assert len(read(reader(server.url, stream_name, endingOffsets='{"seq": 50}'))) == 10
    assert "endingOffsets 50 lies behind the end" in caplog.text


def test_an_aborted_write_is_a_warning(
    js: Js, server: NatsServer, stream_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    js.create(stream_name)
    made = writer(server.url, subject=f"{stream_name}.x")
    made.abort([made.write(batches(0, 10))])
    assert "write aborted; already published by the tasks that ended: 10 rows" in caplog.text


def test_a_full_sink_says_what_a_retry_can_cure(js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name, max_msgs=5, discard="new")
    made = writer(server.url, subject=f"{stream_name}.x", publishMode="async")
    with pytest.raises(JetStreamSparkError, match="a retry stores the rest as soon as the stream has room") as caught:
        made.write(batches(0, 10))
    assert "cannot cure" not in str(caught.value)


def test_the_audit_log_reaches_a_process_without_handlers() -> None:
    """As in the process in which Spark commits."""
    text = "from jsclient.spark import committing; committing.keep({'rows': 5})"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == 'jetstream audit: {"rows": 5}\n'


def test_the_audit_log_leaves_configured_logging_alone(caplog: pytest.LogCaptureFixture) -> None:
    keep({"rows": 5})
    assert logging.getLogger("jsclient.spark.audit").handlers == []


def test_the_journal_lists_and_forgets_queries(
    js: Js,
    server: NatsServer,
    stream_name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sink = Sink(server, js, stream_name, monkeypatch)
    rows = [b"%d" % n for n in range(20)]
    sink.run("run-1", [rows, rows])
    command: list[Any] = ["--option", f"servers={server.url}"]
    found = {each.query: each for each in journal.journal_queries({"servers": server.url})}
    assert (found[stream_name].batch, found[stream_name].partitions) == (5, 2)
    assert journal.main(["list", *command]) == 0
    assert f"{stream_name} " in capsys.readouterr().out
    sink.batch = 3
    with pytest.raises(JetStreamSparkError, match="JOURNAL_AHEAD") as caught:
        sink.write("run-2", 0, rows)
    error = from_spark(caught.value)
    assert error is not None
    assert f"python -m jsclient.spark.journal reset {stream_name}" in error.message
    assert journal.main(["clean", "--unused", "1h", *command]) == 0
    assert stream_name in {each.query for each in journal.journal_queries({"servers": server.url})}
    assert journal.main(["reset", stream_name, *command]) == 0
    assert stream_name not in {each.query for each in journal.journal_queries({"servers": server.url})}
    close_idle()
    sink.run("run-2", [rows])
    assert js.state(stream_name)["messages"] == 60
