"""tools/dist.py: the description for a package index, and one version in three places."""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path

import pytest

from tools import dist


def test_links_work_outside_of_the_repository() -> None:
    text = "[a](jsclient/x.md) ![p](tools/p.svg) [b](https://example.org/) [c](#d) [![badge](b.svg)](x.md)"
    assert dist.for_an_index(text, "") == "a  [b](https://example.org/) [c](#d) "
    assert dist.for_an_index(text, "https://h/r/") == (
        "[a](https://h/r/jsclient/x.md) ![p](https://h/r/tools/p.svg) [b](https://example.org/) [c](#d) "
        "[![badge](https://h/r/b.svg)](https://h/r/x.md)"
    )


def test_the_version_is_the_same_everywhere() -> None:
    assert dist.version() == "0.1.0"


@pytest.mark.parametrize(
    ("extra", "left_out", "said"),
    [
        ("", "", ""),
        ("build/notes.txt", "", "too much ['build/notes.txt']"),
        ("", "Makefile", "missing ['Makefile']"),
    ],
)
def test_a_source_archive_holds_the_tracked_files(tmp_path: Path, extra: str, left_out: str, said: str) -> None:
    archive = tmp_path / "jsclient-0.1.0.tar.gz"
    tracked = {"Makefile", "jsclient/py.typed", ".gitignore", ".github/ISSUE_TEMPLATE/bug.md"}
    inside = {"Makefile", "jsclient/py.typed", "PKG-INFO", "jsclient.egg-info/SOURCES.txt", extra} - {"", left_out}
    with tarfile.open(archive, "w:gz") as made:
        for name in inside:
            made.addfile(tarfile.TarInfo(f"jsclient-0.1.0/{name}"), io.BytesIO())
    if not said:
        dist.check_archive(archive, tracked)
        return
    with pytest.raises(dist.DistError) as caught:
        dist.check_archive(archive, tracked)
    assert said in str(caught.value)


def test_the_first_example_of_the_readme_is_found() -> None:
    assert "fetch(10, timeout=1)" in dist.first_example()


def test_a_release_has_a_date_and_a_clean_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "ROOT", tmp_path)
    answers = {"status": "", "tag": ""}
    monkeypatch.setattr(dist, "run", lambda *command: answers[command[1]])
    changes = tmp_path / "CHANGELOG.md"
    changes.write_text("# Changelog\n\n## [1.2.0] - unreleased\n")
    with pytest.raises(dist.DistError, match="needs a date"):
        dist.check_release("1.2.0")
    changes.write_text("# Changelog\n\n## [1.2.0] - 2026-11-26\n")
    dist.check_release("1.2.0")
    answers["tag"] = "v1.1.9\n"
    with pytest.raises(dist.DistError, match=r"tagged v1\.1\.9, not v1\.2\.0"):
        dist.check_release("1.2.0")
    answers.update(status=" M README.md\n", tag="v1.2.0\n")
    with pytest.raises(dist.DistError, match="uncommitted"):
        dist.check_release("1.2.0")


def test_each_step_of_a_workflow_is_a_make_target() -> None:
    root = Path(__file__).parents[2]
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.M))
    workflows = sorted((root / ".github" / "workflows").glob("*.yml"))
    assert len(workflows) == 4
    for path in workflows:
        text = path.read_text(encoding="utf-8")
        steps = re.findall(r"- run: (.*)", text)
        named = re.findall(r"target: \[(.*)\]", text)
        found = {step.split()[1] for step in steps if "matrix" not in step}
        found.update(target.strip() for line in named for target in line.split(","))
        assert found <= targets, path.name
        assert all(step.startswith("make ") for step in steps), path.name
        assert "Not run publicly yet" in text
