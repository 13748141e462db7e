"""The tutorials are followed step by step: each program, each command, and each output that the pages show."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import tutorials

from jsclient.testing import NatsServer

LONG = [pytest.param(page, marks=pytest.mark.slow) for page in ("start", "service", "troubleshooting")]
PAGES = Path(__file__).parents[2] / "tools" / "docs" / "pages"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("page", ["performance", *LONG])
def test_a_tutorial(page: str, tmp_path: Path) -> None:
    with NatsServer() as server:
        tutorials.follow(PAGES / f"{page}.md", tmp_path, server)
