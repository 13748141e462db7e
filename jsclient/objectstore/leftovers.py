"""Frees chunks that no object needs any more, now or with a later call. It keeps the chunks of every other name."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from jsclient import waiting
from jsclient.durations import Deadline
from jsclient.errors import BadObjectMeta, InvalidName, JsClientError, TimedOut
from jsclient.objectstore.models import ObjectInfo, chunk_subject
from jsclient.objectstore.upload import PURGE_TIMEOUT, settled

if TYPE_CHECKING:
    from jsclient.objectstore.metas import Metas

logger: logging.Logger = logging.getLogger("jsclient.objectstore")

_STAY: Final = "chunks of %r stay in object store %s for now: %s"


class Leftovers:
    """The chunks that this handle has to remove from its store; thread-safe."""

    def __init__(self, metas: Metas) -> None:
        self._metas = metas
        self._bucket = metas.bucket
        self._lock = waiting.new_lock()
        self._kept: dict[str, tuple[str, list[Any], bool]] = {}  # nuid -> name, publishes under way, seen by others

    def remember(self, name: str, nuid: str, under_way: list[Any] | None = None, *, seen: bool) -> None:
        """Chunks for `clean_up`. `seen`: other clients may have seen an object of them, and renamed it since."""
        with self._lock:
            self._kept[nuid] = (name, under_way or [], seen)

    def clean_up(self, deadline: Deadline) -> None:
        """Remove chunks that earlier failures of this handle left, if it is possible now and no object needs them."""
        with self._lock:
            kept = list(self._kept.items())
        for nuid, (name, under_way, seen) in kept:
            try:
                if deadline.expired() or not settled(under_way, deadline):
                    continue
                if not seen or not self._metas.refer_to(nuid, Deadline(deadline.at_most(PURGE_TIMEOUT))):
                    self._purge(nuid, deadline)
            except JsClientError as error:
                logger.warning(_STAY, name, self._bucket, error, exc_info=error)
                if not (isinstance(error, TimedOut) and self._metas.js.nc.is_connected):
                    continue  # else the store has too many objects to look at now: a repair does it
            with self._lock:
                self._kept.pop(nuid, None)

    def free(self, replaced: ObjectInfo, deadline: Deadline) -> None:
        """Free the chunks of an object that was replaced or deleted. If that fails now, a later call does it."""
        if not replaced.nuid or replaced.is_link:
            return
        if replaced.deleted and replaced.other_name:
            return  # its deletion freed them, or a third name has them by now
        try:
            chunk_subject(self._bucket, replaced.nuid)
        except BadObjectMeta as error:
            logger.warning(
                "%r in object store %s had no chunks of its own: %s", replaced.name, self._bucket, error, exc_info=error
            )
            return
        try:
            if not self.shared(replaced, deadline):
                self._purge(replaced.nuid, deadline)
        except JsClientError as error:
            logger.warning(_STAY, replaced.name, self._bucket, error, exc_info=error)
            self.remember(replaced.name, replaced.nuid, seen=True)

    def free_unreferenced(self, info: ObjectInfo, deadline: Deadline) -> None:
        """The same for chunks that another name may have by now: only if no object has them."""
        self.remember(info.name, info.nuid, seen=True)
        self.clean_up(deadline)

    def shared(self, info: ObjectInfo, deadline: Deadline) -> bool:
        """True if the other name of a rename that was interrupted has the same chunks."""
        if not info.other_name:
            return False
        try:
            other = self._metas.read(info.other_name, deadline)
        except InvalidName:  # stored data: a name that cannot have been stored
            return False
        return other is not None and not other.deleted and other.nuid == info.nuid

    def _purge(self, nuid: str, deadline: Deadline) -> None:
        subject = chunk_subject(self._bucket, nuid)
        self._metas.stream.purge(subject=subject, timeout=deadline.at_most(PURGE_TIMEOUT))
