"""A program on a pseudo terminal, and the screen that it draws, for tests of the command line."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import unicodedata

_SEQUENCE = re.compile(r"\x1b\[[?>]?([0-9;]*)([A-Za-z@`])|\x1b[()][A-Z0-9]|\x1b[=>78DEHM]|[\r\n\b]|[^\x1b\r\n\b]")


class Terminal:
    """Runs `python -m jsclient WORDS` on a terminal; `rows` is what a person sees. Leaves no process behind."""

    def __init__(self, words: list[str], environment: dict[str, str], columns: int = 80, lines: int = 24) -> None:
        self.columns, self.lines = columns, lines
        self.raw = b""
        self._seen = 0
        self._cells = [[" "] * columns for _ in range(lines)]
        self._at = (0, 0)
        self._region = (0, lines - 1)
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        clean = {key: value for key, value in environment.items() if key not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jsclient", *words],
            env={"TERM": "xterm-256color", **clean},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        os.close(self._ours)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def read(self, seconds: float = 0.1) -> bool:
        """Take in what is drawn; False at the end of the program."""
        if not select.select([self._ours], [], [], seconds)[0]:
            return True
        try:
            piece = os.read(self._ours, 65536)
        except OSError:  # the end of a pseudo terminal
            return False
        self.raw += piece
        return bool(piece)

    def end(self) -> int:
        """The exit status."""
        while self.read(30):
            pass
        return self.process.wait(10)

    @property
    def rows(self) -> list[str]:
        """The lines of the screen."""
        text = self.raw[self._seen :].decode(errors="ignore")
        self._seen = len(self.raw)
        for found in _SEQUENCE.finditer(text):
            self._draw(found)
        return ["".join(row).rstrip() for row in self._cells]

    def _draw(self, found: re.Match[str]) -> None:
        row, column = self._at
        numbers = [int(number) if number else 0 for number in (found[1] or "").split(";")]
        first, kind = max(numbers[0], 1), found[2]
        if found[0] == "\r":
            column = 0
        elif found[0] == "\n" and row == self._region[1]:
            self._scroll(*self._region)
        elif found[0] == "\x1bM" and row == self._region[0]:
            self._scroll(self._region[1], self._region[0])
        elif found[0] == "\n":
            row = min(row + 1, self.lines - 1)
        elif kind == "r":
            self._region = (first - 1, (numbers[1] if len(numbers) > 1 else self.lines) - 1)
            row, column = 0, 0
        elif found[0] == "\b" or kind == "D":
            column = max(column - first, 0)
        elif kind in ("H", "f"):
            row, column = first - 1, max(numbers[1] if len(numbers) > 1 else 1, 1) - 1
        elif kind == "d":
            row = first - 1
        elif kind in ("G", "`"):
            column = first - 1
        elif kind == "C":
            column += first
        elif kind == "A":
            row -= first
        elif kind == "B":
            row += first
        elif kind == "b":
            for _ in range(first):
                row, column = self._put(row, column, self._cells[row][column - 1])
        elif kind == "X":
            self._cells[row][column : column + first] = " " * min(first, self.columns - column)
        elif kind == "P":
            line = self._cells[row]
            line[column:] = [*line[column + first :], *" " * first][: self.columns - column]
        elif kind == "@":
            line = self._cells[row]
            line[column:] = [*" " * first, *line[column:]][: self.columns - column]
        elif kind in ("L", "M"):
            blank = [[" "] * self.columns for _ in range(first)]
            below = [*blank, *self._cells[row:]] if kind == "L" else [*self._cells[row + first :], *blank]
            self._cells[row:] = below[: self.lines - row]
        elif kind == "K":
            part = slice(0, column + 1) if numbers[0] == 1 else slice(column, self.columns)
            self._cells[row][part] = " " * len(self._cells[row][part])
        elif kind == "J":
            if numbers[0] == 0:
                self._cells[row][column:] = " " * (self.columns - column)
            for other in range(row + 1 if numbers[0] == 0 else 0, self.lines):
                self._cells[other] = [" "] * self.columns
        elif not found[0].startswith("\x1b"):
            row, column = self._put(row, column, found[0])
        self._at = (row, column)

    def _scroll(self, away: int, blank: int) -> None:
        """Remove one line and add an empty one."""
        del self._cells[away]
        self._cells.insert(blank, [" "] * self.columns)

    def _put(self, row: int, column: int, char: str) -> tuple[int, int]:
        if not char.isprintable():
            return row, column
        wide = unicodedata.east_asian_width(char) in "WF"
        if column < self.columns:
            self._cells[row][column] = char
        if wide and column + 1 < self.columns:
            self._cells[row][column + 1] = ""
        return row, column + 1 + wide
