"""Pages about Spark are followed step by step, in processes of their own as the reader starts them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests import tutorials

from jsclient.testing import NatsServer

ROOT = Path(__file__).parents[2]
PAGES = ["jsclient/spark/README.md", "tools/docs/pages/spark-job.md", "tools/docs/pages/dataframe-once.md"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", PAGES)
def test_a_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    with NatsServer() as server:
        tutorials.follow(ROOT / page, tmp_path, server)
