"""Records that members of a group share in addition to the stored configuration: signs of life, work, deadly messages.

A bucket of leases, with keys of four kinds. Members written in Go do not use it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from jsclient import coordination, errors
from jsclient.first_use import prepared
from jsclient.groups.process import here
from jsclient.workers.order import Tries

if TYPE_CHECKING:
    from jsclient.groups.group import PartitionedGroup
    from jsclient.keyvalue import KeyValue

BUCKET: Final = "jsclient-groups"
READ_TIMEOUT: Final = 5.0
CRASHES_KEPT: Final = 300.0
"""Seconds within which a second death of a process makes its messages suspect."""

TRIES_KEPT: Final = 3600.0
"""Seconds for which failed tries and kills of a message are remembered after the last one."""


class Work(msgspec.Struct, frozen=True, omit_defaults=True):
    """A member that works: its process, and its partitions."""

    id: str
    partitions: list[int]
    place: str = ""
    """Together with `pid` it identifies the process and its machine. See `process`. Empty if others must not draw
    conclusions from its end: several processes may use the member's name, or the record is of an earlier version."""
    pid: int = 0


@attrs.frozen
class Records:
    """The keys of one group."""

    kv: KeyValue
    prefix: str

    @classmethod
    def of(cls, group: PartitionedGroup, replicas: int) -> Records:
        return cls(coordination.lease_bucket(group.js, BUCKET, replicas=replicas), f"{group.stream}.{group.name}")

    def alive(self, member: str, instance: str = "*") -> str:
        return f"alive.{self.prefix}.{member}.{instance}"

    @property
    def chief(self) -> str:
        return f"chief.{self.prefix}"

    def living(self, member: str) -> set[str]:
        """The processes of a member that the server has heard of lately."""
        return {key.rpartition(".")[2] for key in self.kv.keys(self.alive(member))}

    # --- members at work --------------------------------------------------------------------------------------

    def begin(self, member: str, instance: str, partitions: Iterable[int], alone: bool = False) -> int:
        """Returns the epoch: it rises with every beginning of any member. `alone`: no other process has its name."""
        work = Work(instance, sorted(partitions), here(), os.getpid()) if alone else Work(instance, sorted(partitions))
        return self.kv.put(f"work.{self.prefix}.{member}", msgspec.json.encode(work))

    def working(self) -> list[tuple[str, Work]]:
        """The members that have begun and have not given their work up, by name."""
        found = self._all(f"work.{self.prefix}.*")
        return [(entry.key.rpartition(".")[2], _work(entry)) for entry in found]

    def end(self, member: str) -> None:
        self.kv.purge(f"work.{self.prefix}.{member}", ttl=coordination.lease.MARKER_TTL)

    def crashed(self, partitions: Iterable[int], instance: str) -> set[int]:
        """Our partitions that another process was working on and has not given up, because it died.

        Only for a member that has these partitions now. The records that are found are removed.
        """
        mine, found = set(partitions), set()
        for entry in self._all(f"work.{self.prefix}.*"):
            work = _work(entry)
            overlap = mine & set(work.partitions)
            if not overlap or work.id == instance:
                continue
            found |= overlap
            rest = sorted(set(work.partitions) - mine)
            try:
                if rest:
                    self.kv.update(
                        entry.key, msgspec.json.encode(msgspec.structs.replace(work, partitions=rest)), entry.revision
                    )
                else:
                    self.kv.purge(entry.key, revision=entry.revision, ttl=coordination.lease.MARKER_TTL)
            except errors.RevisionMismatch:
                pass  # another member took other partitions of the same one
        return found

    def crash_before(self) -> bool:
        """Note that a process has died. Returns True if another one had died shortly before."""
        key = f"crash.{self.prefix}"
        try:
            self.kv.create(key, b"", ttl=CRASHES_KEPT)
        except errors.KeyExists:
            self.kv.update(key, b"", self.kv.get(key, direct=False).revision, ttl=CRASHES_KEPT)
            return True
        return False

    # --- what a message has done ------------------------------------------------------------------------

    def tries(self) -> dict[int, Tries]:
        """By sequence in the stream from which members receive messages."""
        return {
            int(entry.key.rpartition(".")[2]): msgspec.json.decode(entry.value, type=prepared(Tries))
            for entry in self._all(f"tries.{self.prefix}.*")
        }

    def note(self, sequence: int, tries: Tries) -> None:
        key, value = f"tries.{self.prefix}.{sequence}", msgspec.json.encode(tries)
        try:
            self.kv.create(key, value, ttl=TRIES_KEPT)
        except errors.KeyExists:
            self.kv.update(key, value, self.kv.get(key, direct=False).revision, ttl=TRIES_KEPT)

    def _all(self, pattern: str) -> list[Any]:
        with self.kv.watch(pattern, ignore_deletes=True, timeout=READ_TIMEOUT) as found:
            return list(found.initial())


def _work(entry: Any) -> Work:
    return msgspec.json.decode(entry.value, type=prepared(Work))
