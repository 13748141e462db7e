"""Hours of ordinary work over a bad link: `python -m tests.chaos.soak --seconds 3600 --rate 200`.

Publishers (sync and async, with ids), a callback, a loop of fetch and a bucket work at a fixed rate through the fault
proxy, which cuts, stalls and slows the links. Every second: memory, descriptors, threads, objects, queues, and how long
messages took. In the end nothing is lost, and no figure grows (see growth.py); the picture lies beside the report.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import random
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
from tests.chaos.growth import Trend, trend

import jsclient
from jsclient import errors, keyvalue
from jsclient.jetstream import ConsumeContext, ConsumerConfig, JetStream, StreamConfig
from jsclient.keyvalue import KeyValueConfig
from jsclient.testing import NatsServer, Proxy, wait_until

#: figure -> how much it may grow in the whole run before it is called a leak
TOLERANCE = {"rss MiB": 6.0, "descriptors": 2.0, "threads": 2.0, "objects": 4000.0}
TOLERANCE |= {"publishes pending": 50.0, "messages held": 50.0, "KiB to send": 16.0}
#: Shares of the run that are left out: caches fill, code is loaded.
WARM = 0.25
#: Between two faults, seconds.
QUIET = 4.0
KEPT = 20_000  # messages in the stream: the server's store does not grow either


class Seen:
    """Which of the numbers 1, 2, ... were seen; memory does not grow while few are missing."""

    def __init__(self) -> None:
        self.floor = 0  #: all up to this one
        self.ahead: set[int] = set()
        self.again = 0

    def add(self, number: int) -> None:
        if number <= self.floor or number in self.ahead:
            self.again += 1
            return
        self.ahead.add(number)
        while self.floor + 1 in self.ahead:
            self.floor += 1
            self.ahead.remove(self.floor)


@attrs.define
class Result:
    seconds: float
    rows: list[dict[str, float]]
    trends: dict[str, Trend]
    faults: list[tuple[float, float, str]]
    sent: int
    problems: list[str]
    notes: dict[str, int]

    def __str__(self) -> str:
        lines = [f"{self.seconds:.0f} s, {self.sent} messages, {len(self.faults)} faults; {self.notes}"]
        for name, found in self.trends.items():
            values = [row[name] for row in self.rows]
            grows = "GROWS" if found.grows(self.seconds, TOLERANCE[name]) else "steady"
            hour = f"slope {found.slope * 3600:+.1f} an hour (surely {found.at_least * 3600:+.1f}), z {found.z:+.1f}"
            lines.append(f"{name:20}{values[0]:>10.1f}{max(values):>10.1f}{values[-1]:>10.1f}   {grows}: {hour}")
        for name in ("p50 ms", "p99 ms"):
            values = sorted(row[name] for row in self.rows)
            lines.append(
                f"{name:20}{values[len(values) // 2]:>10.1f} in the median second, {values[-1]:.0f} in the worst"
            )
        return "\n".join([*lines, f"problems: {'; '.join(self.problems) or 'none'}"])


class Soak:
    def __init__(self, seconds: float, rate: float, seed: int = 1) -> None:
        self.seconds, self.rate, self.seed = seconds, rate, seed
        self.began = time.monotonic()
        self.stopping = threading.Event()
        self.sent = 0
        self.problems: list[str] = []
        self.faults: list[tuple[float, float, str]] = []
        self.latencies: list[float] = []
        self.by_callback, self.by_fetch = Seen(), Seen()
        self.lock = threading.Lock()
        self.errors = 0
        self.reconnects = 0

    def now(self) -> float:
        return time.monotonic() - self.began

    def __call__(self) -> Result:
        with NatsServer() as server, Proxy(server.port) as proxy, contextlib.ExitStack() as stack:
            self._make(server)
            options: dict[str, Any] = {"ignore_discovered": True, "ping_interval": 1.0, "on_reconnected": self._count}
            self.nc = stack.enter_context(jsclient.connect(proxy.url, **options))
            self.js = JetStream(self.nc, timeout=20)
            other = stack.enter_context(jsclient.connect(proxy.url, **options))
            threads = [self._loop(self._publish), self._loop(self._fetch(JetStream(other))), self._loop(self._bucket())]
            consumer = JetStream(other).consumer("SOAK", "callback", fetch_info=False)
            running = stack.enter_context(consumer.consume(self._handle, heartbeat=1.0))
            chaos = threading.Thread(target=self._break, args=(proxy,), daemon=True)
            chaos.start()
            rows = self._sample(running)
            self.stopping.set()
            chaos.join(30)
            proxy.heal()
            self._finish(threads)
            running.stop()
        return self._judge(rows)

    def _make(self, server: NatsServer) -> None:
        with jsclient.connect(server.url) as nc:
            js = JetStream(nc)
            js.create_stream(StreamConfig(name="SOAK", subjects=["soak"], max_msgs=KEPT, discard="old"))
            for name in ("callback", "fetch"):
                js.create_consumer("SOAK", ConsumerConfig(durable_name=name, ack_wait=5.0, max_ack_pending=5000))
            keyvalue.create_key_value(js, KeyValueConfig(bucket="soak"))

    def _count(self, *given: Any) -> None:
        self.reconnects += 1

    def _loop(self, step: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                while not self.stopping.is_set():
                    step()
            except BaseException as error:
                self.problems.append(f"a thread ended: {error!r}")

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    # --- work ---------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        """At the rate: when a fault has held it up, it does not hurry afterwards."""
        began = time.monotonic()
        number = self.sent + 1
        payload = b"%d %.6f" % (number, began)
        try:
            if number % 10:
                self.js.publish_async("soak", payload, msg_id=str(number))
            else:
                self.js.publish("soak", payload, msg_id=str(number), timeout=60)
        except errors.JsClientError as error:
            self.problems.append(f"publish {number}: {error!r}")
        self.sent = number
        self.stopping.wait(max(0.0, 1 / self.rate - (time.monotonic() - began)))

    def _take(self, message: Any, seen: Seen) -> None:
        number, sent = message.data.split()
        with self.lock:
            seen.add(int(number))
            self.latencies.append(time.monotonic() - float(sent))

    def _handle(self, message: Any) -> None:
        self._take(message, self.by_callback)
        message.ack()

    def _fetch(self, js: JetStream) -> Callable[[], None]:
        consumer = js.consumer("SOAK", "fetch", fetch_info=False)

        def step() -> None:
            try:
                batch = consumer.fetch(100, timeout=1, heartbeat=0.5)
                for message in batch:
                    self._take(message, self.by_fetch)
                    message.ack()
            except errors.JsClientError:
                self.errors += 1
                self.stopping.wait(0.05)

        return step

    def _bucket(self) -> Callable[[], None]:
        kv = keyvalue.key_value(self.js, "soak", fetch_info=False)
        number = 0
        unknown: set[int] = set()  # what a bad link holds back may reach the server after what was put next

        def step() -> None:
            nonlocal number
            number += 1
            value = b"%d" % number
            stored = False
            try:
                kv.put("key", value, timeout=30)
                stored = True
                found = int(kv.get("key", timeout=30).value)
            except errors.JsClientError as error:
                if not stored and not isinstance(error, errors.NotStored):
                    unknown.add(number)
                self.errors += 1
                self.stopping.wait(0.05)
                return
            if found != number and found not in unknown:
                self.problems.append(f"the bucket has {found} after {number} was put")
            self.stopping.wait(0.05)

        return step

    # --- what goes wrong ----------------------------------------------------------------------------------

    def _break(self, proxy: Proxy) -> None:
        chance = random.Random(self.seed)
        while not self.stopping.wait(QUIET * (0.5 + chance.random())):
            kind = chance.choice(("cut", "reset", "stall", "deaf", "slow", "delay"))
            began = self.now()
            if kind == "cut":
                proxy.cut()
            elif kind == "reset":
                proxy.cut_after(chance.randrange(5000), chance.choice(("up", "down")), reset=True)
            elif kind in ("stall", "deaf"):
                proxy.stall("down" if kind == "deaf" else "both")
            elif kind == "slow":
                proxy.throttle(64 * 1024)
            else:
                proxy.delay(0.1)
            self.stopping.wait(0.2 + 3 * chance.random())
            proxy.resume()
            proxy.throttle(0)
            proxy.delay(0)
            self.faults.append((began, self.now(), kind))

    # --- looking ------------------------------------------------------------------------------------------

    def _sample(self, running: ConsumeContext) -> list[dict[str, float]]:
        rows: list[dict[str, float]] = []
        self.began = time.monotonic()
        while self.now() < self.seconds:
            self.stopping.wait(max(0.0, self.began + len(rows) + 1 - time.monotonic()))
            with self.lock:
                taken, self.latencies = sorted(self.latencies), []
            rows.append(
                {
                    "at": self.now(),
                    "rss MiB": memory() / 2**20,
                    "descriptors": float(descriptors()),
                    "threads": float(threading.active_count()),
                    "objects": float(len(gc.get_objects())) if len(rows) % 5 == 0 else rows[-1]["objects"],
                    "publishes pending": float(self.js.publish_async_pending()),
                    "messages held": float(running.messages.buffered),
                    "KiB to send": self.nc.health().buffered_bytes / 1024,
                    "messages": float(len(taken)),
                    "p50 ms": taken[len(taken) // 2] * 1000 if taken else 0.0,
                    "p99 ms": taken[int(len(taken) * 0.99)] * 1000 if taken else 0.0,
                }
            )
        return rows

    def _finish(self, threads: list[threading.Thread]) -> None:
        for thread in threads:
            thread.join(90)
            if thread.is_alive():
                self.problems.append("a thread is stuck")
        try:
            self.js.publish_async_complete(timeout=90)
        except errors.JsClientError as error:
            self.problems.append(f"publish_async_complete: {error!r}")
        try:
            wait_until(lambda: self.by_callback.floor >= self.sent, 90)
        except TimeoutError:
            self.problems.append(f"the callback has all up to {self.by_callback.floor} of {self.sent}")

    def _judge(self, rows: list[dict[str, float]]) -> Result:
        later = [row for row in rows if row["at"] > self.seconds * WARM]
        times = [row["at"] for row in later]
        trends = {name: trend(times, [row[name] for row in later]) for name in TOLERANCE}
        for name, found in trends.items():
            if found.grows(self.seconds * (1 - WARM), TOLERANCE[name]):
                self.problems.append(f"{name} grows by {found.slope * 3600:.1f} an hour")
        notes = {
            "reconnects": self.reconnects,
            "errors of fetch and bucket": self.errors,
            "came again": self.by_callback.again + self.by_fetch.again,
        }
        return Result(self.seconds, rows, trends, self.faults, self.sent, self.problems, notes)


def memory() -> int:
    """Resident bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# --- the picture --------------------------------------------------------------------------------------------

WIDTH, LEFT, HIGH = 1100, 110, 110


def svg_of(result: Result) -> str:
    names = [name for name in result.rows[0] if name != "at"]
    height = 30 + (HIGH + 14) * len(names)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif">']
    parts.append(f'<rect width="{WIDTH}" height="{height}" fill="white"/>')
    for number, name in enumerate(names):
        parts += _plot(result, name, 20 + (HIGH + 14) * number)
    return "\n".join([*parts, "</svg>\n"])


def _plot(result: Result, name: str, top: float) -> Iterator[str]:
    scale = (WIDTH - LEFT - 20) / result.seconds
    most = max(row[name] for row in result.rows) or 1.0
    yield f'<text x="4" y="{top + 14}" font-size="12">{name}</text>'
    yield f'<text x="4" y="{top + 30}" font-size="11" fill="#666">0 to {most:.4g}</text>'
    for began, ended, _ in result.faults:
        wide = max(1.0, (ended - began) * scale)
        x = LEFT + began * scale
        yield f'<rect x="{x:.1f}" y="{top}" width="{wide:.1f}" height="{HIGH}" fill="#d62828" opacity="0.12"/>'
    points = " ".join(
        f"{LEFT + row['at'] * scale:.1f},{top + HIGH * (1 - row[name] / most):.1f}" for row in result.rows
    )
    yield f'<polyline points="{points}" fill="none" stroke="#2a6f97" stroke-width="1"/>'
    yield f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{top + HIGH}" y2="{top + HIGH}" stroke="#999"/>'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--rate", type=float, default=200.0, help="messages a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/soak"))
    arguments = parser.parse_args()
    result = Soak(arguments.seconds, arguments.rate, arguments.seed)()
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "soak.svg").write_text(svg_of(result), encoding="utf-8")
    (arguments.out / "soak.txt").write_text(f"{result}\n", encoding="utf-8")
    print(result)
    print(f"report and picture: {arguments.out}")
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
