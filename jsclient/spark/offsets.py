"""Offsets of a streaming query: what Spark keeps in the checkpoint for us.

`{"v":1,"stream":"ORDERS","created":"...","base":M,"seq":N,"parts":k}`. `seq` is the next stream sequence to
read (so it is exclusive as an end). `base` is the sequence at which the query began: Spark does not store the
first offset of a Python source but asks for it again after a crash, and `latest` would then skip what batch 0
was to read. `parts` freezes the number of partitions for a replay: ids derived from the partition, and the
order inside it, stay the same when minPartitions is changed between two runs. `created` tells a stream that
was deleted and made again from the one the checkpoint belongs to.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from jsclient.spark.errors import JetStreamSparkError

VERSION: Final = 1


@attrs.frozen
class Offset:
    """One offset; immutable and comparable."""

    stream: str
    created: str
    base: int
    seq: int
    parts: int

    def to_dict(self) -> dict[str, Any]:
        """What Spark stores; the order of the keys is fixed because Spark compares the JSON as text."""
        return {
            "v": VERSION,
            "stream": self.stream,
            "created": self.created,
            "base": self.base,
            "seq": self.seq,
            "parts": self.parts,
        }

    @classmethod
    def from_dict(cls, value: dict[str, Any], stream: str) -> Offset:
        """Read what Spark stored for a query on `stream`; JETSTREAM_OFFSET_VERSION if it is not readable."""
        version = value.get("v")
        if type(version) is not int or version != VERSION:
            raise JetStreamSparkError(
                "JETSTREAM_OFFSET_VERSION",
                f"the checkpoint of stream {stream!r} holds an offset of format {version!r}, this jsclient reads "
                f"format {VERSION}; upgrade jsclient to the version that wrote the checkpoint",
            )
        try:
            offset = cls(str(value["stream"]), str(value["created"]), *(value[k] for k in ("base", "seq", "parts")))
            numbers = (offset.base, offset.seq, offset.parts)
            if not all(type(n) is int and 0 <= n < 1 << 63 for n in numbers) or offset.parts < 1:
                raise ValueError(f"numbers out of range: {numbers}")
        except (KeyError, ValueError) as error:
            raise JetStreamSparkError(
                "JETSTREAM_OFFSET_VERSION",
                f"the checkpoint of stream {stream!r} holds an offset that is not ours ({error!r}); "
                "use another checkpointLocation",
            ) from None
        if offset.stream != stream:
            raise JetStreamSparkError(
                "JETSTREAM_STREAM_RECREATED",
                f"the checkpoint belongs to stream {offset.stream!r}, the query reads {stream!r}; "
                "use another checkpointLocation",
            )
        return offset


def start_of(start: Offset, end: Offset) -> int:
    """The first sequence of the batch [start, end): `end.base` when `start` is a re-evaluated initial offset.

    All offsets of one query share their base; one with another base was made after a crash in batch 0.
    """
    return start.seq if start.base == end.base else end.base
