"""Renaming an object: its chunks get a second name, then the first name is removed. Each step is bound to a revision.

Each name refers to the other (`other_name`), because they may have the same chunks. So an interruption between the
steps leaves two complete objects, and a later delete or put of one leaves the chunks to the other.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NoReturn

from jsclient.durations import Deadline
from jsclient.errors import JsClientError, ObjectChanged, ObjectExists, UnknownOutcome, WrongLastSequence
from jsclient.objectstore.models import ObjectInfo, meta_subject
from jsclient.objectstore.upload import PURGE_TIMEOUT

if TYPE_CHECKING:
    from jsclient.objectstore.leftovers import Leftovers
    from jsclient.objectstore.metas import Metas

logger: logging.Logger = logging.getLogger("jsclient.objectstore")


def rename(
    metas: Metas, leftovers: Leftovers, current: ObjectInfo, changed: ObjectInfo, deadline: Deadline
) -> ObjectInfo:
    """Make `current` the object `changed`, which has another name and the same chunks."""
    there = metas.read(changed.name, deadline)
    # Two names with the same chunks: an earlier rename was interrupted, and this one finishes it.
    again = there is not None and not there.deleted and bool(current.nuid) and there.nuid == current.nuid
    if there is not None and not there.deleted and not again:
        raise ObjectExists(
            f"object exists: {changed.name!r} in object store {metas.bucket!r}", metas.bucket, changed.name
        )
    if current.other_name != changed.name:
        if leftovers.shared(current, deadline):
            raise ObjectChanged(
                f"object {current.name!r} in {metas.bucket!r} has the name {current.other_name!r}, too: a rename was "
                "interrupted. Nothing was changed. Finish that rename by the same call, or delete one of the two.",
                metas.bucket,
            )
        current = _bound(metas, current, current.changed(other_name=changed.name), current.revision, deadline)
    expected = 0 if there is None else there.revision
    stored = _bound(metas, current, changed.changed(other_name=current.name), expected, deadline)
    try:
        _vanish(metas, current, deadline)
    except WrongLastSequence as error:
        if not again:  # else every client has seen both names, and left the chunks to the new one
            _undo(metas, leftovers, current, stored, deadline)
        _changed(metas, current, error)
    except JsClientError as error:
        text = f"object {current.name!r} in {metas.bucket!r} is stored as {stored.name!r}, and may still have its old"
        raise UnknownOutcome(
            f"{text} name, too. Both are whole, and deleting one keeps the other. Repeat the call to finish the rename."
        ) from error
    try:
        if not leftovers.shared(current, deadline):  # the new name was replaced while the old one kept the chunks
            leftovers.free_unreferenced(current, deadline)
    except JsClientError as error:
        logger.info("object store %s was not looked at after a rename: %s", metas.bucket, error)
    return stored


def _bound(metas: Metas, current: ObjectInfo, info: ObjectInfo, expected: int, deadline: Deadline) -> ObjectInfo:
    try:
        return metas.store(info, expected, deadline)
    except WrongLastSequence as error:
        _changed(metas, current, error)


def _changed(metas: Metas, current: ObjectInfo, error: Exception) -> NoReturn:
    text = f"object {current.name!r} in {metas.bucket!r}, or its new name, was changed by another client meanwhile"
    raise ObjectChanged(f"{text}. It was not renamed. Look at both names, then begin again.", metas.bucket) from error


def _undo(metas: Metas, leftovers: Leftovers, current: ObjectInfo, stored: ObjectInfo, deadline: Deadline) -> None:
    """Take the new name back: who changed the old one may have freed the chunks before there was a new one."""
    try:
        _vanish(metas, stored, deadline)
    except WrongLastSequence:
        pass  # the new name has other data by now
    except JsClientError as error:
        text = f"object {current.name!r} in {metas.bucket!r} was changed by another client while it was renamed, and"
        raise UnknownOutcome(
            f"{text} {stored.name!r} could not be removed again. Its data may be gone. Read it, then keep or delete it."
        ) from error
    leftovers.free_unreferenced(stored, deadline)


def _vanish(metas: Metas, info: ObjectInfo, deadline: Deadline) -> None:
    """Remove a name that is still at this revision: a note first, which watchers see, then the note."""
    note = metas.mark_deleted(info, deadline)
    try:
        subject = meta_subject(metas.bucket, info.name)
        metas.stream.purge(subject=subject, seq=note.revision + 1, timeout=deadline.at_most(PURGE_TIMEOUT))
    except JsClientError as error:
        logger.info("the note that %r was renamed stays in object store %s: %s", info.name, metas.bucket, error)
