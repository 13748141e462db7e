"""Every exported name of nats.go has a row in the tables, or a stated reason; and what the rows name here exists.

Fields and methods that have no row of their own have the same name here: each is looked for in its class.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from tests import names_rig
from tests.names_rig import everything, members, named, spelled

from jsclient import errors, jetstream, protocol

ROOT = Path(__file__).resolve().parents[2]
PAGE = (names_rig.PAGES / "nats-go-names.md").read_text(encoding="utf-8")
NAMES = [
    tuple(line.split(" "))
    for line in (ROOT / "tests/unit/nats_go_names.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
MEMBERS = [
    line.split(" ")
    for line in (ROOT / "tests/unit/nats_go_members.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
#: Package -> the sections of the page that may have its rows. The older JetStream API is repeated in package nats.
SECTIONS = {
    "nats": ("What Go needs", "Package nats", "Package jetstream"),
    "jetstream": ("What Go needs", "Package jetstream"),
    "micro": ("What Go needs", "Package micro"),
}


def rows(*titles: str) -> list[tuple[list[str], str]]:
    return names_rig.rows(PAGE, *titles)


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
    checked = 0
    for _, ours in rows("Package", "Classes", "Fields"):
        for first, second in re.findall(r"`([A-Za-z]+)\.([A-Za-z_]+)`", ours):
            home = getattr(everything, first, None) or named(first)
            assert home is not None, first
            if first != "jsclient" or second not in ("jetstream", "keyvalue", "objectstore", "options", "codecs"):
                assert second in members(home), (first, second)
            checked += 1
    assert checked > 200


def test_errors_of_the_server_are_the_classes_of_their_rows() -> None:
    """The class that is made of an error's code stands beside its name."""
    beside = {name: ours for names, ours in rows("Package jetstream: its errors") for name in names}
    codes = {name: int(code) for kind, name, code in (line for line in MEMBERS if line[0] == "code")}
    assert len(codes) > 20
    del codes["ErrKeyExists"]  # any wrong last sequence: only the bucket knows that the key exists
    wrong = {name: code for name, code in codes.items() if f"`errors.{made_of(code)}`" not in beside[name]}
    assert wrong == {}


def made_of(code: int) -> str:
    return type(errors.ApiError.registry[code](400, code, "")).__name__ if code in errors.ApiError.registry else ""


def theirs() -> Iterator[tuple[str, str, list[str]]]:
    """(type, member, names that it may have here) of all fields, and of the methods of jetstream and micro."""
    for _, kind, *fields in (line for line in MEMBERS if line[0] != "code"):
        for field, _, wire in (field.partition("=") for field in fields):
            yield kind, field, [spelled(field), wire]
    for package, name in NAMES:
        kind, _, method = name.partition(".")
        if method and package != "nats":
            yield kind, method, [spelled(method)]


def class_of(kind: str) -> Any:
    """Ours for one of theirs; None where there is none."""
    own = {name: ours.strip("`") for names, ours in rows("Classes with another name") for name in names}
    if kind in own:
        return attrgetter(own[kind])(everything)
    if kind == "Msg":
        return jetstream.JetStreamMsg
    return protocol.ServerInfo if kind == "ServerInfo" else named(kind)


def test_fields_and_methods_have_their_name_here_or_a_row() -> None:
    stated = [name for names, _ in rows("What Go needs", "Fields and methods") for name in names]
    missing, looked_for = [], 0
    for kind, member, names in theirs():
        if any(fnmatchcase(f"{kind}.{member}", pattern) for pattern in stated):
            continue
        ours = class_of(kind)
        looked_for += 1
        if ours is None or not any(name in members(ours) for name in names if name):
            missing.append(f"{kind}.{member}")
    assert missing == []
    assert looked_for > 400
