"""A gigabyte is backed up and restored: every message the same, with constant memory, as fast as the server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import jsclient
from jsclient.jetstream import JetStream, StreamConfig
from jsclient.testing import NatsServer

CLIENT = Path(__file__).with_name("backup_client.py")
MEGABYTES = int(os.environ.get("JSCLIENT_BACKUP_MB", "1024"))
PIECE = 64 << 10


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_gigabyte_is_saved_and_restored(server: NatsServer, tmp_path: Path) -> None:
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        stream = js.create_stream(StreamConfig(name="LARGE", subjects=["large.*"]))
        for number in range(MEGABYTES * 16):
            js.publish_async(f"large.{number % 100}", os.urandom(PIECE))  # nothing that could be compressed
        js.publish_async_complete(300)
        done = subprocess.run(
            [sys.executable, str(CLIENT), server.url, "LARGE", str(tmp_path / "saved")],
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        stream.delete()
    told = json.loads(done.stdout)
    rate = {name: told["bytes"] / told[name] / 1e6 for name in ("server", "backup", "copy", "restore")}
    print(", ".join(f"{name} {value:.0f} MB/s" for name, value in rate.items()), f"peak {told['peak']:.0f} MB")
    assert told["bytes"] > MEGABYTES * 1e6
    assert told["after"] == told["before"], "every message, its sequence and its subject"
    # The windows of the digest's reader and of the snapshot, and not the stream.
    assert told["peak"] < told["first"] + 80
    assert told["peak"] < 250
    # The server's own path and the disk, one after the other: what is ours may not double it.
    assert told["backup"] < 2 * (told["server"] + told["copy"]) + 1
