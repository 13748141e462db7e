"""Names from Rust sources that rustfmt has formatted: `python tools/rust_names.py FOLDER` prints them for async-nats.

A line is `module.Type`, or `module.Type.member` for a public method, field or variant.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("jetstream", "service")

_ITEM = re.compile(r"(?:pub (struct|enum|trait|type)|(impl|mod|pub mod))\b(?:<.*?>)? (.*)")
_TYPE = re.compile(r"^(?:\w+::)*(\w+).*")
_METHOD = re.compile(r"    (?:pub )?(?:async )?fn (\w+)")
_FIELD = re.compile(r"    pub (\w+):")
_VARIANT = re.compile(r"    ([A-Z]\w*)(?:[,({ ]|$)")


def names(source: str) -> Iterator[str]:
    """`Type` and `Type.member` of a file. Modules inside it are left out: they hold tests and traits."""
    kind = owner = ""
    for line in re.sub(r"/\*.*?\*/", "", source, flags=re.S).splitlines():
        if start := _ITEM.match(line):
            kind = start[1] or start[2]
            owner = _TYPE.sub(r"\1", start[3])
            if start[1]:
                yield owner
            if start[2] == "impl" and " for " in line:
                kind = "impl for"
            if line.endswith((";", "}")):
                kind = ""
        elif line.startswith("}"):
            kind = ""
        elif kind == "trait" or (kind == "impl" and line.startswith("    pub ")):
            if method := _METHOD.match(line):
                yield f"{owner}.{method[1]}"
        elif kind == "struct" and (field := _FIELD.match(line)):
            yield f"{owner}.{field[1]}"
        elif kind == "enum" and not owner.endswith("ErrorKind") and (variant := _VARIANT.match(line)):
            yield f"{owner}.{variant[1]}"


def module_name(path: Path) -> str:
    return path.parent.name if path.stem == "mod" else path.stem


def exported(source: Path) -> list[str]:
    found = {
        f"{module_name(path)}.{name}"
        for folder in FOLDERS
        for path in (source / folder).rglob("*.rs")
        for name in names(path.read_text(encoding="utf-8"))
    }
    return sorted(found)


if __name__ == "__main__":
    print(*exported(Path(sys.argv[1])), sep="\n")
