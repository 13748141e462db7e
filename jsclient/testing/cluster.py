"""Several servers together: a cluster, and a hub with a leaf node. Standard library only."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from jsclient.testing.server import NatsServer
from jsclient.testing.wait import free_port, wait_until

#: Three servers elect a meta leader within 1-3 s; a machine under load takes longer.
READY_TIMEOUT = 60.0


class _Group:
    """The common part of a cluster and a leaf pair. All servers start and stop together, and are gone at the end of
    `with`."""

    servers: list[NatsServer]

    def wait_ready(self, timeout: float = READY_TIMEOUT) -> None:
        raise RuntimeError("a group of servers says for itself when it is ready")

    def start(self) -> None:
        """Start every server that is not running, and wait until the group is ready."""
        for server in self.servers:
            server.start()
        self.wait_ready()

    def stop(self) -> None:
        """Stop all of them; stores and ports stay for another start()."""
        for server in self.servers:
            server.stop()

    def close(self) -> None:
        """Stop all of them and remove their files."""
        for server in self.servers:
            server.close()

    @property
    def urls(self) -> list[str]:
        """The URLs of both servers."""
        return [server.url for server in self.servers]

    @property
    def url(self) -> str:
        """All addresses in one string, separated by commas."""
        return ",".join(self.urls)


class Cluster(_Group):
    """`size` clustered servers with JetStream: `with Cluster() as cluster: connect(cluster.url)`.

    `config` is added to every server's configuration. The servers are called n1, n2, ... To stop or pause one of them,
    use `kill()`, `pause()` or `restart()` of `cluster.servers[i]`.

    `jetstream=False` switches JetStream off. `name` is the name of the cluster. `binary` is the nats-server to start;
    by default the one that `find_nats_server` finds.

    Attributes:
        name: Name of the cluster.
        jetstream: True if it has JetStream.
        servers: Its servers: n1, n2, ...

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
        config: The configuration as one object. Without it, pass its fields as keywords.
        binary: The nats-server to start. By default the one that `find_nats_server` finds.
    """

    def __init__(
        self, size: int = 3, *, config: str = "", jetstream: bool = True, binary: str | None = None, name: str = "test"
    ) -> None:
        self.name = name
        self.jetstream = jetstream
        ports = [free_port() for _ in range(size)]
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
        self.servers: list[NatsServer] = []
        for number, port in enumerate(ports, 1):
            cluster = f'cluster {{ name: "{name}", listen: "127.0.0.1:{port}", routes: [{routes}] }}\n'
            server = NatsServer(cluster + config, jetstream=jetstream, binary=binary, name=f"n{number}")
            self.servers.append(server)

    def __enter__(self) -> Cluster:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def wait_ready(self, timeout: float = READY_TIMEOUT) -> None:
        """Wait until all running servers are joined and, with JetStream, agree on a meta leader."""
        if self.jetstream:
            wait_until(self._agreed, timeout, "the cluster has no meta leader")
        else:
            wait_until(self._joined, timeout, "the servers of the cluster are not joined")

    def _alive(self) -> list[NatsServer]:
        return [server for server in self.servers if server.running]

    def _joined(self) -> bool:
        # Compare distinct ids: 2.9 gives no names there, and 2.10 and later open several routes to the same server.
        alive = self._alive()
        routes = (server.monitor("routez").get("routes") or [] for server in alive)
        return all(len({route["remote_id"] for route in seen}) >= len(alive) - 1 for seen in routes)

    def _leaders(self) -> set[str]:
        pages = (server.monitor("jsz") for server in self._alive())
        return {(page.get("meta_cluster") or {}).get("leader", "") for page in pages}

    def _agreed(self) -> bool:
        leaders = self._leaders()
        return self._joined() and len(leaders) == 1 and "" not in leaders and leaders <= {s.name for s in self._alive()}

    def by_name(self, name: str) -> NatsServer:
        """The server of that name."""
        return next(server for server in self.servers if server.name == name)

    def meta_leader(self, timeout: float = READY_TIMEOUT) -> NatsServer:
        """The server that all running servers name as meta leader (waits for an election to end)."""
        wait_until(self._agreed, timeout, "the cluster has no meta leader")
        return self.by_name(self._leaders().pop())

    def stream_leader(self, stream: str, timeout: float = READY_TIMEOUT) -> NatsServer:
        """The running server that leads `stream` of the default account."""
        return self.by_name(wait_until(lambda: self._leader_of(stream), timeout, f"stream {stream} has no leader"))

    def _leader_of(self, stream: str) -> str:
        alive = {server.name for server in self._alive()}
        for server in self._alive():
            for account in server.monitor("jsz?streams=true").get("account_details") or []:
                for detail in account.get("stream_detail") or []:
                    leader: str = (detail.get("cluster") or {}).get("leader", "")
                    if detail.get("name") == stream and leader == server.name and leader in alive:
                        return leader
        return ""


class LeafPair(_Group):
    """A hub and a leaf node, each with JetStream and its own domain ("hub" and "leaf").

    `via` is called with the hub's leaf port and returns the port that the leaf connects to instead. Use it to insert a
    Proxy.

    `hub_config` and `leaf_config` are added to their configurations. `binary` is the nats-server to start; by default
    the one that `find_nats_server` finds.

    Attributes:
        leaf_port: The port on which the hub listens for the leaf.
        hub: The server in the middle.
        leaf: The server at the edge.
        servers: Both.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
        binary: The nats-server to start. By default the one that `find_nats_server` finds.
    """

    def __init__(
        self,
        *,
        hub_config: str = "",
        leaf_config: str = "",
        binary: str | None = None,
        via: Callable[[int], int] | None = None,
    ) -> None:
        port = free_port()
        self.leaf_port = port
        dialled = via(port) if via else port
        # The hub advertises the leaf's target, or the leaf would learn the hub's own port and bypass a proxy later.
        nodes = f'leafnodes {{ listen: "127.0.0.1:{port}", advertise: "127.0.0.1:{dialled}" }}\n'
        self.hub: NatsServer = NatsServer(nodes + "jetstream { domain: hub }\n" + hub_config, binary=binary, name="hub")
        remote = f'leafnodes {{ reconnect: 1, remotes: [{{ url: "nats-leaf://127.0.0.1:{dialled}" }}] }}\n'
        self.leaf: NatsServer = NatsServer(
            remote + "jetstream { domain: leaf }\n" + leaf_config, binary=binary, name="leaf"
        )
        self.servers: list[NatsServer] = [self.hub, self.leaf]

    def __enter__(self) -> LeafPair:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def wait_ready(self, timeout: float = READY_TIMEOUT) -> None:
        """Wait until the leaf node is connected to the hub, and each knows the other's domain.

        It waits at most 0.5 s more for the domains, because accounts without JetStream have none.
        """
        wait_until(lambda: self.hub.monitor("leafz").get("leafnodes", 0) >= 1, timeout, "the leaf is not connected")
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: self._knows(self.hub, "leaf") and self._knows(self.leaf, "hub"), 0.5)

    @staticmethod
    def _knows(server: NatsServer, domain: str) -> bool:
        wanted = {f"$JS.{domain}.API.{part}" for part in ("INFO", "STREAM.>", "CONSUMER.>", "DIRECT.>", "META.>")}
        leafs = server.monitor("leafz?subs=1").get("leafs") or []
        return any(wanted <= set(leaf.get("subscriptions_list") or ()) for leaf in leafs)
