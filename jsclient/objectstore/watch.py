"""Watching an object store: information about objects, never their data."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from jsclient.durations import Deadline
from jsclient.errors import BadObjectMeta
from jsclient.jetstream import JetStream
from jsclient.keyvalue.watch import OPEN_TIMEOUT, StreamWatcher, WatchOptions
from jsclient.objectstore.models import SUBJECT_ROOT, ObjectInfo, decode_info

if TYPE_CHECKING:
    from jsclient.jetstream.message import JetStreamMsg

logger: logging.Logger = logging.getLogger("jsclient.objectstore")


class ObjectWatcher(StreamWatcher[ObjectInfo]):
    """The result of `ObjectStore.watch`. A `for` loop returns only ObjectInfo. `initial_complete` is True once all
    current ones have been returned. `next` returns None once, at that point.

    Attributes:
        bucket: The name of the store.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """

    def __init__(
        self,
        js: JetStream,
        bucket: str,
        stream: str,
        options: WatchOptions,
        timeout: float | None,
        deadline: Deadline,
    ) -> None:
        self.bucket = bucket
        super().__init__(js, stream, [f"{SUBJECT_ROOT}{bucket}.M.>"], options, timeout, deadline)

    def _entry(self, message: JetStreamMsg) -> ObjectInfo | None:
        metadata = message.metadata
        try:
            info = decode_info(message.data, self.bucket, metadata.timestamp, metadata.stream_seq)
        except BadObjectMeta as error:
            # A malformed message of another writer must not end the listing of all other objects.
            logger.warning("%s (subject %s)", error, message.subject)
            return None
        return None if self._ignore_deletes and info.deleted else info

    def __repr__(self) -> str:
        return f"<ObjectWatcher {self.bucket}>"


__all__ = ["OPEN_TIMEOUT", "ObjectWatcher", "WatchOptions"]
