"""Runs the client processes of a case in interleaved rounds, the order rotated, on a private server."""

from __future__ import annotations

import compileall
import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import attrs

import jsclient
from jsclient import protocol
from jsclient.jetstream import JetStream, StreamConfig
from jsclient.testing import NatsServer
from tools.bench import client_natsc, client_natsgo, networks, processes, revision
from tools.bench.cases import ALL, Case
from tools.bench.compiled import Unavailable

SERVER_CONFIG = "max_pending: 4GB\nmax_payload: 1MB\n"
RUN_TIMEOUT = 120
BASELINE = "nats-py"
BEFORE = "before"
"""The name of an earlier revision of jsclient in the rows."""


@attrs.frozen
class Client:
    """One side of the comparison and how its process is started."""

    name: str
    module: str
    arguments: tuple[str, ...] = ()
    needs: str = ""
    program: str = ""
    """A program that it starts."""
    share: float = 1.0
    """Of the messages that a case has: slow clients do fewer, and their figures are scaled up."""
    rounds: int = 1_000
    """At most so many of the rounds: a client that is shown and not gated takes part in few."""
    library: str = str(revision.ROOT)
    """The folder of `jsclient` and `protocol`."""

    def absent(self) -> str:
        """Why it cannot take part; "" when it can."""
        for built in (client_natsc, client_natsgo):
            if self.module == built.__name__:
                try:
                    built.program()
                except Unavailable as error:
                    return str(error)
        if self.needs and importlib.util.find_spec(self.needs) is None:
            return f"{self.needs} is not installed (pip install {self.needs.replace('_', '-')})"
        if self.program and shutil.which(self.program) is None:
            return f"{self.program} is not installed"
        return ""

    def knows(self, work: str) -> bool:
        module = importlib.import_module(self.module)
        return hasattr(module, work)


CLIENTS = [
    Client("jsclient", "tools.bench.client_jsclient"),
    Client(BASELINE, "tools.bench.client_natspy", needs="nats"),
    Client("nats-py-uvloop", "tools.bench.client_natspy", ("uvloop",), needs="uvloop", rounds=2),
    Client("natsrpy", "tools.bench.client_natsrpy", needs="natsrpy", share=0.1, rounds=2),
    Client("natsio", "tools.bench.client_natsio", needs="natsio", share=0.2, rounds=2),
    Client("mq-bridge", "tools.bench.client_mqbridge", needs="mq_bridge", share=0.5, rounds=2),
    Client("redis-py", "tools.bench.client_redis", needs="redis", program="redis-server", share=0.2, rounds=2),
    Client("nats.go", client_natsgo.__name__, rounds=2),
    Client("nats.c", client_natsc.__name__, rounds=2),
]


class Bench:
    """A private server and what the cases need on it; `run` measures one case."""

    def __init__(self, rounds: int, peers: list[str], share: float = 1.0, before: str = "") -> None:
        self.rounds = rounds
        self.share = share  # of the messages of every case
        self.clients = []
        for client in CLIENTS:
            if client.name in ("jsclient", *peers):
                if reason := client.absent():
                    print(f"without {client.name}: {reason}", flush=True)
                else:
                    self.clients.append(client)
        for package in (jsclient, protocol):
            # pip compiles what it installs, a peer too; in a checkout modules that are imported late would be compiled
            # within what is measured.
            compileall.compile_dir(package.__path__[0], quiet=2)
        self._seeded: set[str] = set()
        self._stack = contextlib.ExitStack()
        self._servers: dict[bool, tuple[NatsServer, str]] = {}
        self._temporary = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
        if before:  # the folder of an earlier revision
            self.clients.insert(1, attrs.evolve(CLIENTS[0], name=BEFORE, library=before))

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def _version(self) -> str:
        with jsclient.connect(self._server(False)[0].url) as nc:
            return nc.server_info.version

    def _server(self, tls: bool) -> tuple[NatsServer, str]:
        if tls not in self._servers:
            config, ca = SERVER_CONFIG, ""
            if tls:
                from jsclient.testing import certificates

                certs = certificates(self._stack.enter_context(tempfile.TemporaryDirectory()))
                config += certs.server_config()
                ca = str(certs.ca)
            self._servers[tls] = (self._stack.enter_context(NatsServer(config)), ca)
        return self._servers[tls]

    def run(self, case: Case) -> Iterator[dict[str, Any]]:
        """One row per side and round, as the rounds go by."""
        sides, server = self._sides(case), self._version()
        for number in range(self.rounds):
            present = [side for side in sides if number < side[1].rounds]
            turn = number % len(present)
            for name, client, other in present[turn:] + present[:turn]:
                server_of, told = self._told(other)
                with networks.line(other, server_of, number) as url:
                    row = self._run_client(client, url, told, case.count)
                load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
                yield {"case": case.name, "client": name, "round": number, "load": load, "server": server, **row}
                with contextlib.suppress(jsclient.errors.JsClientError):  # the next row says so
                    self._clear(server_of.url, told["ca"])

    def _sides(self, case: Case) -> list[tuple[str, Client, Case]]:
        """What is compared: the clients in one case, or two cases of our own."""
        ours = case.solo or case.versus
        clients = [client for client in self.clients if client.module == CLIENTS[0].module or not ours]
        sides = [(client.name, client, case) for client in clients if client.knows(case.work)]
        if case.versus:
            sides.insert(1, (case.versus, self.clients[0], ALL[case.versus]))
        return sides

    def _told(self, case: Case) -> tuple[NatsServer, dict[str, Any]]:
        """(server, what a client process has to know)."""
        server, ca = self._server(case.tls)
        count = max(1, int(case.count * self.share))
        told = {"work": case.work, "count": count, "size": case.size, "params": case.params, "ca": ca}
        if case.seeded:
            told["stream"], told["subject"] = self._seed(server, case.size, count, "headers" in case.params)
        return server, told

    def _run_client(self, client: Client, url: str, told: dict[str, Any], whole: int) -> dict[str, Any]:
        count = max(1, int(told["count"] * client.share))
        command = [sys.executable, "-m", client.module, url, json.dumps({**told, "count": count}), *client.arguments]
        # The first folder of the modules is the one where Python starts; the other has `tools`.
        env = {
            **os.environ,
            "TMPDIR": self._temporary,
            "PYTHONPATH": os.pathsep.join([client.library, str(revision.ROOT)]),
        }
        try:
            done = processes.run(command, client.library, env, RUN_TIMEOUT)
        except subprocess.TimeoutExpired:
            return {"error": f"not done in {RUN_TIMEOUT} s"}
        if done.returncode != 0:
            return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1]}
        row: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        scale = whole / count
        return {**row, "wall": row["wall"] * scale, "cpu": row["cpu"] * scale, "count": count, "size": told["size"]}

    def _clear(self, url: str, ca: str) -> None:
        """Remove what a run has stored: a server that needs memory anew for each is slow at it, by turns for one client
        or the other (an object of 64 MiB: 0.13 to 1.3 s)."""
        with jsclient.connect(url, tls=jsclient.TLSOptions(ca_file=ca) if ca else None) as nc:
            js = JetStream(nc)
            for name in js.stream_names():
                if name not in self._seeded:
                    js.delete_stream(name)

    def _seed(self, server: NatsServer, size: int, count: int, headed: bool) -> tuple[str, str]:
        """(name, subject) of a file stream that holds exactly the messages of the case: nats-py's push would go on
        with any others, and its last flush would wait behind them."""
        kind = f"{size}H" if headed else f"{size}"
        name, subject, start = f"SEED{kind}x{count}", f"seed.{kind}", f"SEED{kind}x"
        if name not in self._seeded:
            with jsclient.connect(server.url) as nc:
                js = JetStream(nc)
                for known in [known for known in self._seeded if known.startswith(start)]:
                    js.delete_stream(known)
                    self._seeded.remove(known)
                js.create_stream(StreamConfig(name=name, subjects=[subject]))
                payload, headers = bytes(size), {"X-Bench": "0123456789"} if headed else None
                for _ in range(count):
                    js.publish_async(subject, payload, headers=headers)
                js.publish_async_complete(120)
            self._seeded.add(name)
        return name, subject
