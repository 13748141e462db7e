"""Three servers, and every link can be cut: proxies before the clients' ports, and between each pair of servers."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import Any

from tests.chaos.wire import Wire

import jsclient
from jsclient import errors
from jsclient.jetstream import JetStream
from jsclient.testing import Cluster, NatsServer, Proxy, server_version, wait_until
from jsclient.testing.wait import free_port

#: No route is learnt from others: a server that knew the real ports would go round the proxies.
NODE = """
cluster {{ name: chaos, listen: "127.0.0.1:{port}", no_advertise: true, {one} routes: [{routes}] }}
"""
#: One connection for each pair of servers, so that a partition is one thing; before 2.10 there never were more.
ONE_ROUTE = "pool_size: -1,"
#: Acknowledged means written to the disk. Before 2.10 that could not be had, and killed processes lose nothing by it.
SYNC = "jetstream {{ sync_interval: {sync} }}\n"

#: A dead link is noticed in 3 to 4.5 s instead of a minute, so that a short run sees reconnects, too.
PING = 1.5


class Rig(Cluster):
    """The cluster, its proxies, and what went over the clients' links (`wire`)."""

    def __init__(self, binary: str | None = None, sync: str = "always", tap: bool = True) -> None:
        super().__init__(3, binary=binary, name="chaos")
        ports = [free_port() for _ in self.servers]
        pairs = list(itertools.permutations(range(3), 2))
        self.routes = {(here, there): Proxy(ports[there]) for here, there in pairs}
        for number, server in enumerate(self.servers):
            urls = ", ".join(f'"{self.routes[number, there].url}"' for there in range(3) if there != number)
            since_2_10 = server_version(server.binary) >= (2, 10, 0)
            one, more = (ONE_ROUTE, SYNC.format(sync=sync)) if since_2_10 else ("", "")
            server.config = NODE.format(port=ports[number], one=one, routes=urls) + more
            server.port = free_port()
        self.links = [Proxy(server.port) for server in self.servers]  # of the clients
        self.wire = Wire()
        if tap:
            for number, link in enumerate(self.links):
                link.tap = self.wire.tap(number)

    def __enter__(self) -> Rig:
        try:
            for proxy in self.proxies:
                proxy.start()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        super().close()
        for proxy in self.proxies:
            proxy.close()

    @property
    def proxies(self) -> list[Proxy]:
        return [*self.routes.values(), *self.links]

    # --- clients ------------------------------------------------------------------------------------------

    def connect(self, name: str) -> jsclient.Connection:
        """Through the proxies, and never past them."""
        return jsclient.connect(
            [link.url for link in self.links],
            name=name,
            ignore_discovered=True,
            retry_on_failed_connect=True,
            ping_interval=PING,
            connect_timeout=3,
        )

    def admin(self) -> jsclient.Connection:
        """Past the proxies."""
        return jsclient.connect(self.urls, name="admin", ignore_discovered=True, retry_on_failed_connect=True)

    # --- faults -------------------------------------------------------------------------------------------

    def between(self, one: int, other: int) -> list[Proxy]:
        return [self.routes[one, other], self.routes[other, one]]

    def around(self, node: int) -> list[Proxy]:
        """All that connects this server to the others."""
        return [proxy for pair, proxy in self.routes.items() if node in pair]

    def heal(self) -> None:
        """Every server runs and every link is whole again."""
        for proxy in self.proxies:
            proxy.heal()
        for server in self.servers:
            if server.running:
                server.resume()
            else:
                server.start()

    # --- leaders ------------------------------------------------------------------------------------------

    def index(self, server: NatsServer) -> int:
        return self.servers.index(server)

    def leader_index(self, stream: str) -> int | None:
        """The server that leads this stream as far as one can see within a moment."""
        with contextlib.suppress(TimeoutError, OSError, StopIteration):
            return self.index(self.stream_leader(stream, timeout=1.0))
        return None

    def step_down(self, js: JetStream, stream: str, consumer: str = "") -> bool:
        what = f"CONSUMER.LEADER.STEPDOWN.{stream}.{consumer}" if consumer else f"STREAM.LEADER.STEPDOWN.{stream}"
        try:
            answer = json.loads(js.nc.request(f"$JS.API.{what}", b"", timeout=2).data)
        except (errors.JsClientError, ValueError):
            return False
        return bool(isinstance(answer, dict) and answer.get("success"))


def wait_current(cluster: Cluster, js: JetStream, streams: list[str], timeout: float = 120.0) -> None:
    """Until every stream has a leader and all its replicas have caught up."""
    cluster.wait_ready(timeout)
    wait_until(lambda: all(_current(js, name) for name in streams), timeout, "the replicas have not caught up")


def _current(js: JetStream, name: str) -> bool:
    try:
        found = js.stream(name, fetch_info=False).info(timeout=5).cluster
    except errors.JsClientError:
        return False
    replicas = (found and found.replicas) or []
    return bool(found and found.leader and len(replicas) == 2 and all(replica.current for replica in replicas))


def not_current(cluster: Cluster, js: JetStream, streams: list[str]) -> list[str]:
    """What is known of the streams that have no leader or not all replicas, and what their servers say themselves."""
    told = []
    for name in streams:
        if _current(js, name):
            continue
        try:
            told.append(f"{name}: {js.stream(name, fetch_info=False).info(timeout=5).cluster}")
        except errors.JsClientError as error:
            told.append(f"{name}: {error!r}")
        told += [f"{name} on {server.name}: {_own_view(server, name)}" for server in cluster.servers]
    return told


def _own_view(server: NatsServer, name: str) -> str:
    try:
        page = server.monitor("jsz?streams=true&consumers=true&raft=true")
    except OSError as error:
        return repr(error)
    streams = [one for account in page.get("account_details") or [] for one in account.get("stream_detail") or []]
    found: dict[str, Any] = next((one for one in streams if one["name"] == name), {})
    state = {key: found.get("state", {}).get(key) for key in ("messages", "first_seq", "last_seq", "consumer_count")}
    meta = page.get("meta_cluster")
    return f"{state}, {found.get('cluster')}, {found.get('stream_raft_group')}; meta {meta}"
