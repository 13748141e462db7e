"""Names and other facts from Go sources that gofmt has formatted; keeps no sentence and no code of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_TAG = re.compile(r"^\s*(\w+(?:, \w+)*)\s+(?!\()(\S.*?)\s*(?:`(?:.*?json:\"([^\"]*)\")?[^`]*`)?\s*(?://.*)?$")
_EMBEDDED = re.compile(r"^\s*\*?((?:\w+\.)?\w+)\s*(?:`[^`]*`)?\s*(?://.*)?$")
_METHOD = re.compile(r"func \((?:\w+ )?\*?(\w+)(?:\[[^\]]*\])?\) (\w+)[\[(]")


def lines(folder: Path) -> Iterator[str]:
    """The lines of all sources of a package without its tests, block comments taken out."""
    for path in sorted(folder.glob("*.go")):
        if not path.name.endswith("_test.go") and path.name != "testing_internal.go":
            yield from re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S).splitlines()


def exported(folder: Path) -> set[str]:
    """`Name`, `Type.Method` for functions, methods, types, constants and variables that other packages can use."""
    found: set[str] = set()
    group = kind = ""  # what a line belongs to: const, var or type, and the interface
    for line in lines(folder):
        if method := _METHOD.match(line):
            found.add(".".join(method.groups()))
        elif name := re.match(r"func (\w+)[\[(]", line):
            found.add(name[1])
        elif start := re.match(r"(const|var|type) \($", line):
            group = start[1]
        elif line == ")":
            group = kind = ""
        elif single := re.match(r"(?:const|var) (\w+)", line):
            found.add(single[1])
        elif typed := re.match(r"(?:type |\t)(\w+)(?:\[[^\]]*\])? .*?(interface \{|struct \{)?$", line):
            if line.startswith("type ") or group == "type":
                found.add(typed[1])
                kind = typed[1] if (typed[2] or "").startswith("interface") else ""
            elif group:
                found.update(_declared(line))
            continue
        elif group in ("const", "var") and re.match(r"\t\w", line):
            found.update(_declared(line))
        if kind and (inside := re.match(r"\t{1,2}(\w+)\(", line)):
            found.add(f"{kind}.{inside[1]}")
        if line in ("}", "\t}"):
            kind = ""
    return {name for name in found if all(part[:1].isupper() for part in name.split("."))}


def _declared(line: str) -> list[str]:
    """The names of a line within `const (` or `var (`."""
    found = re.match(r"\t(\w+(?:, \w+)*)(?: |$)", line)
    return found[1].split(", ") if found else []


def structures(folder: Path) -> dict[str, dict[str, str]]:
    """Structure -> field -> its name in JSON ("" without one). An embedded structure is a field "<embedded>"."""
    found: dict[str, dict[str, str]] = {}
    fields: dict[str, str] | None = None
    end = ""
    for line in lines(folder):
        if start := re.match(r"(type |\t)(\w+)(?:\[[^\]]*\])? struct \{$", line):
            fields = found.setdefault(start[2], {})
            end = "}" if start[1] == "type " else "\t}"
        elif fields is not None and line == end:
            fields = None
        elif fields is not None and not line.strip().startswith("//"):
            if embedded := _EMBEDDED.match(line):
                fields[embedded[1]] = "<embedded>"
            elif field := _TAG.match(line):
                wire = (field[3] or "").partition(",")[0]
                for name in field[1].split(", "):
                    fields[name] = "" if wire == "-" else wire
    return found


def constants(folder: Path) -> Iterator[tuple[str, str, str]]:
    """(name, type or "", value as text) of constants and variables with a number or one string."""
    pattern = re.compile(r'(?:const |var |\t)(\w+)(?:\s+(\w+))?\s*= (?:\w+\()?(?:"([^"]*)"|(\d+))\)?\s*(?://.*)?$')
    for line in lines(folder):
        if found := pattern.match(line):
            yield found[1], found[2] or "", found[3] if found[3] is not None else found[4]
