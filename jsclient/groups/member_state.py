"""The state that the parts of a group's member share: its group, its options, the records, and its wake-up."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jsclient import errors, nuid, waiting
from jsclient.groups.group import GroupNotFound, PartitionedGroup, require
from jsclient.groups.options import MemberOptions
from jsclient.groups.records import Records
from jsclient.jetstream.consuming.typed import values_in
from jsclient.waiting import Gate
from jsclient.workers.host import Core
from jsclient.workers.options import PoolOptions
from jsclient.workers.settle import Settler

if TYPE_CHECKING:
    from jsclient.groups.config import Group
    from jsclient.jetstream.consuming.typed import Values

log: logging.Logger = logging.getLogger("jsclient.groups")


class MemberState(Core):
    """A member as its membership and its terms know it. The control thread and the workers are in `Member`."""

    def __init__(
        self, group: PartitionedGroup[Any], handler: Callable[[Any], Any], terms: MemberOptions, options: PoolOptions
    ) -> None:
        values = values_in(group)
        super().__init__(group.js.nc, options, values, handler, f"the pool of {group}", log)
        self.group: PartitionedGroup[Any] = group
        self.values: Values[Any] | None = values
        self.terms: MemberOptions = terms
        require(group.js)
        self.group_config: Group = group.config()
        self.automatic: bool = terms.member is None
        if self.automatic and not group.elastic:
            raise errors.ConfigError("members of a static group are fixed: give member=")
        self.instance: str = nuid.next_nuid()
        self.member: str = self.terms.member or f"member-{self.instance[-8:]}"
        self.records: Records = Records.of(group, _replicas(group))
        self.ready: threading.Condition = waiting.new_condition()  # noqa: TID251
        self.done: OrderedDict[tuple[int, int], None] = OrderedDict()
        self.settler: Settler = Settler(self, ())
        self.woken: Gate = Gate()

    def wake(self) -> None:
        """Something has changed: the control thread looks, and so do the workers."""
        self.woken.set()
        with self.ready:
            self.ready.notify_all()


def _replicas(group: PartitionedGroup[Any]) -> int:
    try:
        info = group.js.stream(group.work_stream).cached_info
    except errors.StreamNotFound as error:
        raise GroupNotFound(f"the stream of group {group.name!r} is gone") from error
    return 1 if info is None else info.config.num_replicas or 1
