"""Code, threads and servers are "it" in the library's texts: he, his and whom make a reader look for a person."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PERSONAL = re.compile(r"\b(?:he|him|his|she|her|whom)\b", re.I)


def test_no_code_is_a_person() -> None:
    found = []
    for path in [path for name in ("jsclient", "protocol", "tools") for path in sorted((ROOT / name).rglob("*.py"))]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if PERSONAL.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert found == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
