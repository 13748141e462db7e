"""The short form of `make soak`: work at a fixed rate over a bad link; nothing is lost, and nothing grows.

Ten minutes of it in the full tier: the first file that `make test-full` begins (tests/conftest.py), beside others. In a
process of its own: that of a test run has 200 MiB of other things, and grows by itself.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(1000)
def test_nothing_grows_and_nothing_is_lost(full: bool, tmp_path: Path) -> None:
    seconds = 600 if full else 75
    command = [sys.executable, "-m", "tests.chaos.soak", "--seconds", str(seconds), "--rate", "100", "--seed", "3"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=seconds + 300, check=False
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "problems: none" in done.stdout
