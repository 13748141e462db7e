"""The pure parts of the demo: reading the table, and finding what is missing, doubled or different."""

from __future__ import annotations

import dataclasses
import hashlib
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tools.demo import flights
from tools.demo.flights import DemoError, Expected, Flight, Totals, differences, fingerprint, read_flights

HEADER = ",".join(flights.COLUMNS)
LINES = [
    "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z",
    "2013,1,1,533,529,4,850,830,20,UA,1714,N24211,LGA,IAH,227,1416,5,29,2013-01-01T10:00:00Z",
    "2013,1,1,NA,600,NA,NA,901,NA,AA,791,NA,LGA,DFW,NA,1389,6,0,2013-01-01T11:00:00Z",
]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flights.csv", "\n".join([HEADER, *LINES]) + "\n")
    monkeypatch.setattr(flights, "CACHE", path)
    monkeypatch.setattr(flights, "SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    return path


def totals_of_all() -> dict[str, Totals]:
    expected = Expected()
    for flight in read_flights():
        expected.add(flight)
    return expected.totals()


def test_records_are_read_with_their_types(table: Path) -> None:
    first, _, third = read_flights()
    assert (first.row, first.dep_delay, first.carrier, first.tailnum) == (0, 2, "UA", "N14228")
    assert (third.row, third.dep_time, third.dep_delay, third.tailnum, third.distance) == (2, None, None, None, 1389)
    assert len(list(read_flights(2))) == 2


def test_json_brings_back_the_same_record(table: Path) -> None:
    for flight in read_flights():
        again = msgspec.json.decode(msgspec.json.encode(flight), type=Flight)
        assert again == flight
        assert fingerprint(again) == fingerprint(flight)


@pytest.mark.parametrize("field", Flight.__struct_fields__)
def test_the_fingerprint_covers_every_column(table: Path, field: str) -> None:
    flight = next(read_flights())
    value = getattr(flight, field)
    changed = msgspec.structs.replace(flight, **{field: value + (1 if isinstance(value, int) else "x")})
    assert fingerprint(changed) != fingerprint(flight)


def test_the_figures_are_those_of_the_file(table: Path) -> None:
    totals = totals_of_all()
    assert list(totals) == ["AA", "UA"]
    assert (totals["UA"].flights, totals["UA"].mean_dep_delay, totals["UA"].mean_arr_delay) == (2, 3.0, 15.5)
    assert (totals["AA"].cancelled, totals["AA"].mean_dep_delay) == (1, None)
    assert differences(totals, totals) == []


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"flights": 1, "distinct": 1}, "UA: 1 of 2 records are missing"),
        ({"flights": 3}, "UA: 1 records came more than once"),
        ({"fingerprints": 1}, "UA: at least one record is different"),
        ({"cancelled": 1}, "UA: figures differ"),
    ],
)
def test_what_is_wrong_is_named(table: Path, change: dict[str, Any], finding: str) -> None:
    expected = totals_of_all()
    found = expected | {"UA": dataclasses.replace(expected["UA"], **change)}
    (line,) = differences(expected, found)
    assert finding in line


def test_a_missing_and_a_foreign_carrier_are_named(table: Path) -> None:
    expected = totals_of_all()
    found = {"AA": expected["AA"], "XX": expected["UA"]}
    assert differences(expected, found) == [
        "carrier UA: is missing, all 2 records",
        "carrier XX: came back, but is not in the file",
    ]


def test_another_file_is_refused(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "SHA256", "0" * 64)
    with pytest.raises(DemoError, match="not the one this demo knows"):
        list(read_flights())
