"""Gather the pages of the site into one folder: tools/docs/pages, the packages' chapters, the API reference.

Links between files of the repository become links between pages. A link to a file that is no page becomes a download of
that file, and a link to nothing is an error.
"""

from __future__ import annotations

import os
import re
import shutil
from functools import cache
from pathlib import Path

from tools.docs import api, navigation
from tools.docs.words import with_words

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "tools" / "docs" / "pages"

#: file of the repository -> page; a part of a file is the text below a heading (`file#heading`).
CHAPTERS = {
    "jsclient/jetstream/README.md": "jetstream.md",
    "jsclient/keyvalue/README.md": "keyvalue.md",
    "jsclient/objectstore/README.md": "objectstore.md",
    "jsclient/services/README.md": "services.md",
    "jsclient/workers/README.md": "workers.md",
    "jsclient/groups/README.md": "groups.md",
    "jsclient/coordination/README.md": "coordination.md",
    "jsclient/backup/README.md": "backup.md",
    "jsclient/arrow/README.md": "arrow.md",
    "jsclient/spark/README.md": "spark.md",
    "jsclient/exactly/README.md": "exactly.md",
    "jsclient/planning/README.md": "planning.md",
    "jsclient/testing/README.md": "testing.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
}
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s]+)\)")
SHOW = re.compile(r"^<!-- show (\S+) -->\n.*\n", re.M)
CODE = re.compile(r"^```.*?^```$|^    .*?$|`[^`\n]+`", re.M | re.S)
GO_TABLES = re.compile(r"^## (?:nats\.go -> |Errors of nats\.go).*?(?=^## |\Z)", re.M | re.S)


class DeadLink(Exception):
    """A page names a file that is not there."""


def sources() -> dict[Path, str]:
    """file of the repository -> name of its page."""
    found = {PAGES / path.name: path.name for path in sorted(PAGES.glob("*.md"))}
    return found | {ROOT / name: page for name, page in CHAPTERS.items()}


def gather(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pages = sources()
    for path, page in pages.items():
        text = without_tables(path, path.read_text(encoding="utf-8"))
        text = with_words(page, rewrite(path, text, pages, folder))
        (folder / page).write_text(text, encoding="utf-8")
    (folder / "from-go.md").write_text(go_page(pages, folder), encoding="utf-8")
    (folder / "glossary.md").write_text(with_words("glossary.md", glossary_page()), encoding="utf-8")
    for page, text in navigation.section_pages().items():
        (folder / page).write_text(text, encoding="utf-8")
    api.write(folder)


def without_tables(path: Path, text: str) -> str:
    """The dictionaries of nats.go have a page of their own on the site."""
    return GO_TABLES.sub("", text) if path.parent.parent == ROOT / "jsclient" else text


def go_page(pages: dict[Path, str], folder: Path) -> str:
    parts = ["# For Go developers\n\nWhat nats.go calls it, and what it is called here. A test checks every row.\n"]
    for name in CHAPTERS:
        if name.startswith("jsclient/"):
            path = ROOT / name
            for table in GO_TABLES.findall(path.read_text(encoding="utf-8")):
                title = "here" if "-> here" in table else ""
                text = (
                    table.replace("## nats.go -> here", f"## nats.go -> jsclient.{path.parent.name}")
                    if title
                    else table
                )
                parts.append(rewrite(path, text, pages, folder))
    return "\n".join(parts)


def errors_table() -> str:
    """Every error with what it means for the data and what to do, below the class that it is a kind of."""
    from jsclient import errors

    lines = ["| error | when | for the data | what to do |", "|---|---|---|---|"]

    def below(cls: type[errors.JsClientError], depth: int) -> None:
        when = re.split(r"(?<=[.:;]) |\n\n", " ".join((cls.__doc__ or "").split()))[0].rstrip(":;.")
        cells = ("\u2007" * 2 * depth + f"`{cls.__name__}`", when, cls.meaning, cls.advice)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        for child in cls.__subclasses__():
            if child.__module__ == "jsclient.errors" and child.__name__ not in seen:
                seen.add(child.__name__)
                below(child, depth + 1)

    seen: set[str] = set()
    below(errors.JsClientError, 0)
    return "\n".join(lines) + "\n"


def glossary_page() -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return "# Glossary\n" + text.split("## Glossary\n", 1)[1]


def rewrite(path: Path, text: str, pages: dict[Path, str], folder: Path) -> str:
    """The text of a page with its programs shown and its links pointing to pages."""
    text = text.replace("\n```output\n", "\n```text\n")
    text = SHOW.sub(lambda match: shown(path, match[1]), text)
    if path.parent == PAGES:
        text = text.replace("<!-- errors -->\n", errors_table())
        text = text.replace("<!-- sections -->\n", navigation.toctree([name for name, *_ in navigation.SECTIONS]))

    def change(match: re.Match[str]) -> str:
        label, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        place, _, anchor = target.partition("#")
        return f"{LINK.sub(change, label)}({resolved(path, place, pages, folder)}{'#' + anchor if anchor else ''})"

    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(match[0])
        return f"\0{len(kept) - 1}\0"

    plain = LINK.sub(change, re.sub(r"^```.*?^```$", keep, text, flags=re.M | re.S))
    return re.sub(r"\0(\d+)\0", lambda match: kept[int(match[1])], plain)


def resolved(path: Path, place: str, pages: dict[Path, str], folder: Path) -> str:
    if path.parent == PAGES and place.startswith("api/") and place in api_names():
        return place
    target = Path(os.path.normpath(path.parent / place))
    if target in pages:
        return pages[target]
    if target == ROOT / "README.md":
        return "index.md"
    if place in ("from-go.md", "glossary.md"):
        return place
    if not target.is_file():
        raise DeadLink(f"{path.relative_to(ROOT)} links to {place}: there is no such file")
    copy = folder / "files" / target.relative_to(ROOT)
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(target, copy)
    return copy.relative_to(folder).as_posix()


@cache
def api_names() -> set[str]:
    return set(api.pages())


def shown(path: Path, name: str) -> str:
    """A program of tests/examples as a block of code, under its name."""
    target = ROOT / name
    if not target.is_file():
        raise DeadLink(f"{path.relative_to(ROOT)} shows {name}: there is no such file")
    return f"```python\n{target.read_text(encoding='utf-8').rstrip()}\n```\n"
