"""The meta messages of a store: the last one of a name describes that object. All reads go to the leader."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from jsclient.durations import Deadline
from jsclient.errors import MessageNotFound, StreamNotFound
from jsclient.jetstream.api.headers import ROLLUP, ROLLUP_SUBJECT
from jsclient.jetstream.publishing.outcome import PUBLISH_TIMEOUT
from jsclient.keyvalue import missing
from jsclient.nuid import next_nuid
from jsclient.objectstore.models import SUBJECT_ROOT, ObjectInfo, decode_info, meta_subject

if TYPE_CHECKING:
    from jsclient.jetstream import JetStream
    from jsclient.jetstream.stream import Stream

READ_TIMEOUT: Final = 5.0
"""Seconds for a question to the stream, and without an object in a listing."""

_ROLLUP: Final = {ROLLUP: ROLLUP_SUBJECT}


class Metas:
    """Reads and conditional writes of meta information."""

    def __init__(self, js: JetStream, stream: Stream, bucket: str) -> None:
        self.js = js
        self.stream = stream
        self.bucket = bucket

    def read(self, name: str, deadline: Deadline) -> ObjectInfo | None:
        """The last meta information of a name on the leader (a replica may lag behind); None if there is none."""
        subject = meta_subject(self.bucket, name)
        try:
            timeout = deadline.at_most(READ_TIMEOUT)
            message = self.stream.get_last_msg(subject, direct=False, timeout=timeout)
        except MessageNotFound:
            return None
        except StreamNotFound as error:
            raise missing.not_found(self.stream.name) from error
        # The subject is its name: some clients store another one in the JSON when they rename.
        return decode_info(message.data, self.bucket, message.time, message.seq).changed(name=name)

    def store(self, info: ObjectInfo, expected: int, deadline: Deadline) -> ObjectInfo:
        """Store meta information if the last one of its name is at `expected`. The id makes it safe to send it again.

        The time is this machine's, as in nats.go: asking for the server's could only fail after the fact.
        """
        subject = meta_subject(self.bucket, info.name)
        options: dict[str, Any] = {"expected_last_subject_seq": expected}
        timeout = Deadline(deadline.at_most(PUBLISH_TIMEOUT))
        with missing.named(self.stream.name):
            ack = self.js.publish(
                subject, info.to_json(), headers=_ROLLUP, msg_id=next_nuid(), timeout=timeout, **options
            )
        return info.changed(revision=ack.seq, mtime=dt.datetime.now(dt.timezone.utc))

    def mark_deleted(self, info: ObjectInfo, deadline: Deadline) -> ObjectInfo:
        """Leave a note that the object is deleted, if it is still at the revision of `info`."""
        return self.store(info.changed(deleted=True, size=0, chunks=0, digest=""), info.revision, deadline)

    def all(self, deadline: Deadline) -> Iterator[ObjectInfo]:
        """All meta information, deleted objects included.

        In the order of the stream. An object that is changed meanwhile moves to a later place.
        """
        seq = 0
        while True:
            try:
                found = self.stream.get_msg(
                    seq + 1, subject=f"{SUBJECT_ROOT}{self.bucket}.M.>", direct=False, timeout=deadline.remaining()
                )
            except MessageNotFound:
                return
            seq = found.seq
            yield decode_info(found.data, self.bucket, found.time, seq)

    def refer_to(self, nuid: str, deadline: Deadline) -> bool:
        """True if an object has these chunks, under any name: other clients may have renamed it."""
        return any(info.nuid == nuid and not info.deleted for info in self.all(deadline))
