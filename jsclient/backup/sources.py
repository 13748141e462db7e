"""Positions of the sources of a stream at its backup. A restored stream continues there.

Otherwise server 2.15 copies the complete origin a second time: it stores the position under an identity of the origin
that a restore changes. Any server does this for a work queue that was empty.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from jsclient import errors
from jsclient.backup.files import Backup
from jsclient.durations import Deadline, Timeout
from jsclient.jetstream import JetStream, StreamInfo
from jsclient.jetstream.api.headers import STREAM_SOURCE, readable

log: logging.Logger = logging.getLogger("jsclient.backup")


def positions(js: JetStream, info: StreamInfo, timeout: Timeout) -> dict[str, int]:
    """The sequence up to which each source had certainly been copied when this was called.

    Server 2.15 knows it. For an older one, the origin is queried first. If the copy has no lag afterwards, it has
    everything that the origin had at that moment.
    """
    ends: dict[str, int] = {}
    for source in info.config.sources or ():
        if source.external:
            continue
        try:
            ends[source.name] = js.stream(source.name, fetch_info=False).info(timeout=timeout).state.last_seq
        except errors.ApiError:
            continue  # it is gone, or we have no permission
    if not ends:
        return {}
    told = js.stream(info.config.name or "", fetch_info=False).info(timeout=timeout).sources or ()
    found = {one.name: one.seq or ends.get(one.name, 0) for one in told if one.seq or not (one.lag or one.error)}
    return {name: seq for name, seq in found.items() if name in ends}


def follow(js: JetStream, stream: str, found: dict[str, int], first: int, last: int, deadline: Deadline) -> None:
    """Move the positions on by the messages from `first` to `last`, copied between the question and the backup."""
    reader = js.stream(stream, fetch_info=False)
    for seq in range(first, last + 1) if found else ():
        try:
            message = reader.get_msg(seq, direct=False, timeout=deadline.at_most(js.api.timeout or 5.0))
        except (errors.ApiError, errors.PermissionViolation):
            continue  # it is gone, or we have no permission
        fields = (readable(message).get(STREAM_SOURCE) or "").split(" ")
        if fields[0] in found and len(fields) > 1 and fields[1].isdigit():
            found[fields[0]] = max(found[fields[0]], int(fields[1]))


def continued(backup: Backup, sources: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The sources of the configuration, each from the message after the last one that the backup holds."""
    found = {} if backup.manifest is None else backup.manifest.sources
    started = []
    for source in map(dict, sources):
        if source["name"] in found:
            source.pop("opt_start_time", None)
            source["opt_start_seq"] = found[source["name"]] + 1
        elif backup.format() == "archive":
            log.warning("%s has no position of source %r: the server copies it again", backup.folder, source["name"])
        started.append(source)
    return started
