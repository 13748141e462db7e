"""Partitioned groups on a server: made, looked at, changed and deleted. Their members are in `pool`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import attrs

from jsclient import errors, keyvalue, kinds
from jsclient.codecs import OnBad
from jsclient.durations import DEFAULT, Deadline, Timeout
from jsclient.groups import config
from jsclient.groups.config import Filter, Group
from jsclient.groups.message import G, TypedGroupMessage
from jsclient.jetstream import ConsumerInfo, JetStream, StreamConfig, StreamSource, SubjectTransform
from jsclient.jetstream.api import names
from jsclient.jetstream.consuming.typed import Values, values_of, with_values

if TYPE_CHECKING:
    from jsclient.keyvalue import KeyValue

T = TypeVar("T")

SINCE: Final = (2, 11)
ATTEMPTS: Final = 10
"""Tries to change a configuration that others change at the same time."""

_PARTITIONS: Final = kinds.many(int)
_MAPPINGS: Final = kinds.Kind(
    "a mapping of members to sequences of an int",
    lambda value: (
        isinstance(value, Mapping)
        and all(isinstance(member, str) and _PARTITIONS.fits(numbers) for member, numbers in value.items())
    ),
)


class GroupExists(errors.JetStreamError):
    """A group of this name exists with other partitions, filters or limits: delete it first, or use that one."""

    meaning = "The group that exists is unchanged."
    advice = "Use it as it is, or delete it first."


class GroupNotFound(errors.JetStreamError):
    """There is no group of this name."""


class GroupChanged(errors.JetStreamError):
    """The group's partitions or filters have changed since this member joined it: start the member again."""

    meaning = "Messages not acked come again to the members that are left."
    advice = "Start the member anew."


@attrs.frozen
class Lag:
    """Messages that wait in a group. `partitions` counts them per partition (in an elastic group's own stream), and
    `origin` counts messages that this stream has not copied yet.

    Attributes:
        partitions: Messages that wait, per partition.
        origin: Messages of the origin that the group's stream has not copied yet.
    """

    partitions: dict[int, int]
    origin: int

    @property
    def total(self) -> int:
        """All that waits."""
        return sum(self.partitions.values()) + self.origin


class PartitionedGroup(Generic[G]):
    """A group by name, from `create_elastic`, `create_static` or `open_group`. Thread-safe. It holds nothing open.

        group = groups.open_group(js, "ORDERS", "billing")
        print(group.members(), group.lag().total)

    In an *elastic* group, the server copies messages into a separate stream of the group, and puts the number of their
    partition before the subject. Members come and go. A *static* group works on the stream itself, whose subjects
    already begin with a partition (by a subject transform). Its members are fixed when it is created.

    Attributes:
        js: The JetStream object that it was made with.
        stream: The stream that it works on.
        name: Its name.
        elastic: True if partitions and members may change.
        key: Key under which its configuration is stored.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
        on_bad: The action for a message that cannot be decoded. Default "raise": reading its `value` raises
            DecodeFailed. `Consumer.typed` describes the others.
    """

    def __init__(self, js: JetStream, stream: str, name: str, *, elastic: bool) -> None:
        kinds.check(JetStream, js=js)
        kinds.check(str, name=name)
        kinds.check(bool, elastic=elastic)
        self.js = js
        self.stream: str = names.check_stream(stream)
        self.name: str = config.check_name(name, "group")
        self.elastic = elastic
        self.key: str = f"{stream}.{name}"
        self.kv: KeyValue = keyvalue.KeyValue(js, config.ELASTIC_BUCKET if elastic else config.STATIC_BUCKET)
        """For layers."""
        self._values: Values[Any] | None = None

    def typed(
        self, type: type[T], *, on_bad: OnBad = "raise", dead_letter: str | None = None
    ) -> PartitionedGroup[TypedGroupMessage[T]]:
        """The same group, of messages with a `value` of a type: `GroupPool(group.typed(Order), handler)`.

        Sends nothing. The options are the same as for `Consumer.typed`. A message that cannot be decoded is handled as
        in a WorkerPool.
        """
        return with_values(self, values_of(self.js, type, on_bad, dead_letter))  # type: ignore[no-any-return]

    @property
    def work_stream(self) -> str:
        """The stream from which members receive messages."""
        return f"{self.stream}-{self.name}" if self.elastic else self.stream

    def consumer_of(self, member: str) -> str:
        """The name of the member's consumer."""
        kinds.check(str, member=member)
        return member if self.elastic else f"{self.name}-{member}"

    # --- looking ----------------------------------------------------------------------------------------

    def config(self, *, timeout: Timeout = DEFAULT) -> Group:
        """The configuration as it is stored now, read from the leader."""
        try:
            entry = self.kv.get(self.key, direct=False, timeout=timeout)
        except (errors.KeyNotFound, errors.BucketNotFound, errors.StreamNotFound) as error:
            raise GroupNotFound(f"stream {self.stream!r} has no group {self.name!r}") from error
        return Group.decode(entry.value, elastic=self.elastic, revision=entry.revision)

    def members(self, *, timeout: Timeout = DEFAULT) -> dict[str, ConsumerInfo | None]:
        """Every member with its consumer, None when it has none at the moment."""
        deadline = Deadline.of(timeout, self.js.api.timeout)
        known = self.config(timeout=deadline).members
        found = {info.name: info for info in self.js.consumers(self.work_stream, timeout=deadline)}
        return {member: found.get(self.consumer_of(member)) for member in known}

    def lag(self, *, timeout: Timeout = DEFAULT) -> Lag:
        """Unfinished messages, by partition. For a static group, the messages that its consumers have not acked."""
        deadline = Deadline.of(timeout, self.js.api.timeout)
        group = self.config(timeout=deadline)
        waiting = dict.fromkeys(range(group.partitions), 0)
        if not self.elastic:
            for member, info in self.members(timeout=deadline).items():
                if info is not None and (mine := group.partitions_of(member)):
                    # counted per consumer, not per partition
                    waiting[mine[0]] += info.num_pending + info.num_ack_pending
            return Lag(waiting, 0)
        stream = self.js.stream(self.work_stream, fetch_info=False)
        for subject, messages in stream.subjects(timeout=deadline):
            first = subject.partition(".")[0]
            if first.isdigit() and int(first) in waiting:
                waiting[int(first)] += messages
        sources = stream.info(timeout=deadline).sources or []
        return Lag(waiting, sum(source.lag for source in sources))

    # --- changing ---------------------------------------------------------------------------------------

    def add(self, *members: str, timeout: Timeout = DEFAULT) -> Group:
        """Let members take part. A member that already does changes nothing."""
        return self._change(lambda group: group.with_members({*group.members, *members}), timeout)

    def drop(self, *members: str, timeout: Timeout = DEFAULT) -> Group:
        """Remove members from the group. They first finish their running work."""
        return self._change(lambda group: group.with_members(set(group.members) - set(members)), timeout)

    def set_mappings(self, mappings: Mapping[str, Sequence[int]], *, timeout: Timeout = DEFAULT) -> Group:
        """Assign the partitions one by one. With an empty mapping no member has any."""
        kinds.check(_MAPPINGS, mappings=mappings)
        return self._change(lambda group: group.with_mappings(mappings), timeout)

    def _change(self, change: Callable[[Group], Group], timeout: Timeout) -> Group:
        if not self.elastic:
            raise errors.ConfigError("members of a static group are fixed: delete it and make it anew")
        deadline = Deadline.of(timeout, self.js.api.timeout)
        for _ in range(ATTEMPTS):
            before = self.config(timeout=deadline)
            after = change(before)
            if after == before:
                return before
            try:
                revision = self.kv.update(self.key, after.encode(), before.revision, timeout=deadline)
            except errors.RevisionMismatch:
                continue
            return Group(after.stored, elastic=True, revision=revision)
        raise errors.TimedOut(
            f"others keep changing the group {self.name!r}. Nothing was changed by this call. Try again."
        )

    def step_down(self, member: str, *, timeout: Timeout = DEFAULT) -> None:
        """Let another process of the same member take over."""
        where = self.work_stream, self.consumer_of(member)
        self.js.unpin_consumer(*where, config.PRIORITY_GROUP, timeout=timeout)

    def delete(self, *, timeout: Timeout = DEFAULT) -> None:
        """Delete the group: first its configuration, which ends the members, then its stream (or its members'
        consumers).
        """
        deadline = Deadline.of(timeout, self.js.api.timeout)
        known: list[str] = []
        try:
            known = self.config(timeout=deadline).members
            self.kv.delete(self.key, timeout=deadline)
        except GroupNotFound:
            pass
        if self.elastic:
            try:
                self.js.delete_stream(self.work_stream, timeout=deadline)
            except errors.StreamNotFound:
                pass
            return
        for member in known:  # by name, never by prefix: "a-" also begins the consumers of a group "a-b"
            try:
                self.js.delete_consumer(self.stream, self.consumer_of(member), timeout=deadline)
            except (errors.ConsumerNotFound, errors.StreamNotFound):
                pass

    def __repr__(self) -> str:
        return f"<PartitionedGroup {self.name} of {self.stream!r}, {'elastic' if self.elastic else 'static'}>"


def require(js: JetStream, timeout: Timeout = DEFAULT) -> None:
    """Refuse servers that would accept the settings of a group and ignore them, and servers of an unknown level."""
    known = js.capabilities.at_least(SINCE, timeout)
    if known is False:
        raise js.capabilities.not_supported("a partitioned group", SINCE)
    if known is None:
        raise errors.NotSupported(
            f"a partitioned group needs nats-server {SINCE[0]}.{SINCE[1]} or later, and the level of this server "
            f"cannot be read. Nothing was made. Try again, or give the user permission for {js.api.prefix}INFO."
        )


def create_elastic(
    js: JetStream,
    stream: str,
    name: str,
    *,
    partitions: int,
    filters: Iterable[Filter] = (),
    max_msgs: int = 0,
    max_bytes: int = 0,
    timeout: Timeout = DEFAULT,
) -> PartitionedGroup:
    """Make an elastic group, or open an existing one. Raises GroupExists if that has another shape.

    `partitions` is fixed for good. It is the most members that can work at a time: choose more than you will ever need.
    `filters` are the subjects of `stream` that it uses (default: all, spread by the whole subject). `max_msgs` and
    `max_bytes` limit the group's own stream: if it is full, copying pauses for a second or two at a time. Needs
    nats-server 2.11. Nothing is made on older ones.

    Options:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """
    kinds.check(JetStream, js=js)
    kinds.check(int, partitions=partitions, max_msgs=max_msgs, max_bytes=max_bytes)
    kinds.check(Iterable, filters=filters)
    deadline = Deadline.of(timeout, js.api.timeout)
    group = PartitionedGroup(js, stream, name, elastic=True)
    given = tuple(filters)
    kinds.check(kinds.many(Filter), filters=given)
    wanted = config.elastic(partitions, given, max_msgs, max_bytes)
    require(js, deadline)
    origin = _origin(js, stream, deadline)
    _store(group, wanted, origin.num_replicas or 1, deadline)
    all_of_them = given or (Filter(">"),)
    transforms = [SubjectTransform(src=one.subject, dest=one.destination(partitions)) for one in all_of_them]
    js.create_stream(
        StreamConfig(
            name=group.work_stream,
            retention="workqueue",
            discard="new",
            storage=origin.storage,
            num_replicas=origin.num_replicas,
            max_msgs=max_msgs or None,
            max_bytes=max_bytes or None,
            allow_direct=True,
            sources=[StreamSource(name=stream, subject_transforms=transforms)],
        ),
        timeout=deadline,
    )
    return group


def create_static(
    js: JetStream,
    stream: str,
    name: str,
    *,
    partitions: int,
    filters: Sequence[str] = (),
    members: Iterable[str] = (),
    mappings: Mapping[str, Sequence[int]] | None = None,
    timeout: Timeout = DEFAULT,
) -> PartitionedGroup:
    """Make a static group, or open an existing one. Raises GroupExists if that has another configuration.

    The first token of the stream's subjects is the partition, as its own `subject_transform` puts it there
    (`{{Partition(4,1)}}.orders.{{Wildcard(1)}}`). Needs nats-server 2.11. Nothing is made on older ones.

    `partitions` is their number, as in the stream's transform. `filters` limits the group to subjects that match one of
    them. By default it has all. Give either `members` (the partitions are dealt out to them) or `mappings` (member ->
    its partitions). `timeout` is in seconds for the whole call, by default 5.
    """
    kinds.check(JetStream, js=js)
    kinds.check(int, partitions=partitions)
    kinds.check(kinds.TEXTS, filters=filters)
    kinds.check(Iterable, members=members)
    kinds.check(_MAPPINGS, None, mappings=mappings)
    deadline = Deadline.of(timeout, js.api.timeout)
    group = PartitionedGroup(js, stream, name, elastic=False)
    wanted = config.static(partitions, filters, members, mappings or {})
    require(js, deadline)
    _store(group, wanted, _origin(js, stream, deadline).num_replicas or 1, deadline)
    return group


def open_group(js: JetStream, stream: str, name: str, *, timeout: Timeout = DEFAULT) -> PartitionedGroup:
    """The group of this name, elastic or static. Raises GroupNotFound if there is none.

    Options:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """
    kinds.check(JetStream, js=js)
    deadline = Deadline.of(timeout, js.api.timeout)
    for kind in (True, False):
        group = PartitionedGroup(js, stream, name, elastic=kind)
        try:
            group.config(timeout=deadline)
        except GroupNotFound:
            continue
        return group
    raise GroupNotFound(f"stream {stream!r} has no group {name!r}")


def partitioned_groups(js: JetStream, stream: str, *, timeout: Timeout = DEFAULT) -> Iterator[PartitionedGroup]:
    """All groups of a stream, elastic ones first.

    Options:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """
    kinds.check(JetStream, js=js)
    deadline = Deadline.of(timeout, js.api.timeout)
    names.check_stream(stream)
    return _partitioned_groups(js, stream, deadline)


def _partitioned_groups(js: JetStream, stream: str, deadline: Deadline) -> Iterator[PartitionedGroup]:
    for kind in (True, False):
        kv = keyvalue.KeyValue(js, config.ELASTIC_BUCKET if kind else config.STATIC_BUCKET)
        try:
            found = sorted(kv.keys(f"{stream}.*", timeout=deadline))
        except (errors.BucketNotFound, errors.StreamNotFound):
            continue
        yield from (PartitionedGroup(js, stream, key.rpartition(".")[2], elastic=kind) for key in found)


def _origin(js: JetStream, stream: str, deadline: Deadline) -> StreamConfig:
    info = js.stream(stream, timeout=deadline).cached_info
    assert info is not None
    return info.config


def _store(group: PartitionedGroup, wanted: Group, replicas: int, deadline: Deadline) -> None:
    """Store the configuration unless it is there. The first process makes the bucket."""
    js, bucket = group.js, group.kv.bucket
    try:
        keyvalue.key_value(js, bucket, timeout=deadline)
    except errors.BucketNotFound:
        made: dict[str, Any] = {"bucket": bucket, "replicas": replicas}
        keyvalue.create_key_value(js, keyvalue.KeyValueConfig(**made), timeout=deadline)
    try:
        group.kv.create(group.key, wanted.encode(), timeout=deadline)
    except errors.KeyExists:
        stored = group.config(timeout=deadline)
        fits = stored.same_shape(wanted) if group.elastic else stored == wanted
        if not fits:
            raise GroupExists(f"group {group.name!r} of {group.stream!r} exists as {stored!r}") from None
