"""The ways to bring jsclient to a cluster: each script of tools/deploy runs on two executors in separate folders."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jsclient.testing import NatsServer, free_port, wait_until
from tools.dist import copy_tree

from .clusters import daemon, listening, spark_home, standalone
from .conftest import ROOT, Js, settings

pytestmark = [pytest.mark.spark_modes, pytest.mark.slow, pytest.mark.timeout(600)]

SCRIPTS = ROOT / "tools" / "deploy"
NEEDED = ("msgspec", "attrs", "pyarrow")
PYTHON = os.path.realpath(sys.executable)  # has none of our packages
HOSTS = ("127.0.0.1", "127.0.0.2")


def wheel_of(name: str, folder: Path) -> None:
    """An installed package as a wheel, because these tests have no network."""
    found = importlib.metadata.distribution(name)
    tag = (found.read_text("WHEEL") or "").partition("Tag: ")[2].split()[0]
    with zipfile.ZipFile(folder / f"{name}-{found.version}-{tag}.whl", "w") as wheel:
        for file in found.files or []:
            if ".." not in file.parts and file.suffix != ".pyc":
                wheel.write(str(found.locate_file(file)), str(file))


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels of jsclient and of what it needs."""
    folder, source = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("source")
    copy_tree(source, "")
    build = ["pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(source)]
    subprocess.run([sys.executable, "-m", *build], check=True)
    for name in NEEDED:
        wheel_of(name, folder)
    return folder


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder, and the master of a cluster whose machines have Python and nothing else."""
    folder = tmp_path_factory.mktemp("cluster")
    bare = {"PYTHONPATH": ""}
    with standalone(folder, HOSTS, (bare, bare)) as master:
        yield folder, master


def submitted(folder: Path, **more: str) -> dict[str, str]:
    """The environment of a script: nothing of these tests' own Python."""
    given = {
        **settings(folder),
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder}",
    }
    kept = {name: os.environ[name] for name in ("HOME", "JAVA_HOME", "LANG") if name in os.environ}
    return {
        **kept,
        "PATH": os.pathsep.join([str(spark_home() / "bin"), os.environ["PATH"]]),
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHON": PYTHON,
        "PYSPARK_PYTHON": PYTHON,
        "PIP_NO_INDEX": "1",
        "WORK": str(folder / "work"),
        "SUBMIT": " ".join(f"--conf {name}={value}" for name, value in given.items()),
        **more,
    }


def run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    return done.stdout


@pytest.mark.parametrize("script", ["packed", "wheels", "pyfiles"])
def test_a_script_brings_the_package(
    script: str, nodes: tuple[Path, str], wheels: Path, server: NatsServer, js: Js, tmp_path: Path, stream_name: str
) -> None:
    js.create(stream_name)
    js.create(f"{stream_name}_out")
    js.fill(stream_name, 5000)
    (package,) = wheels.glob("jsclient-*.whl")
    environment = submitted(tmp_path, PACKAGE=str(package), PIP_FIND_LINKS=str(wheels))
    if script == "pyfiles":
        # The machines of this cluster have what jsclient needs.
        site = tmp_path / "site"
        site.mkdir()
        for name in ("msgspec", "attr", "attrs", "pyarrow"):
            found = importlib.util.find_spec(name)
            assert found is not None
            assert found.origin is not None
            (site / name).symlink_to(Path(found.origin).parent)
        environment["PYTHONPATH"] = str(site)
        environment["SUBMIT"] += f" --conf spark.executorEnv.PYTHONPATH={site}"
    command = ["sh", str(SCRIPTS / f"{script}.sh"), nodes[1], str(SCRIPTS / "job.py")]
    said = run([*command, server.url, stream_name, f"{stream_name}_out.x", str(tmp_path / "checkpoint")], environment)
    assert "2 of 2 answered" in said
    assert "5000 rows" in said
    assert js.state(f"{stream_name}_out")["messages"] == 5000


@pytest.mark.parametrize("script", ["wheels", "pyfiles"])
def test_a_script_leaves_a_clone_as_it_was(script: str, wheels: Path, tmp_path: Path) -> None:
    clone, program = tmp_path / "clone", tmp_path / "bin" / "spark-submit"
    clone.mkdir()
    copy_tree(clone, "")
    before = set(clone.rglob("*"))
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    environment = submitted(tmp_path, PACKAGE=str(clone), PIP_FIND_LINKS=str(wheels), PYTHON=sys.executable)
    environment |= {"PIP_NO_BUILD_ISOLATION": "0", "PATH": os.pathsep.join([str(program.parent), environment["PATH"]])}
    run(["sh", str(SCRIPTS / f"{script}.sh"), "local", str(SCRIPTS / "job.py")], environment)
    assert set(clone.rglob("*")) == before


CHECK = """
import sys
from pyspark.sql import SparkSession
import jsclient.spark
spark = SparkSession.builder.master(sys.argv[1]).getOrCreate()
print(jsclient.spark.check(spark, {"servers": sys.argv[2], "stream": "NONE", "user": "u", "password": "quite-secret"}))
"""


def test_executors_without_the_package_are_found(nodes: tuple[Path, str], server: NatsServer, tmp_path: Path) -> None:
    environment = submitted(tmp_path, PYTHONPATH=str(ROOT))
    environment["PYSPARK_SUBMIT_ARGS"] = f"{environment['SUBMIT']} pyspark-shell"
    said = run([sys.executable, "-c", CHECK, nodes[1], server.url], environment)
    assert "2 of 2 answered" in said
    assert re.search("fail +import +2 executors +jsclient: ModuleNotFoundError: No module named 'jsclient'", said)
    assert re.search("fail +stream +driver +NONE: stream not found", said)
    assert "quite-secret" not in said


def test_a_client_of_spark_connect_needs_no_java(
    nodes: tuple[Path, str], server: NatsServer, js: Js, tmp_path: Path, stream_name: str
) -> None:
    js.create(stream_name)
    js.create(f"{stream_name}_out")
    js.fill(stream_name, 5000)
    port = free_port()
    environment = submitted(tmp_path, PYSPARK_PYTHON=sys.executable, PYTHONPATH=str(ROOT))
    given = [
        *environment["SUBMIT"].split(),
        *("--conf", f"spark.connect.grpc.binding.port={port}"),
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
        *("--conf", f"spark.executorEnv.PYTHONPATH={ROOT}"),
    ]
    with daemon(tmp_path, "sh", str(SCRIPTS / "connect.sh"), nodes[1], *given, **environment):
        wait_until(lambda: listening(port), 90, "the Connect server to listen")
        client = {
            **{name: environment[name] for name in ("HOME",) if name in environment},
            "PATH": str(Path(sys.executable).parent),  # without Java
            "PYTHONPATH": str(ROOT),
            "SPARK_REMOTE": f"sc://127.0.0.1:{port}",
        }
        job = [str(SCRIPTS / "job.py"), server.url, stream_name, f"{stream_name}_out.x", str(tmp_path / "checkpoint")]
        said = run([sys.executable, *job], client)
    assert "2 answered; Spark does not report how many" in said
    assert "5000 rows" in said
    assert js.state(f"{stream_name}_out")["messages"] == 5000
