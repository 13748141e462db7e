"""Locks, elections, semaphores and once-per-interval jobs on a key-value bucket, with fencing tokens.

from jsclient import coordination

locks = coordination.lease_bucket(js)
with coordination.Lock(locks, "nightly-report", ttl=10) as lease:
    write_report(token=lease.token)          # the resource refuses tokens lower than the highest it has seen
    lease.check()                            # raises LeaseLost when the time is over
"""

from __future__ import annotations

from jsclient.coordination.election import Election
from jsclient.coordination.holders import Holder, evict, holders
from jsclient.coordination.lease import Lease, LeaseLost, lease_bucket
from jsclient.coordination.lock import Lock, Semaphore, once_per

__all__ = [
    "Election",
    "Holder",
    "Lease",
    "LeaseLost",
    "Lock",
    "Semaphore",
    "evict",
    "holders",
    "lease_bucket",
    "once_per",
]
