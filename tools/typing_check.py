"""Do type checkers see what users of the library need to see?

    python tools/typing_check.py        prints what is wrong, exit status 1 when there is something

`tests/typed/mistakes.py` holds typical mistakes, one on each line that ends in `# wrong`: each must be refused, and
nothing else in the file. `tests/typed/correct.py` holds correct programs: nothing in it may be refused. Both are read
by mypy --strict and by pyright (or basedpyright, which is the same checker with Node inside), where they are found.
Pyright also counts the public names of known type (`--verifytypes`): all of them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "typed"
MARK = "# wrong"

#: Installed by the extras; without them the types of what is built on them are not known.
EXTRAS = ("pyspark", "pyarrow", "prometheus_client", "opentelemetry", "cryptography")

#: (line, message) of every error in a file
Findings = list[tuple[int, str]]


def expected(text: str) -> set[int]:
    """The numbers of the lines that are marked as wrong."""
    return {number for number, line in enumerate(text.splitlines(), 1) if line.endswith(MARK)}


def compare(text: str, findings: Findings) -> Iterator[str]:
    """What the checker said too much, and what it missed."""
    wrong = expected(text)
    for line, message in findings:
        if line not in wrong:
            yield f"line {line}: refused although it is correct: {message}"
    lines = text.splitlines()
    for line in sorted(wrong - {line for line, _ in findings}):
        yield f"line {line}: not refused: {lines[line - 1].strip()}"


def with_mypy(path: Path) -> Findings:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--output=json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode not in (0, 1):
        raise SystemExit(f"mypy failed: {done.stderr or done.stdout}")
    return [
        (one["line"], one["message"])
        for one in found
        if one["severity"] == "error" and Path(one["file"]).name == path.name
    ]


def with_pyright(program: str) -> Callable[[Path], Findings]:
    def run(path: Path) -> Findings:
        command = [program, "--level", "error", "--pythonpath", sys.executable, "--outputjson", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=FOLDER)
        try:
            found = json.loads(done.stdout)["generalDiagnostics"]
        except (ValueError, KeyError):
            raise SystemExit(f"{program} failed: {done.stderr or done.stdout}") from None
        return [
            (one["range"]["start"]["line"] + 1, one["message"].splitlines()[0])
            for one in found
            if one["severity"] == "error"
        ]

    return run


def unknown(program: str, package: str) -> list[str]:
    """The public names of a package with a type that pyright does not know, or others may read otherwise."""
    # It takes the packages of the `python` that it finds first, whatever --pythonpath says.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    command = [program, "--verifytypes", package, "--ignoreexternal", "--outputjson"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=FOLDER, env=environment)
    try:
        symbols = json.loads(done.stdout)["typeCompleteness"]["symbols"]
    except (ValueError, KeyError):
        raise SystemExit(f"{program} failed: {done.stderr or done.stdout}") from None
    assert len(symbols) > 100, symbols
    return sorted(one["name"] for one in symbols if one["isExported"] and not one["isTypeKnown"])


def complete(program: str) -> bool:
    """Whether every public name has a known type; prints those that have not."""
    missing = [name for name in EXTRAS if importlib.util.find_spec(name) is None]
    if missing:
        print(f"pyright: the types of public names are not counted without {', '.join(missing)}")
        return True
    found = unknown(program, "jsclient")
    for name in found:
        print(f"pyright: the type of {name} is not known: annotate it, or what it is made of")
    if not found:
        print("pyright: the types of all public names are known")
    return not found


def pyright() -> str | None:
    """Where it is, on this machine."""
    beside = str(Path(sys.executable).parent)
    names = ("pyright", "basedpyright")
    return next((found for name in names if (found := shutil.which(name, path=beside) or shutil.which(name))), None)


def checkers() -> dict[str, Callable[[Path], Findings]]:
    """The checkers that this machine has, by name."""
    found: dict[str, Callable[[Path], Findings]] = {"mypy": with_mypy}
    if (program := pyright()) is not None:
        found["pyright"] = with_pyright(program)
    return found


def main() -> int:
    status = 0
    for name, check in checkers().items():
        for path in sorted(FOLDER.glob("*.py")):
            text = path.read_text()
            wrong = list(compare(text, check(path)))
            for line in wrong:
                print(f"{name}: {path.relative_to(ROOT)} {line}")
                status = 1
            if not wrong:
                count = len(expected(text))
                print(f"{name}: {path.name}: {f'{count} of {count} mistakes refused' if count else 'no false alarm'}")
    if (program := pyright()) is not None and not complete(program):
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
