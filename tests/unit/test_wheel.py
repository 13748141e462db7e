"""The wheel installs the folder `protocol` as `jsclient.protocol`; a module `protocol` of others is theirs alone."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools import dist

USES = """
import jsclient, jsclient.jetstream, jsclient.protocol
print(jsclient.Headers.__module__, jsclient.ConnectOptions().servers)
"""
THINGS = """
import jsclient, pickle, sys
from jsclient import errors, protocol
from jsclient.jetstream import PubAck, RawStreamMsg
made = [
    jsclient.Headers({"A": "b"}), protocol.ServerInfo(version="2.15.1"), jsclient.Status(404, "none"),
    jsclient.ConnectOptions(name="x"), PubAck(stream="S", seq=1), protocol.Msg(b"a", b"1", None, b"x"),
    RawStreamMsg(subject="a", seq=1, data=b"x", time=None, raw_headers=None, stream="S"),
    protocol.InvalidHeader("bad"), errors.InvalidHeader("bad"),
]
"""
DUMP = THINGS + "open(sys.argv[1], 'wb').write(pickle.dumps(made))\n"
LOAD = THINGS + "print(repr(pickle.load(open(sys.argv[1], 'rb'))) == repr(made))\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    dist.copy_tree(folder / "tree", "")
    command = [sys.executable, "-m", "build", "-q", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*command, str(folder / "tree")], check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """A folder with what the wheel installs, and with what the library needs."""
    site = wheel.parent / "site"
    zipfile.ZipFile(wheel).extractall(site)
    return with_needs(site)


@pytest.fixture(scope="module")
def checkout(wheel: Path) -> Path:
    """A copy of the tracked files, in which the library is found as in a checkout."""
    return with_needs(wheel.parent / "tree")


def with_needs(folder: Path) -> Path:
    for name in ("attr", "attrs", "msgspec"):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        if not (folder / name).exists():
            (folder / name).symlink_to(Path(spec.origin).parent)
    return folder


def run(library: Path, folder: Path, text: str, *arguments: str, name: str = "script.py") -> str:
    """The output of a script beside the files of `folder`. Without `site`: nothing else is installed."""
    (folder / name).write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(library), "PYTHONSAFEPATH": ""}
    command = [sys.executable, "-S", name, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_installs_no_package_protocol(wheel: Path) -> None:
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {
        "jsclient",
        "pyspark_jetstream",
        "pyspark_jetstream_kv",
        "pyspark_jetstream_objects",
        "pytest_jsclient",
    }
    dist.check_contents(wheel)


@pytest.mark.parametrize("layout", ["installed", "checkout"])
@pytest.mark.parametrize("theirs", ["", "protocol.py", "protocol/__init__.py"])
def test_modules_of_others_are_called_protocol(
    request: pytest.FixtureRequest, tmp_path: Path, layout: str, theirs: str
) -> None:
    library: Path = request.getfixturevalue(layout)
    if theirs:
        (tmp_path / theirs).parent.mkdir(exist_ok=True)
        (tmp_path / theirs).write_text("MINE = 'theirs'\n")
    before = "import protocol\nprint(protocol.MINE)\n" if theirs else ""
    out = run(library, tmp_path, before + USES)
    assert out == ("theirs\n" if theirs else "") + "jsclient.protocol.headers ('nats://127.0.0.1:4222',)\n"


def test_a_script_that_is_called_protocol(installed: Path, tmp_path: Path) -> None:
    assert "jsclient.protocol.headers" in run(installed, tmp_path, USES, name="protocol.py")


def test_a_distribution_of_others_is_called_protocol(installed: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "wire_things-1.0.dist-info").mkdir(parents=True)
    (site / "protocol.py").write_text("MINE = 'theirs'\n")
    for order in (f"{site}{os.pathsep}{installed}", f"{installed}{os.pathsep}{site}"):
        assert run(Path(order), tmp_path, f"import protocol\nprint(protocol.MINE)\n{USES}").startswith("theirs\n")


@pytest.mark.parametrize("way", ["to the wheel", "to the checkout"])
def test_pickles_of_one_layout_are_read_by_the_other(installed: Path, checkout: Path, tmp_path: Path, way: str) -> None:
    written, read = (checkout, installed) if way == "to the wheel" else (installed, checkout)
    run(written, tmp_path, DUMP, "things.pickle")
    assert run(read, tmp_path, LOAD, "things.pickle") == "True\n"
