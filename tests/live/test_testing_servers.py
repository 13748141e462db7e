"""jsclient.testing against real servers: NatsServer, Cluster, LeafPair. Raw sockets, so that only the kit is tested."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jsclient.testing import (
    Cluster,
    LeafPair,
    NatsServer,
    Proxy,
    certificates,
    find_server,
    free_port,
    running_servers,
    wait_until,
)


class Raw:
    """The smallest NATS client there is."""

    def __init__(self, server: NatsServer, port: int = 0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port or server.port), timeout=20)
        self.file = self.socket.makefile("rb")
        self.info = json.loads(self.file.readline()[5:])
        self.socket.sendall(b'CONNECT {"verbose":false,"headers":true,"protocol":1,"no_responders":true}\r\nPING\r\n')
        assert self.line() == b"PONG\r\n"

    def line(self) -> bytes:
        """The next line that is not the server's own business (2.15 sends a second INFO after CONNECT)."""
        while (line := self.file.readline()).startswith((b"INFO ", b"PING")):
            if b'"ldm":true' in line:
                break
        return line

    def request(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One JetStream API call."""
        data = json.dumps(body).encode() if body else b""
        self.socket.sendall(b"SUB _INBOX.r 1\r\nUNSUB 1 1\r\n")
        self.socket.sendall(f"PUB {subject} _INBOX.r {len(data)}\r\n".encode() + data + b"\r\n")
        head = self.line().split()
        assert head[0] == b"MSG", head
        answer: dict[str, Any] = json.loads(self.file.read(int(head[-1]) + 2))
        return answer

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.socket.close()


def test_a_server_starts_serves_and_leaves_nothing() -> None:
    with NatsServer() as server:
        folder = Path(server.store_dir).parent
        assert server in running_servers()
        assert server.url == f"nats://127.0.0.1:{server.port}"
        with Raw(server) as raw:
            assert raw.info["jetstream"] is True
            assert ".".join(map(str, server.version)) == raw.info["version"]
        assert server.monitor("varz")["port"] == server.port
        assert "Server is ready" in server.log_text()
        pid = server.pid
    assert not server.running
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_port_and_store_survive_a_restart(how: str) -> None:
    with NatsServer() as server:
        port = server.port
        with Raw(server) as raw:
            assert "error" not in raw.request("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        if how == "kill":
            server.kill()
            assert not server.running
            server.start()
        else:
            server.restart()
        assert server.port == port
        with Raw(server) as raw:
            assert raw.request("$JS.API.STREAM.NAMES")["streams"] == ["S"]


def test_a_store_of_the_caller_is_left_alone(tmp_path: Path) -> None:
    with NatsServer(store_dir=tmp_path) as server, Raw(server) as raw:
        raw.request("$JS.API.STREAM.CREATE.S", {"name": "S"})
    assert list(tmp_path.iterdir())


def test_a_paused_server_is_silent_until_resumed() -> None:
    with NatsServer(jetstream=False) as server, Raw(server) as raw:
        server.pause()
        raw.socket.sendall(b"PING\r\n")
        raw.socket.settimeout(0.3)
        heard = b""
        with pytest.raises(TimeoutError):
            while True:  # an INFO may have been under way
                heard += raw.socket.recv(65536)
        assert b"PONG" not in heard
        server.resume()
        raw.socket.settimeout(10)
        while b"PONG" not in heard:
            heard += raw.socket.recv(65536)
        server.pause()  # and a paused one can be stopped
    assert not server.running


def test_config_args_and_reload_are_used(tmp_path: Path) -> None:
    with NatsServer("max_payload: 2000", args=["-D"], jetstream=False, name="me") as server:
        with Raw(server) as raw:
            assert raw.info["max_payload"] == 2000
            assert raw.info["server_name"] == "me"
        assert "[DBG]" in server.log_text()
        server.reload("max_payload: 3000")
        with Raw(server) as raw:
            assert raw.info["max_payload"] == 3000


def test_a_tls_server_says_so_in_its_url(tmp_path: Path) -> None:
    certs = certificates(tmp_path)
    with NatsServer(certs.server_config()) as server:
        assert server.url.startswith("tls://")


def test_lame_duck_is_announced() -> None:
    with NatsServer("lame_duck_duration: 30s\nlame_duck_grace_period: 1s") as server, Raw(server) as raw:
        server.lame_duck()
        assert b'"ldm":true' in raw.line()


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(RuntimeError, match="did not start"), NatsServer("nonsense: {"):
        pass


@pytest.mark.parametrize("taken", [2, 3])
def test_a_server_that_takes_its_own_port_is_started_again(taken: int, tmp_path: Path) -> None:
    """Its monitor has any port, and was given that of its clients: once in some ten thousand restarts. Here as often as
    wanted: twice it starts, three times are too often."""
    program, count = tmp_path / "nats-server", tmp_path / "count"
    port = free_port()
    program.write_text(
        f"#!/bin/sh\necho >> {count}\n"
        f'if [ $(wc -l < {count}) -le {taken} ]; then exec {find_server()} "$@" -m {port}; fi\n'
        f'exec {find_server()} "$@"\n'
    )
    program.chmod(0o755)
    with contextlib.closing(NatsServer(port=port, binary=str(program))) as server:
        if taken == 3:
            with pytest.raises(RuntimeError, match="address already in use"):
                server.start()
            assert not server.running
            return
        assert server.start().port == port
        with Raw(server):
            assert server.monitor_url != f"http://127.0.0.1:{port}"


@pytest.mark.slow
def test_a_cluster_has_a_leader_and_finds_another() -> None:
    with Cluster() as cluster:
        assert len(cluster.url.split(",")) == 3
        leader = cluster.meta_leader()
        with Raw(cluster.servers[0]) as raw:
            made = raw.request("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "num_replicas": 3})
            assert "error" not in made
        assert cluster.stream_leader("S") in cluster.servers
        leader.kill()
        survivors = [server for server in cluster.servers if server is not leader]
        assert cluster.meta_leader() in survivors
        leader.start()
        cluster.wait_ready()


def test_a_leaf_reaches_the_domain_of_its_hub_through_a_proxy() -> None:
    proxies: list[Proxy] = []

    def between(port: int) -> int:
        proxies.append(Proxy(port).start())
        return proxies[0].port

    try:
        with LeafPair(via=between) as pair:
            with Raw(pair.hub) as raw:
                raw.request("$JS.API.STREAM.CREATE.H", {"name": "H"})

            def names_seen_from_leaf() -> list[str]:
                with Raw(pair.leaf) as raw:
                    raw.socket.sendall(
                        b"SUB _INBOX.r 1\r\nUNSUB 1 1\r\nPUB $JS.hub.API.STREAM.NAMES _INBOX.r 0\r\n\r\n"
                    )
                    head = raw.line().split()
                    data = raw.file.read(int(head[-1]) + 2)
                    return json.loads(data)["streams"] if head[0] == b"MSG" else []

            assert wait_until(names_seen_from_leaf) == ["H"]
            assert proxies[0].up.bytes > 0
            proxies[0].cut()
            wait_until(lambda: proxies[0].accepted >= 2)
            pair.wait_ready()
    finally:
        for proxy in proxies:
            proxy.close()


def test_a_configuration_that_is_refused_is_told_with_its_reason() -> None:
    with NatsServer() as server:
        server.reload("max_payload: 2000")
        with pytest.raises(RuntimeError, match="Unexpected EOF"):
            server.reload("max_payload: {")


def refuses(port: int) -> bool:
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return False
    return True


@pytest.mark.parametrize(("number", "stopped"), [(signal.SIGKILL, False), (signal.SIGTERM, False), (9, True)])
def test_a_server_ends_with_its_process_and_leaves_no_folder(number: int, stopped: bool, tmp_path: Path) -> None:
    code = "from jsclient.testing import NatsServer\ns = NatsServer().start()\n" + "s.stop()\n" * stopped
    code += "print(s.port, flush=True)\ninput()"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        process.send_signal(number)
    wait_until(lambda: refuses(port), message="the server still runs")
    wait_until(lambda: not list(tmp_path.iterdir()), message="its folder is still there")
