"""A hostile or broken peer costs little memory: the resident set of a process of its own, at its highest."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import textwrap
import zlib
from typing import Any

import pytest

import jsclient
from jsclient import ReconnectPolicy, errors
from jsclient.testing import FakeServer, ScriptFailed, info_line

MIB = 1024 * 1024

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="measures in /proc of Linux")

PRELUDE = """
import gc, sys, threading, time
import jsclient, jsclient.jetstream
from jsclient import errors
from jsclient.testing import wait_until

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024

def begin():
    gc.collect()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return peak()

url = sys.argv[1]
"""


def growth(script: Any, code: str) -> float:
    """MiB by which the highest resident set of a process that runs `code` grows between `begin()` and its end."""
    with FakeServer(script) as fake:
        body = PRELUDE + textwrap.dedent(code) + "\nprint(peak() - before)\n"
        done = subprocess.run(
            [sys.executable, "-c", body, fake.url], capture_output=True, text=True, timeout=50, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return float(done.stdout.split()[-1])


def flood(client: Any, piece: bytes, total: int) -> None:
    for _ in range(max(1, total // len(piece))):
        client.send(piece)


def hold(client: Any) -> None:
    try:
        while True:
            client.expect(b"PING\r\n", timeout=30)
            client.send(b"PONG\r\n")
    except ScriptFailed:
        pass


# --- websockets


def upgrade(client: Any, compress: bool = False) -> None:
    request = bytes(client.expect(b"\r\n\r\n"))
    key = request.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0]
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    extension = b"permessage-deflate; server_no_context_takeover; client_no_context_takeover"
    client.send(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        + (b"Sec-WebSocket-Extensions: " + extension + b"\r\n" if compress else b"")
        + b"Sec-WebSocket-Accept: "
        + accept
        + b"\r\n\r\n"
    )
    client.send(frame(info_line()))
    while not client.received.endswith(b"PING\r\n"):  # masked: its length tells
        before = len(client.received)
        client.fill()
        if len(client.received) == before and before > len(request) + 50:
            break
    client.send(frame(b"PONG\r\n"))


def frame(data: bytes, first: int = 0x82) -> bytes:
    size = len(data)
    if size < 126:
        return bytes((first, size)) + data
    if size < 65536:
        return bytes((first, 126)) + size.to_bytes(2, "big") + data
    return bytes((first, 127)) + size.to_bytes(8, "big") + data


def deflated(data: bytes) -> bytes:
    made = zlib.compressobj(9, wbits=-15)
    return (made.compress(data) + made.flush(zlib.Z_SYNC_FLUSH))[:-4]


@pytest.mark.slow
def test_websocket_pings_that_are_not_read() -> None:
    def script(client: Any) -> None:
        upgrade(client)
        flood(client, frame(b"p" * 125, 0x89) * 500, 48 * MIB)
        client.send(frame(b"MSG a 1 3\r\nend\r\n"))
        client.hold()

    code = """
    with jsclient.connect(url.replace("nats:", "ws:")) as nc:
        sub = nc.subscribe("a")
        before = begin()
        assert sub.next(timeout=40).data == b"end"
        after = peak()
        nc.close(wait=False)
    """
    assert growth(script, code) < 8


@pytest.mark.slow
def test_inflated_frames() -> None:
    stream = (b"MSG b 9 1000000\r\n" + bytes(1_000_000) + b"\r\n") * 60
    small = deflated(stream)
    assert len(small) < 70_000

    def script(client: Any) -> None:
        upgrade(client, compress=True)
        client.send(frame(small, 0xC2))
        client.send(frame(b"MSG a 1 3\r\nend\r\n"))
        client.hold()

    code = """
    with jsclient.connect(url.replace("nats:", "ws:"), ws_compression=True) as nc:
        sub = nc.subscribe("a")
        before = begin()
        assert sub.next(timeout=40).data == b"end"
        nc.close(wait=False)
    """
    assert growth(script, code) < 12


# --- more than was asked for, larger than was announced


@pytest.mark.parametrize("how", ["max_messages=5", "pending_messages=100"])
@pytest.mark.parametrize("size", [pytest.param(100, marks=pytest.mark.slow), 100_000])
def test_messages_beyond_the_limits_of_a_subscription(how: str, size: int) -> None:
    message = b"MSG a 1 %d\r\n" % size + b"x" * size + b"\r\n"

    def script(client: Any) -> None:
        client.handshake()
        client.expect(b"SUB a 1\r\n")
        flood(client, message * max(1, 50_000 // size), 150 * MIB)
        client.send(b"MSG end 2 3\r\nend\r\n")
        hold(client)

    code = f"""
    with jsclient.connect(url, on_error=lambda *args: None) as nc:
        before = begin()
        sub, end = nc.subscribe("a", {how}), nc.subscribe("end")
        assert end.next(timeout=40).data == b"end"
        assert len(sub) in (5, 100)
    """
    assert growth(script, code) < 24


@pytest.mark.slow
def test_messages_far_above_the_announced_max_payload() -> None:
    def script(client: Any) -> None:
        if client.number:
            client.handshake()
            return hold(client)
        client.handshake(max_payload=MIB)
        client.expect(b"SUB a 1\r\n")
        client.send(b"MSG a 1 %d\r\n" % (60 * MIB))
        flood(client, bytes(MIB), 59 * MIB)
        client.hold()

    code = """
    with jsclient.connect(url) as nc:
        before = begin()
        sub = nc.subscribe("a")
        wait_until(lambda: nc.stats().reconnects == 1, 40)
        assert "above the limit" in str(nc.last_error), nc.last_error
    """
    assert growth(script, code) < 12


def test_replies_may_be_larger_than_max_payload() -> None:
    """The server's own answers are: the subjects of a stream, 100,000 at once. So are messages of before."""
    size = 24 * MIB

    def script(client: Any) -> None:
        client.handshake(max_payload=MIB)
        client.expect(b"SUB a 1\r\n")
        client.send(b"MSG a 1 %d\r\n" % (8 * MIB) + bytes(8 * MIB) + b"\r\n")
        reply = client.expect(b"PUB ask ") and client.line().split()[0]
        sid = client.received.partition(b"*")[2].split()[0]
        client.send(b"MSG %b %b %d\r\n" % (reply, bytes(sid), size) + bytes(size) + b"\r\n")
        hold(client)

    with FakeServer(script) as fake, jsclient.connect(fake.url) as nc:
        assert len(nc.subscribe("a").next(timeout=20).data) == 8 * MIB
        assert len(nc.request("ask", timeout=20).data) == size
        assert nc.stats().reconnects == 0


def test_a_limit_that_sinks_and_rises_is_followed() -> None:
    def script(client: Any) -> None:
        client.handshake(max_payload=32 * MIB)
        client.expect(b"SUB a 1\r\n")
        client.send(b"MSG a 1 %d\r\n" % (60 * MIB) + bytes(60 * MIB) + b"\r\n")
        client.send(info_line(max_payload=MIB) + b"MSG a 1 %d\r\n" % (8 * MIB) + bytes(8 * MIB) + b"\r\n")
        client.send(info_line(max_payload=8 * MIB) + b"PING\r\n")
        client.expect(b"PONG\r\n")
        client.send(b"MSG a 1 %d\r\n" % (16 * MIB) + bytes(16 * MIB) + b"\r\n")
        client.send(b"MSG a 1 %d\r\n" % (16 * MIB + 1))
        client.hold()

    with FakeServer(script) as fake, jsclient.connect(fake.url, reconnect=ReconnectPolicy(enabled=False)) as nc:
        sub = nc.subscribe("a", pending_bytes=1 << 30)
        assert [len(sub.next(timeout=20).data) // MIB for _ in range(3)] == [60, 8, 16]
        with pytest.raises(errors.ConnectionClosed, match="above the limit"):
            sub.next(timeout=20)


@pytest.mark.parametrize("size", [pytest.param(100, marks=pytest.mark.slow), 100_000])
@pytest.mark.parametrize("how", ["messages", "fetch"])
def test_a_pull_gets_far_more_than_it_asked_for(how: str, size: int) -> None:
    def script(client: Any) -> None:
        client.handshake()
        sid = client.expect(b".*") and client.line().split()[0]
        client.expect(b"PUB $JS.API.CONSUMER.MSG.NEXT.S.C ")
        message = b"MSG a %b $JS.ACK.S.C.1.1.1.1760000000000000000.5 %d\r\n" % (sid, size) + bytes(size) + b"\r\n"
        flood(client, message * max(1, 50_000 // size), 300 * MIB)
        client.send(b"PING\r\n")
        hold(client)  # until the process has seen enough, and exits

    code = f"""
    told = []
    nc = jsclient.connect(url, on_error=lambda nc, error, sub: told.append(error))
    js = jsclient.jetstream.JetStream(nc)
    consumer = js.consumer("S", "C", fetch_info=False)
    before = begin()
    if "{how}" == "messages":
        messages = consumer.messages(max_messages=100, max_bytes=8 << 20)
        next(messages)
    else:
        batch = threading.Thread(target=lambda: list(consumer.fetch(3, timeout=5)), daemon=True)
        batch.start()
    import os
    wait_until(lambda: nc.stats().bytes_in > 290 << 20, 40)
    for error in told:
        assert isinstance(error, errors.SlowConsumer) and "more than was asked for" in str(error), error
    growth = peak() - before
    print(growth)
    sys.stdout.flush()
    os._exit(0)
    """
    assert growth(script, code) < 100


@pytest.mark.parametrize("many", [False, True])
def test_more_replies_than_anybody_takes(many: bool) -> None:
    def script(client: Any) -> None:
        client.handshake()
        client.expect(b"SUB ")
        sid = client.line().split()[1]
        reply = client.expect(b"PUB ask ") and client.line().split()[0]
        message = b"MSG %b %b 100000\r\n" % (reply, sid) + bytes(100_000) + b"\r\n"
        flood(client, message, 300 * MIB)
        client.send(b"PING\r\n")
        hold(client)

    code = f"""
    nc = jsclient.connect(url)
    before = begin()
    if {many}:
        replies = nc.request_many("ask", timeout=30)
        next(replies)
    else:
        nc.request("ask")
    wait_until(lambda: nc.stats().bytes_in > 290 << 20, 40)
    if {many}:
        try:
            for _ in replies:
                pass
        except errors.SlowConsumer as error:
            assert "dropped" in str(error)
        else:
            raise AssertionError("nobody was told")
    nc.close(wait=False)
    """
    assert growth(script, code) < 100
