"""How many processes `--processes auto` starts."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest

from jsclient.workers.supervisor import processes_of


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "10000 100000\n"}, 1),
        ({"cpu.max": "6400000 100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu.max": "what is this"}, 8),
    ],
)
def test_auto_is_what_the_container_is_given(files: dict[str, str], count: int, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with mock.patch.object(os, "sched_getaffinity", create=True, return_value=set(range(8))):
        assert processes_of("auto", tmp_path) == count


def test_a_number_is_itself() -> None:
    assert processes_of("3") == 3
    with pytest.raises(ValueError, match="many"):
        processes_of("many")
