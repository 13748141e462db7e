"""How results are printed: lines and tables for people, JSON lines with `--json` for programs."""

from __future__ import annotations

import base64
import json
import math
import re
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from jsclient.errors import ConfigError
from protocol import MalformedHeaders

if TYPE_CHECKING:
    from jsclient.jetstream.api.headers import HasHeaders

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def complain(text: str) -> None:
    print(f"jsclient: {text}", file=sys.stderr)


def line(text: str) -> None:
    print(text, flush=True)


def record(value: Any) -> None:
    """One JSON line."""
    line(json.dumps(value, default=_plain, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return payload_text(bytes(value))
    return msgspec.to_builtins(value, str_keys=True)


def name_alone(name: str, as_json: bool) -> None:
    """One name of a list that asks for nothing else."""
    if as_json:
        record({"name": name})
    else:
        line(name)


class Progress:
    """How far something long has come: on a terminal, on one line of standard error that is gone at the end."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = -math.inf
        self._wanted = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._shown > 0:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def __call__(self, done: int, total: int) -> None:
        """`done` of `total` bytes; five times a second at the most are shown."""
        if not self._wanted or (now := time.monotonic()) < self._shown + 0.2:
            return
        self._shown = now
        of = f" of about {size(total)}" if total > done else ""
        print(f"\r\x1b[K{self._what}: {size(done)}{of}", end="", file=sys.stderr, flush=True)


def struct_record(value: msgspec.Struct) -> None:
    """A wire struct as the server sends it: names and nanoseconds of the wire, and figures that are 0."""
    from jsclient.jetstream.api import model_base

    plain = model_base.to_wire(value)
    _with_zeros(value, plain)
    line(msgspec.json.encode(plain).decode())


def _with_zeros(value: msgspec.Struct, plain: dict[str, Any]) -> None:
    """Requests leave out what is as it is anyhow; a script that reads `.state.messages` wants its 0."""
    for field in msgspec.structs.fields(value):
        part = getattr(value, field.name)
        if isinstance(part, (int, float)):
            plain.setdefault(field.encode_name, part)
        elif isinstance(part, msgspec.Struct) and isinstance(plain.get(field.encode_name), dict):
            _with_zeros(part, plain[field.encode_name])
        elif isinstance(part, list):
            for one, into in zip(part, plain.get(field.encode_name) or (), strict=False):
                if isinstance(one, msgspec.Struct) and isinstance(into, dict):
                    _with_zeros(one, into)


def payload_text(payload: bytes) -> str | dict[str, str]:
    """UTF-8 as text; anything else as {"base64": ...}, so that JSON output loses nothing."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(payload).decode()}


def headers_record(message: HasHeaders) -> dict[str, Any]:
    """The headers for a JSON line, nothing if there are none; null if they are broken."""
    try:
        headers = message.headers
    except MalformedHeaders:
        return {"headers": None}
    return {"headers": headers.to_dict()} if headers else {}


def print_headers(message: HasHeaders) -> None:
    """One line for each header; control characters as escapes, since other clients may send them."""
    try:
        pairs = message.headers.items()
    except MalformedHeaders:
        line("(broken headers)")
        return
    for name, value in pairs:
        line(_CONTROL.sub(lambda found: repr(found[0])[1:-1], f"{name}: {value}"))


def message_record(message: Any, **more: Any) -> dict[str, Any]:
    return {
        "subject": message.subject,
        **headers_record(message),
        "data": payload_text(message.data),
        **more,
    }


def write_bytes(data: bytes) -> None:
    """Exactly these bytes on standard output."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def shown(data: bytes) -> str:
    """A payload for people: what a terminal could take for a command is escaped."""
    text = data.decode(errors="backslashreplace")
    return "".join(char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in text)


def print_message(message: Any, as_json: bool, raw: bool, many: bool = False, **more: Any) -> None:
    """One message: `--raw` its payload alone, `--json` a JSON line, else subject, headers and payload.

    With `many` messages each raw payload ends with a line break; a single one is exactly its bytes.
    """
    if raw:
        write_bytes(message.data + b"\n" if many else message.data)
    elif as_json:
        record(message_record(message, **more))
    else:
        extra = "".join(f" {key}={value}" for key, value in more.items())
        line(f"[{message.subject}{extra}]")
        print_headers(message)
        line(shown(message.data))


def table(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Columns of text; figures to the right. On a terminal `rich` draws them where it is installed (extra `cli`)."""
    cells = [[str(cell) for cell in row] for row in rows]
    numeric = [all(_is_figure(row[i]) for row in cells) for i in range(len(titles))]
    if sys.stdout.isatty() and _rich_table(titles, cells, numeric):
        return
    widths = [max(len(title), *(len(row[i]) for row in cells), 0) for i, title in enumerate(titles)]
    for row in [list(titles), *cells]:
        parts = [cell.rjust(w) if right else cell.ljust(w) for cell, w, right in zip(row, widths, numeric, strict=True)]
        line("  ".join(parts).rstrip())


def _is_figure(cell: str) -> bool:
    return cell.replace(",", "").replace(".", "", 1).isdigit() or cell == "-"


def _rich_table(titles: Sequence[str], cells: list[list[str]], numeric: list[bool]) -> bool:
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    drawn = Table(box=None, header_style="bold", pad_edge=False)
    for title, right in zip(titles, numeric, strict=True):
        drawn.add_column(title, justify="right" if right else "left")
    for row in cells:
        drawn.add_row(*(Text(cell) for cell in row))  # Text: what a server says is never markup
    Console().print(drawn)
    return True


def fields(title: str, pairs: Iterable[tuple[str, Any]]) -> None:
    """A title and what is known under it, one line each; what is None is left out."""
    line(title)
    known = [(name, value) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        line(f"  {name.ljust(width)}  {value}")


def size(count: float) -> str:
    """Bytes for people: 1.5 KiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(count) < 1024 or unit == "TiB":
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    raise AssertionError("not reached")


def ask(question: str, forced: bool) -> bool:
    """True if the user agrees. Without a terminal nobody can be asked: that is wrong usage without `--force`."""
    if forced:
        return True
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} Nobody can be asked here: repeat it with --force")
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
