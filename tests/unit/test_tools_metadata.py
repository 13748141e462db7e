"""setup.cfg says what the tree is."""

from __future__ import annotations

import configparser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Folders that are installed under a name of their own, because Spark and pytest look for them there.
TOP_LEVEL = {"jsclient.spark._autoload": "pyspark_jetstream", "jsclient.testing._pytest": "pytest_jsclient"}


def settings() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg")
    return parser


def test_every_package_is_installed() -> None:
    listed = set(settings()["options"]["packages"].split())
    folders = [path.parent for top in ("jsclient", "protocol") for path in (ROOT / top).rglob("__init__.py")]
    found = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    found = {TOP_LEVEL.get(name, name) for name in found}
    assert listed == found


def test_the_runtime_needs_two_packages_only() -> None:
    needed = {line.split(">")[0] for line in settings()["options"]["install_requires"].split()}
    assert needed == {"attrs", "msgspec"}


def test_both_packages_are_typed() -> None:
    for name in ("jsclient", "protocol"):
        assert (ROOT / name / "py.typed").is_file()
        assert settings()["options.package_data"][name] == "py.typed"
