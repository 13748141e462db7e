"""Leaders and replicas of streams and consumers: ask for a change, then look until it is done."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from jsclient import kinds
from jsclient.durations import Deadline
from jsclient.errors import ApiError, ConfigError, ConnectionLost, NoResponders, NotClustered, PeerNotFound, TimedOut
from jsclient.jetstream.api.capabilities import OPERATIONS
from jsclient.jetstream.api.models import ConsumerInfo, StreamInfo, Success
from jsclient.jetstream.api.models_cluster import ClusterInfo

if TYPE_CHECKING:
    from jsclient.jetstream.api.access import Access

Info = TypeVar("Info", StreamInfo, ConsumerInfo)

LOOK_AGAIN: Final = 0.1
"""Seconds between two looks; an election takes about as long."""


def step_down(
    js: Access, of: str, what: str, look: Callable[[Deadline], Info], to: str | None, deadline: Deadline
) -> Info:
    """Ask the leader to stop leading. `of` is "STREAM.name" or "CONSUMER.stream.name"; `look` reads the info."""
    kinds.check(str, None, to=to)
    before = _cluster(look(deadline), what)
    if not before.replicas:
        raise ConfigError(f"{what} has one replica, so no other server can lead it")
    if to is not None:
        js.capabilities.require("step_down(to=)", OPERATIONS["step_down(to=)"], deadline)
        if to not in _members(before):
            raise PeerNotFound(400, 10040, f"{to!r} does not hold {what}: {', '.join(_members(before))} do")
        if to == before.leader:
            return look(deadline)
    kind, _, name = of.partition(".")
    body = None if to is None else {"placement": {"preferred": to}}
    js.api.request(f"{kind}.LEADER.STEPDOWN.{name}", body, Success, timeout=deadline)

    def done(now: ClusterInfo) -> bool:
        if to is not None:
            return now.leader == to
        return bool(now.leader) and (now.leader, now.leader_since) != (before.leader, before.leader_since)

    return _until(done, look, deadline, f"{what} is still without a new leader. The server agreed to a change")


def remove_peer(
    js: Access, stream: str, peer: str, look: Callable[[Deadline], StreamInfo], deadline: Deadline
) -> StreamInfo:
    """Remove a server from the servers that hold the stream."""
    what = f"stream {stream!r}"
    before = _cluster(look(deadline), what)
    if not before.replicas:
        raise ConfigError(f"{what} has one replica, and its messages would go with it")
    if peer not in _members(before):
        raise PeerNotFound(400, 10040, f"{peer!r} does not hold {what}: {', '.join(_members(before))} do")
    js.api.request(f"STREAM.PEER.REMOVE.{stream}", {"peer": peer}, Success, timeout=deadline)

    def done(now: ClusterInfo) -> bool:
        return bool(now.leader) and peer not in _members(now) and now.desired is None

    return _until(done, look, deadline, f"{peer!r} still belongs to {what}. The server agreed to remove it")


def _cluster(info: StreamInfo | ConsumerInfo, what: str) -> ClusterInfo:
    if info.cluster is None:
        raise NotClustered(503, 10010, f"{what} is on a server without a cluster")
    return info.cluster


def _members(cluster: ClusterInfo) -> list[str]:
    return [cluster.leader, *(replica.name for replica in cluster.replicas or ())]


def _until(
    done: Callable[[ClusterInfo], bool], look: Callable[[Deadline], Info], deadline: Deadline, text: str
) -> Info:
    """Look until it is done. During an election the servers may stay silent."""
    while not deadline.expired():
        try:
            info = look(Deadline(deadline.at_most(1.0)))
        except (ConnectionLost, NoResponders, TimedOut):
            pass
        except ApiError as error:
            if error.code != 503:
                raise
        else:
            if info.cluster is not None and done(info.cluster):
                return info
        time.sleep(deadline.at_most(LOOK_AGAIN))
    raise TimedOut(f"{text}; whether it follows is not known. Look at info().cluster.")
