"""`make demo-archive` with few orders."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.spark.conftest import ROOT


@pytest.mark.slow
def test_an_archive_and_its_restore() -> None:
    environment = {**os.environ, "DEMO_ROWS": "5000", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-m", "tools.demo.archive"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=230,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "restored once more: nothing is new 5,000 orders" in done.stdout
    assert "every order is there once" in done.stdout
