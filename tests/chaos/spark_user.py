"""A streaming query for the rolling upgrade: it copies the queue into another stream, each row once."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.chaos import clients
from tests.spark.conftest import ROOT, settings

from jsclient.jetstream import StreamConfig

COPIES = "COPIES"


class SparkUser(clients.Worker):
    """The query runs in Spark's own threads and processes; this one starts it and looks how far it is."""

    pause = 0.5

    def prepare(self, servers: list[str]) -> None:
        """The session and the query; this takes some seconds."""
        from pyspark.sql import SparkSession

        self.js.get_or_create_stream(StreamConfig(name=COPIES, subjects=["copies"], num_replicas=3), timeout=20)
        self.folder = Path(tempfile.mkdtemp(prefix="jsclient-upgrade-"))
        shutil.copytree(ROOT / "jsclient" / "spark" / "_autoload", self.folder / "site" / "pyspark_jetstream")
        os.environ["PYTHONPATH"] = os.pathsep.join([str(self.folder / "site"), str(ROOT)])
        os.environ.update({"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable})
        sys.path.insert(0, str(self.folder / "site"))
        builder: Any = SparkSession.builder.master("local[2,4]").appName("jsclient-upgrade")
        for name, value in settings(self.folder).items():
            builder = builder.config(name, value)
        self.session = builder.getOrCreate()
        self.session.sparkContext.setLogLevel("OFF")
        urls = ",".join(servers)
        rows = self.session.readStream.format("jetstream").option("servers", urls).option("startingOffsets", "earliest")
        self.query: Any = (
            rows.load(clients.QUEUE)
            .selectExpr("'copies' AS subject", "value")
            .writeStream.format("jetstream")
            .option("servers", urls)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(processingTime="1 second")
            .start()
        )
        self.batch = -1

    def step(self) -> None:
        error = self.query.exception()
        if error is not None:
            raise RuntimeError(f"the query ended: {str(error)[:500]}")
        last = self.query.lastProgress
        if last is not None and last["batchId"] > self.batch and last["numInputRows"]:
            self.batch = last["batchId"]
            self.progress()

    def close(self) -> None:
        self.query.stop()
        self.session.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
