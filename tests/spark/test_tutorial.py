"""The tutorial for Spark is followed step by step, in processes of its own as the reader starts them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests import tutorials

from jsclient.testing import NatsServer

PAGES = Path(__file__).parents[2] / "tools" / "docs" / "pages"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", ["spark-job", "dataframe-once"])
def test_a_tutorial(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    with NatsServer() as server:
        tutorials.follow(PAGES / f"{page}.md", tmp_path, server)
