"""Run a page as its reader would: programs, commands of the shell, and the output that the page shows."""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from jsclient.testing import NatsServer

BLOCK = re.compile(r"^```(python|console|output)\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: A command may go on over lines: after a backslash, and from `do` to `done`.
COMMAND = re.compile(r"^\$ ((?:.*\\\n|.*\bdo\n(?:(?!.*\bdone).*\n)*)*.*)\n((?:(?!\$ ).*\n)*)", re.M)
USUAL = "nats://127.0.0.1:4222"
END = "--- end of the command"
#: A shell command may look at what a program in the background has yet to print: it is run again until it matches.
PATIENCE = 400


class Program(NamedTuple):
    code: str
    output: str | None
    """What the page shows below it; None without."""

    @property
    def file(self) -> str:
        """The name of the file that the first line tells the reader to save it as, or ""."""
        named = re.match(r"# (\w+\.py)\n", self.code)
        return named[1] if named else ""


class Command(NamedTuple):
    line: str
    output: str


def steps(path: Path) -> Iterator[Program | Command]:
    found = BLOCK.findall(path.read_text(encoding="utf-8"))
    for (kind, text), (following, output) in zip(found, [*found[1:], ("", "")], strict=False):
        if kind == "python":
            yield Program(text, output if following == "output" else None)
        elif kind == "console":
            for line, shown in COMMAND.findall(text):
                yield Command(line, shown)


def matches(expected: str, got: str) -> bool:
    """Whether the output is what the page shows; `...` in the page stands for anything."""
    parts = [re.escape(part) for part in expected.strip().split("...")]
    return re.fullmatch(r"[\s\S]*?".join(parts), got.strip()) is not None


def check(where: str, expected: str, got: str) -> None:
    if not matches(expected, got):
        shown = "\n".join(difflib.unified_diff(expected.splitlines(), got.splitlines(), "page", "printed", lineterm=""))
        raise AssertionError(f"{where} prints something else than the page shows:\n{shown}")


def run(program: Program, name: str, url: str, answer: Callable[[str], str] | None = None) -> str:
    """Run a program with the server's address in place of the usual one; returns what it printed."""
    printed = io.StringIO()
    names: dict[str, object] = {"__name__": "__main__"}
    if answer is not None:

        def ask(prompt: str = "") -> str:
            print(prompt)
            return answer(prompt)

        names["input"] = ask
    code = compile(program.code.replace(USUAL, url), name, "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    return printed.getvalue()


class Shell:
    """One bash for the commands of a page, in a folder of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        root = Path(__file__).resolve().parents[1]
        (folder / "home").mkdir()
        wrapper = folder / "bin" / "jsclient"
        wrapper.parent.mkdir()
        wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m jsclient "$@"\n')
        wrapper.chmod(0o755)
        path = os.pathsep.join([str(wrapper.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
        environ = {**os.environ, "PATH": path, "NATS_URL": url, "HOME": str(folder / "home"), "COLUMNS": "100"}
        environ["PYTHONPATH"] = str(root)
        self._url = url
        self._bash = subprocess.Popen(
            ["bash", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=environ,
            start_new_session=True,
        )

    def run(self, line: str, *, limit: float = 60) -> str:
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{line}\necho '{END}'\n")
        self._bash.stdin.flush()
        lines: list[str] = []
        timer = threading.Timer(limit, self._bash.kill)
        timer.start()
        try:
            for printed in self._bash.stdout:
                if printed.rstrip("\n").endswith(END):
                    return "".join([*lines, printed.replace(END, "")]).replace(self._url, USUAL)
                lines.append(printed)
        finally:
            timer.cancel()
        raise AssertionError(f"the shell ended, or {limit} s were over: {line}\n{''.join(lines)}")

    def expect(self, command: Command) -> None:
        """Run a command; one that only looks (`cat`, `grep`, `jsclient ... ls`) until it shows what the page does."""
        looks = re.match(r"cat |grep |sort |curl |jsclient (?:\w+ )*(?:ls|top)", command.line)
        end = time.monotonic() + (PATIENCE if looks else 0)
        while not matches(command.output, printed := self.run(command.line, limit=PATIENCE)):
            if time.monotonic() > end:
                break
            self.run("sleep 1")
        else:
            return
        check(command.line, command.output, printed)

    def close(self) -> None:
        self._bash.communicate("kill $(jobs -p) 2>/dev/null; exit\n", timeout=30)


def follow(page: Path, folder: Path, server: NatsServer) -> None:
    """Do what the page says, step by step, and compare what comes with what the page shows."""

    def answer(prompt: str) -> str:
        if prompt.startswith("Stop the server"):
            server.stop()
        elif prompt.startswith("Start the server"):
            server.start()
        return ""

    shell = Shell(folder, server.url)
    try:
        for number, step in enumerate(steps(page), 1):
            if isinstance(step, Command):
                shell.expect(step)
            elif step.file:
                (folder / step.file).write_text(step.code.replace(USUAL, server.url))
            else:
                printed = run(step, f"<{page.name} program {number}>", server.url, answer)
                assert step.output is not None, f"program {number} shows no output"
                check(f"program {number}", step.output, printed)
    finally:
        shell.close()
