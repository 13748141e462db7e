"""The other side of a workload: publishes what a subscriber measures, answers what a requester measures."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from itertools import cycle, islice
from typing import Any, Final

import jsclient
from jsclient.connection import engine_of
from jsclient.protocol.frames import pub, pub_start
from tools.bench.measure import percentiles

BLOCK: Final = 64 * 1024
"""Bytes that are published at once."""


def main() -> None:
    url, case, role = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
    tls: dict[str, Any] = {"tls": jsclient.TLSOptions(ca_file=case["ca"])} if case.get("ca") else {}
    with jsclient.connect(url, **tls) as nc:
        if role == "feed":
            feed(nc, case, sys.argv[4], int(sys.argv[5]))
        elif role == "ask":
            ask(nc, case, sys.argv[4])
        elif role == "listen":
            listen(nc, case, sys.argv[4])
        else:
            stop = threading.Event()
            signal.signal(signal.SIGTERM, lambda *_: stop.set())
            engine_of(nc).open_sink("bench.echo", Echo(nc))
            stop.wait()


def ask(nc: jsclient.Connection, case: dict[str, Any], subject: str) -> None:
    times = []
    for _ in range(case["count"]):
        start = time.perf_counter()
        nc.request(subject, b"x")
        times.append(time.perf_counter() - start)
    print(json.dumps(percentiles(times)), flush=True)


def listen(nc: jsclient.Connection, case: dict[str, Any], subject: str) -> None:
    arrivals = Arrivals(case["count"])
    engine_of(nc).open_sink(subject, arrivals)
    nc.flush()
    print("ready", flush=True)
    assert arrivals.complete.wait(100)
    print(json.dumps(percentiles(arrivals.times)), flush=True)


class Arrivals:
    """Notes on the reader thread how long each message was on its way."""

    def __init__(self, count: int) -> None:
        self.times: list[float] = []
        self.complete = threading.Event()
        self._count = count

    def deliver(self, messages: list[jsclient.Msg], nbytes: int) -> None:
        now = time.monotonic_ns()
        self.times += [(now - int(message.data)) / 1e9 for message in messages]
        if len(self.times) >= self._count:
            self.complete.set()

    def link_event(self, event: object) -> None:
        """Nothing to do."""


class Echo:
    """Answers on the reader thread: a worker's wake-up here would hide what the client's own wake-up costs."""

    def __init__(self, nc: jsclient.Connection) -> None:
        self._nc = nc

    def deliver(self, messages: list[jsclient.Msg], nbytes: int) -> None:
        for message in messages:
            engine_of(self._nc).enqueue(pub(pub_start(message.raw_reply or b""), message.data))
        engine_of(self._nc).flush_outbox()

    def link_event(self, event: object) -> None:
        """Nothing to do: the link of a measurement does not break."""


def feed(nc: jsclient.Connection, case: dict[str, Any], subject: str, subjects: int) -> None:
    """Joins frames that are encoded beforehand, 0.1 us per message instead of 0.8: a feeder that works half as hard as
    it feeds would take the second core away from that client and from the server."""
    payload, left = bytes(case["size"]), case["count"]
    headers = {"X-Bench": "0123456789"} if case["params"].get("headers") else None
    frames = [engine_of(nc).encode(subject.format(index), payload, headers=headers) for index in range(subjects)]
    turn = cycle(frames)
    while left:
        count = min(left, max(1, BLOCK // len(frames[0])))
        engine_of(nc).enqueue(b"".join(islice(turn, count)))
        left -= count
    nc.flush(120)


if __name__ == "__main__":
    main()
