"""The pytest plugin, as users of the library see it: each test is a test run of its own in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jsclient.testing import NatsServer

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "jsclient" / "testing" / "_pytest"

Run = tuple[int, str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project of a user: the plugin lies where the wheel installs it; it is named, so no entry point is needed."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "pytest_jsclient").symlink_to(PLUGIN)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p pytest_jsclient -p no:cacheprovider\n")
    return tmp_path


def pytest_run(folder: Path, test: str, *arguments: str) -> Run:
    (folder / "test_it.py").write_text(test)
    path = os.pathsep.join([str(folder / "site"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {key: value for key, value in os.environ.items() if key not in ("NATS_URL", "PYTEST_ADDOPTS")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *arguments],
        cwd=folder,
        env=environment | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    return done.returncode, done.stdout + done.stderr


PUBLISH = """
def test_one(jetstream, nats_server):
    stream = make(jetstream)
    jetstream.publish("s", b"1")
    assert stream.info().state.messages == 1

def test_two(jetstream):
    assert list(jetstream.stream_names()) == []
    assert make(jetstream).info().state.messages == 0

def make(js):
    from jsclient.jetstream import StreamConfig
    return js.create_stream(StreamConfig(name="S", subjects=["s"]))
"""


@pytest.mark.parametrize("scope", ["function", pytest.param("module", marks=pytest.mark.slow)])
def test_each_test_finds_an_empty_jetstream(folder: Path, scope: str) -> None:
    status, said = pytest_run(folder, PUBLISH, f"--nats-scope={scope}")
    assert status == 0, said
    assert "2 passed" in said


@pytest.mark.slow
def test_the_proxy_cuts_the_link_and_a_cluster_has_three_servers(folder: Path) -> None:
    status, said = pytest_run(
        folder,
        """
import jsclient
from jsclient.testing import wait_until

def test_cut(fault_proxy):
    with jsclient.connect(fault_proxy.url) as nc:
        fault_proxy.cut()
        wait_until(lambda: nc.stats().reconnects >= 1)
        nc.flush(timeout=10)

def test_cluster(nats_cluster):
    assert len(nats_cluster.servers) == 3
    with jsclient.connect(nats_cluster.url) as nc:
        assert nc.server_info.cluster == "test"
""",
    )
    assert status == 0, said


@pytest.mark.slow
def test_configuration_version_and_ini_settings(folder: Path) -> None:
    (folder / "small.conf").write_text("max_payload: 2048\n")
    (folder / "pytest.ini").write_text((folder / "pytest.ini").read_text() + "nats_config = small.conf\n")
    test = """
def test_limit(jetstream, nats_server):
    assert jetstream.nc.server_info.max_payload == 2048
    print("version", *nats_server.version[:2])
"""
    status, said = pytest_run(folder, test, "-s")
    assert status == 0, said
    version = said.split("version ")[1].split()[:2]
    status, said = pytest_run(folder, test, f"--nats-version={'.'.join(version)}")
    assert status == 0, said
    status, said = pytest_run(folder, test, "--nats-version=1.0")
    assert status == 1
    assert "no nats-server 1.0 was found" in said
    status, said = pytest_run(folder, test, "--nats-scope=week")
    assert status != 0
    assert "--nats-scope=week: it is one of function, module, session" in said


@pytest.mark.slow
def test_an_external_server_keeps_its_streams(folder: Path, server: NatsServer) -> None:
    test = """
import pytest

def test_it(jetstream, nats_server):
    from jsclient.jetstream import StreamConfig
    jetstream.create_stream(StreamConfig(name="KEPT", subjects=["kept"]))
    with pytest.raises(AttributeError, match="only private servers can be controlled"):
        nats_server.kill()

def test_proxy(fault_proxy):
    import jsclient
    with jsclient.connect(fault_proxy.url) as nc:
        nc.flush()
"""
    status, said = pytest_run(folder, test, f"--nats-url={server.url}")
    assert status == 0, said
    import jsclient
    from jsclient.jetstream import JetStream

    with jsclient.connect(server.url) as nc:
        assert list(JetStream(nc).stream_names()) == ["KEPT"]


def test_it_imports_nothing_unless_it_is_used(folder: Path) -> None:
    status, said = pytest_run(
        folder,
        "import sys\ndef test_nothing():\n    assert 'jsclient' not in sys.modules\n",
    )
    assert status == 0, said


@pytest.mark.slow
def test_the_example_of_the_chapter(folder: Path) -> None:
    text = (ROOT / "tests" / "examples" / "pytest_plugin.py").read_text(encoding="utf-8")
    code, shown = pytest_run(folder, text)
    assert code == 0, shown
    assert "2 passed" in shown
