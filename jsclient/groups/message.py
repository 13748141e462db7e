"""A message as a member of a group sees it: with the subject under which it was published, and a fence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple
from typing import TypeVar as _TypeVar

from jsclient.durations import DEFAULT, Timeout
from jsclient.jetstream import JetStreamMsg
from jsclient.jetstream.api.headers import STREAM_SOURCE, readable
from jsclient.jetstream.consuming.typed import Values
from jsclient.jetstream.consuming.typed_message import UNREAD, value_of

T = _TypeVar("T")


class Fence(NamedTuple):
    """Give this to a resource. It can then refuse a process that was stopped and overtaken.

    `epoch` rises whenever the partition goes to another process. `sequence` is the message's sequence in its stream,
    and rises within a key. The rule "store only if the sequence is higher than the stored one" is enough to keep a key
    in order.
    """

    epoch: int
    sequence: int


class GroupMessage(JetStreamMsg, gc=False, eq=False):
    """One message of a partitioned group. `subject` is the subject under which it was published, without the partition.

    Attributes:
        epoch: It rises whenever the partition goes to another process.

    It also has the fields of `JetStreamMsg`.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """

    epoch: int = 0

    @property
    def subject(self) -> str:
        """The subject under which it was published."""
        return self.msg.subject.partition(".")[2]

    @property
    def partition(self) -> int:
        """Its partition. It is -1 if the subject does not name one."""
        first = self.msg.subject.partition(".")[0]
        return int(first) if first.isdigit() else -1

    @property
    def origin_seq(self) -> int:
        """The sequence in the stream to which it was published."""
        source = readable(self.msg).get(STREAM_SOURCE)
        if source:
            fields = source.split(" ")
            if len(fields) > 1 and fields[1].isdigit():
                return int(fields[1])
        return self.stream_seq

    @property
    def fence(self) -> Fence:
        """The numbers that a resource needs to refuse a process that was overtaken."""
        return Fence(self.epoch, self.origin_seq)


class TypedGroupMessage(GroupMessage, Generic[T], gc=False, eq=False):
    """The same with a value, for the handler of `GroupPool(group.typed(Order), handler)`.

    It has the fields of `GroupMessage`.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """

    _values: Any = None
    _value: Any = UNREAD

    @property
    def value(self) -> T:
        """The decoded payload, of the type given to `typed`."""
        value = self._value
        return value_of(self) if value is UNREAD else value  # type: ignore[no-any-return]

    def ack_next(self, timeout: Timeout = DEFAULT) -> TypedGroupMessage[T]:
        """As for every message. The next one has a value, too."""
        found = GroupMessage.ack_next(self, timeout)
        return TypedGroupMessage(found.msg, found.connection, epoch=self.epoch, _values=self._values)


def of_member(message: JetStreamMsg, epoch: int, values: Values[Any] | None = None) -> GroupMessage:
    """A message of the member's consumer as its handler sees it."""
    if values is None:
        return GroupMessage(message.msg, message.connection, epoch=epoch)
    return TypedGroupMessage(message.msg, message.connection, epoch=epoch, _values=values)


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    G = TypeVar("G", bound=GroupMessage, covariant=True, default=GroupMessage)
else:
    G = _TypeVar("G", covariant=True)
