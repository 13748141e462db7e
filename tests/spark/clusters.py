"""A standalone cluster and other processes of Spark, from the files of the installed pyspark."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from jsclient.testing import free_port, wait_until


def spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


@contextmanager
def daemon(folder: Path, *command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Spark's own; `command` is the class and its arguments, or a program of Spark and its arguments."""
    home = spark_home()
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LOG_DIR": str(folder / "logs"),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_NO_DAEMONIZE": "1",
        **environment,
    }
    started = [str(home / "bin" / "spark-class"), *command] if command[0].startswith("org.") else list(command)
    with open(folder / f"{command[0].rpartition('.')[2]}.log", "ab") as log:
        process = subprocess.Popen(started, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def standalone(
    folder: Path, hosts: tuple[str, str], environments: tuple[dict[str, str], dict[str, str]] = ({}, {})
) -> Iterator[str]:
    """A master and two workers with a core each, which have their own folders and variables; the URL of the master."""
    port = free_port()
    deploy = "org.apache.spark.deploy"
    with ExitStack() as cluster:
        place = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        cluster.enter_context(daemon(folder, f"{deploy}.master.Master", *place))
        wait_until(lambda: listening(port), 60, "the master to listen")
        url = f"spark://127.0.0.1:{port}"
        for number, host in enumerate(hosts):
            place = ["--host", host, "-c", "1", "-m", "1g", "-d", str(folder / f"work{number}"), "--webui-port", "0"]
            environment = environments[number]
            cluster.enter_context(daemon(folder, f"{deploy}.worker.Worker", *place, url, **environment))
        yield url
