"""The case `backup-1g`: a stream of a gigabyte that nothing can compress is backed up and restored.

Beside it, in the same run, the paths of server and disk alone (measured before ours: the server's is the colder one):

- the server, backup: it reads the stream from its disk, packs it and sends it to a bare socket that throws all of it
  away and acknowledges every chunk at once;
- the server, restore: a bare socket sends the saved file, several chunks under way at a time, looking at nothing but
  the answers; the server unpacks, stores and builds the stream;
- the disk: the same bytes, out of memory, written to the folder of the backup until they are on the disk (fsync).

A backup has to get through both, the server and the disk, a restore through the server alone (what was written a moment
ago is still in memory).
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsclient
from jsclient import backup
from jsclient.backup.files import DATA
from jsclient.jetstream import JetStream, StreamConfig
from jsclient.protocol import ConnectInfo
from jsclient.protocol.frames import PING, encode_connect, pub, pub_parts, pub_start, sub, with_reply
from tools.bench.measure import Timed

STREAM, PIECE, MEGABYTE = "SAVED", 64 * 1024, 1 << 20
CHUNK, WINDOW = 128 * 1024, 8 * MEGABYTE
SEND, UNDER_WAY = 256 * 1024, 16


class Bare:
    """A link that does no more than it has to."""

    def __init__(self, url: str) -> None:
        where = urlsplit(url)
        self._socket = socket.create_connection((where.hostname or "", where.port or 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb", MEGABYTE)
        self._file.readline()
        self.send(encode_connect(ConnectInfo()), PING, sub(b"bare.>", b"1"))
        self._buffer = memoryview(bytearray(2 * MEGABYTE))

    def send(self, *parts: bytes) -> None:
        self._socket.sendall(b"".join(parts) if len(parts) > 1 else parts[0])

    def message(self) -> tuple[bytes, memoryview]:
        """Reply subject and payload of the next one; the payload until the one after."""
        while True:
            words = self._file.readline().split()
            if not words:
                raise ConnectionError("the server has closed the link")
            if words[0] == b"PING":
                self.send(b"PONG\r\n")
            if words[0] not in (b"MSG", b"HMSG"):
                continue
            headed = words[0] == b"HMSG"
            size, head = int(words[-1]), int(words[-2]) if headed else 0
            view = self._buffer[: size + 2]
            self._file.readinto(view)
            return (words[3] if len(words) > (5 if headed else 4) else b""), view[head:size]

    def ask(self, subject: str, payload: bytes) -> Any:
        self.send(pub(with_reply(pub_start(subject.encode()), b"bare.answer"), payload))
        return json.loads(bytes(self.message()[1]))

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def thrown_away(url: str, folder: Path) -> None:
    link = Bare(url)
    request = {"deliver_subject": "bare.chunks", "chunk_size": CHUNK, "window_size": WINDOW}
    link.ask(f"$JS.API.STREAM.SNAPSHOT.{STREAM}", json.dumps(request).encode())
    while True:
        reply, payload = link.message()
        if not payload:
            break
        if reply:
            link.send(pub(pub_start(reply), b""))
    link.close()


def sent(url: str, folder: Path) -> None:
    link = Bare(url)
    target = link.ask(f"$JS.API.STREAM.RESTORE.{STREAM}", (folder / "backup.json").read_bytes())["deliver_subject"]
    start, under_way = with_reply(pub_start(target.encode()), b"bare.taken"), 0
    with (folder / DATA).open("rb", buffering=0) as file:
        while piece := file.read(SEND):
            for part in pub_parts(start, piece):
                link.send(part)
            under_way += 1
            if under_way == UNDER_WAY:
                link.message()
                under_way -= 1
    for _ in range(under_way):
        link.message()
    answer = link.ask(target, b"")
    if "error" in answer:
        raise RuntimeError(answer["error"])
    link.close()


def written(folder: Path, size: int) -> None:
    block = os.urandom(MEGABYTE)
    with (folder / "disk").open("wb", buffering=0) as file:
        for _ in range(size // MEGABYTE):
            file.write(block)
        os.fsync(file.fileno())
    (folder / "disk").unlink()


def saving(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    js, url, folder = JetStream(nc), nc.connected_url, Path(tempfile.mkdtemp(prefix="bench-"))
    rates: dict[str, float] = {}

    def measured(name: str, call: Callable[[], Any]) -> None:
        os.sync()  # what others have left to write is not ours
        start = time.perf_counter()
        call()
        rates[name] = size / (time.perf_counter() - start) / 1e6

    def fresh() -> None:
        js.delete_stream(STREAM)

    try:
        stream = js.create_stream(StreamConfig(name=STREAM, subjects=["saved.*"]))
        for number in range(case["count"] * MEGABYTE // PIECE):
            js.publish_async(f"saved.{number % 100}", os.urandom(PIECE))
        js.publish_async_complete(60)
        size = stream.info().state.bytes
        measured("server, backup", lambda: thrown_away(url, folder))
        measured("disk", lambda: written(folder, size))
        with timed:
            measured("backup", lambda: backup.backup_stream(js, STREAM, folder))
        fresh()
        measured("server, restore", lambda: sent(url, folder))
        fresh()
        measured("restore", lambda: backup.restore_stream(js, folder))
        fresh()
    finally:
        shutil.rmtree(folder)
    timed.result["wall"] = size / rates["backup"] / 1e6
    timed.result["figures"] = {f"MB/s {name}": rate for name, rate in rates.items()}
    timed.result["figures"] |= {
        "x of the slower of server and disk": rates["backup"] / min(rates["server, backup"], rates["disk"]),
        "x of the server's restore": rates["restore"] / rates["server, restore"],
    }
