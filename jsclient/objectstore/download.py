"""The chunks of one object in order: a direct read for a single one, an ordered consumer for more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from jsclient.errors import JsClientError, MessageNotFound, NoMessages, ObjectChanged, TimedOut
from jsclient.objectstore.models import ObjectInfo

if TYPE_CHECKING:
    from jsclient.jetstream import JetStream
    from jsclient.jetstream.stream import Stream

WINDOW_BYTES: Final = 8 << 20
"""Bytes of chunks buffered and asked for together; a read holds about this much memory."""

WINDOW_MESSAGES: Final = 512

CHECK_AFTER: Final = 1.0
"""Seconds without a chunk after which the server is asked whether there is one left at all."""


def fetch_chunks(
    js: JetStream, stream: Stream, subject: str, info: ObjectInfo, timeout: float | None
) -> Iterator[bytes]:
    """The chunks as they are stored; whoever reads them stops at the object's size.

    Raises ObjectChanged when the chunks end early (deleted or replaced meanwhile), TimedOut after `timeout`
    seconds without any.
    """
    if info.chunks == 1:
        return _single(stream, subject, info, timeout)
    return _Many(js, stream.name, subject, info, timeout)


def _single(stream: Stream, subject: str, info: ObjectInfo, timeout: float | None) -> Iterator[bytes]:
    try:
        message = stream.get_last_msg(subject, direct=False, timeout=timeout)
    except MessageNotFound as error:
        raise _gone(info) from error
    yield message.data


class _Many:
    """Chunks through an ordered consumer, which goes on after reconnects and restarts. Any thread may close it."""

    def __init__(self, js: JetStream, stream: str, subject: str, info: ObjectInfo, timeout: float | None) -> None:
        self._info = info
        self._timeout = timeout
        self._consumer = js.ordered_consumer(stream, filter_subjects=[subject])
        self._messages = self._consumer.messages(max_messages=WINDOW_MESSAGES, max_bytes=window_of(info))

    def __iter__(self) -> _Many:
        return self

    def __next__(self) -> bytes:
        waited_since = time.monotonic()
        while True:
            try:
                return self._messages.next(timeout=CHECK_AFTER).data
            except NoMessages:
                if self._nothing_left():
                    raise _gone(self._info) from None
                if self._timeout is not None and time.monotonic() - waited_since >= self._timeout:
                    raise TimedOut(f"no data of object {self._info.name!r} within {self._timeout:g} s") from None

    def _nothing_left(self) -> bool:
        """Whether the server has sent everything it has and nothing of it is on its way."""
        try:
            return not self._consumer.info(timeout=CHECK_AFTER).num_pending and not self._messages.buffered
        except JsClientError:
            return False  # the link is down or the consumer is being made again

    def close(self) -> None:
        self._messages.close()


def window_of(info: ObjectInfo) -> int:
    """The window in bytes: never smaller than four chunks, or large ones would come one by one."""
    return max(WINDOW_BYTES, 4 * ((info.chunk_size or 0) + 4096))


def _gone(info: ObjectInfo) -> ObjectChanged:
    text = f"chunks of object {info.name!r} in {info.bucket!r} are missing: it was replaced or deleted meanwhile"
    return ObjectChanged(text, info.bucket)
