"""Code, threads and servers are "it" in our texts; `tools/prose.py` checks the rest of the language."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PERSONAL = re.compile(r"\b(?:he|him|his|she|her)\b", re.I)
#: `words.md`, `folder/words.md`: a document.
DOCUMENT = re.compile(r"\b[\w./-]*\w\.md\b")


def texts(pattern: str) -> list[Path]:
    return [path for name in ("jsclient", "protocol", "tools") for path in sorted((ROOT / name).rglob(pattern))]


def test_no_code_is_a_person() -> None:
    found = []
    examples = sorted((ROOT / "tests" / "examples").glob("*.py"))  # they stand on the site
    for path in [*texts("*.py"), *texts("*.md"), *examples, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if PERSONAL.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert found == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_no_text_refers_to_a_document_that_is_not_here() -> None:
    here = {path.name for path in ROOT.rglob("*.md") if "build" not in path.parts}
    missing = [
        f"{path.relative_to(ROOT)}:{number}: {document}"
        for name in ("jsclient", "protocol")
        for path in sorted((ROOT / name).rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for document in DOCUMENT.findall(line)
        if Path(document).name not in here
    ]
    assert missing == []
