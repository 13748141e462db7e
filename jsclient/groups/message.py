"""A message as a member of a group sees it: with the subject under which it was published, and a fence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from jsclient.jetstream import JetStreamMsg
from jsclient.jetstream.api.headers import readable

if TYPE_CHECKING:
    from jsclient._engine import Engine

_SOURCE: Final = "Nats-Stream-Source"


class Fence(NamedTuple):
    """What to give to a resource, so that it can refuse a process that was stopped and overtaken.

    `epoch` rises whenever the partition goes to another process. `sequence`, that of the message in its stream, rises
    within a key: "store only if the sequence is higher than the stored one" is enough to keep a key in order.
    """

    epoch: int
    sequence: int


class GroupMessage(JetStreamMsg, gc=False, eq=False):
    """One message of a partitioned group. `subject` is the one it was published under; `partition` stood before it."""

    epoch: int = 0
    """It rises whenever the partition goes to another process."""

    @property
    def subject(self) -> str:
        """The subject under which it was published."""
        return self.msg.subject.partition(".")[2]

    @property
    def partition(self) -> int:
        """Its partition; -1 when the subject names none."""
        first = self.msg.subject.partition(".")[0]
        return int(first) if first.isdigit() else -1

    @property
    def origin_seq(self) -> int:
        """The sequence in the stream to which it was published."""
        source = readable(self.msg).get(_SOURCE)
        if source:
            fields = source.split(" ")
            if len(fields) > 1 and fields[1].isdigit():
                return int(fields[1])
        return self.stream_seq

    @property
    def fence(self) -> Fence:
        """What a resource needs to refuse a process that was overtaken."""
        return Fence(self.epoch, self.origin_seq)


def of_member(message: JetStreamMsg, engine: Engine, epoch: int) -> GroupMessage:
    return GroupMessage(message.msg, engine, epoch=epoch)
