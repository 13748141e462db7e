"""Do type checkers see what users of the library need to see?

    python tools/typing_check.py        prints what is wrong, exit status 1 when there is something

`tests/typed/mistakes.py` holds typical mistakes, one on each line that ends in `# wrong`: each must be refused, and
nothing else in the file. `tests/typed/correct.py` holds correct programs: nothing in it may be refused. Both are read
by mypy --strict and by pyright (or basedpyright, which is the same checker with Node inside), where they are found.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "typed"
MARK = "# wrong"

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


def checkers() -> dict[str, Callable[[Path], Findings]]:
    """The checkers that this machine has, by name."""
    found: dict[str, Callable[[Path], Findings]] = {"mypy": with_mypy}
    beside = Path(sys.executable).parent
    for name in ("pyright", "basedpyright"):
        program = shutil.which(name, path=str(beside)) or shutil.which(name)
        if program is not None:
            found[name] = with_pyright(program)
            break
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
    return status


if __name__ == "__main__":
    sys.exit(main())
