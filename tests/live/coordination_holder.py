"""A process that takes a lock, says so, and keeps it: `python coordination_holder.py URL TTL`."""

from __future__ import annotations

import sys

import jsclient
from jsclient import coordination, keyvalue
from jsclient.jetstream import JetStream

with jsclient.connect(sys.argv[1]) as nc:
    lock = coordination.Lock(keyvalue.key_value(JetStream(nc), "leases"), "work", ttl=float(sys.argv[2]))
    lease = lock.acquire(10)
    print(lease.token, flush=True)
    sys.stdin.readline()
    print(lease.valid, flush=True)
