"""Writes on a condition: when the server refuses one, find out what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from jsclient.durations import Deadline
from jsclient.errors import (
    ApiError,
    KeyExists,
    MessageNotFound,
    NatsConnectionError,
    NoResponders,
    NotStored,
    RevisionMismatch,
    TimedOut,
    WrongLastSequence,
)
from jsclient.jetstream.api.headers import MSG_ID, readable
from jsclient.keyvalue.access import Access
from jsclient.keyvalue.entry import Operation, operation_of
from jsclient.message import Payload

if TYPE_CHECKING:
    from jsclient.jetstream import RawStreamMsg

CREATE_ATTEMPTS: Final = 5

UNREAD: Final = (TimedOut, NatsConnectionError, NoResponders, ApiError)
"""Errors that prevent a refused write from reading the stored value."""


def create(
    access: Access, key: str, stored: str, value: Payload, options: dict[str, Any], own: str, deadline: Deadline
) -> int:
    """See KeyValue.create; `own` is the message id of the write, which identifies it. `stored` is the stored key."""
    expected = 0
    for _ in range(CREATE_ATTEMPTS):
        try:
            return store(access, stored, value, expected, options, own, deadline)
        except WrongLastSequence as error:
            refusal = error
            try:
                last = last_message(access, stored, deadline)
            except UNREAD as unread:
                text = f"{key!r} was not created: bucket {access.bucket!r} refused it, because the key has a value or"
                raise NotStored(f"{text} had one; which could not be read in time ({unread})") from error
            if last is not None and _is_own(last, own):
                return last.seq  # a server that had lost its leadership refused it, or a copy of it
            if last is not None and operation_of(readable(last)) is Operation.PUT:
                raise KeyExists(f"key exists: {key!r} in bucket {access.bucket!r}", access.bucket, key) from error
            # Deleted keys leave a marker, and the new value must follow exactly that one.
            expected = 0 if last is None else last.seq
    raise NotStored(
        f"{key!r} was not created: bucket {access.bucket!r} refused it {CREATE_ATTEMPTS} times, and had no value of "
        "it at each look. Others keep writing and deleting it."
    ) from refusal


def store(
    access: Access,
    stored: str,
    value: Payload,
    expected: int,
    options: dict[str, Any],
    own: str,
    deadline: Deadline,
) -> int:
    """Store a value if the key is at `expected`. `own` is its message id, which identifies it later."""
    timeout = deadline.remaining()
    return access.publish(stored, value, msg_id=own, expected_last_subject_seq=expected, timeout=timeout, **options)


def own_revision(
    access: Access, key: str, stored: str, expected: int, own: str, error: WrongLastSequence, deadline: Deadline
) -> int:
    """The revision of our write if it is stored although the server rejected it. Otherwise it raises
    RevisionMismatch.

    After a network partition, a server that still considers itself the leader may answer as well, and first.
    """
    text = f"key revision mismatch: {key!r} in bucket {access.bucket!r} is not at revision {expected}"
    try:
        last = last_message(access, stored, deadline)
    except UNREAD:
        pass  # `publish` raises a refusal only when it is certain: this look is one more, and may fail
    else:
        if last is not None and _is_own(last, own):
            return last.seq
        if expected == (0 if last is None else last.seq):
            # Seen with 2.15.1 while leaders were killed: it had another write before it that was never kept.
            text = (
                f"the server refused a write of {key!r} in bucket {access.bucket!r} for revision {expected}, which "
                "the key still has: another write came before it and was not kept"
            )
    raise RevisionMismatch(text, access.bucket, key) from error


def last_message(access: Access, stored: str, deadline: Deadline) -> RawStreamMsg | None:
    """The last message of a key as the leader knows it. A replica or mirror may not have it yet."""
    try:
        return access.written.get_last_msg(access.prefix + stored, direct=False, timeout=deadline.remaining())
    except MessageNotFound:
        return None


def _is_own(message: RawStreamMsg, own: str) -> bool:
    return readable(message).get(MSG_ID) == own
