"""Offsets of a streaming query, which the engine, Spark, keeps in its checkpoint for us.

One offset holds the complete plan of the batch that it ends. So a replay reads the same rows in the same partitions:

    {"v":2,"id":"...","shape":"...","s":{"ORDERS":{"made":"...","from":1001,"next":2001,"mark":[2000,...]}},
     "plan":{"ORDERS":2}}

- `id` names the query on the NATS side. It is made with the first offset and copied by every later one.

- `shape` shows if a restart reads with other filters or another partitionBy.

- `s` has each stream that the query follows. If this batch reads no message of a stream, its `from` is `next`.

- `made` is when the stream was created. It reveals a stream that was deleted and re-created.

- The batch is [`from`, `next`). Spark does not store the first offset of a Python source. After a crash it asks for
  this offset again, and `latest` would then skip the messages of batch 0. So the end of a batch also has its beginning.

- `mark` is the sequence and time (ns) of its last message. It reveals a store that was set back and filled again.

- `soft` means that the batch begins with the oldest stored message, and no earlier message was promised.

- `plan` has the number of partitions (cut evenly by sequences), or their inner boundaries if they are cut elsewhere, or
  ["subject", buckets]. With several streams it leaves out streams of which no message is read.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import attrs

from jsclient.nuid import next_nuid

if TYPE_CHECKING:
    from jsclient.arrow.settings import Refused

VERSION: Final = 2
MOST: Final = 1 << 63


class _NotOurs(Exception):
    """The reason why an offset was not written by this library."""


@attrs.frozen
class StreamOffset:
    """The position of a query in one stream, and the partitions of the batch that ends here."""

    made: str
    next: int
    start: int  # where the batch begins
    parts: int = 1
    cuts: tuple[int, ...] = ()  # the inner boundaries of the partitions, unless they are cut evenly
    by_subject: bool = False
    mark: tuple[int, int] | None = None
    soft: bool = False

    @property
    def unread(self) -> bool:
        """True if the batch reads no message of this stream, because the query begins here or none was new."""
        return self.start == self.next

    def resting(self) -> StreamOffset:
        """The same place at the end of a batch that reads nothing of the stream."""
        return StreamOffset(self.made, self.next, self.next, mark=self.mark, soft=self.soft and self.unread)

    def to_dict(self) -> dict[str, Any]:
        value: dict[str, Any] = {"made": self.made, "from": self.start, "next": self.next}
        if self.mark is not None:
            value["mark"] = list(self.mark)
        if self.soft:
            value["soft"] = True
        return value

    def plan(self) -> Any:
        if self.by_subject:
            return ["subject", self.parts]
        return list(self.cuts) or self.parts


@attrs.frozen
class Offset:
    """One offset: a place in each stream of the query."""

    streams: dict[str, StreamOffset]
    id: str = attrs.field(factory=next_nuid)
    shape: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The value that Spark stores. The order of the keys is fixed because Spark compares the JSON as text."""
        streams = sorted(self.streams.items())
        alone = len(streams) == 1
        return {
            "v": VERSION,
            "id": self.id,
            "shape": self.shape,
            "s": {name: part.to_dict() for name, part in streams},
            "plan": {name: part.plan() for name, part in streams if alone or not part.unread},
        }

    @classmethod
    def from_dict(cls, value: dict[str, Any], refuse: Callable[[str, str], Refused]) -> Offset:
        """Read the value that Spark stored; JETSTREAM_OFFSET_VERSION if it is not readable."""
        version = value.get("v")
        if type(version) is not int or version != VERSION:
            raise refuse(
                "JETSTREAM_OFFSET_VERSION",
                f"the checkpoint holds an offset of format {version!r}, this jsclient reads format {VERSION}; use the "
                "version of jsclient that wrote the checkpoint, or another checkpointLocation",
            )
        try:
            return _offset(value)
        except _NotOurs as error:
            why = str(error)
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            why = repr(error)
        text = f"the checkpoint holds an offset that is not ours ({why}); use another checkpointLocation"
        raise refuse("JETSTREAM_OFFSET_VERSION", text)


def shape_of(subjects: tuple[str, ...], partition_by: str) -> str:
    """8 characters that change when the filters (the first 7) or partitionBy (the last one) change."""
    digest = hashlib.blake2b("\n".join(sorted(subjects)).encode(), digest_size=4).hexdigest()
    return digest[:7] + ("1" if partition_by == "subject" else "0")


def _number(value: Any, least: int = 0) -> int:
    if type(value) is not int or not least <= value < MOST:
        raise _NotOurs(f"a number out of range: {value!r}")
    return value


def _offset(value: dict[str, Any]) -> Offset:
    plans = value["plan"]
    if not isinstance(plans, dict) or not plans.keys() <= value["s"].keys():
        raise _NotOurs("a plan without a stream")
    streams = {name: _one_stream(found, plans.get(name, 1)) for name, found in value["s"].items()}
    return Offset(streams, id=str(value["id"]), shape=str(value["shape"]))


def _one_stream(found: dict[str, Any], plan: Any) -> StreamOffset:
    cuts: tuple[int, ...] = ()
    by_subject = isinstance(plan, list) and isinstance(plan[0], str)
    if by_subject:
        kind, plan = plan
        if kind != "subject":
            raise _NotOurs(f"an unknown kind of plan: {kind!r}")
    elif isinstance(plan, list):
        cuts = tuple(map(_number, plan))
        edges = [found["from"], *cuts, found["next"]]
        if not all(low < high for low, high in itertools.pairwise(edges)):
            raise _NotOurs(f"boundaries that do not grow: {edges}")
        plan = len(cuts) + 1
    mark = found.get("mark")
    return StreamOffset(
        made=str(found["made"]),
        next=_number(found["next"]),
        start=_number(found["from"]),
        parts=_number(plan, 1),
        cuts=cuts,
        by_subject=by_subject,
        mark=None if mark is None else (_number(mark[0]), _number(mark[1])),
        soft=found.get("soft") is True,
    )
