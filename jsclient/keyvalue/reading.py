"""Reading one key: from any replica by a direct get, or from the leader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from jsclient.durations import Deadline
from jsclient.errors import (
    BadResponse,
    ConnectionLost,
    KeyDeleted,
    KeyNotFound,
    MessageNotFound,
    NoResponders,
    RequestTimeout,
    StreamNotFound,
)
from jsclient.keyvalue import missing
from jsclient.keyvalue.access import Access
from jsclient.keyvalue.entry import SEQUENCE, KeyValueEntry, direct_fields, entry_of

if TYPE_CHECKING:
    from jsclient.protocol import Msg


def last(access: Access, key: str, direct: bool, deadline: Deadline) -> KeyValueEntry[Any]:
    """The last entry of a key, also when that is a marker. Raises KeyNotFound."""
    stored = access.stored_key(key)
    subject = access.prefix + stored
    if direct:
        reply = _request(access, access.direct_prefix + stored, b"", deadline)
        if reply is not None:
            return _from_direct(access, key, subject, reply)
    return _from_leader(access, key, subject, None, deadline)


def revision_of(access: Access, key: str, revision: int, direct: bool, deadline: Deadline) -> KeyValueEntry[Any]:
    """One revision of a key, also when that is a marker. Raises KeyNotFound."""
    subject = access.prefix + access.stored_key(key)
    if direct:
        reply = _request(access, access.direct_subject, b'{"seq":%d}' % revision, deadline)
        if reply is not None:
            return _from_direct(access, key, subject, reply)
    return _from_leader(access, key, subject, revision, deadline)


def value_of(access: Access, entry: KeyValueEntry[Any]) -> KeyValueEntry[Any]:
    """The entry, whose value can be read. Raises KeyDeleted for a marker, or DecodeFailed."""
    if not entry.is_put:
        text = f"key not found: {entry.key!r} in bucket {access.bucket!r} was deleted at revision {entry.revision}"
        raise KeyDeleted(text, access.bucket, entry.key, entry.revision)
    return entry if access.coding is None else access.coding.checked(entry)


def not_found(access: Access, key: str) -> KeyNotFound:
    """The error for a key without an entry."""
    return KeyNotFound(f"key not found: {key!r} in bucket {access.bucket!r}", access.bucket, key)


def _request(access: Access, subject: str, body: bytes, deadline: Deadline) -> Msg | None:
    """A direct get. Returns None if no server answers it for this bucket. The caller then asks the leader."""
    patience = access.patience
    while True:
        wait = deadline if patience is None else Deadline(deadline.at_most(patience))
        try:
            return access.engine.request(subject, body, timeout=wait)
        except NoResponders:
            return None
        except RequestTimeout:
            if patience is None or deadline.expired():
                raise
            return None
        except ConnectionLost:  # a read changes nothing: it is sent again over the next link
            if deadline.expired():
                raise


def _from_direct(access: Access, key: str, expected: str, reply: Msg) -> KeyValueEntry[Any]:
    block = reply.raw_headers
    if block is None or (reply.status is not None and SEQUENCE not in block):
        _refused(access, key, reply)
    subject, revision, stamp, operation, stored = direct_fields(block, reply)
    if subject != expected.encode():
        raise not_found(access, key)
    return KeyValueEntry(access.bucket, key, reply.data, revision, operation, 0, stamp, stored)


def _from_leader(
    access: Access, key: str, subject: str, revision: int | None, deadline: Deadline
) -> KeyValueEntry[Any]:
    try:
        if revision is None:
            message = access.stream.get_last_msg(subject, direct=False, timeout=deadline.remaining())
        else:
            message = access.stream.get_msg(revision, direct=False, timeout=deadline.remaining())
    except MessageNotFound:
        raise not_found(access, key) from None
    except StreamNotFound as error:
        raise missing.not_found(access.stream_name) from error
    if message.subject != subject:
        raise not_found(access, key)
    return entry_of(access.bucket, key, message)


def _refused(access: Access, key: str, reply: Msg) -> NoReturn:
    status = reply.status
    if status is not None and status.code == 404:
        raise not_found(access, key)
    raise BadResponse(f"reading {key!r} from bucket {access.bucket!r} was answered with {status}", reply.data)
