"""GroupPool: threads that handle the messages of one member of a partitioned group, in the order of each key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from jsclient import errors, handlers, kinds
from jsclient.groups.group import PartitionedGroup
from jsclient.groups.member import Member
from jsclient.groups.message import GroupMessage
from jsclient.groups.options import GroupPoolDict, MemberOptions
from jsclient.jetstream.consuming.typed import values_in
from jsclient.workers.host import Pool
from jsclient.workers.options import PoolOptions
from jsclient.workers.typed import with_dead_letter

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from jsclient.jetstream.consuming.typed import Values

T = TypeVar("T", bound=GroupMessage)


class GroupPool(Pool):
    """Handle the messages of one member of a group, in `threads` threads. Starts immediately. Use it in a `with` block.

        with GroupPool(group, handle, threads=8, attempts=5) as pool:
            pool.run_until_signal()  # start the same program on as many machines as you need

    Messages are settled as in a WorkerPool (ack, Retry, Reject, `attempts`, `dead_letter`, `backoff`). The keyword
    arguments are the same, too, except `batch`, `manual`, `group`, `later` and `max_prefetch`.

    Messages of one `key` (the subject by default) are handled one at a time in the order of the stream, in any number
    of processes. This holds through joins, leaves, takeovers, elections and crashes. Only a process that was stopped in
    the middle of a handler and taken for dead can be overtaken: see `message.fence`. The key must follow from the
    tokens by which the group is partitioned.

    Without `member` the process takes part by itself. Partitions are spread over all such processes with as few moves
    as possible. That happens `settle` seconds (3) after the last join or leave, and about `lease` seconds (10) after a
    death. After the death of a machine it takes up to `lease` + 2 * `ack_wait`.

    With `member` it works on the partitions that were assigned to that name (`group.add`, `set_mappings`). Several
    processes of one name stand by for each other. Do not use names of Go members here.

    `ack_wait` (30 s), `max_ack_pending` (twice the threads) and `priority_timeout` (5 s) go into the member's consumer.
    The process gives up a partition that was assigned elsewhere when its running handlers have ended. If
    `hand_over_timeout` is set, it does so after that number of seconds at the latest, with an event "order lost".
    `on_event` also gets "working", "waiting", "joining", "handing over" and "lost pin", without a message.
    `GroupPool(group.typed(Order), handler)` gives messages a `value`, as in a WorkerPool.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.

    Further options:
        GroupPool: see `GroupPoolDict`.
    """

    _core: Member

    def __init__(
        self, group: PartitionedGroup[T], handler: Callable[[T], Any], **options: Unpack[GroupPoolDict]
    ) -> None:
        kinds.check(PartitionedGroup, group=group)
        handlers.required(handler, "the handler")
        terms, chosen = _options(dict(options), values_in(group))
        super().__init__(Member(group, handler, terms, chosen))

    @property
    def group(self) -> PartitionedGroup[Any]:
        """The group that it is a member of."""
        return self._core.group

    @property
    def member(self) -> str:
        """The name of this member."""
        return self._core.member

    @property
    def state(self) -> str:
        """The present state in a word: starting, joining, waiting, working ..."""
        return self._core.state

    @property
    def partitions(self) -> list[int]:
        """The partitions that this process works on at the moment."""
        return self._core.partitions

    def __enter__(self) -> GroupPool:
        return self


def _subject(message: Any) -> Any:
    return message.subject


def _options(given: dict[str, Any], values: Values[Any] | None) -> tuple[MemberOptions, PoolOptions]:
    own = {field.name for field in attrs.fields(MemberOptions)}
    refused = {"batch", "manual", "group", "max_prefetch", "later"} & set(given)
    if refused:
        raise errors.ConfigError(f"a pool of a group has no {', '.join(sorted(refused))}")
    try:
        terms = MemberOptions(**{name: value for name, value in given.items() if name in own})
        options = PoolOptions(**{"key": _subject, **{n: value for n, value in given.items() if n not in own}})
        options = with_dead_letter(options, values)
    except TypeError as error:
        raise errors.ConfigError(f"{error}; see GroupPool") from None
    if options.key is None:
        raise errors.ConfigError("a pool of a group keeps order by key: give a function, or leave key out")
    if not terms.max_ack_pending:
        terms = attrs.evolve(terms, max_ack_pending=2 * options.threads)
    return terms, options
