"""`kv.get_many()`: the entries of several keys as the bucket was at one sequence (nats-server 2.11, ADR-31)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jsclient.durations import Deadline
from jsclient.errors import ConfigError, JetStreamUnavailable, NotSupported, RequestTimeout
from jsclient.jetstream.api.capabilities import OPERATIONS
from jsclient.jetstream.batch_get import MAX_SUBJECTS, get_last_together
from jsclient.keyvalue import missing
from jsclient.keyvalue.access import Access
from jsclient.keyvalue.entry import KeyValueEntry, entry_of

if TYPE_CHECKING:
    from jsclient.jetstream import RawStreamMsg


def get_many(access: Access, keys: list[str], deadline: Deadline) -> dict[str, KeyValueEntry[Any]]:
    """See KeyValue.get_many."""
    if len(keys) > MAX_SUBJECTS:
        raise ConfigError(f"get_many reads at most {MAX_SUBJECTS} keys at one sequence, got {len(keys)}")
    prefix = access.prefix
    subjects = {key: prefix + access.stored_key(key) for key in keys}
    if not subjects:
        return {}
    if not access.direct or access.js.capabilities.at_least(OPERATIONS["batch get"], deadline) is False:
        raise NotSupported(
            f"get_many needs nats-server 2.11, and direct gets (allow_direct) on bucket {access.bucket!r}. Call "
            "get for each key instead; other clients may then write between two reads."
        )
    wanted = list(dict.fromkeys(subjects.values()))  # a codec may store two spellings as one key
    messages = {message.subject: message for message in _messages(access, wanted, deadline)}
    found = {}
    for key, subject in subjects.items():
        entry = _entry(access, subject, messages[subject]) if subject in messages else None
        if entry is not None and entry.is_put:
            entry.key = key
            found[key] = entry
    return found


def _messages(access: Access, subjects: list[str], deadline: Deadline) -> list[RawStreamMsg]:
    try:
        found = get_last_together(access.stream, subjects, deadline)
        while found is None and not deadline.expired():
            found = get_last_together(access.stream, subjects, deadline)
    except JetStreamUnavailable:
        with missing.named(access.stream_name):
            access.stream.info(timeout=deadline)
        raise
    if found is not None:
        return found
    raise RequestTimeout(
        f"others kept writing keys of bucket {access.bucket!r} while the server read them. The call returns "
        "no entries, because they would be from several sequences. Allow more time, or ask for fewer keys."
    )


def _entry(access: Access, subject: str, message: RawStreamMsg) -> KeyValueEntry[Any] | None:
    entry = entry_of(access.bucket, subject[len(access.prefix) :], message)
    return entry if access.coding is None else access.coding.found(entry)
