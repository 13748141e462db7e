"""tools/mutants.py: every fault still applies, and each package has some."""

from __future__ import annotations

import collections
from pathlib import Path

import pytest

from tools import mutants

FAULTS = mutants.faults()
LEAST = 120
PACKAGES = {
    *("protocol", "_connection", "jetstream", "keyvalue", "objectstore", "services", "workers"),
    *("groups", "coordination", "backup", "system", "testing", "arrow", "exactly", "planning", "spark", "cli"),
    "_transport",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_changes_its_file_and_names_tests(fault: mutants.Fault) -> None:
    text = (mutants.ROOT / fault.file).read_text(encoding="utf-8")
    changed = fault.applied(text)
    assert changed != text
    compile(changed, fault.file, "exec")
    assert fault.tests
    assert all((mutants.ROOT / test.partition("::")[0]).is_file() for test in fault.tests)
    assert fault.says.endswith(".")


def test_there_are_enough_faults_in_every_package() -> None:
    assert len(FAULTS) >= LEAST
    count = collections.Counter(part for fault in FAULTS for part in Path(fault.file).parts[:2])
    assert count.keys() >= PACKAGES
    assert sum(bool(fault.survives) for fault in FAULTS) <= 0.08 * len(FAULTS)


def test_the_parts_of_all_days_are_the_whole_list() -> None:
    parts = [mutants.part_of(FAULTS, f"{number}/3") for number in (1, 2, 3)]
    assert sorted(fault for part in parts for fault in part) == sorted(FAULTS)
    assert 0 < len(mutants.part_of(FAULTS, None)) <= mutants.PART


def test_a_text_that_does_not_occur_once_is_refused() -> None:
    fault = mutants.Fault("x", "file", "It says.", "old", "new", ["tests"], "")
    assert fault.applied("an old text") == "an new text"
    for text in ("", "old and old"):
        with pytest.raises(ValueError, match="occurs"):
            fault.applied(text)
