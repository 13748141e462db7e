"""setup.cfg says what the tree is."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Folders that are installed under another name, where Spark, pytest and the rest of the library look for them.
OTHER_NAMES = {
    "jsclient.spark._autoload": "pyspark_jetstream",
    "jsclient.spark._autoload_kv": "pyspark_jetstream_kv",
    "jsclient.spark._autoload_objects": "pyspark_jetstream_objects",
    "jsclient.testing._pytest": "pytest_jsclient",
    "protocol": "jsclient.protocol",
}


def settings() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg")
    return parser


def test_every_package_is_installed() -> None:
    listed = set(settings()["options"]["packages"].split())
    folders = [path.parent for top in ("jsclient", "protocol") for path in (ROOT / top).rglob("__init__.py")]
    found = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    found = {OTHER_NAMES.get(name, name) for name in found}
    assert listed == found


def test_the_runtime_needs_two_packages_only() -> None:
    needed = {line.split(">")[0] for line in settings()["options"]["install_requires"].split()}
    assert needed == {"attrs", "msgspec"}


def test_the_package_is_typed() -> None:
    assert (ROOT / "jsclient" / "py.typed").is_file()
    assert settings()["options.package_data"]["jsclient"] == "py.typed"


def test_a_checkout_finds_the_protocol_where_the_wheel_installs_it() -> None:
    link = ROOT / "jsclient" / "protocol"
    assert link.is_symlink()
    assert link.readlink() == Path("../protocol")


def test_nothing_imports_the_folder_by_another_name() -> None:
    """In a checkout `import protocol` finds the folder, too: its classes would exist twice."""
    wrong = re.compile(r"^\s*(?:from|import) protocol\b", re.M)
    for top in ("jsclient", "protocol", "tests", "tools"):
        for path in (ROOT / top).rglob("*.py"):
            if path.name != "test_wheel.py":
                assert not wrong.search(path.read_text(encoding="utf-8")), path
