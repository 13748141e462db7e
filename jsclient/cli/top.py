"""`top`: a live view of streams and consumers, with rates, lag and what is wrong."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import attrs

from jsclient import errors
from jsclient.cli.arguments import Options, arg, seconds
from jsclient.cli.commands import Commands
from jsclient.cli.connection import opened
from jsclient.cli.output import (
    Column,
    counted,
    cut,
    duration,
    escaped,
    fitting,
    line,
    listing,
    record,
    side_by_side,
    size,
)
from jsclient.jetstream import JetStream
from jsclient.monitor import ConsumerRow, Monitor, Snapshot, StreamRow

BARS: Final = "▁▂▃▄▅▆▇█"
FIRST: Final = 8
"""Streams that a snapshot begins with, of the 15 that it covers."""
ABOVE: Final = 2
BELOW: Final = 2
"""Lines of the screen above the titles and below the rows."""

HELP: Final = ("q quit", "1 streams", "2 consumers", "/ filter", "up down pgup pgdn scroll")


cli: Commands = Commands(opened)


@cli(
    "top",
    arg("--interval", type=seconds, default=2.0, help="seconds between two looks (default 2)"),
    arg("--once", action="store_true", help="print one look (two, an interval apart, for the rates) and end"),
)
def run(js: JetStream, options: Options) -> None:
    if options.interval <= 0:
        raise errors.ConfigError("--interval must be more than 0 seconds")
    monitor = Monitor(js)
    if options.once or options.json or not sys.stdout.isatty():
        _once(monitor, options)
        return
    with _terminal() as (screen, red):
        Screen(screen, monitor, options.interval, red).run()


@contextlib.contextmanager
def _terminal() -> Iterator[tuple[Any, int]]:
    """(the screen, the style of trouble). Colors appear on the terminal's own background, light or dark."""
    import curses

    logging.getLogger("jsclient").addHandler(logging.NullHandler())  # it would print across the screen
    screen = curses.initscr()
    red = curses.A_BOLD
    try:
        curses.noecho()
        curses.cbreak()
        screen.keypad(True)
        with contextlib.suppress(curses.error):
            curses.curs_set(0)
        if not os.environ.get("NO_COLOR") and curses.has_colors():
            curses.start_color()
            with contextlib.suppress(curses.error):
                curses.use_default_colors()
                curses.init_pair(1, curses.COLOR_RED, -1)
                red |= curses.color_pair(1)
        yield screen, red
    finally:
        curses.endwin()


def _once(monitor: Monitor, options: Options) -> None:
    monitor.snapshot(timeout=options.timeout)
    time.sleep(options.interval)
    snapshot = monitor.snapshot(timeout=options.timeout)
    if options.json:
        record(attrs.asdict(snapshot))
        return
    for title, fields, rows in (("STREAMS", STREAMS, snapshot.streams), ("CONSUMERS", CONSUMERS, snapshot.consumers)):
        line(title)
        listing(options, arranged(rows, fields, "t", ""), {field.title: field.text for field in fields})


def spark(history: Sequence[float]) -> str:
    """Rates as bars; the highest one is full."""
    most = max(history, default=0.0)
    if most <= 0:
        return BARS[0] * len(history)
    return "".join(BARS[min(len(BARS) - 1, int(max(rate, 0.0) / most * len(BARS)))] for rate in history)


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _eta(value: float | None) -> str:
    return "-" if value is None else duration(round(value))


class Field(NamedTuple):
    """A column; `key` is the letter that sorts by it."""

    key: str
    title: str
    text: Callable[[Any], str]
    order: Callable[[Any], Any]


def _full_name(row: StreamRow | ConsumerRow) -> str:
    return f"{row.stream}/{row.name}" if isinstance(row, ConsumerRow) else row.name


def _amount(key: str, title: str, name: str, text: Callable[[Any], str] = "{:,}".format) -> Field:
    """A column of numbers; the largest ones come first."""
    return Field(key, title, lambda row: text(getattr(row, name)), lambda row: -(getattr(row, name) or 0))


def _rank(trouble: str) -> int:
    """Real troubles come first. A paused consumer comes later, because someone paused it on purpose."""
    return 2 if not trouble else 1 if trouble == "paused" else 0


def _fields(*figures: Field, first: str, worst: Callable[[Any], int]) -> tuple[Field, ...]:
    """The columns, the most important ones first, because a narrow window has no room for the last ones."""
    return (
        Field("n", first, _full_name, _full_name),
        Field("t", "TROUBLE", lambda row: row.trouble, lambda row: (_rank(row.trouble), -worst(row))),
        *figures,
        Field("", "LATELY", lambda row: spark(row.history), _full_name),
    )


STREAMS: Final = _fields(
    _amount("m", "MESSAGES", "messages"),
    _amount("b", "BYTES", "bytes", size),
    _amount("i", "IN/S", "in_per_second", _rate),
    _amount("c", "CONSUMERS", "consumers"),
    first="STREAM",
    worst=lambda row: row.messages,
)
CONSUMERS: Final = _fields(
    _amount("l", "LAG", "lag"),
    _amount("u", "UNACKED", "ack_pending"),
    _amount("d", "DONE/S", "done_per_second", _rate),
    _amount("e", "EMPTY IN", "eta", _eta),
    _amount("r", "REDELIVERED", "redelivered"),
    _amount("p", "PULLS", "waiting"),
    _amount("o", "OUT/S", "out_per_second", _rate),
    first="CONSUMER",
    worst=lambda row: row.lag,
)


def arranged(rows: Sequence[Any], fields: Sequence[Field], sort: str, wanted: str) -> list[Any]:
    """The rows with `wanted` in their name, in the order of a key."""
    order = next(field.order for field in fields if field.key == sort)
    return sorted((row for row in rows if wanted in _full_name(row)), key=lambda row: (order(row), _full_name(row)))


def layout(rows: Sequence[Any], fields: Sequence[Field], sort: str, width: int) -> list[tuple[str, bool]]:
    """(text, whether it names a trouble) of each line: the titles, then the rows.

    It never truncates a trouble. It truncates a name that leaves no room for the trouble.
    """
    columns = [
        Column.of(f"{field.title}*" if field.key == sort else field.title, [escaped(field.text(row)) for row in rows])
        for field in fields
    ]
    name, trouble = columns[0], columns[1]
    if name.width + 2 + trouble.width > width:
        columns[0] = name = attrs.evolve(name, width=max(width - 2 - trouble.width, 8))
    chosen = [0, *(1 + number for number in fitting(columns[1:], width - name.width - 2))]
    troubles = [False, *(bool(row.trouble) for row in rows)]
    return list(zip(side_by_side([columns[number] for number in chosen]), troubles, strict=True))


class Screen:
    """The terminal: draws a snapshot, reads keys while it waits for the next."""

    def __init__(self, screen: Any, monitor: Monitor, interval: float, red: int) -> None:
        self._screen = screen
        self._monitor = monitor
        self._interval = interval
        self._red = red
        self._consumers = False
        self._sort = {False: "t", True: "t"}
        self._first = 0
        self._filter = ""
        self._typing = False
        self._last: Snapshot | None = None
        self._error = ""

    def run(self) -> None:
        while True:
            try:
                self._monitor.first = self._seen()
                self._last, self._error = self._monitor.snapshot(), ""
            except errors.ConnectionClosed:
                raise
            except errors.JsClientError as error:
                self._error = errors.brief(error)  # an election, a link that is down: the last numbers stay
            end = time.monotonic() + self._interval
            while (left := end - time.monotonic()) > 0:
                self._draw()
                self._screen.timeout(int(left * 1000) + 1)
                if not self._key(self._read()):
                    return

    @property
    def _fields(self) -> tuple[Field, ...]:
        return CONSUMERS if self._consumers else STREAMS

    @property
    def _room(self) -> int:
        """Rows that fit on the screen."""
        return max(1, int(self._screen.getmaxyx()[0]) - ABOVE - 1 - BELOW)

    def _rows(self) -> list[Any]:
        """All rows of the view, in order; clamps the first row of the screen."""
        if self._last is None:
            return []
        found: Sequence[Any] = self._last.consumers if self._consumers else self._last.streams
        rows = arranged(found, self._fields, self._sort[self._consumers], self._filter)
        self._first = max(0, min(self._first, len(rows) - self._room))
        return rows

    def _seen(self) -> list[str]:
        """Streams of the consumers on the screen. Every snapshot includes them, and the others still get their turn."""
        if not self._consumers:
            return []
        rows = self._rows()[self._first : self._first + self._room]
        return list(dict.fromkeys(row.stream for row in rows))[:FIRST]

    def _read(self) -> str | int | None:
        """A character, the number of another key, or None if none came in time."""
        import curses

        try:
            key: str | int = self._screen.get_wch()
        except curses.error:
            return None
        return key

    def _key(self, key: str | int | None) -> bool:
        """Act on a key; False ends it."""
        import curses

        scrolls = {
            curses.KEY_UP: -1,
            curses.KEY_DOWN: 1,
            curses.KEY_PPAGE: -self._room,
            curses.KEY_NPAGE: self._room,
            curses.KEY_HOME: -sys.maxsize,
            curses.KEY_END: sys.maxsize,
        }
        if isinstance(key, int):
            self._first += scrolls.get(key, 0)
            if self._typing and key == curses.KEY_BACKSPACE:
                self._filter = self._filter[:-1]
        elif key is not None and self._typing:
            if key in "\n\r\x1b":
                self._typing = False
            elif key in "\b\x7f":
                self._filter = self._filter[:-1]
            elif key.isprintable():
                self._filter += key
        elif key == "q":
            return False
        elif key in ("1", "2"):
            self._consumers, self._first = key == "2", 0
        elif key == "/":
            self._typing, self._filter, self._first = True, "", 0
        elif key and any(field.key == key for field in self._fields):
            self._sort[self._consumers], self._first = key, 0
        return True

    def _draw(self) -> None:
        import curses

        height, width = self._screen.getmaxyx()
        self._screen.erase()
        rows = self._rows()
        on_screen = rows[self._first : self._first + self._room]
        head = "no answer yet" if self._last is None else _head(self._last, width - 1)
        self._put(0, self._error or head, self._red if self._error else curses.A_BOLD)
        for number, (text, trouble) in enumerate(
            layout(on_screen, self._fields, self._sort[self._consumers], width - 1), ABOVE
        ):
            title = curses.A_BOLD | curses.A_UNDERLINE
            self._put(number, text, title if number == ABOVE else self._red if trouble else curses.A_NORMAL)
        keys = [f"{field.key} {field.title.lower()}" for field in self._fields if field.key]
        self._put(height - 2, _joined(["sort by", *keys], width - 1), curses.A_NORMAL)
        shown = f"{min(len(rows), self._first + 1)}-{self._first + len(on_screen)} of {len(rows)}"
        wanted = [f"/{self._filter}"] if self._typing or self._filter else []
        self._put(height - 1, _joined([shown, *wanted, *HELP], width - 1), curses.A_NORMAL)
        self._screen.refresh()

    def _put(self, row: int, text: str, style: int) -> None:
        import curses

        with contextlib.suppress(curses.error):  # the window has become smaller meanwhile
            self._screen.addstr(row, 0, cut(escaped(text), self._screen.getmaxyx()[1] - 1), style)


def _joined(parts: Sequence[str], width: int) -> str:
    """The first parts, up to the width of the line."""
    columns = [Column(part, [], len(part), False) for part in parts]
    return "  ".join(parts[number] for number in fitting(columns, width))


def _head(snapshot: Snapshot, width: int) -> str:
    rows: list[Any] = [*snapshot.streams, *snapshot.consumers]
    counts = [counted(len(snapshot.streams), "stream"), counted(len(snapshot.consumers), "consumer")]
    rate = sum(row.in_per_second or 0 for row in snapshot.streams)
    lag = sum(row.lag for row in snapshot.consumers)
    figures = [f"in {rate:,.0f}/s", f"lag {lag:,}", f"({snapshot.requests} requests)"]
    return _joined([f"{sum(bool(row.trouble) for row in rows)} in trouble", *counts, *figures], width)
