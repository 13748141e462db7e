"""Locks, semaphores and elections under faults: which client held what, when and with which token, and may that be?

Every hold is written down by its holder, all on one monotonic clock: when it asked, when it had the lease, and when it
saw for the last time that the lease was valid (the clock is read before it looks). From this the checker says whether

- two holders of one key were valid at a time (a semaphore with n seats is n keys),
- a token was given out twice, or not higher than one that was had before the lease was asked for,
- a resource that keeps the highest token refused a holder that was valid.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterable

import attrs
from tests.chaos.nemesis import NODES, Event, Nemesis, schedule
from tests.chaos.rig import Rig

import jsclient
from jsclient import coordination, errors
from jsclient.jetstream import JetStream
from jsclient.keyvalue import KeyValue
from jsclient.testing import wait_until

BUCKET = "leases"
STREAM = f"KV_{BUCKET}"
#: A lease ends when the clock of the server says so: where that is wrong, two holders may believe in theirs.
RIGHT_CLOCKS = {kind: weight for kind, weight in NODES.items() if kind != "clock"}
TTL = 3.0
PATIENCE = 5.0
SEATS = 2


@attrs.define
class Hold:
    """One lease as its holder saw it."""

    holder: str
    key: str
    token: int
    asked: float
    had: float
    valid: float
    """When it was seen valid for the last time, -1: never."""

    def __str__(self) -> str:
        return f"{self.holder} held {self.key} with token {self.token} from {self.had:.3f} to {self.valid:.3f}"


def check(holds: Iterable[Hold]) -> list[str]:
    """What is wrong with these holds."""
    by_key: defaultdict[str, list[Hold]] = defaultdict(list)
    for hold in holds:
        by_key[hold.key].append(hold)
    return [text for found in by_key.values() for text in (*_overlaps(found), *_tokens(found))]


def _overlaps(holds: list[Hold]) -> Iterable[str]:
    longest: Hold | None = None
    for hold in sorted((hold for hold in holds if hold.valid >= hold.had), key=lambda hold: hold.had):
        if longest is not None and longest.valid >= hold.had:
            yield f"two at a time: {longest}; {hold}"
        if longest is None or hold.valid > longest.valid:
            longest = hold


def _tokens(holds: list[Hold]) -> Iterable[str]:
    for before, after in itertools.pairwise(sorted(holds, key=lambda hold: hold.token)):
        if before.token == after.token:
            yield f"one token twice: {before}; {after}"
    had = sorted(holds, key=lambda hold: hold.had)
    place, highest = 0, None
    for hold in sorted(holds, key=lambda hold: hold.asked):
        while place < len(had) and had[place].had < hold.asked:
            if highest is None or had[place].token > highest.token:
                highest = had[place]
            place += 1
        if highest is not None and highest.token >= hold.token:
            yield f"a token that does not rise: {highest}; asked for at {hold.asked:.3f}: {hold}"


class Resource:
    """What a lease protects: it keeps the highest token, and refuses lower ones."""

    def __init__(self) -> None:
        self.highest: defaultdict[str, int] = defaultdict(int)
        self.refused = 0
        self._lock = threading.Lock()

    def write(self, key: str, token: int) -> bool:
        with self._lock:
            accepted = token >= self.highest[key]
            self.highest[key] = max(token, self.highest[key])
            self.refused += not accepted
            return accepted


class Holders:
    """The threads that ask for leases, and what they saw."""

    def __init__(self, seed: int) -> None:
        self.holds: list[Hold] = []
        self.surprises: list[str] = []
        self.resource = Resource()
        self.seed = seed
        self.stop = threading.Event()
        self.threads: list[threading.Thread] = []

    def start(self, connections: list[jsclient.Connection]) -> None:
        kinds = [self._lock] * 5 + [self._semaphore] * 4 + [self._election] * 3
        for number, kind in enumerate(kinds):
            name = f"{kind.__name__.strip('_')}-{number}"
            kv = KeyValue(JetStream(connections[number % len(connections)]), BUCKET)
            chance = random.Random(f"{self.seed}/{number}")
            self.threads.append(threading.Thread(target=self._run, args=(kind, name, kv, chance), daemon=True))
        for thread in self.threads:
            thread.start()

    def join(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(120)
            if thread.is_alive():
                self.surprises.append("a holder did not end")

    def _run(self, kind, name: str, kv: KeyValue, chance: random.Random) -> None:  # type: ignore[no-untyped-def]
        while not self.stop.is_set():
            try:
                kind(name, kv, chance)
            except errors.JsClientError:
                self.stop.wait(0.05)  # no lease within the time, or no servers: again
            except BaseException as error:
                self.surprises.append(f"{name}: {error!r}")
                return

    def _lock(self, name: str, kv: KeyValue, chance: random.Random) -> None:
        asked = time.monotonic()
        with coordination.Lock(kv, "lock", ttl=TTL).acquire(PATIENCE) as lease:
            self._hold(name, lease, asked, chance)

    def _semaphore(self, name: str, kv: KeyValue, chance: random.Random) -> None:
        asked = time.monotonic()
        with coordination.Semaphore(kv, "seats", SEATS, ttl=TTL).acquire(PATIENCE) as lease:
            self._hold(name, lease, asked, chance)

    def _election(self, name: str, kv: KeyValue, chance: random.Random) -> None:
        over = threading.Event()

        def lead(lease: coordination.Lease) -> None:
            self._hold(name, lease, asked, chance)
            over.set()

        asked = time.monotonic()
        with coordination.Election(kv, "chief", ttl=TTL, on_gain=lead):
            while not (over.wait(0.5) or self.stop.is_set()):
                pass

    def _hold(self, name: str, lease: coordination.Lease, asked: float, chance: random.Random) -> None:
        """Work under the lease for a while; now and then for longer than it may last."""
        had = time.monotonic()
        hold = Hold(name, lease.key, lease.token, asked, had, -1.0)
        self.holds.append(hold)
        end = had + (chance.random() * 2 * TTL if chance.random() < 0.1 else chance.random() * 0.2)
        while True:
            now = time.monotonic()
            if not lease.valid:
                self.resource.write(lease.key, lease.token)  # one that did not look: the token is for this
                break
            hold.valid = now
            if not self.resource.write(lease.key, lease.token) and lease.valid:
                self.surprises.append(f"refused by the resource, though valid: {hold}")
            if now >= end or self.stop.wait(0.01):
                break


@attrs.define
class Result:
    findings: list[str]
    holds: list[Hold]
    events: list[Event]
    refused: int

    def __str__(self) -> str:
        keys = sorted({hold.key for hold in self.holds})
        lines = [f"{sum(hold.key == key for hold in self.holds)} holds of {key}" for key in keys]
        lines.append(f"{self.refused} writes were refused by the resource, of leases that were over")
        lines += [f"{event.began:6.1f} {event.text}" for event in self.events]
        return "\n".join([*lines, *self.findings])


def run(rig: Rig, seed: int, seconds: float) -> Result:
    """Holders work while the nemesis does its own; then the histories are judged."""
    with rig.admin() as nc:
        js = JetStream(nc, timeout=20)
        wait_until(lambda: _made(js), 60, "the bucket could not be made")
        connections = [rig.connect(f"leases-{number}") for number in range(4)]
        holders = Holders(seed)
        nemesis = Nemesis(rig, js, schedule(seed, seconds, [STREAM], RIGHT_CLOCKS), {})
        try:
            holders.start(connections)
            nemesis.start()
            end = time.monotonic() + seconds
            wait_until(lambda: time.monotonic() >= end or bool(nemesis.errors), seconds + 30)
        finally:
            nemesis.stop()
            holders.join()
            for connection in connections:
                connection.close()
        if nemesis.errors:
            raise nemesis.errors[0]
        findings = [*check(holders.holds), *holders.surprises]
        return Result(findings, holders.holds, nemesis.events, holders.resource.refused)


def _made(js: JetStream) -> bool:
    try:
        coordination.lease_bucket(js, BUCKET, replicas=3, ttl=TTL)
    except errors.JsClientError:  # servers that have just met may still count each other as offline
        return False
    return True
