"""Consumers of dead members, which block their partitions for longer than the lease.

The server deletes a consumer that nobody has pulled from for `inactive_threshold` seconds (our lease). It waits longer
if a delivered message lacks its ack: until `ack_wait` and the threshold have passed since the delivery. If `ack_wait`
ends in that time, the message counts as delivered again although no client receives it, and the time restarts.

So a process that is killed while it holds messages, or in the moment in which some arrive, leaves a consumer behind.
This consumer stays for up to lease + 2 * ack_wait: 70 s by default. No other consumer of the work queue may overlap
with it, so no member gets its partitions. (Read in the server's deleteNotActive and checkPending, and measured with
2.15.1, where waiting pulls and updates have no part in it.)

That time protects a living member that is frozen or cut off in the middle of a handler: until it is over, its messages
stay with this member. So the time is cut short only for a process that provably does not exist, by a member on the same
machine: see `process`.

Deleting its consumer is harmless then. Nothing of that process is left that could handle a message or wake up, and its
unacked messages stay in the stream. They go to the next consumer in the order of the stream.

The process must also be over its lease; by then, everything that it sent has long arrived. Processes on other machines
cannot be checked here: there the server's time has to pass.

A name of a member without name=, and so its consumer, is never used by a second process.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from typing import TYPE_CHECKING, Final

from jsclient import errors
from jsclient.groups.process import is_dead

if TYPE_CHECKING:
    from jsclient.groups.group import PartitionedGroup
    from jsclient.groups.records import Records

log: logging.Logger = logging.getLogger("jsclient.groups")

LOOK_AFTER: Final = 1.0
"""Seconds after a new assignment of partitions, and between two looks of a member that still waits for its own."""


class LeftBehind:
    """Consumers of a group that dead processes of this machine left behind. A pool's control thread deletes them."""

    def __init__(self, group: PartitionedGroup, records: Records) -> None:
        self._group = group
        self._records = records
        self._revision = -1
        self._due = math.inf

    def look(self, revision: int, blocked: bool) -> None:
        """Delete them when it is time to look. Members on other machines cannot, so a member looks even if it is not
        blocked.
        """
        now = time.monotonic()
        if revision != self._revision:
            self._revision, self._due = revision, now + LOOK_AFTER
        elif blocked:
            self._due = min(self._due, now + LOOK_AFTER)
        if now < self._due:
            return
        self._due = math.inf
        try:
            self.delete()
        except errors.ConnectionClosed:
            raise
        except errors.JsClientError as error:
            log.info("what dead members of %s have left behind is not known: %s", self._group, error)

    def delete(self) -> None:
        """Delete the consumers of dead processes now."""
        group = self._group
        for member, work in self._records.working():
            if is_dead(work.place, work.pid) and not self._records.living(member):
                with contextlib.suppress(errors.ConsumerNotFound):
                    group.js.delete_consumer(group.work_stream, group.consumer_of(member))
                    log.info("process %d is dead, and the consumer %s that it left behind is deleted", work.pid, member)
