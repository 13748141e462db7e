"""Consumers of dead members, which keep the others from partitions for longer than the lease.

The server deletes a consumer for which nobody has asked for `inactive_threshold` seconds (our lease), but not while a
delivered message waits for its ack: not before `ack_wait` and the threshold have passed since the delivery. When
`ack_wait` is over meanwhile, the message counts as delivered anew although nobody is there to take it, and the time
begins again. A process that is killed with messages in hand, or in the moment in which some arrive, leaves a consumer
that stays for up to lease + 2 * ack_wait: 70 s by default. No other consumer of the work queue may overlap with it, and
so nobody gets its partitions. (Read in the server's deleteNotActive and checkPending, and measured with 2.15.1, where
waiting pulls and updates have no part in it.)

That time is what protects a member that is not dead but frozen, or cut off, in the middle of a handler: what it works
on does not go elsewhere meanwhile. So it is cut short only for a process of which it is proven that it does not exist,
by a member on the same machine: see `process`. Deleting is harmless then, because nothing of that process is left that
could handle a message or wake up, and what it had not acked stays in the stream and goes to the next consumer in the
order of the stream. It also has to be over its lease, so that what it sent last has long arrived. What happens on other
machines is not known here: there the server's time has to pass.

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
    """What dead processes of this machine have left behind of a group; the control thread of a pool looks after it."""

    def __init__(self, group: PartitionedGroup, records: Records) -> None:
        self._group = group
        self._records = records
        self._revision = -1
        self._due = math.inf

    def look(self, revision: int, blocked: bool) -> None:
        """Delete it when it is time to look: members on other machines cannot, so not only a blocked one looks."""
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
