"""Prints results: lines and tables for people, JSON lines with `--json` for programs."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import re
import shutil
import sys
import textwrap
import time
import unicodedata
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from jsclient.errors import ConfigError
from jsclient.protocol import MalformedHeaders

if TYPE_CHECKING:
    from jsclient.jetstream.api.headers import HasHeaders

#: Characters that a terminal may interpret as a command, or that change the direction of the text around them.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def escaped(text: str) -> str:
    """Escape control characters for a terminal, because other clients write the values."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def complain(text: str) -> None:
    print(f"jsclient: {escaped(text)}", file=sys.stderr)


def line(text: str) -> None:
    """One line for people, or several."""
    print(escaped(text), flush=True)


def counted(number: int, word: str) -> str:
    """`1 message`, `1,003 messages`."""
    return f"{number:,} {word if number == 1 else word + 's'}"


def record(value: Any) -> None:
    """One JSON line. A wire struct has the form in which the server sends it, including numbers that are 0."""
    if isinstance(value, msgspec.Struct) and hasattr(value, "to_dict"):
        plain = value.to_dict()
        _with_zeros(value, plain)
        _json_line(msgspec.json.encode(plain).decode())
    else:
        _json_line(json.dumps(value, default=_plain, ensure_ascii=False))


def _json_line(text: str) -> None:
    print(_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text), flush=True)


def result(options: Namespace, value: Any, text: str) -> None:
    """The outcome of a command: a JSON line, or a sentence."""
    if options.json:
        record(value)
    else:
        line(text)


def _plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return payload_text(bytes(value))
    if isinstance(value, dt.datetime):
        return value.isoformat()
    return msgspec.to_builtins(value, str_keys=True)


def picked(value: Any, *names: str) -> dict[str, Any]:
    """Some of the attributes of an object, for a JSON line."""
    return {name: getattr(value, name) for name in names}


class Progress:
    """The progress of a long operation. On a terminal it is one line of standard error, which is removed at the end."""

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
        """`done` of `total` bytes. It is printed at most five times per second."""
        if not self._wanted or (now := time.monotonic()) < self._shown + 0.2:
            return
        self._shown = now
        of = f" of about {size(total)}" if total > done else ""
        print(f"\r\x1b[K{self._what}: {size(done)}{of}", end="", file=sys.stderr, flush=True)


def _with_zeros(value: msgspec.Struct, plain: dict[str, Any]) -> None:
    """Requests leave out default values, but a script that reads `.state.messages` needs the 0."""
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
    """UTF-8 as text, and anything else as {"base64": ...}, so JSON output is complete."""
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
    """One line for each header."""
    headers = headers_record(message).get("headers", {})
    if headers is None:
        line("(broken headers)")
    for name, values in (headers or {}).items():
        for value in values:
            line(f"{name}: {value}".replace("\n", "\\n").replace("\t", "\\t"))


def message_record(message: Any, **more: Any) -> dict[str, Any]:
    return {"subject": message.subject, **headers_record(message), "data": payload_text(message.data), **more}


def write_bytes(data: bytes) -> None:
    """Exactly these bytes on standard output."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def shown(data: bytes) -> str:
    """A payload for people."""
    return data.decode(errors="backslashreplace")


def print_message(message: Any, options: Namespace, many: bool = False, **more: Any) -> None:
    """One message: `--raw` its payload alone, `--json` a JSON line, else subject, headers and payload.

    With `many` messages each raw payload ends with a line break; a single one is exactly its bytes.
    """
    without_payload = vars(options).get("headers_only")
    if options.raw and not without_payload:
        write_bytes(message.data + b"\n" if many else message.data)
    elif options.json:
        plain = message_record(message, **more)
        record({name: value for name, value in plain.items() if not (without_payload and name == "data")})
    else:
        extra = "".join(f" {key}={value}" for key, value in more.items())
        line(f"[{message.subject}{extra}]")
        print_headers(message)
        if not without_payload:
            line(shown(message.data))


def width_of(text: str) -> int:
    """The width of a text on a terminal: wide characters take two columns, and combining ones none."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else not unicodedata.combining(char) for char in text)


def justified(text: str, width: int, right: bool = False) -> str:
    room = " " * (width - width_of(text))
    return room + text if right else text + room


def cut(text: str, width: int) -> str:
    """The text, or its beginning and an ellipsis."""
    if width_of(text) <= width:
        return text
    while text and width_of(text) > width - 1:
        text = text[:-1]
    return f"{text}…" if width > 0 else ""


def table(titles: Sequence[str], rows: Iterable[Sequence[Any]], flowing: bool = False) -> None:
    """Columns of text, the most important ones first. Numbers are aligned to the right.

    A terminal that is too narrow for all columns gets the columns that fit. With `flowing` the last column is a text of
    any length, which the terminal wraps.
    """
    cells = [[escaped(str(cell)).replace("\n", "\\n").replace("\t", "\\t") for cell in row] for row in rows]
    columns = [Column.of(title, [row[i] for row in cells]) for i, title in enumerate(titles)]
    chosen = fitting(columns, terminal_width(), flowing)
    for text in side_by_side([columns[number] for number in chosen]):
        line(text)
    if left_out := [column.title for number, column in enumerate(columns) if number not in chosen]:
        note = f"jsclient: too narrow for {', '.join(left_out)}; see --json"
        print(textwrap.fill(note, int(terminal_width()), break_long_words=False), file=sys.stderr)


@attrs.frozen
class Column:
    title: str
    cells: list[str]
    width: int
    right: bool

    @classmethod
    def of(cls, title: str, cells: list[str]) -> Column:
        return cls(title, cells, max(map(width_of, (title, *cells))), bool(cells) and all(map(_is_figure, cells)))

    def lines(self) -> list[str]:
        """The title and the cells, all as wide as the column."""
        return [justified(cut(text, self.width), self.width, self.right) for text in (self.title, *self.cells)]


def side_by_side(columns: Sequence[Column]) -> list[str]:
    """The lines of a table: the titles, then the rows."""
    return ["  ".join(cells).rstrip() for cells in zip(*(column.lines() for column in columns), strict=True)]


def fitting(columns: Sequence[Column], room: float, flowing: bool = False) -> list[int]:
    """Numbers of the columns that fit side by side, in order; the first one always does."""
    chosen = []
    left = room - (width_of(columns[-1].title) + 2 if flowing else 0)
    for number, column in enumerate(columns):
        last = flowing and number == len(columns) - 1
        if not number or last or column.width <= left:
            chosen.append(number)
            left -= column.width + 2
    return chosen


def terminal_width() -> float:
    """Columns of the terminal; unlimited if the output goes elsewhere, or the width is unknown."""
    columns = shutil.get_terminal_size((0, 0)).columns if sys.stdout.isatty() else 0
    return columns or math.inf


_FIGURE: Final = re.compile(r"-|-?[0-9][0-9,]*(\.[0-9]+)?( ?([KMGT]i)?B| ?(ms|s))?|([0-9.]+[dhms])+")


def _is_figure(cell: str) -> bool:
    return _FIGURE.fullmatch(cell) is not None


Columns = Mapping[str, Callable[[Any], Any]]
"""Title -> the cell of an item; the most important ones first."""


def columns(**paths: str) -> dict[str, Callable[[Any], Any]]:
    """Columns given as TITLE="attribute.of.attribute", with values for people."""
    return {title.replace("_", " "): _cell(path) for title, path in paths.items()}


def _cell(path: str) -> Callable[[Any], str]:
    name = path.rpartition(".")[2]
    return lambda item: text_of(name, item[path] if isinstance(item, dict) else attrgetter(path)(item)) or "-"


def listing(
    options: Namespace,
    items: Iterable[Any],
    columns: Columns,
    *,
    plain: Callable[[Any], Any] | Sequence[str] | None = None,
    empty: str = "",
    flowing: bool = False,
) -> None:
    """Items as JSON lines, `plain` (or these attributes) of each, or as rows of a table. Without items the sentence
    `empty`.

    With --names only their names. Items that are not names themselves have it in the first column.
    """
    found = list(items)
    if vars(options).get("names"):
        name_of = next(iter(columns.values()))
        for item in found:
            name = item if isinstance(item, str) else name_of(item)
            result(options, {"name": name}, name)
    elif options.json:
        for item in found:
            record(item if plain is None else plain(item) if callable(plain) else picked(item, *plain))
    elif found or not empty:
        table(list(columns), [[cell(item) for cell in columns.values()] for item in found], flowing)
    else:
        line(empty)


Pairs = Iterable[tuple[str, Any]]


def page(title: str, first: Pairs, parts: Mapping[str, Pairs] | None = None) -> None:
    """A title, its details, and groups of names and values. Values that are None or "" are left out."""
    groups = {
        name: [(key, str(value)) for key, value in pairs if value not in (None, "")]
        for name, pairs in {"": first, **(parts or {})}.items()
    }
    width = max((len(name) for pairs in groups.values() for name, _ in pairs), default=0)
    line(title)
    for group, pairs in groups.items():
        if group and pairs:
            line(f"{group}:")
        for name, value in pairs:
            line(f"  {name.ljust(width)}  {value}")


def size(count: float) -> str:
    """Bytes for people: 1.5 KiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(count) < 1024 or unit == "TiB":
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    raise AssertionError("not reached")


def details(options: Namespace, value: Any, title: str, first: Pairs, parts: Mapping[str, Pairs] | None = None) -> None:
    """All about one thing: a JSON line, or a page."""
    if options.json:
        record(value)
    else:
        page(title, first, parts)


_BYTES: Final = {"bytes", "max_bytes", "max_msg_size", "size", "chunk_size"}
_NUMBERS: Final = {"revision", "seq", "pid"}
#: Limits. The server writes "no limit" as 0 or -1 for these.
_LIMITS: Final = {"max_age", "max_ack_pending", "max_waiting", "max_batch", "inactive_threshold", "rate_limit_bps"}
_UNITS: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "m"))


def told(pairs: Pairs) -> Iterator[tuple[str, str]]:
    """Pairs for `page`, with values for people."""
    for name, value in pairs:
        yield name.replace("_", " "), value if isinstance(value, str) else text_of(name, value)


def fields(value: Any, leave_out: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
    """The fields of a wire model that are set, also those that this version does not know."""
    if value is None:
        return
    for name in value.__struct_fields__:
        if name == "extra":
            yield from ((key.replace("_", " "), text_of(key, one)) for key, one in (value.extra or {}).items())
        elif name not in leave_out:
            yield name.removeprefix("num_").replace("_", " "), text_of(name, getattr(value, name))


def text_of(name: str, value: Any) -> str:
    """A value for people; "" if it is not set."""
    if value is None or value == "" or value == [] or value == {}:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (float, dt.timedelta)):
        return duration(value.total_seconds() if isinstance(value, dt.timedelta) else value, name in _LIMITS)
    if isinstance(value, int):
        return _count(name, value)
    if isinstance(value, dt.datetime):
        return _moment(value)
    if isinstance(value, msgspec.Struct):
        inner = (f"{key} {text}" for key, text in fields(value) if text)
        return ", ".join(inner)
    if isinstance(value, dict):
        return ", ".join(f"{key}={one}" for key, one in value.items())
    if isinstance(value, (list, tuple)):
        separator = "; " if isinstance(value[0], msgspec.Struct) else ", "
        return separator.join(text_of("", one) for one in value)
    return str(value).encode(errors="backslashreplace").decode()


def _count(name: str, value: int) -> str:
    if value < 0 or (value == 0 and name in _LIMITS):
        return "unlimited"
    return size(value) if name in _BYTES else str(value) if name in _NUMBERS else f"{value:,}"


def _moment(value: dt.datetime) -> str:
    if value.year < 1970:
        return ""  # the server's zero
    age = (dt.datetime.now(dt.timezone.utc) - value).total_seconds()
    return f"{value.astimezone():%Y-%m-%d %H:%M:%S %z}" + (f" ({duration(age)} ago)" if age >= 1 else "")


def duration(seconds: float, limit: bool = False) -> str:
    """Seconds for people: 1d2h, 1m30s, 0.25s. A limit of 0 is unlimited."""
    if limit and seconds == 0:
        return "unlimited"
    if seconds < 60:
        return f"{seconds:.3g}s"
    text = ""
    for length, unit in _UNITS:
        count, seconds = divmod(seconds, length)
        text += f"{count:.0f}{unit}" if count else ""
    return text + (f"{seconds:.0f}s" if seconds >= 1 and "d" not in text else "")


class Declined(Exception):
    """The user answered no."""


class NothingThere(Exception):
    """The sentence about an object that does not exist."""


def confirm(question: str, forced: bool) -> None:
    """Raises Declined unless the user agrees. Without a terminal it is a usage error, except with `--force`."""
    if forced:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} Nobody can be asked here: repeat it with --force")
    try:
        answer = input(f"{escaped(question)} [y/N] ")
    except EOFError:  # Ctrl-D
        print(file=sys.stderr)
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise Declined
