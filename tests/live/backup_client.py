"""Backs a stream up, deletes and restores it, in a process; its memory is watched. Prints one JSON line.

python backup_client.py URL STREAM FOLDER
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import jsclient
from jsclient import backup
from jsclient.jetstream import JetStream


def peak() -> float:
    """The most resident megabytes up to now."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def digest(js: JetStream, stream: str) -> str:
    """Of all messages with their sequences and subjects."""
    found = hashlib.sha256()
    left = js.stream(stream).info().state.messages
    with js.ordered_consumer(stream).messages() as messages:
        for _ in range(left):
            message = messages.next(30)
            found.update(b"%d %s %d " % (message.stream_seq, message.subject.encode(), len(message.data)))
            found.update(message.data)
    return found.hexdigest()


def discarded(js: JetStream, stream: str) -> float:
    """Seconds that the server takes to hand a snapshot to somebody who throws it away: its own path."""
    inbox = js.nc.new_inbox()
    request = {"deliver_subject": inbox, "no_consumers": False, "chunk_size": 128 << 10, "window_size": 8 << 20}
    with js.nc.subscribe(inbox, pending_messages=1 << 20, pending_bytes=1 << 31) as chunks:
        start = time.perf_counter()
        js.api.request(f"STREAM.SNAPSHOT.{stream}", request)
        while (chunk := chunks.next(30)).data:
            if chunk.reply:
                js.nc.publish(chunk.reply)
        return time.perf_counter() - start


def copied(folder: Path) -> float:
    """Seconds that a copy of the saved file takes, until it is on the disk."""
    start = time.perf_counter()
    with (folder / "stream.tar.s2").open("rb") as source, (folder / "copy").open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
        target.flush()
        os.fsync(target.fileno())
    taken = time.perf_counter() - start
    (folder / "copy").unlink()
    return taken


def main() -> None:
    url, stream, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    with jsclient.connect(url) as nc:
        js = JetStream(nc)
        told: dict[str, Any] = {"bytes": js.stream(stream).info().state.bytes, "server": discarded(js, stream)}
        told["before"], told["first"] = digest(js, stream), peak()
        start = time.perf_counter()
        backup.backup_stream(js, stream, folder)
        told["backup"] = time.perf_counter() - start
        told["copy"] = copied(folder)
        js.delete_stream(stream)
        start = time.perf_counter()
        backup.restore_stream(js, folder)
        told["restore"], told["peak"] = time.perf_counter() - start, peak()
        told["after"] = digest(js, stream)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
