"""Every exported name of nats.go has a row in the tables, or a stated reason; and what the rows name here exists."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import jsclient
from jsclient import errors, jetstream, objectstore, services

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "tools/docs/pages/nats-go-names.md").read_text(encoding="utf-8")
NAMES = [
    tuple(line.split(" "))
    for line in (ROOT / "tests/unit/nats_go_names.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
#: Package -> the sections of the page that may have its rows. The older JetStream API is repeated in package nats.
SECTIONS = {
    "nats": ("What Go needs", "Package nats", "Package jetstream"),
    "jetstream": ("What Go needs", "Package jetstream"),
    "micro": ("What Go needs", "Package micro"),
}


def rows(*titles: str) -> list[tuple[list[str], str]]:
    """(names, what stands beside them) of the sections whose titles begin so."""
    found = []
    for section in PAGE.split("\n## ")[1:]:
        if section.startswith(titles):
            for theirs, ours in re.findall(r"^\| (`.+?) \| (.+?) \|$", section, re.M):
                found.append((re.findall(r"`([^`]+)`", theirs), ours))
    return found


@pytest.mark.parametrize("package", SECTIONS)
def test_every_name_of_nats_go_has_a_row_or_a_reason(package: str) -> None:
    patterns = [pattern for names, _ in rows(*SECTIONS[package]) for pattern in names]
    names = [name for of, name in NAMES if of == package]
    assert len(names) > {"nats": 800, "jetstream": 600, "micro": 70}[package]
    assert [name for name in names if not any(fnmatchcase(name, pattern) for pattern in patterns)] == []


@pytest.mark.parametrize("package", SECTIONS)
def test_no_row_is_about_nothing(package: str) -> None:
    every = [name for _, name in NAMES]
    for names, _ in rows(*SECTIONS[package]):
        assert [pattern for pattern in names if not any(fnmatchcase(name, pattern) for name in every)] == []


def test_what_the_rows_name_here_exists() -> None:
    homes = {"errors": errors, "services": services, "objectstore": objectstore, "jsclient": jsclient}
    checked = 0
    for _, ours in rows("Package"):
        for first, second in re.findall(r"`([A-Za-z]+)\.([A-Za-z_]+)`", ours):
            home = homes.get(first) or getattr(jsclient, first, None) or getattr(jetstream, first, None)
            home = home or getattr(services, first, None)
            assert home is not None, first
            if first != "jsclient" or second not in ("jetstream", "keyvalue", "objectstore", "options", "codecs"):
                assert hasattr(home, second), (first, second)
            checked += 1
    assert checked > 80
