"""Clocks that are set, and a process that stands still.

The clock of a whole process is set by a small C library that is loaded before all others (LD_PRELOAD) and adds to what
CLOCK_REALTIME says, so `time.time`, `datetime.now` and C code see it alike. A server's clock is set in another way:
see tests/chaos/clocks.py. A suspended machine is a process that gets SIGSTOP; that the monotonic clock, too, stands
still in a real one is tried with a false clock (tests/unit/test_coordination_lease.py, test_publish_doubt.py).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.clocks import set_clock, settable
from tests.pauses import time_passes

import jsclient
from jsclient import coordination, keyvalue
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(120)]

DAY = 86_400.0

CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile double *offset;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("FALSE_CLOCK"), O_RDONLY);
    offset = mmap(NULL, sizeof(double), PROT_READ, MAP_SHARED, file, 0);
    real = dlsym(RTLD_NEXT, "clock_gettime");
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int status = real(id, now);
    if (id == CLOCK_REALTIME && offset != MAP_FAILED) now->tv_sec += (time_t)*offset;
    return status;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (result) *result = found.tv_sec;
    return found.tv_sec;
}
"""

USER = """
import json, sys, threading, time
import datetime as dt
import jsclient
from jsclient import coordination, keyvalue
from jsclient.jetstream import ConsumerConfig, JetStream
from jsclient.workers import WorkerPool

errors, taken, pooled, lost = [], [], [], []
nc = jsclient.connect(
    sys.argv[1], ping_interval=0.5, on_error=lambda nc, error, sub: errors.append(repr(error)),
    on_disconnected=lambda nc, error: lost.append(repr(error)),
)
js = JetStream(nc)
consumer, pool_of = js.consumer("S", "C"), js.consumer("S", "P")
running = consumer.consume(lambda message: (taken.append(int(message.data)), message.ack()), heartbeat=0.5, expires=2)
pool = WorkerPool(pool_of, lambda message: pooled.append(int(message.data)), threads=2)
bucket = keyvalue.key_value(js, "b")
seen = []
watcher = bucket.watch(callback=lambda entry: seen.append(entry.value))
lease = coordination.Lock(keyvalue.key_value(js, "leases"), "lock", ttl=float(sys.argv[2])).acquire(10)
over = threading.Event()
published, failed, slow = 0, [], 0.0

def work():
    global published, slow
    while not over.wait(0.01):
        started = time.monotonic()
        try:
            js.publish("s.a", b"%d" % published, msg_id=f"id-{published}", timeout=30)
            bucket.put("key", b"%d" % published)
            future = js.publish_async("s.other", b"0", msg_id=f"async-{published}")
            future.result(30)
            published += 1
        except Exception as error:
            failed.append(repr(error))
        slow = max(slow, time.monotonic() - started)

thread = threading.Thread(target=work)
thread.start()
for line in sys.stdin:
    if line.strip() == "end":
        over.set()
        thread.join()
    state = {
        "published": published, "failed": failed, "errors": errors, "lost": lost, "taken": taken, "pooled": pooled,
        "valid": lease.valid, "token": lease.token, "slow": slow, "now": dt.datetime.now(dt.timezone.utc).timestamp(),
        "seen": len(seen), "pool_error": repr(pool.error), "reconnects": nc.stats().reconnects,
    }
    print(json.dumps(state), flush=True)
lease.release()
watcher.stop()
pool.stop()
running.close()
nc.close()
"""


class User:
    """A process that publishes, consumes, watches and holds a lease; `ask` tells how it fares."""

    def __init__(self, server: NatsServer, ttl: float, environ: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-c", textwrap.dedent(USER), server.url, str(ttl)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ, bufsize=1
        )

    def ask(self, word: str = "how") -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        state: dict[str, Any] = json.loads(self.process.stdout.readline())
        return state

    def goes_on(self, seconds: float = 20) -> dict[str, Any]:
        """Wait until it has published, and received, 20 more."""
        before = self.ask()
        wait_until(lambda: self.ask()["published"] >= before["published"] + 20, seconds)
        wait_until(lambda: len(self.ask()["taken"]) >= len(before["taken"]) + 20, seconds)
        wait_until(lambda: len(self.ask()["pooled"]) >= len(before["pooled"]) + 20, seconds)
        return self.ask()

    def end(self) -> dict[str, Any]:
        state = self.ask("end")
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(30) == 0
        return state

    def __enter__(self) -> User:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.wait(10)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


def prepare(server: NatsServer, nc: jsclient.Connection) -> tuple[JetStream, float]:
    """What the user needs, and the time of a lease here."""
    js = JetStream(nc)
    js.create_stream(StreamConfig(name="S", subjects=["s.>"]))
    for name in ("C", "P"):
        js.create_consumer("S", ConsumerConfig(durable_name=name, filter_subject="s.a", ack_wait=30))
    keyvalue.create_key_value(js, keyvalue.KeyValueConfig(bucket="b"))
    ttl = 3.0 if server.version >= (2, 11) else 6.0
    coordination.lease_bucket(js, ttl=None if server.version >= (2, 11) else ttl)
    return js, ttl


def test_a_clock_that_jumps(tmp_path: Path) -> None:
    """A day forward, a week back, and right again: nothing is lost, doubled, late or told wrongly."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux" or sys.version_info < (3, 11):
        pytest.skip("needs a C compiler, Linux, and locks that wait by the monotonic clock (Python 3.11)")
    source, library, offset = tmp_path / "clock.c", tmp_path / "clock.so", tmp_path / "offset"
    source.write_text(CLOCK)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    offset.write_bytes(struct.pack("d", 0.0))

    def jump(seconds: float) -> None:
        with offset.open("r+b") as file:
            file.write(struct.pack("d", seconds))

    environ = {**os.environ, "LD_PRELOAD": str(library), "FALSE_CLOCK": str(offset)}
    with NatsServer() as server, jsclient.connect(server.url) as nc:
        js, ttl = prepare(server, nc)
        with User(server, ttl, environ) as user:
            first = user.goes_on()
            for seconds in (DAY, -7 * DAY, 0.0):
                jump(seconds)
                state = user.goes_on()
                assert abs(state["now"] - time.time() - seconds) < 60, "the clock was not set"
            time_passes(ttl, "a lease that is not renewed would be over")
            assert user.ask()["valid"], "a clock that is set ends no lease, and hinders no renewal"
            last = user.end()
        assert last["token"] == first["token"]
        assert (last["failed"], last["errors"], last["lost"], last["pool_error"]) == ([], [], [], "None")
        assert last["slow"] < 10
        assert js.stream("S").info().state.messages == 2 * last["published"]
        assert last["taken"] == list(range(len(last["taken"]))), "once, in order"
        assert sorted(last["pooled"]) == list(range(len(last["pooled"])))


@pytest.mark.skipif(not settable(), reason="needs Linux on x86-64, and a process that may be written to")
def test_the_clock_of_a_server_that_jumps() -> None:
    """A day forward, a week back, and right again: nothing is lost, stored twice or late. (A lease may be lost: it ends
    when the server's clock says so.)"""
    with NatsServer() as server, jsclient.connect(server.url) as nc:
        js, ttl = prepare(server, nc)
        with User(server, ttl) as user:
            user.goes_on()
            for seconds in (int(DAY), -7 * int(DAY), 0):
                set_clock(server, seconds)
                user.goes_on()
                stored = js.stream("S").get_last_msg("s.a").time
                assert stored is not None
                assert abs(stored.timestamp() - time.time() - seconds) < 60, "the clock was not set"
            last = user.end()
        assert (last["failed"], last["lost"], last["pool_error"]) == ([], [], "None")
        assert last["slow"] < 10
        assert js.stream("S").info().state.messages == 2 * last["published"]
        assert list(dict.fromkeys(last["taken"])) == list(range(max(last["taken"]) + 1)), "none is missing, in order"
        assert set(last["pooled"]) == set(range(max(last["pooled"]) + 1))


def test_a_suspended_machine() -> None:
    """It stands still until the server has given its link up and its lease is over; then it goes on, nothing is lost
    or stored twice, and the lease is not believed any more."""
    with NatsServer('ping_interval: "1s"\nping_max: 1\n') as server, jsclient.connect(server.url) as nc:
        js, ttl = prepare(server, nc)
        with User(server, ttl) as user:
            user.goes_on()
            connections = server.monitor("connz")["num_connections"]
            user.process.send_signal(signal.SIGSTOP)
            wait_until(lambda: server.monitor("connz")["num_connections"] < connections, 30)
            time_passes(ttl, "a lease that is not renewed would be over")
            user.process.send_signal(signal.SIGCONT)
            assert not user.ask()["valid"]
            state = user.goes_on(60)
            assert state["reconnects"] >= 1
            last = user.end()
        # A put has no id: one that was under way may be unknown. What has an id is found out.
        assert [text for text in last["failed"] if "PublishUnknown" not in text or "$KV.b.key" not in text] == []
        assert len(last["failed"]) <= 1
        assert last["pool_error"] == "None"
        state_of = js.stream("S").info().state
        assert state_of.messages == 2 * last["published"]
        assert set(last["taken"]) == set(range(max(last["taken"]) + 1)), "none is missing"
        assert set(last["pooled"]) == set(range(max(last["pooled"]) + 1))
