"""tools/prose.py: each rule finds its sentence, code and links are left out, and a budget only falls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import prose


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    monkeypatch.setattr(prose, "BUDGETS", tmp_path / "budgets.json")
    (tmp_path / "budgets.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize(
    ("sentence", "rule"),
    [
        ("What comes beyond that is dropped.", "clause first"),
        ("The name is that of the stream.", "that of"),
        ("The string is no number at all.", "is no"),
        ("It waits so that nothing is lost.", "so that"),
        ("One thing; another thing; a third thing.", "semicolons"),
        ("First: one thing: and another.", "colons"),
        ("The server is asked for its state.", "passive"),
        ("It does not wait and does not raise.", "two negatives"),
        ("Send it again at once to the server.", "word"),
        (" ".join(["word"] * 30) + ".", "long sentence"),
    ],
)
def test_each_rule(here: Path, sentence: str, rule: str) -> None:
    for name, source in [
        ("page.md", f"# Title\n\n{sentence}\n"),
        ("doc.py", f'"""{sentence}"""\n'),
        ("comment.py", f"# {sentence}\nx = 1\n"),
        ("error.py", f'raise ValueError("{sentence}")\n'),
    ]:
        path = here / name
        path.write_text(source)
        assert rule in [found.rule for found in prose.findings(path)], name


@pytest.mark.parametrize(
    "text",
    [
        "What happens if the server stops?",
        "Code is left out: `What is no name`. So is [the target](so that.md) of a link.",
        "<!-- prose: ok -->\nWhat comes is dropped.",
        "```python\nx = 1  # What comes is dropped\n```",
    ],
)
def test_code_questions_and_accepted_paragraphs_are_left_out(here: Path, text: str) -> None:
    (here / "page.md").write_text(text + "\n")
    assert prose.findings(here / "page.md") == []


def test_a_long_line_of_code(here: Path) -> None:
    (here / "page.md").write_text("```python\n" + "x" * 89 + "\n```\n")
    assert [finding.rule for finding in prose.findings(here / "page.md")] == ["code width"]


def test_a_budget_only_falls(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = here / "page.md"
    bad = "What comes is dropped.\n\n"
    budget = here / "budgets.json"
    page.write_text(bad * 2)
    budget.write_text('{"page.md": 1}')
    assert prose.check([page]) == 1
    assert "page.md: 2 findings, 1 allowed" in capsys.readouterr().out
    prose.lower([page])
    assert json.loads(budget.read_text()) == {"page.md": 1}
    page.write_text(bad)
    assert prose.check([page]) == 0
    page.write_text("The client drops the rest.\n")
    prose.lower([page])
    assert json.loads(budget.read_text()) == {}


def test_few_paragraphs_may_be_accepted(here: Path) -> None:
    page = here / "page.md"
    page.write_text("\n<!-- prose: ok -->\nWhat comes is dropped.\n" * (prose.MOST_ACCEPTED + 1))
    assert prose.check([page]) == 1
