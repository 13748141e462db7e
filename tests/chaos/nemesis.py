"""What goes wrong, and when: a schedule that follows from the seed, and the thread that lets it happen."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator

import attrs
from tests.chaos.clocks import set_clock, settable
from tests.chaos.rig import Rig

from jsclient import errors
from jsclient.jetstream import JetStream
from jsclient.testing import Proxy

#: kind -> weight. What is done to servers; one at a time.
NODES = {
    "kill": 4,  # SIGKILL, and started again
    "kill two": 1,
    "kill all": 1,
    "pause": 3,  # SIGSTOP: it wakes up as the leader of the past
    "partition": 4,  # one server hears nothing of the others, which hear nothing of it; the connections stay
    "cut off": 2,  # the same, and the connections end and cannot be made
    "bridge": 2,  # two servers do not hear each other, the third hears both
    "step down": 3,
    "clock": 3,  # the wall clock of one server is set, and set right again
}
#: Seconds by which it is wrong: what a server has dated in the future it may leave alone for as long afterwards.
WRONG = (-600, -3, 4, 25)
#: What is done to the links of clients, beside it or alone.
LINKS = {"cut": 3, "reset": 3, "stall": 2, "deaf": 2, "slow": 2, "delay": 1}


@attrs.frozen
class Fault:
    """`at` and `seconds` since the start; `node` is a number, or None for the leader of `stream`."""

    at: float
    seconds: float
    kind: str
    node: int | None
    stream: str
    dice: int = 0

    def __str__(self) -> str:
        where = f"server n{self.node + 1}" if self.node is not None else f"the leader of {self.stream}"
        return f"{self.kind}, {where}, {self.seconds:.1f} s"


def schedule(seed: int | str, seconds: float, streams: list[str], nodes: dict[str, int] | None = None) -> list[Fault]:
    """Faults of servers and of links, each in a row of its own, until `seconds`."""
    found: list[Fault] = []
    nodes = dict(NODES if nodes is None else nodes)
    if not settable():
        nodes.pop("clock", None)
    for name, weights, longest, quiet in (("nodes", nodes, 9.0, 5.0), ("links", LINKS, 5.0, 7.0)):
        chance = random.Random(f"{seed}/{name}")
        at = 1.5 + chance.random()
        while weights and at < seconds:
            kind = chance.choices(list(weights), list(weights.values()))[0]
            lasts = 1.0 + chance.random() * longest
            node = chance.randrange(3) if chance.random() < 0.5 else None
            found.append(Fault(at, lasts, kind, node, chance.choice(streams), chance.randrange(1 << 20)))
            at += lasts + 1.0 + chance.random() * quiet
    return sorted(found, key=lambda fault: fault.at)


@attrs.define
class Event:
    """What really happened, for the report."""

    kind: str
    text: str
    began: float
    ended: float = 0.0


class Nemesis:
    """Runs a schedule on a rig. `stop()` ends it and heals everything."""

    def __init__(self, rig: Rig, js: JetStream, faults: list[Fault], consumers: dict[str, str]) -> None:
        self.rig = rig
        self.js = js
        self.consumers = consumers  #: stream -> its consumer
        self.events: list[Event] = []
        self.errors: list[BaseException] = []
        self.began = time.monotonic()
        self._stop = threading.Event()
        rows = ([f for f in faults if f.kind in NODES], [f for f in faults if f.kind in LINKS])
        self._threads = [threading.Thread(target=self._run, args=(row,), daemon=True) for row in rows]

    def start(self) -> None:
        self.began = time.monotonic()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends the faults that are under way, and heals everything."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        self.rig.heal()

    @property
    def running(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def _run(self, faults: list[Fault]) -> None:
        try:
            for fault in faults:
                if self._stop.wait(max(0.0, self.began + fault.at - time.monotonic())):
                    return
                node = fault.node if fault.node is not None else self.rig.leader_index(fault.stream)
                node = fault.dice % 3 if node is None else node
                event = Event(fault.kind, f"{fault} (n{node + 1})", time.monotonic() - self.began)
                self.events.append(event)
                with self._happening(fault, node):
                    self._stop.wait(fault.seconds)
                event.ended = time.monotonic() - self.began
        except BaseException as error:
            self.errors.append(error)

    def _happening(self, fault: Fault, node: int) -> contextlib.AbstractContextManager[None]:
        if fault.kind.startswith("kill"):
            count = {"kill": 1, "kill two": 2, "kill all": 3}[fault.kind]
            return self._killed([(node + step) % 3 for step in range(count)])
        if fault.kind in ("partition", "cut off"):
            return _broken(self.rig.around(node), cut=fault.kind == "cut off")
        if fault.kind == "bridge":
            return _broken(self.rig.between(node, (node + 1) % 3), cut=bool(fault.dice % 2))
        if fault.kind == "pause":
            return self._paused(node)
        if fault.kind == "step down":
            return self._stepping_down(fault)
        if fault.kind == "clock":
            return self._misdated(node, WRONG[fault.dice % len(WRONG)])
        return self._link(fault, self.rig.links[node])

    @contextlib.contextmanager
    def _killed(self, nodes: list[int]) -> Iterator[None]:
        for node in nodes:
            self.rig.servers[node].kill()
        try:
            yield
        finally:
            for node in nodes:
                self.rig.servers[node].start()

    @contextlib.contextmanager
    def _paused(self, node: int) -> Iterator[None]:
        server = self.rig.servers[node]
        server.pause()
        try:
            yield
        finally:
            server.resume()

    @contextlib.contextmanager
    def _misdated(self, node: int, seconds: int) -> Iterator[None]:
        server = self.rig.servers[node]
        set_clock(server, seconds)
        try:
            yield
        finally:
            set_clock(server, 0)

    @contextlib.contextmanager
    def _stepping_down(self, fault: Fault) -> Iterator[None]:
        self.rig.step_down(self.js, fault.stream)
        with contextlib.suppress(errors.JsClientError):
            if fault.stream in self.consumers:
                self.rig.step_down(self.js, fault.stream, self.consumers[fault.stream])
        yield

    @contextlib.contextmanager
    def _link(self, fault: Fault, proxy: Proxy) -> Iterator[None]:
        begin: dict[str, Callable[[], object]] = {
            "cut": proxy.cut,
            "reset": lambda: proxy.cut_after(fault.dice % 5000, "down" if fault.dice % 2 else "up", reset=True),
            "stall": proxy.stall,
            "deaf": lambda: proxy.stall("down"),  # what is sent arrives, the answers do not
            "slow": lambda: proxy.throttle(20_000),
            "delay": lambda: proxy.delay(0.15),
        }
        begin[fault.kind]()
        try:
            yield
        finally:
            if fault.kind == "deaf" and fault.dice % 3:
                proxy.cut(reset=True)  # and they never will
            proxy.resume()
            proxy.throttle(0)
            proxy.delay(0)


@contextlib.contextmanager
def _broken(proxies: list[Proxy], cut: bool) -> Iterator[None]:
    for proxy in proxies:
        proxy.refuse() if cut else proxy.stall()
    try:
        yield
    finally:
        for proxy in proxies:
            proxy.accept() if cut else proxy.resume()
