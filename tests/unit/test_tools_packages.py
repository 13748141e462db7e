"""The map in CONTRIBUTING.md has every package with the first sentence of its docstring."""

from __future__ import annotations

from tools import packages


def test_the_map_is_as_the_packages_are() -> None:
    text = packages.PAGE.read_text(encoding="utf-8")
    assert packages.with_table(text) == text, "run: python -m tools.packages"


def test_each_package_says_what_it_is_for() -> None:
    rows = packages.table().splitlines()[2:]
    assert len(rows) > 20
    assert [row for row in rows if len(row.split("|")[2].split()) < 4] == []


def test_another_sentence_is_found() -> None:
    text = packages.PAGE.read_text(encoding="utf-8")
    assert packages.with_table(text.replace("| `protocol` | ", "| `protocol` | Other ")) == text
