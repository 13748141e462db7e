"""The short form of the fuzz of the whole client (`make fuzz`): in a process of its own, for its threads and memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "fuzz_client.py"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_server_that_answers_anything_finds_no_way_to_hang_or_break_the_client() -> None:
    done = subprocess.run(
        [sys.executable, str(TOOL), "--seconds", "60", "--seed", "5"],
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
