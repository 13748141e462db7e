"""The versions of PySpark that the texts promise are those that `make test-sparks` tries."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

SPARKS = importlib.import_module("tools.sparks").SPARKS
ROOT = Path(__file__).resolve().parents[2]


def versions(text: str) -> set[str]:
    return set(re.findall(r"\b[34]\.\d\b", text))


def test_the_chapter_has_a_row_for_each_version() -> None:
    chapter = (ROOT / "jsclient" / "spark" / "README.md").read_text(encoding="utf-8")
    table = chapter.partition("| PySpark |")[2].partition("\n\n")[0]
    assert {version for row in table.splitlines()[2:] for version in versions(row.split("|")[1])} == set(SPARKS)


def test_the_list_of_targets_names_each_version() -> None:
    lines = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()
    (row,) = [line for line in lines if line.startswith("| `make test-sparks`")]
    assert versions(row) == set(SPARKS)


def test_the_bounds_of_the_package_allow_each_version() -> None:
    settings = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    (lowest,) = set(re.findall(r"pyspark>=([\d.]+)", settings))
    assert lowest == min(SPARKS)
    old = {
        pin.removeprefix("pyarrow==").removesuffix(".*")
        for _, pins in SPARKS.values()
        for pin in pins
        if "arrow" in pin
    }
    assert f"pyarrow>={min(map(int, old))}\n" in settings
