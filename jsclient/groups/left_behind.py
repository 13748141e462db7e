"""Consumers that dead members of an elastic group have left behind.

The server deletes the consumer of a member after `lease` seconds without a sign of it, but not always: one that was
changed just before its process was killed stayed for more than a minute (2.15.1, 3 of 6 kills), and with it all members
stood still that were to have partitions of the dead one.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Final

from jsclient import errors
from jsclient.groups.term import pin_of

if TYPE_CHECKING:
    from jsclient.groups.group import PartitionedGroup
    from jsclient.groups.records import Records

log = logging.getLogger("jsclient.groups")

CLEAR_AFTER: Final = 2.0
"""Seconds that a member waits for its partitions before it looks for the consumers of dead ones."""


def delete_left_behind(group: PartitionedGroup, records: Records) -> None:
    """Delete consumers of which no process gives a sign of life, and that have no partitions any more.

    Nothing is deleted where members have names: they may be other programs, which give no sign of life.
    """
    stored = group.config()
    if not stored.mappings:
        return
    for info in group.js.consumers(group.work_stream):
        if info.name in stored.members or info.num_waiting or pin_of(info) or records.living(info.name):
            continue
        log.info("%s: deleting what member %s has left behind", group, info.name)
        with contextlib.suppress(errors.ConsumerNotFound):
            group.js.delete_consumer(group.work_stream, info.name)
