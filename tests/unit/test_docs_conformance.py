"""The page on conformance has the numbers that the tests have."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "tools" / "docs" / "pages" / "conformance.md"


def covered(test: str) -> int:
    """How many cases the tests of a file are named after."""
    text = (ROOT / test).read_text(encoding="utf-8")
    names = re.findall(r"^def test_[a-z]+((?:_\d{3,4})+)_", text, re.M)
    return len({number for found in names for number in found.strip("_").split("_")})


def test_the_page_counts_the_cases() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"\| (\d+) of \d+ \| `(tests/live/test_conformance_\w+\.py)` \|", page)
    assert {test for _, test in rows} == {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "live").glob("test_conformance_*.py")
    }
    assert [int(said) for said, _ in rows] == [covered(test) for _, test in rows]
    assert f"**{sum(int(said) for said, _ in rows)} of 325**" in page


def test_the_page_names_the_tests_of_the_points() -> None:
    page = PAGE.read_text(encoding="utf-8").split("## Where clients differ on batches")[1].split("\n## ")[0]
    named = set(re.findall(r"`(test_\w+_\w+)`", page)) - {"test_point", "test_ab"}
    files = {path: (ROOT / path).read_text(encoding="utf-8") for path in re.findall(r"`(tests/live/\w+\.py)`", page)}
    tests = {path: set(re.findall(r"^def (test_\w+)", text, re.M)) for path, text in files.items()}
    assert named <= set().union(*tests.values())
    assert tests["tests/live/test_batch_points.py"] <= named
