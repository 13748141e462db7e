"""The chunks of one put: sent through a bounded window, verified, and removed again if anything goes wrong.

Every chunk has a message id. So a chunk that a lost link may have swallowed can go out again and is stored once. The
acks prove the order, because their sequences must rise: a chunk that went out again after a later one shows there.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from jsclient import handlers
from jsclient.connection import engine_of
from jsclient.durations import Deadline, elapsed
from jsclient.errors import (
    JetStreamUnavailable,
    JsClientError,
    ObjectChanged,
    PermissionViolation,
    StreamNotFound,
    TimedOut,
)
from jsclient.nuid import next_nuid
from jsclient.objectstore.digest import encode_digest
from jsclient.objectstore.models import chunk_subject
from jsclient.objectstore.windows import chunks_in, grown, most_bytes

if TYPE_CHECKING:
    from jsclient.jetstream import JetStream, Stream
    from jsclient.objectstore.sources import Progress

logger: logging.Logger = logging.getLogger("jsclient.objectstore")

WINDOW_BYTES: Final = 4 << 20
"""Bytes of chunks under way: 32 of the usual size. More does not make it faster on a near server, and memory grows by
this."""

MIN_WINDOW: Final = 2
"""Chunks under way at least, however large they are."""

VERIFY_AFTER: Final = 1.0
"""Seconds after which the chunks of an upload are recounted before it becomes the object.

A repair removes unfinished uploads that have not grown for 2 seconds, so a faster one cannot be hit.
"""

CHUNK_TIMEOUT: Final = 30.0
"""Seconds that a put waits for the ack of a chunk, with the way back to a server that is away."""

PURGE_TIMEOUT: Final = 5.0
VERIFY_TIMEOUT: Final = 5.0


class Upload:
    """The chunks of one object on their own subject; not thread-safe, made for one put."""

    def __init__(self, js: JetStream, stream: Stream, bucket: str, chunk_size: int, deadline: Deadline) -> None:
        self.nuid: str = next_nuid()
        self.subject: str = chunk_subject(bucket, self.nuid)
        self.size: int = 0
        self.chunks: int = 0
        self.digest: str = ""
        self._js = js
        self._stream = stream
        self._bucket = bucket
        self._round_trip = round_trip = engine_of(js.nc).round_trip
        self._window = self._least = chunks_in(WINDOW_BYTES, chunk_size, MIN_WINDOW)
        self._most = chunks_in(most_bytes(WINDOW_BYTES, round_trip), chunk_size, MIN_WINDOW)
        self._futures: deque[Any] = deque()
        self._last_seq = 0
        self._deadline = deadline

    def run(self, chunks: Iterator[bytes], total: int | None, progress: Progress) -> None:
        """Store all chunks and wait for their acks. After an exception call `discard`."""
        started = elapsed()
        digest = hashlib.sha256()
        publish, futures = self._js.publish_async, self._futures
        for chunk in chunks:
            if len(futures) >= self._window:
                self._confirm()
                if self._window < self._most:
                    taken, seconds = self.chunks - len(futures), elapsed() - started
                    self._window = grown(self._least, self._most, taken, seconds, self._round_trip)
                if progress is not None:
                    handlers.ran(progress(self.size - sum(len(future.payload) for future in futures), total))
            if self._deadline.expired():
                raise TimedOut(
                    f"the object was not stored in time: {self.size} bytes were sent, and are no "
                    "object. Give it more time."
                )
            futures.append(publish(self.subject, chunk, msg_id=f"{self.nuid}.{self.chunks}"))
            digest.update(chunk)
            self.size += len(chunk)
            self.chunks += 1
        while futures:
            self._confirm()
        if progress is not None:
            handlers.ran(progress(self.size, total))
        self.digest = encode_digest(digest.digest())
        if elapsed() - started > VERIFY_AFTER:
            self._verify()

    def _confirm(self) -> None:
        """Wait for the oldest ack. It must be stored after the one before it."""
        future = self._futures[0]
        # Usually it is there: then no clock is read.
        ack = future.result(None if future.done() else self._deadline.at_most(CHUNK_TIMEOUT))
        self._futures.popleft()
        if ack.seq <= self._last_seq:
            raise ObjectChanged("the chunks of the object were stored in another order than sent", self._bucket)
        self._last_seq = ack.seq

    def _verify(self) -> None:
        """Are all chunks there? A repair may have taken a slow upload for an abandoned one, a crash may lose some."""
        try:
            timeout = self._deadline.at_most(VERIFY_TIMEOUT)
            info = self._stream.info(subjects_filter=self.subject, timeout=timeout)
        except (PermissionViolation, JetStreamUnavailable):
            return  # this user has no permission to count them
        there = (info.state.subjects or {}).get(self.subject, 0)
        if there != self.chunks:
            text = f"{self.chunks - there} of {self.chunks} chunks of the object went away while it was stored"
            raise ObjectChanged(text, self._bucket)

    def discard(self) -> list[Any] | None:
        """Remove the stored chunks. Returns None when that is done, else the chunks still under way (the server is
        away).

        Chunks under way must have arrived before: a purge that overtakes them would leave them behind.
        """
        if not self.chunks:
            return None
        if not self._js.nc.is_connected or self._deadline.expired() or not settled(self._futures, self._deadline):
            return list(self._futures)
        try:
            self._stream.purge(subject=self.subject, timeout=self._deadline.at_most(PURGE_TIMEOUT))
        except StreamNotFound:
            pass  # the whole store is gone
        except JsClientError as error:
            logger.warning("chunks of an unfinished upload stay in %s for now: %s", self._bucket, error, exc_info=error)
            return list(self._futures)
        return None


def settled(futures: Iterable[Any], deadline: Deadline) -> bool:
    """Wait until the outcome of each publish is certain. Returns False if one stays unknown in time."""
    own = Deadline(deadline.at_most(PURGE_TIMEOUT))
    for future in futures:
        try:
            future.exception(own.remaining())
        except JsClientError:
            return False
    return True
