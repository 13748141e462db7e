"""The stored form of partitioned groups: the configuration of a group, its names, filters and subject transforms.

Pure: no connection, no thread, no clock. The stored state has the format of orbit.go's pcgroups, so members written in
Go and in Python can share a group. Two rules are easy to break. A field that is `null` must not become `[]`, because
running Go members end at that. Everything except the members must be written back unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import attrs
import msgspec

from jsclient import kinds
from jsclient.errors import ConfigError, InvalidName

ELASTIC_BUCKET: Final = "elastic-consumer-groups"
STATIC_BUCKET: Final = "static-consumer-groups"
PRIORITY_GROUP: Final = "PCG"

_NOT_IN_NAMES: Final = set(". *>/\\\t\r\n\0")

_CURRENT: Final = kinds.Kind(
    "a mapping of members to their partitions",
    lambda value: (
        isinstance(value, Mapping)
        and all(isinstance(member, str) and isinstance(numbers, Iterable) for member, numbers in value.items())
    ),
)


def check_name(name: str, what: str) -> str:
    """A group or member: part of a key, of a stream's name and of a subject."""
    if not name or not name.isprintable() or _NOT_IN_NAMES & set(name):
        raise InvalidName(f"the {what} {name!r} must be one word without '.', '*', '>', '/', '\\' and blanks")
    return name


def _numbers(given: Iterable[int]) -> tuple[int, ...]:
    if isinstance(given, str):
        raise ConfigError(f"wildcards must be numbers such as [1], not the str {given!r}")
    kinds.check(Iterable, wildcards=given)
    numbers = tuple(given)
    kinds.check(kinds.many(int), wildcards=numbers)
    return numbers


@attrs.frozen
class Filter:
    """Subjects of a group, and the wildcards by which they are spread over the partitions.

    `Filter("orders.*.*", [1])` puts all messages with the same first `*` into the same partition. Without wildcards
    the whole subject decides.

    Attributes:
        subject: The subjects, with a `*` or a `>` at the end.
        wildcards: The numbers of its `*`, counted from 1, that decide the partition. Without any, the whole subject
            decides.
    """

    subject: str
    wildcards: tuple[int, ...] = attrs.field(default=(), converter=_numbers)

    def __attrs_post_init__(self) -> None:
        kinds.check(str, subject=self.subject)
        tokens = self.subject.split(".")
        stars = tokens.count("*")
        if not stars and tokens[-1] != ">":
            raise ConfigError(f"the filter {self.subject!r} has neither a '*' nor a '>' at its end")
        if len(set(self.wildcards)) != len(self.wildcards) or any(not 1 <= at <= stars for at in self.wildcards):
            raise ConfigError(
                f"wildcards of {self.subject!r} are different numbers of 1 to {stars}, not {self.wildcards}"
            )

    @property
    def stored(self) -> dict[str, Any]:
        """For layers: the form in which it is stored."""
        return {"filter": self.subject, "partitioning_wildcards": list(self.wildcards)}

    def destination(self, partitions: int) -> str:
        """The subject transform that puts the partition's number before the subject."""
        number, tokens = 0, self.subject.split(".")
        for index, token in enumerate(tokens):
            if token == "*":
                number += 1
                tokens[index] = f"{{{{Wildcard({number})}}}}"
        which = ",".join(str(part) for part in (partitions, *self.wildcards))
        return f"{{{{Partition({which})}}}}.{'.'.join(tokens)}"


def partition_of(tokens: Iterable[str], partitions: int) -> int:
    """The partition into which the server puts a subject: FNV-1a of the chosen tokens, without anything between."""
    kinds.check(Iterable, tokens=tokens)
    kinds.check(int, partitions=partitions)
    value = 2166136261
    for byte in "".join(tokens).encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value % partitions


class Group:
    """The stored configuration of a group, read and changed without losing the fields of other clients. Immutable.

    Attributes:
        stored: The stored configuration, with fields that this version does not know.
        elastic: True if partitions and members may change.
        revision: Revision of the key in the bucket; 0 if it was not read from there.
    """

    def __init__(self, stored: Mapping[str, Any], *, elastic: bool, revision: int = 0) -> None:
        self.stored: dict[str, Any] = dict(stored)
        self.elastic = elastic
        self.revision = revision
        self._check()

    @classmethod
    def decode(cls, raw: bytes, *, elastic: bool, revision: int = 0) -> Group:
        """For layers: a group from its stored form."""
        try:
            stored = msgspec.json.decode(raw, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise ConfigError(f"the stored configuration of the group is no JSON object: {error}") from error
        return cls(stored, elastic=elastic, revision=revision)

    def encode(self) -> bytes:
        """As Go writes it, with <, > and & escaped."""
        text = msgspec.json.encode(self.stored)
        for char in b"<>&":
            text = text.replace(bytes([char]), b"\\u%04x" % char)
        return text

    # --- what it says -----------------------------------------------------------------------------------

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return int(self.stored["max_members"])

    @property
    def filters(self) -> list[str]:
        """The filters of the origin's subjects, at least one."""
        if self.elastic:
            found = [item["filter"] for item in self.stored.get("partitioning_filters") or []]
        else:
            found = list(self.stored.get("filters") or [])
        return found or [">"]

    @property
    def mappings(self) -> dict[str, list[int]]:
        """Member -> its partitions, if they were assigned partition by partition; else empty."""
        given = self.stored.get("member_mappings") or []
        return {item["member"]: list(item.get("partitions") or []) for item in given}

    @property
    def members(self) -> list[str]:
        """Every member, whether partitions were assigned one by one or not."""
        return sorted(set(self.stored.get("members") or [])) or sorted(self.mappings)

    def assignment(self) -> dict[str, list[int]]:
        """Member -> its partitions. If only members are stored, it follows the rule of pcgroups."""
        if not self.stored.get("members"):
            return self.mappings
        members = self.members[: self.partitions]
        found: dict[str, list[int]] = {}
        share = self.partitions // len(members)
        dealt = share * len(members)
        for partition in range(self.partitions):
            at = partition // share if partition < dealt else (partition - dealt) % len(members)
            found.setdefault(members[at], []).append(partition)
        return found

    def partitions_of(self, member: str) -> list[int]:
        """The partitions of a member, in order."""
        return sorted(self.assignment().get(member, []))

    def filters_of(self, member: str) -> list[str]:
        """The filter subjects of the member's consumer. It is empty if it has no partition."""
        mine = self.assignment().get(member, [])
        if not self.stored.get("members"):
            return [f"{partition}.>" for partition in mine]
        return [f"{partition}.{subject}" for subject in self.filters for partition in sorted(mine)]

    # --- changes ----------------------------------------------------------------------------------------

    def with_members(self, members: Iterable[str]) -> Group:
        """The same group with these members, sorted: another order would restart the consumers of all Go members."""
        if self.mappings:
            raise ConfigError("the partitions of this group are assigned one by one: use set_mappings")
        changed = dict(self.stored)
        changed.pop("members", None)
        if names := sorted({check_name(name, "member") for name in members}):
            changed["members"] = names
        return Group(changed, elastic=self.elastic, revision=self.revision)

    def with_mappings(self, mappings: Mapping[str, Sequence[int]]) -> Group:
        """The same group with partitions assigned one by one. With an empty mapping no member has any."""
        changed = {name: value for name, value in self.stored.items() if name not in ("members", "member_mappings")}
        if mappings:
            changed["member_mappings"] = [
                {"member": check_name(name, "member"), "partitions": sorted(mappings[name])}
                for name in sorted(mappings)
            ]
        return Group(changed, elastic=self.elastic, revision=self.revision)

    def same_shape(self, other: Group) -> bool:
        """True if the two differ in members only. `null` and `[]` count as different, as they do for Go members."""
        ignored = ("members", "member_mappings")
        return _without(self.stored, ignored) == _without(other.stored, ignored)

    def _check(self) -> None:
        stored = self.stored
        if not isinstance(stored.get("max_members"), int) or stored["max_members"] < 1:
            raise ConfigError(f"a group has 1 or more partitions, not {stored.get('max_members')!r}")
        if self.elastic:
            for item in stored.get("partitioning_filters") or []:
                Filter(item.get("filter") or "", item.get("partitioning_wildcards") or ())
        mappings = stored.get("member_mappings") or []
        if mappings and stored.get("members"):
            raise ConfigError("members and member_mappings exclude each other: the mappings name the members")
        if not mappings:
            return
        names = [item["member"] for item in mappings]
        assigned = sorted(partition for item in mappings for partition in item.get("partitions") or [])
        if len(set(names)) != len(names):
            raise ConfigError("a member stands twice in member_mappings: give each all of its partitions in one entry")
        if assigned != list(range(self.partitions)):
            raise ConfigError(
                f"member_mappings must name each partition of 0 to {self.partitions - 1} once: {assigned}"
            )
        if len(names) > self.partitions:
            raise ConfigError(f"{len(names)} members share {self.partitions} partitions")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Group) and (self.stored, self.elastic) == (other.stored, other.elastic)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        kind = "elastic" if self.elastic else "static"
        return f"<Group {kind} partitions={self.partitions} members={self.members} revision={self.revision}>"


def _without(stored: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    # For a field that Go omits when it is 0 or empty, that value and its absence mean the same.
    return {
        name: value
        for name, value in stored.items()
        if name not in names and not (name in ("max_buffered_msg", "max_buffered_bytes") and not value)
    }


def elastic(partitions: int, filters: Iterable[Filter], max_msgs: int = 0, max_bytes: int = 0) -> Group:
    """A new elastic group without members."""
    given = [item.stored for item in filters]
    stored: dict[str, Any] = {"max_members": partitions, "partitioning_filters": given or None}
    if max_msgs:
        stored["max_buffered_msg"] = max_msgs
    if max_bytes:
        stored["max_buffered_bytes"] = max_bytes
    return Group(stored, elastic=True)


def static(
    partitions: int, filters: Sequence[str], members: Iterable[str], mappings: Mapping[str, Sequence[int]]
) -> Group:
    """A new static group."""
    stored: dict[str, Any] = {"max_members": partitions}
    if filters:
        stored["filters"] = list(filters)
    group = Group(stored, elastic=False)
    if mappings:
        if list(members):
            raise ConfigError("members and mappings exclude each other: mappings name the members")
        return group.with_mappings(mappings)
    return group.with_members(members)


def balanced(current: Mapping[str, Iterable[int]], members: Iterable[str], partitions: int) -> dict[str, list[int]]:
    """Spread the partitions evenly over the members and move as few of them as possible.

    Members beyond the number of partitions get none and are left out. Without members: {}.
    """
    kinds.check(_CURRENT, current=current)
    kinds.check(Iterable, members=members)
    kinds.check(int, partitions=partitions)
    names = sorted(set(members), key=lambda name: (name not in current, name))[:partitions]
    if not names:
        return {}
    share, extra = divmod(partitions, len(names))
    kept = {name: sorted(set(current.get(name, ())) & set(range(partitions))) for name in names}
    # The larger shares go to the members that have most, which keeps the number of moves small.
    largest = sorted(names, key=lambda name: -len(kept[name]))
    quota = {name: share + (place < extra) for place, name in enumerate(largest)}
    taken: set[int] = set()
    found: dict[str, list[int]] = {}
    for name in names:
        found[name] = [partition for partition in kept[name] if partition not in taken][: quota[name]]
        taken.update(found[name])
    free = [partition for partition in range(partitions) if partition not in taken]
    for name in names:
        missing = quota[name] - len(found[name])
        found[name] += free[:missing]
        free = free[missing:]
    return {name: sorted(mine) for name, mine in sorted(found.items())}
