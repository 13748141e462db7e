"""The members of a group: the stored configuration as it changes, signs of life, and the one that assigns partitions.

Nothing here keeps messages in order. Two simultaneous assignments, or a wrong one, only make members request partitions
that others still have. The server refuses that until those partitions are given up.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from jsclient import coordination, errors
from jsclient.groups import config
from jsclient.groups.config import Group
from jsclient.groups.group import GroupChanged, GroupNotFound
from jsclient.threads import Thread, start_all
from jsclient.waiting import Gate

if TYPE_CHECKING:
    from jsclient.coordination import Lease
    from jsclient.groups.member_state import MemberState

log: logging.Logger = logging.getLogger("jsclient.groups")

PATIENCE: Final = 1.0
FIRST_SETTLE: Final = 0.3
"""Seconds of quiet before the very first assignment: no member works until then."""

MOST_SETTLES: Final = 3
"""Times `settle` after which partitions are assigned although members still come and go."""


class Membership:
    """A pool's knowledge of its group. `config` belongs to the control thread. The rest runs on separate threads."""

    def __init__(self, pool: MemberState) -> None:
        self._pool = pool
        self._config = pool.group_config
        self._over = Gate()
        self._lease: Lease | None = None
        self._election: coordination.Election | None = None
        self._deleted: Any = None
        self._changes: Any = None
        self._error: BaseException | None = None
        self._watcher = Thread(f"jsclient-group-{pool.member}-watch", self._watch)
        self._keeper = Thread(f"jsclient-group-{pool.member}-alive", self._keep)

    def start(self) -> None:
        pool, group = self._pool, self._pool.group
        self._live()
        start_all([self._watcher, self._keeper], f"the member {pool.member!r} of {group}")
        if pool.group.elastic:
            # A consumer is gone, so partitions may be free: no reason to wait for the next try.
            events = f"$JS.EVENT.ADVISORY.CONSUMER.DELETED.{group.work_stream}.*"
            self._deleted = pool.connection.subscribe(events, lambda message: pool.wake())
        if pool.automatic:
            self._election = coordination.Election(
                pool.records.kv, pool.records.chief, ttl=pool.terms.lease, on_gain=self._assign
            )

    def stop(self) -> None:
        """Leave: others may have our partitions from here on."""
        self._over.set()
        try:
            if self._changes is not None:
                self._changes.stop()
            if self._deleted is not None:
                self._deleted.unsubscribe()
            if self._lease is not None:
                self._lease.release()
            if self._election is not None:
                self._election.close(0.1)  # a candidate notices it within a second
        except errors.JsClientError as error:
            log.info("leaving %s: %s", self._pool.group, error)
        for thread in (self._watcher, self._keeper):
            if thread.began and thread is not threading.current_thread():
                thread.join(2 * PATIENCE)

    def config(self) -> Group:
        """The newest configuration. Raises the error that makes it unusable."""
        if self._error is not None:
            raise self._error
        return self._config

    # --- the configuration ----------------------------------------------------------------------------------

    def _watch(self) -> None:
        pool = self._pool
        while not self._over.is_set():
            try:
                with pool.group.kv.watch(pool.group.key, timeout=PATIENCE) as changes:
                    self._changes = changes
                    self._follow(changes)
            except errors.IteratorClosed:
                return  # stopped
            except errors.ConnectionClosed:
                return
            except errors.JsClientError as error:
                log.info("watching %s goes on: %s", pool.group, error)
                self._over.wait(PATIENCE)

    def _follow(self, changes: Any) -> None:
        while not self._over.is_set() and self._error is None:
            try:
                entry = changes.next(PATIENCE)
            except errors.TimedOut:
                continue
            if entry is not None:
                self._apply(entry)

    def _apply(self, entry: Any) -> None:
        group, before = self._pool.group, self._config
        if not entry.is_put:  # deleted, purged, or expired
            self._error = GroupNotFound(f"group {group.name!r} of stream {group.stream!r} was deleted")
        else:
            try:
                now = Group.decode(entry.value, elastic=group.elastic, revision=entry.revision)
            except errors.ConfigError as error:
                self._error = error
            else:
                if not now.same_shape(before) or (not group.elastic and now != before):
                    self._error = GroupChanged(f"group {group.name!r} of stream {group.stream!r} is another one now")
                self._config = now
        if self._error is not None or self._config is not before:
            self._pool.wake()

    # --- signs of life --------------------------------------------------------------------------------------

    def _live(self) -> None:
        pool = self._pool
        lock = coordination.Lock(pool.records.kv, pool.records.alive(pool.member, pool.instance), ttl=pool.terms.lease)
        self._lease = lock.acquire(pool.terms.lease)

    def _keep(self) -> None:
        """A process that was stopped for longer than its lease is running again."""
        while not self._over.wait(PATIENCE):
            lease = self._lease
            if lease is not None and not lease.valid and not self._over.is_set():
                try:
                    lease.release()
                    self._live()
                except errors.ConnectionClosed:
                    return
                except errors.JsClientError as error:
                    log.info("%s is not known to be alive: %s", self._pool.member, error)

    # --- assigning ------------------------------------------------------------------------------------------

    def _assign(self, lease: Lease) -> None:
        """As long as we lead: spread the partitions over the members that are alive."""
        records = self._pool.records
        while lease.valid and not self._over.is_set():
            try:
                with records.kv.watch(records.alive("*"), meta_only=True, timeout=PATIENCE) as changes:
                    living = {_member(entry) for entry in changes.initial() if entry.is_put}
                    self._lead(lease, changes, living)
            except errors.ConnectionClosed:
                return
            except errors.JsClientError as error:
                log.info("the members of %s are not known: %s", self._pool.group, error)
                self._over.wait(PATIENCE)

    def _lead(self, lease: Lease, changes: Any, living: set[str]) -> None:
        pause, late = max(self._pool.terms.settle / 4, 0.05), self._pool.terms.settle * MOST_SETTLES
        since, first = time.monotonic(), 0.0
        while lease.valid and not self._over.is_set():
            now = time.monotonic()
            wanted = self._wanted(living)
            first = (first or now) if wanted else 0.0
            settle = self._pool.terms.settle if self._config.members else min(self._pool.terms.settle, FIRST_SETTLE)
            if wanted and (now - since >= settle or now - first >= late):
                self._store(wanted)
                first = 0.0
            try:
                entry = changes.next(min(pause, PATIENCE))
            except errors.TimedOut:
                continue
            if entry is not None and entry.is_put != (_member(entry) in living):
                since = time.monotonic()
                living = living | {_member(entry)} if entry.is_put else living - {_member(entry)}

    def _wanted(self, living: set[str]) -> dict[str, list[int]] | None:
        """A new assignment. Returns None if the present one is right, or no member lives."""
        stored = self._pool.group.config()
        current = stored.mappings
        if stored.members and not current:
            raise errors.ConfigError(
                f"group {self._pool.group.name!r} has members by name ({', '.join(stored.members)}): give member=, "
                "or remove them with group.drop"
            )
        wanted = config.balanced(current, living, stored.partitions)
        return None if not wanted or wanted == current else wanted

    def _store(self, wanted: dict[str, list[int]]) -> None:
        try:
            self._pool.group.set_mappings(wanted)
            log.info("%s: %s", self._pool.group, wanted)
        except errors.JsClientError as error:
            log.info("the partitions of %s were not assigned: %s", self._pool.group, error)


def _member(entry: Any) -> str:
    """alive.<stream>.<group>.<member>.<process>"""
    return str(entry.key.split(".")[-2])
