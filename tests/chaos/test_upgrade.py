"""The short form of `make upgrade`: every server once forward and once back, with every kind of user at work."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.chaos.upgrade import Upgrade

from jsclient.testing import find_server


def old_server() -> str | None:
    """2.10.27 where `make` has put it, or what NATS_SERVER_OLD names."""
    named = os.environ.get("NATS_SERVER_OLD") or str(Path(find_server()).with_name("nats-server-trixie"))
    return shutil.which(named)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(600)
def test_a_rolling_upgrade_and_downgrade_loses_nothing() -> None:
    old = old_server()
    if old is None:
        pytest.skip("no older nats-server here: `make test-servers` fetches 2.10.27, NATS_SERVER_OLD names one")
    report = Upgrade(old, find_server(), between=2.0)()
    print(report)
    assert [finding for finding in report.findings if finding.blame != "server"] == [], str(report)
