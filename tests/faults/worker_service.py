"""A worker service as a user would run it: started, killed and stopped by the tests beside it.

    python worker_service.py URL STREAM CONSUMER LOG THREADS FAIL_PERCENT SECONDS_PER_MESSAGE

Every message handled successfully is a line in LOG, written before the ack. LOG.begun has a byte for each handler that
has begun.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from typing import Any

import jsclient
from jsclient.jetstream import JetStream
from jsclient.workers import WorkerPool


def main() -> int:
    url, stream, consumer, log, threads, fail_percent, seconds = sys.argv[1:]
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    begun = os.open(f"{log}.begun", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    busy = threading.Event()

    def handle(message: Any) -> None:
        os.write(begun, b".")
        if random.random() * 100 < float(fail_percent):
            raise RuntimeError("the dice said no")
        busy.wait(float(seconds))
        os.write(descriptor, message.data + b"\n")

    with jsclient.connect(url, connect_timeout=10) as nc:
        js = JetStream(nc, timeout=20)
        pool = WorkerPool(
            js.consumer(stream, consumer),
            handle,
            threads=int(threads),
            attempts=3,
            backoff=[0.05],
            dead_letter="dead.work",
        )
        print("ready", flush=True)
        report = pool.run_until_signal(timeout=10)
        return 0 if report.finished else 1


if __name__ == "__main__":
    raise SystemExit(main())
