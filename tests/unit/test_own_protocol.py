"""A user's own `protocol` beside the script: the error names it; what hides nothing needs nothing."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import jsclient

USES = "import jsclient\nprint(jsclient.ConnectOptions().servers)\n"
RUN = "print('it was run')\n"


def run(folder: Path, script: str = "script.py") -> subprocess.CompletedProcess[str]:
    """The script, with the library found as it is when it is installed: behind the folder of the script."""
    library = str(Path(jsclient.__file__).parents[1])
    return subprocess.run(
        [sys.executable, script],
        cwd=folder,
        env={"PYTHONPATH": library, "PYTHONSAFEPATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("name", ["protocol.py", "protocol/__init__.py"])
def test_a_file_beside_the_script_is_named_and_not_run(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(RUN)
    (tmp_path / "script.py").write_text(USES)
    done = run(tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    error = done.stderr.splitlines()[-1]
    assert error.startswith("ImportError: ")
    assert str(file) in error
    assert "Rename" in error
    assert "ninstall" not in error
    assert "distribution" not in error


def test_a_script_that_is_called_protocol(tmp_path: Path) -> None:
    (tmp_path / "protocol.py").write_text(USES)
    done = run(tmp_path, "protocol.py")
    assert done.returncode == 1
    assert str(tmp_path / "protocol.py") in done.stderr.splitlines()[-1]
    assert "Rename" in done.stderr.splitlines()[-1]


def test_a_module_that_was_imported_before(tmp_path: Path) -> None:
    (tmp_path / "protocol.py").write_text(RUN)
    (tmp_path / "script.py").write_text("import protocol\n" + USES)
    done = run(tmp_path)
    assert done.returncode == 1
    assert str(tmp_path / "protocol.py") in done.stderr.splitlines()[-1]


def test_a_module_that_was_made_by_hand(tmp_path: Path) -> None:
    made = "import sys, types\nsys.modules['protocol'] = types.ModuleType('protocol')\n"
    (tmp_path / "script.py").write_text(made + USES)
    done = run(tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: ")


def test_an_installed_distribution_is_named(tmp_path: Path) -> None:
    # What is installed lies in a folder of `site`; here the one of a user.
    site = Path(sysconfig.get_path("purelib", "posix_user", {"userbase": str(tmp_path)}))
    info = site / "wire_things-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wire-things\nVersion: 1.0\n")
    (info / "RECORD").write_text("protocol.py,,\nwire_things-1.0.dist-info/METADATA,,\n")
    (site / "protocol.py").write_text(RUN)
    (tmp_path / "script.py").write_text(
        f"import site, sys\nsite.USER_SITE = {str(site)!r}\nsys.path.insert(0, site.USER_SITE)\n{USES}"
    )
    done = run(tmp_path)
    assert done.returncode == 1
    assert "wire-things" in done.stderr.splitlines()[-1]
    assert "Uninstall" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("name", ["protocol/notes.txt", "protocol/mine.py", "jsclient.txt"])
def test_what_hides_nothing(tmp_path: Path, name: str) -> None:
    """A folder without `__init__.py` is a namespace package: Python takes ours, wherever it is on the path."""
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("")
    (tmp_path / "script.py").write_text(USES)
    done = run(tmp_path)
    assert done.stdout == "('nats://127.0.0.1:4222',)\n", done.stderr
