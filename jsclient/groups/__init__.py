"""Partitioned groups: many processes share a stream, and messages of one key are handled one at a time, in order.

group = groups.create_elastic(js, "ORDERS", "billing", partitions=16, filters=[groups.Filter("orders.*.>", [1])])
with groups.GroupPool(group, handle, threads=8, attempts=5, dead_letter="dead.billing") as pool:
    pool.run_until_signal()              # in any number of processes
"""

from __future__ import annotations

from jsclient.groups.config import Filter, Group, balanced, partition_of
from jsclient.groups.group import (
    GroupChanged,
    GroupExists,
    GroupNotFound,
    Lag,
    PartitionedGroup,
    create_elastic,
    create_static,
    open_group,
    partitioned_groups,
)
from jsclient.groups.message import Fence, GroupMessage, TypedGroupMessage
from jsclient.groups.options import GroupPoolDict
from jsclient.groups.pool import GroupPool

__all__ = [
    "Fence",
    "Filter",
    "Group",
    "GroupChanged",
    "GroupExists",
    "GroupMessage",
    "TypedGroupMessage",
    "GroupNotFound",
    "GroupPool",
    "GroupPoolDict",
    "Lag",
    "PartitionedGroup",
    "balanced",
    "create_elastic",
    "create_static",
    "partitioned_groups",
    "open_group",
    "partition_of",
]
