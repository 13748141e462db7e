"""The map of the packages in CONTRIBUTING.md, from the first sentence of each package's docstring.

`python -m tools.packages` writes it; a test compares it with the packages.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- packages -->\n", "<!-- end of packages -->\n"


def first_sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[a-z)`])\. ", paragraph)[0].rstrip(".").replace("|", "\\|")


def packages() -> list[Path]:
    """All with sources of the library; the link `jsclient/protocol` is left out."""
    found = [ROOT / "protocol", *sorted(path.parent for path in (ROOT / "jsclient").rglob("__init__.py"))]
    return [path for path in found if path != ROOT / "jsclient" and not path.is_symlink()]


def table() -> str:
    rows = [f"| `{path.relative_to(ROOT)}` | {first_sentence(path / '__init__.py')} |" for path in packages()]
    return "\n".join(["| package | purpose |", "|---|---|", *rows]) + "\n"


def with_table(text: str) -> str:
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + table() + END + after


def main() -> None:
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
