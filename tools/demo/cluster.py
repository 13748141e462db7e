"""A standalone Spark cluster on this machine: a master and two workers from the files of the installed pyspark."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from jsclient.testing import free_port
from tools.demo.flights import DemoError

START_TIMEOUT = 60.0
DEPLOY = "org.apache.spark.deploy"


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """The URL of the master; everything is killed at the end."""
    port = free_port()
    place = ["--host", "127.0.0.1", "--webui-port", "0"]
    with ExitStack() as stack:
        stack.enter_context(_process(folder, "master", f"{DEPLOY}.master.Master", *place, "--port", str(port)))
        _wait(port, folder)
        url = f"spark://127.0.0.1:{port}"
        for name in ("worker1", "worker2"):
            resources = ["-c", "1", "-m", "1g", "-d", str(folder / name)]
            stack.enter_context(_process(folder, name, f"{DEPLOY}.worker.Worker", *place, *resources, url))
        yield url


@contextmanager
def _process(folder: Path, name: str, *arguments: str) -> Iterator[None]:
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LOG_DIR": str(folder / "logs"),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
    }
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), *arguments],
            cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(port: int, folder: Path) -> None:
    end = time.monotonic() + START_TIMEOUT
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise DemoError(f"Spark's master did not start:\n{(folder / 'master.log').read_text()[-1500:]}")
