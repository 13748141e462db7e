"""`top`: a live view of streams and consumers, with rates, lag and what is wrong."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from jsclient import errors
from jsclient.cli.arguments import command, connect, jetstream, seconds
from jsclient.cli.output import line, record, size, table
from jsclient.monitor import Monitor, Snapshot

BARS: Final = "▁▂▃▄▅▆▇█"
FIRST: Final = 8
"""Streams that a look begins with, of the 15 that it takes."""

HELP: Final = "1 streams  2 consumers  s sort  / filter  q quit"


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    top = command(commands, common, "top", run)
    top.add_argument("--interval", type=seconds, default=2.0, help="seconds between two looks (default 2)")
    top.add_argument(
        "--once", action="store_true", help="print one look (two, an interval apart, for the rates) and end"
    )


def run(options: argparse.Namespace) -> int:
    if options.interval <= 0:
        raise errors.ConfigError("--interval must be more than 0 seconds")
    with connect(options) as nc:
        monitor = Monitor(jetstream(nc, options))
        if options.once or options.json or not sys.stdout.isatty():
            _once(monitor, options)
        else:
            import curses

            curses.wrapper(lambda screen: Screen(screen, monitor, options.interval).run())
    return 0


def _once(monitor: Monitor, options: argparse.Namespace) -> None:
    monitor.snapshot(timeout=options.timeout)
    time.sleep(options.interval)
    snapshot = monitor.snapshot(timeout=options.timeout)
    if options.json:
        record(attrs.asdict(snapshot))
        return
    for title, columns, rows in (("STREAMS", STREAMS, snapshot.streams), ("CONSUMERS", CONSUMERS, snapshot.consumers)):
        line(title)
        table([column[0] for column in columns], [[column[1](row) for column in columns] for row in rows])


def spark(history: Sequence[float]) -> str:
    """Rates as bars, the highest one full."""
    most = max(history, default=0.0)
    if most <= 0:
        return BARS[0] * len(history)
    return "".join(BARS[min(len(BARS) - 1, int(max(rate, 0.0) / most * len(BARS)))] for rate in history)


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _eta(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f} s" if value < 120 else f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.0f} h"


Column = tuple[str, Callable[[Any], str], Callable[[Any], Any]]

STREAMS: Final[tuple[Column, ...]] = (
    ("STREAM", lambda row: row.name, lambda row: row.name),
    ("MESSAGES", lambda row: f"{row.messages:,}", lambda row: -row.messages),
    ("BYTES", lambda row: size(row.bytes), lambda row: -row.bytes),
    ("IN/S", lambda row: _rate(row.in_per_second), lambda row: -(row.in_per_second or 0)),
    ("CONSUMERS", lambda row: f"{row.consumers:,}", lambda row: -row.consumers),
    ("", lambda row: spark(row.history), lambda row: row.name),
    ("TROUBLE", lambda row: row.trouble, lambda row: (not row.trouble, row.name)),
)
CONSUMERS: Final[tuple[Column, ...]] = (
    ("STREAM", lambda row: row.stream, lambda row: (row.stream, row.name)),
    ("CONSUMER", lambda row: row.name, lambda row: row.name),
    ("LAG", lambda row: f"{row.lag:,}", lambda row: -row.lag),
    ("UNACKED", lambda row: f"{row.ack_pending:,}", lambda row: -row.ack_pending),
    ("REDELIVERED", lambda row: f"{row.redelivered:,}", lambda row: -row.redelivered),
    ("PULLS", lambda row: f"{row.waiting:,}", lambda row: -row.waiting),
    ("OUT/S", lambda row: _rate(row.out_per_second), lambda row: -(row.out_per_second or 0)),
    ("DONE/S", lambda row: _rate(row.done_per_second), lambda row: -(row.done_per_second or 0)),
    ("EMPTY IN", lambda row: _eta(row.eta), lambda row: -(row.eta or 0)),
    ("", lambda row: spark(row.history), lambda row: row.name),
    ("TROUBLE", lambda row: row.trouble, lambda row: (not row.trouble, row.name)),
)


def on_screen(rows: Sequence[Any], columns: Sequence[Column], sort: int, wanted: str, height: int) -> list[Any]:
    """The rows that fit below the titles."""
    chosen = [row for row in rows if wanted in row.name or wanted in getattr(row, "stream", "")]
    chosen.sort(key=columns[sort][2])
    return chosen[: max(0, height - 1)]


def layout(
    rows: Sequence[Any], columns: Sequence[Column], sort: int, wanted: str, height: int
) -> list[tuple[str, bool]]:
    """(text, whether it names a trouble) of each line: the titles and as many rows as fit."""
    chosen = on_screen(rows, columns, sort, wanted, height)
    cells = [[column[1](row) for column in columns] for row in chosen]
    titles = [f"{title}*" if number == sort else title for number, (title, _, _) in enumerate(columns)]
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(one, widths, strict=True)) for one in [titles, *cells]]
    troubles = [False, *(bool(row.trouble) for row in chosen)]
    return list(zip(lines, troubles, strict=True))


class Screen:
    """The terminal: draws a snapshot, reads keys while it waits for the next."""

    def __init__(self, screen: Any, monitor: Monitor, interval: float) -> None:
        self._screen = screen
        self._monitor = monitor
        self._interval = interval
        self._consumers = False
        self._sort = {False: 0, True: 2}
        self._filter = ""
        self._typing = False
        self._last: Snapshot | None = None
        self._error = ""

    def run(self) -> None:
        import curses

        curses.curs_set(0)
        while True:
            try:
                self._monitor.first = self._seen()
                self._last, self._error = self._monitor.snapshot(), ""
            except errors.ConnectionClosed:
                raise
            except errors.JsClientError as error:
                self._error = errors.brief(error)  # an election, a link that is down: the last figures stay
            end = time.monotonic() + self._interval
            while (left := end - time.monotonic()) > 0:
                self._draw()
                self._screen.timeout(int(left * 1000) + 1)
                if not self._key(self._screen.getch()):
                    return

    def _seen(self) -> list[str]:
        """Streams of the consumers on the screen: they are looked at each time, and the others still get their turn."""
        if self._last is None or not self._consumers:
            return []
        height = self._screen.getmaxyx()[0] - 3
        rows = on_screen(self._last.consumers, CONSUMERS, self._sort[True], self._filter, height)
        return list(dict.fromkeys(row.stream for row in rows))[:FIRST]

    def _key(self, key: int) -> bool:
        """Act on a key; False ends it."""
        if key < 0:
            return True
        if self._typing:
            if key in (10, 13, 27):
                self._typing = False
            elif key in (8, 127, 263):
                self._filter = self._filter[:-1]
            elif 32 <= key < 127:
                self._filter += chr(key)
        elif key in (ord("q"), 27):
            return False
        elif key in (ord("1"), ord("2")):
            self._consumers = key == ord("2")
        elif key == ord("s"):
            columns = CONSUMERS if self._consumers else STREAMS
            self._sort[self._consumers] = (self._sort[self._consumers] + 1) % len(columns)
        elif key == ord("/"):
            self._typing, self._filter = True, ""
        return True

    def _draw(self) -> None:
        import curses

        height, width = self._screen.getmaxyx()
        self._screen.erase()
        snapshot = self._last
        head = "no answer yet" if snapshot is None else _head(snapshot)
        self._put(0, head + (f"   {self._error}" if self._error else ""), width, curses.A_BOLD)
        if snapshot is not None:
            columns = CONSUMERS if self._consumers else STREAMS
            rows: Sequence[Any] = snapshot.consumers if self._consumers else snapshot.streams
            lines = layout(rows, columns, self._sort[self._consumers], self._filter, height - 3)
            for number, (text, trouble) in enumerate(lines, 2):
                style = curses.A_UNDERLINE if number == 2 else curses.A_STANDOUT if trouble else curses.A_NORMAL
                self._put(number, text, width, style)
        foot = f"/{self._filter}" if self._typing or self._filter else HELP
        self._put(height - 1, foot, width, curses.A_DIM)
        self._screen.refresh()

    def _put(self, row: int, text: str, width: int, style: int) -> None:
        import curses

        try:
            self._screen.addnstr(row, 0, text, max(0, width - 1), style)
        except curses.error:  # the window has become smaller meanwhile
            return


def _head(snapshot: Snapshot) -> str:
    rate = sum(row.in_per_second or 0 for row in snapshot.streams)
    lag = sum(row.lag for row in snapshot.consumers)
    rows: list[Any] = [*snapshot.streams, *snapshot.consumers]
    trouble = sum(bool(row.trouble) for row in rows)
    return (
        f"{len(snapshot.streams)} streams  {len(snapshot.consumers)} consumers  in {rate:,.0f}/s  lag {lag:,}  "
        f"{trouble} in trouble  ({snapshot.requests} requests)"
    )
