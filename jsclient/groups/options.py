"""Options of a member of a group, each default with its reason."""

from __future__ import annotations

import datetime as dt
from typing import Final

import attrs

from jsclient import kinds
from jsclient.durations import check_timeout, plain, plain_or_none
from jsclient.errors import ConfigError
from jsclient.groups.config import check_name
from jsclient.workers.options import HandlingDict

LEASE: Final = 10.0
"""Seconds after which a process that the server has not heard of counts as dead, and its partitions go to others."""

SETTLE: Final = 3.0
"""Seconds of quiet before partitions are assigned again: a rolling restart moves them once, not for each process."""

ACK_WAIT: Final = 30.0
PRIORITY_TIMEOUT: Final = 5.0
"""Seconds without a pull after which the server lets another process of the same member take over."""


class GroupPoolDict(HandlingDict, total=False):
    """The keyword arguments of GroupPool, for type checkers: the fields of MemberOptions, and the fields of PoolOptions
    that a group has.

    A value of another type or out of range raises ConfigError before anything is sent.

    The fields are described in `MemberOptions` and `PoolOptions`.
    """

    member: str | None
    lease: float | dt.timedelta
    settle: float | dt.timedelta
    ack_wait: float | dt.timedelta
    max_ack_pending: int
    priority_timeout: float | dt.timedelta
    hand_over_timeout: float | dt.timedelta | None


@attrs.frozen(kw_only=True)
class MemberOptions:
    """Keyword arguments of GroupPool in addition to the options of a pool.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        member: Name whose partitions it works on. None means that the process takes part by itself.
        lease: Seconds after which a process that the server has not heard of counts as dead (2 or more).
        settle: Seconds without joins and leaves before partitions are assigned again.
        ack_wait: Seconds after which the server delivers a message without an ack again (1 or more).
        max_ack_pending: Messages of the member that may wait for their acks. 0 means twice the threads.
        priority_timeout: Seconds without a pull after which another process of the same member takes over (1 or
            more).
        hand_over_timeout: Seconds after which the process gives up a partition that it lost although handlers still
            run, with an event "order lost". None waits until they have ended.
    """

    member: str | None = attrs.field(default=None, validator=kinds.field(str, None))
    lease: float = attrs.field(default=LEASE, converter=plain, validator=kinds.field(float))
    settle: float = attrs.field(default=SETTLE, converter=plain, validator=kinds.field(float))
    ack_wait: float = attrs.field(default=ACK_WAIT, converter=plain, validator=kinds.field(float))
    max_ack_pending: int = attrs.field(default=0, validator=kinds.field(int))
    priority_timeout: float = attrs.field(default=PRIORITY_TIMEOUT, converter=plain, validator=kinds.field(float))
    hand_over_timeout: float | None = attrs.field(default=None, converter=plain_or_none)

    def __attrs_post_init__(self) -> None:
        if self.member is not None:
            check_name(self.member, "member")
        for name, least in (("lease", 2.0), ("settle", 0.0), ("ack_wait", 1.0), ("priority_timeout", 1.0)):
            if not getattr(self, name) >= least:
                raise ConfigError(f"{name} must be {least:g} s or more, got {getattr(self, name)!r}")
        check_timeout(self.hand_over_timeout, "hand_over_timeout")
        if self.max_ack_pending < 0:
            raise ConfigError(f"max_ack_pending must be 0 (twice the threads) or more, got {self.max_ack_pending}")
