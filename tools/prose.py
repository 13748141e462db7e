"""A linter for the English of this project: Markdown, docstrings, comments and the texts of errors.

    python tools/prose.py                    fail if a file has more findings than tools/prose.json allows
    python tools/prose.py --show FILES...    every finding: path:line: rule: text  [what to do]
    python tools/prose.py --counts [FILES]   findings per 1,000 words, by kind of text and by rule
    python tools/prose.py --lower            write smaller budgets where files got better; never larger ones

A finding asks you to read the sentence again. In Markdown, `<!-- prose: ok -->` on the line before a paragraph accepts
it; all files together may hold 20 of these. Standard library only.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
BUDGETS = ROOT / "tools" / "prose.json"
ACCEPTED = "<!-- prose: ok -->"
MOST_ACCEPTED = 20
MOST_WORDS = {"text": 80, "cell": 25, "docstring": 80, "comment": 80, "error": 60}
SENTENCE_WORDS, CODE_WIDTH = 28, 88
CLAUSES = r"What|Whatever|Whoever|Whichever|Where|Whether|How|That which"
BE = r"(?:is|are|was|were|be|been|being)"
TELLING = "told|said|asked|believed|known|refused|seen|shown|counted|taken|kept"

#: rule -> (pattern in one sentence, what to do)
RULES = {
    "clause first": (rf"^(?:{CLAUSES})\b(?!.*\?$)", "begin with the thing, or with 'If' or 'When'"),
    "that of": (r"\b(?:that|those|the ones?) of\b", "repeat the noun"),
    "is no": (rf"(?<!there )\b{BE} no\b(?! (?:longer|more))", "say what it is, or 'there is no'"),
    "so that": (r"\bso that\b", "'to' for a purpose, 'so' for a result"),
    "semicolons": (r";.*;", "two semicolons: make sentences or a list"),
    "colons": (r": .*: ", "two colons: make sentences or a list"),
    "passive": (rf"\b{BE} (?:\w+ly )?(?:{TELLING})\b", "say who does it"),
    "two negatives": (
        r"\bnot\b[^.]{3,60}\bnot\b|\bnothing\b[^.]{3,60}\b(?:not|no|nothing|never)\b",
        "say what happens",
    ),
}
#: pattern of a word -> what to write
WORDS = {
    r"mend(?:s|ed|ing)?": "fix",
    r"(?:and|with) (?:its|their) kin": "the names",
    r"anew": "again",
    r"for ever": "forever, indefinitely",
    r"besides?": "next to, in addition to",
    r"naked": "nak'd, negatively acknowledged",
    r"told apart": "distinguished",
    r"unsure": "of unknown outcome",
    r"by whose word|believ(?:e|es|ed)": "trust",
    r"(?:a|the) line on (?:the driver|stderr)": "logs a warning",
    r"in clear": "in plaintext",
    r"as (?:it|they) stands?": "unchanged, verbatim",
    r"stands? (?:in|below|above|at)": "is in",
    r"goes on|go on with": "continues",
    r"(?:is|are) told (?:to|of|so)": "is reported to",
    r"(?:says?|said) so": "name what is reported, and where",
    r"one after (?:the other|another)": "one at a time, in sequence",
    r"(?:so|as) many(?! as)": "the number",
    r"at (?:once|its end)": "immediately; when it ends",
    r"of (?:its|their|your) own": "its own X, a separate X",
    r"(?:function|code|variable) of yours": "your function",
    r"in hand": "in progress",
    r"made again": "re-created",
    r"may (?:not )?ask": "has permission to",
    r"up to you": "your decision",
    r"(?:\d[\d,.]*|few|some) us": "µs",
}
PATTERNS = [
    (rule, re.compile(pattern, 0 if rule == "clause first" else re.I), todo) for rule, (pattern, todo) in RULES.items()
]
WORD_PATTERNS = [(re.compile(rf"\b(?:{pattern})\b", re.I), todo) for pattern, todo in WORDS.items()]


class Text(NamedTuple):
    line: int
    kind: str
    words: str


class Finding(NamedTuple):
    line: int
    kind: str
    rule: str
    what: str
    todo: str


def plain(text: str) -> str:
    """Without links, code and emphasis, which are not read as words."""
    text = re.sub(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"``[^`]+``|`[^`\n]+`", "X", text)
    return re.sub(r"\*\*([^*]+)\*\*|\*([^*]+)\*", lambda found: found[1] or found[2], text)


def sentences(text: str) -> Iterator[str]:
    joined = " ".join(plain(text).split())
    for one in re.split(r"(?<=[.!?])[\"')\]]?\s+(?=[A-Z0-9\"'(])", joined):
        if len(one.split()) > 2:
            yield one


def in_markdown(source: str) -> Iterator[Text]:
    fenced, accepted, began = False, False, 0
    held: list[str] = []
    for number, line in enumerate([*source.splitlines(), ""], 1):
        bare = line.strip()
        if bare.startswith(("```", "~~~")):
            fenced, bare = not fenced, ""
        elif fenced:
            yield Text(number, "code", line)
            continue
        item = re.match(r"(?:[-*+]|\d+[.)])\s+", bare)
        if held and (not bare or item or bare.startswith(("#", "|", "<!--"))):
            if not accepted:
                yield Text(began, "text", " ".join(held))
            held, accepted = [], False
        accepted = accepted or bare == ACCEPTED
        if not bare or bare.startswith(("#", "<!--", "{")):
            continue
        if bare.startswith("|"):
            if not re.fullmatch(r"\|[\s:|-]+\|", bare):
                yield from (Text(number, "cell", c.strip()) for c in re.split(r"(?<!\\)\|", bare.strip("|")))
            continue
        began = began if held else number
        held.append(bare[len(item[0]) :] if item else bare)


def in_python(source: str) -> Iterator[Text]:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from paragraphs(node.lineno, node.value.value)
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for argument in node.exc.args:
                text = literal(argument)
                if len(text.split()) > 2:
                    yield Text(argument.lineno, "error", text)
    yield from comments(source)


def literal(node: ast.expr) -> str:
    """The text of a string or an f-string, with X for what is filled in."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(literal(part) if isinstance(part, ast.Constant) else "X" for part in node.values)
    return ""


def paragraphs(line: int, docstring: str) -> Iterator[Text]:
    """Without examples, which are indented or begin with a prompt. Of a section each entry is a text."""
    for part in re.split(r"(\n\s*\n)", inspect.cleandoc(docstring)):
        if re.match(r"[A-Z][\w ]*:\n {4}", part):
            for entry in re.split(r"\n {4}(?=\S)", part)[1:]:
                yield Text(line, "docstring", " ".join(entry.partition(": ")[2].split()))
        elif part.strip() and not re.match(r" {4}|>>>", part):
            yield Text(line, "docstring", " ".join(part.split()))
        line += part.count("\n")


def comments(source: str) -> Iterator[Text]:
    """Comments on neighbouring lines are one text."""
    held: list[str] = []
    began = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        text = token.string.lstrip("#: ")
        if re.match(r"(?:type|noqa|fmt|ruff|mypy|pragma|pyright|!|shellcheck|---)", text):
            continue
        if held and token.start[0] != last + 1:
            yield Text(began, "comment", " ".join(held))
            held = []
        began = began if held else token.start[0]
        last = token.start[0]
        held.append(text)
    if held:
        yield Text(began, "comment", " ".join(held))


def texts(path: Path) -> list[Text]:
    source = path.read_text(encoding="utf-8")
    return list(in_markdown(source) if path.suffix == ".md" else in_python(source))


def look(text: Text) -> Iterator[Finding]:
    line, kind, words = text
    if kind == "code":
        if len(words) > CODE_WIDTH:
            yield Finding(line, kind, "code width", f"{len(words)} characters", f"at most {CODE_WIDTH}")
        return
    size = len(plain(words).split())
    if size > MOST_WORDS[kind]:
        yield Finding(line, kind, f"long {kind}", f"{size} words", "split it, or make a list")
    for one in sentences(words):
        if len(one.split()) > SENTENCE_WORDS:
            yield Finding(line, kind, "long sentence", one[:90], f"at most {SENTENCE_WORDS} words")
        for rule, pattern, todo in PATTERNS:
            if pattern.search(one):
                yield Finding(line, kind, rule, one[:90], todo)
    for pattern, todo in WORD_PATTERNS:
        for found in pattern.finditer(plain(words)):
            yield Finding(line, kind, "word", found[0], todo)


def findings(path: Path) -> list[Finding]:
    return [finding for text in texts(path) for finding in look(text)]


def project_files() -> list[Path]:
    patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "tools/docs/pages/*.md"]
    patterns += ["jsclient/*.md", "jsclient/*.py", "protocol/*.py", "tools/*.py"]
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, check=True, capture_output=True, text=True)
    return [ROOT / name for name in listed.stdout.split() if (ROOT / name).exists()]


def name_of(path: Path) -> str:
    return path.resolve().relative_to(ROOT).as_posix()


def check(files: list[Path]) -> int:
    budgets: dict[str, int] = json.loads(BUDGETS.read_text())
    failed = 0
    for path in files:
        found, allowed = findings(path), budgets.get(name_of(path), 0)
        if len(found) > allowed:
            failed = 1
            print(f"{name_of(path)}: {len(found)} findings, {allowed} allowed")
            for one in found:
                print(f"  {one.line}: {one.rule}: {one.what}  [{one.todo}]")
    accepted = sum(path.read_text(encoding="utf-8").count(f"\n{ACCEPTED}\n") for path in files if path.suffix == ".md")
    if accepted > MOST_ACCEPTED:
        failed = 1
        print(f"{accepted} paragraphs are accepted with {ACCEPTED}; at most {MOST_ACCEPTED}")
    return failed


def lower(files: list[Path]) -> None:
    before: dict[str, int] = json.loads(BUDGETS.read_text())
    counts = {name_of(path): len(findings(path)) for path in files}
    after = {name: min(count, before.get(name, 0)) for name, count in counts.items()}
    BUDGETS.write_text(json.dumps({name: most for name, most in sorted(after.items()) if most}, indent=1) + "\n")


def show_counts(files: list[Path]) -> None:
    words: Counter[str] = Counter()
    found: Counter[tuple[str, str]] = Counter()
    for path in files:
        for text in texts(path):
            words[text.kind] += len(plain(text.words).split()) if text.kind != "code" else 0
            found.update((text.kind, finding.rule) for finding in look(text))
    for kind in sorted({kind for kind, _ in found}):
        here = {rule: number for (k, rule), number in found.items() if k == kind}
        per = f"{1000 * sum(here.values()) / words[kind]:.1f} per 1,000 words" if words[kind] else ""
        print(f"{kind}: {sum(here.values())} findings {per}")
        for rule, number in sorted(here.items(), key=lambda pair: -pair[1]):
            print(f"    {rule:16}{number:6}")
    print(f"all: {found.total()} findings, {1000 * found.total() / max(1, words.total()):.1f} per 1,000 words")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--show", action="store_true")
    how.add_argument("--counts", action="store_true")
    how.add_argument("--lower", action="store_true")
    options = parser.parse_args(arguments)
    files = options.files or project_files()
    if options.counts:
        show_counts(files)
    elif options.lower:
        lower(files)
    elif options.show:
        for path in files:
            for one in findings(path):
                print(f"{path}:{one.line}: {one.rule}: {one.what}  [{one.todo}]")
    else:
        return check(files)
    return 0


if __name__ == "__main__":
    sys.exit(main())
