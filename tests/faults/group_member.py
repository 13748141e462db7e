"""A member of a group that checks the order of each key: started, killed and stopped by the tests beside it.

    python group_member.py URLS STREAM GROUP THREADS LEASE LOG [ATTEMPTS]

A message "kill" kills its process; with ATTEMPTS it ends as a dead letter. With MEMBER in the environment it works
under that name, else partitions are spread over all processes.

What a key has seen is in a bucket, and each step is written by compare-and-set: two handlers of one key at a time, or a
message before its predecessor, cannot go unnoticed. Findings are lines in LOG.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from typing import Any

import jsclient
from jsclient import errors, groups, keyvalue
from jsclient.jetstream import JetStream


def main() -> int:
    urls, stream, name, threads, lease, log, *rest = sys.argv[1:]
    giving_up: dict[str, Any] = {"attempts": int(rest[0]), "dead_letter": "dead.src"} if rest else {}
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    never = threading.Event()
    with jsclient.connect(urls.split(","), connect_timeout=20) as nc:
        js = JetStream(nc, timeout=20)
        seen = keyvalue.key_value(js, "seen", fetch_info=False)

        def handle(message: Any) -> None:
            if message.data == b"kill":
                os.write(descriptor, f"KILL {message.subject}\n".encode())
                os.kill(os.getpid(), signal.SIGKILL)
            check(message, seen, descriptor)
            never.wait(random.random() * 0.002)

        group = groups.open_group(js, stream, name, timeout=30)
        pool = groups.GroupPool(
            group,
            handle,
            threads=int(threads),
            lease=float(lease),
            settle=0.3,
            ack_wait=5.0,
            priority_timeout=2.0,
            backoff=[0.05],
            max_ack_pending=64,
            member=os.environ.get("MEMBER"),
            **giving_up,
        )
        print("ready", flush=True)
        report = pool.run_until_signal(timeout=10)
        return 0 if report.finished else 1


def check(message: Any, seen: Any, descriptor: int) -> None:
    key, number = message.subject.rpartition(".")[2], int(message.data)
    try:
        entry = seen.get(key, direct=False)
        last, revision = int(entry.value), entry.revision
    except errors.KeyNotFound:
        last, revision = -1, 0
    if number <= last:
        return  # handled, and its ack was lost: at least once
    if number != last + 1:
        os.write(descriptor, f"ORDER {key} {number} after {last} pid {os.getpid()}\n".encode())
    try:
        seen.update(key, b"%d" % number, revision)
    except errors.RevisionMismatch:
        os.write(descriptor, f"TWO AT ONCE {key} {number} pid {os.getpid()}\n".encode())
        raise


if __name__ == "__main__":
    raise SystemExit(main())
