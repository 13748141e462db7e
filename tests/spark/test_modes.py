"""Outside of plain local mode: local-cluster, a standalone cluster from PySpark's files, Spark Connect, other Java."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jsclient.testing import NatsServer, free_port, wait_until

from .clusters import daemon, listening, standalone
from .conftest import ROOT, Js, settings

pytestmark = pytest.mark.spark_modes

JOB = """
import sys, tempfile
from pyspark.sql import SparkSession
master, url, name, streaming = sys.argv[1:5]
if master.startswith("connect:"):
    builder = SparkSession.builder.remote(master[8:])
else:
    builder = SparkSession.builder.master(master)
for pair in sys.argv[5:]:
    builder = builder.config(*pair.split("=", 1))
spark = builder.getOrCreate()
frame = spark.read.format("jetstream").option("servers", url).option("minPartitions", 4).load(name)
rows = frame.select("seq").collect()
assert len(rows) == len({row.seq for row in rows}) == 50000, len(rows)
out = frame.selectExpr("value", "concat('id-', seq) AS msg_id")
out.write.format("jetstream").mode("append").options(servers=url, subject=name + "_out.x").save()
if streaming == "yes":
    source = spark.readStream.format("jetstream").option("servers", url).option("startingOffsets", "earliest")
    frame = source.option("maxOffsetsPerTrigger", 20000).load(name).selectExpr("value", "concat('id-', seq) AS msg_id")
    sink = frame.writeStream.format("jetstream").options(servers=url, subject=name + "_out.x")
    sink = sink.option("checkpointLocation", tempfile.mkdtemp())
    query = sink.trigger(availableNow=True).start()
    assert query.awaitTermination(150)
    if query.exception() is not None:
        raise query.exception()
spark.stop()
print("JOB DONE")
"""


def run_job(
    folder: Path, master: str, server: NatsServer, js: Js, name: str, streaming: bool = True, **more: str
) -> None:
    """The job above in a process of its own; afterwards the target holds every message once."""
    js.create(name)
    js.create(f"{name}_out")
    js.fill(name, 50_000)
    configs = [f"{key}={value}" for key, value in {**settings(folder), **more}.items()]
    if master.startswith("connect:"):
        configs = []
    command = [sys.executable, "-c", JOB, master, server.url, name, "yes" if streaming else "no", *configs]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=230, check=False)
    assert "JOB DONE" in done.stdout, done.stderr[-3000:]
    assert js.state(f"{name}_out")["messages"] == 50_000


def test_local_cluster(spark_environment: Path, server: NatsServer, js: Js, stream_name: str) -> None:
    run_job(spark_environment, "local-cluster[2,1,1024]", server, js, stream_name)


def test_the_java_that_the_tools_fetch(
    spark_environment: Path,
    server: NatsServer,
    js: Js,
    stream_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a machine without Java tools/java.py unpacks one; here a java that does not run stands for none."""
    broken = tmp_path / "java"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "JAVA_HOME": ""}
    command = [sys.executable, str(ROOT / "tools" / "java.py")]
    found = subprocess.run(command, capture_output=True, text=True, timeout=230, check=True, env=environment)
    home = found.stdout.strip()
    assert str(ROOT / ".tools") in home
    monkeypatch.setenv("JAVA_HOME", home)
    run_job(spark_environment, "local[2]", server, js, stream_name)


EXECUTORS: dict[str, Any] = {"spark.executor.memory": "512m", "spark.cores.max": "2"}


def test_standalone_cluster(spark_environment: Path, server: NatsServer, js: Js, stream_name: str) -> None:
    with standalone(spark_environment, ("127.0.0.1", "127.0.0.1")) as master:
        run_job(spark_environment, master, server, js, stream_name, **EXECUTORS)


def test_spark_connect(spark_environment: Path, server: NatsServer, js: Js, stream_name: str) -> None:
    port = free_port()
    arguments = [
        "org.apache.spark.deploy.SparkSubmit",
        *("--master", "local[2]"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *(
            "--conf",
            f"spark.connect.grpc.binding.port={port}",
            "--conf",
            "spark.connect.grpc.binding.address=127.0.0.1",
        ),
        *(part for key, value in settings(spark_environment).items() for part in ("--conf", f"{key}={value}")),
        "spark-internal",
    ]
    with daemon(spark_environment, *arguments):
        wait_until(lambda: listening(port), 90, "the Connect server to listen")
        run_job(spark_environment, f"connect:sc://127.0.0.1:{port}", server, js, stream_name)


SPECULATION = """
import sys
from pyspark import TaskContext
from pyspark.sql import SparkSession
builder = SparkSession.builder.master(sys.argv[1])
for pair in sys.argv[5:]:
    builder = builder.config(*pair.split("=", 1))
spark = builder.getOrCreate()
url, name, folder = sys.argv[2:5]

def slow_first_attempt(batches):
    import pathlib
    from jsclient.testing import wait_until
    context = TaskContext.get()
    attempt = f"{context.stageId()}-{context.partitionId()}-{context.attemptNumber()}"
    pathlib.Path(folder, attempt).touch()
    slow = context.partitionId() == 0 and context.attemptNumber() == 0
    copy = pathlib.Path(folder, f"{context.stageId()}-0-1")
    for batch in batches:
        for start in range(0, batch.num_rows, 500):
            yield batch.slice(start, 500)
            if slow:
                wait_until(copy.exists, 60)

source = spark.read.format("jetstream").option("servers", url).option("minPartitions", 4)
frame = source.load(name).selectExpr("value", "seq").mapInArrow(slow_first_attempt, "value binary, seq bigint")
rows = [row.seq for row in frame.select("seq").collect()]
assert sorted(rows) == list(range(1, 20001)), len(rows)
frame.select("value").write.format("jetstream").mode("append").options(servers=url, subject=name + "_out.x").save()
spark.stop()
print("JOB DONE")
"""


def test_speculative_copies_of_slow_tasks(
    spark_environment: Path, server: NatsServer, js: Js, stream_name: str, tmp_path: Path
) -> None:
    """The slow attempt and its copy read and publish at once. A copy runs on another host only: not in local modes."""
    js.create(stream_name)
    js.create(f"{stream_name}_out")
    js.fill(stream_name, 20_000)
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.minTaskRuntime": "500ms",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
    }
    given = {**settings(spark_environment), **speculation, **EXECUTORS}
    with standalone(spark_environment, ("127.0.0.1", "127.0.0.2")) as master:
        done = subprocess.run(
            [
                *(sys.executable, "-c", SPECULATION, master, server.url, stream_name, str(tmp_path)),
                *(f"{key}={value}" for key, value in given.items()),
            ],
            cwd=spark_environment, capture_output=True, text=True, timeout=230, check=False,
        )  # fmt: skip
    assert "JOB DONE" in done.stdout, done.stderr[-3000:]
    copies = [path.name for path in tmp_path.iterdir() if path.name.endswith("-0-1")]
    assert len(copies) == 2, "both jobs had a copy of the slow task"
    assert js.state(f"{stream_name}_out")["messages"] == 20_000
