"""The chunks of one object in order: a direct read for a single one, an ordered consumer for more."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from jsclient.connection import engine_of
from jsclient.durations import Deadline
from jsclient.errors import MessageNotFound, ObjectChanged, StreamNotFound, TimedOut
from jsclient.jetstream.consuming.listing import Reading
from jsclient.keyvalue import missing
from jsclient.objectstore.models import ObjectInfo
from jsclient.objectstore.windows import NEAR, chunks_in, most_bytes

if TYPE_CHECKING:
    from jsclient.jetstream import JetStream, JetStreamMsg
    from jsclient.jetstream.stream import Stream

WINDOW_BYTES: Final = 8 << 20
"""Bytes of chunks that are requested and buffered together. A read uses about this much memory, and more over a long,
fast line. On a near server it begins with half of it."""

NOT_WHOLE: Final = "What was read is not the whole object."

HEADERS: Final = 2048
"""Bytes that a message without its data takes at most, rounded up."""

MIN_WINDOW: Final = 4
"""The least number of chunks that are requested together. Otherwise large ones would arrive one by one."""


def fetch_chunks(
    js: JetStream,
    stream: Stream,
    subject: str,
    info: ObjectInfo,
    stall: float | None,
    opening: Deadline,
    whole: Deadline,
) -> Iterator[bytes]:
    """The chunks as they are stored. The caller stops at the object's size.

    Raises ObjectChanged if the chunks end early (deleted or replaced meanwhile), TimedOut after `stall` seconds without
    a chunk, or at the deadline of the whole read. `opening` bounds this call.
    """
    if info.chunks == 1:
        return _single(stream, subject, info, stall, whole)
    return Chunks(js, stream.name, subject, info, stall, opening, whole)


def _single(stream: Stream, subject: str, info: ObjectInfo, stall: float | None, deadline: Deadline) -> Iterator[bytes]:
    try:
        message = stream.get_last_msg(subject, direct=False, timeout=_sooner(stall, deadline))
    except MessageNotFound as error:
        raise gone(info) from error
    except StreamNotFound as error:
        raise missing.deleted(stream.name, NOT_WHOLE) from error
    yield message.data


class Chunks:
    """Chunks through an ordered consumer, which continues after reconnects and restarts. Any thread may close it."""

    def __init__(
        self,
        js: JetStream,
        stream: str,
        subject: str,
        info: ObjectInfo,
        stall: float | None,
        opening: Deadline,
        whole: Deadline,
        **options: Any,
    ) -> None:
        """`options` go to the ordered consumer, for example the sequence at which it begins."""
        self._info = info
        self._stall = stall
        self._deadline = whole
        round_trip = engine_of(js.nc).round_trip
        size = HEADERS if options.get("headers_only") else info.chunk_size
        most = chunks_in(most_bytes(WINDOW_BYTES, round_trip), size, MIN_WINDOW)
        first = chunks_in(WINDOW_BYTES if round_trip > NEAR else WINDOW_BYTES // 2, size, MIN_WINDOW)
        consumer = js.ordered_consumer(stream, filter_subjects=[subject], **options)
        with missing.named(stream):
            messages = consumer.open_messages(
                opening,
                window=(first, most),
                max_bytes=0,  # a pull that ends because of its bytes costs a round trip
                leave_buffered=True,
            )
        # The end of the stream does not matter: missing chunks are requested from its leader.
        self._reading = Reading(messages, sys.maxsize, one_copy=False)

    def __iter__(self) -> Chunks:
        return self

    def __next__(self) -> bytes:
        return self.next_message().data

    def next_message(self) -> JetStreamMsg:
        """The message of the next chunk."""
        try:
            return self._next()
        except StreamNotFound as error:
            raise missing.deleted(self._reading.source.stream_name, NOT_WHOLE) from error

    def _next(self) -> JetStreamMsg:
        deadline = Deadline(_sooner(self._stall, self._deadline))
        reading = self._reading
        while True:
            message = reading.take(deadline.at_most(reading.patience))
            if message is not None:
                return message
            if reading.look(deadline) is not None and reading.caught_up(reading.source.state.last_seq, deadline):
                raise gone(self._info)
            if deadline.expired():
                raise TimedOut(
                    f"no data of object {self._info.name!r} in time. What was read is not the whole object. "
                    "Read it again, with more time."
                )

    def close(self) -> None:
        self._reading.messages.close()


def _sooner(stall: float | None, deadline: Deadline) -> float | None:
    return deadline.remaining() if stall is None else deadline.at_most(stall)


def gone(info: ObjectInfo) -> ObjectChanged:
    """The error of a reading that misses chunks."""
    text = f"chunks of object {info.name!r} in {info.bucket!r} are missing: it was replaced or deleted meanwhile"
    return ObjectChanged(text, info.bucket)
