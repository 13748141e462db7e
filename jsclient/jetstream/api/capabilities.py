"""The abilities of the server. The client sends nothing that the server would silently ignore.

A server drops configuration fields that it does not know. For example, a consumer with `filter_subjects` on a 2.9
server delivers everything. Two checks prevent this. The client refuses settings that need a newer server before
sending, as far as it knows the level. And it compares the configuration that comes back with the one that it sent.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from jsclient.durations import DEFAULT, Timeout
from jsclient.errors import ApiError, JetStreamUnavailable, NotSupported, PermissionViolation, RequestTimeout
from jsclient.jetstream.api.model_base import unknown_names
from jsclient.jetstream.api.models import AccountInfo, ConsumerConfig, StreamConfig
from jsclient.protocol import parse_version

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.jetstream.api.requests import Api

Version = tuple[int, int]

LEVELS: Final[dict[Version, int]] = {(2, 11): 1, (2, 12): 2, (2, 14): 4, (2, 15): 5}
"""API level by release. Levels begin with 2.11; 0 is any server before."""

STREAM_FIELDS: Final[dict[str, Version]] = {
    "compression": (2, 10),
    "first_seq": (2, 10),
    "subject_transform": (2, 10),
    "consumer_limits": (2, 10),
    "metadata": (2, 10),
    "allow_msg_ttl": (2, 11),
    "subject_delete_marker_ttl": (2, 11),
    "allow_atomic": (2, 12),
    "allow_msg_counter": (2, 12),
    "allow_msg_schedules": (2, 12),
    "persist_mode": (2, 12),
    "allow_batched": (2, 14),
}
CONSUMER_FIELDS: Final[dict[str, Version]] = {
    "filter_subjects": (2, 10),
    "metadata": (2, 10),
    "pause_until": (2, 11),
    "priority_groups": (2, 11),
    "priority_policy": (2, 11),
    "priority_timeout": (2, 11),
    "sourcing": (2, 14),
}
CONSUMER_VALUES: Final[dict[tuple[str, str], Version]] = {
    ("ack_policy", "flow_control"): (2, 14),
    ("priority_policy", "prioritized"): (2, 12),
}
PLACEMENT_FIELDS: Final[dict[str, Version]] = {"preferred": (2, 11)}
SOURCE_FIELDS: Final[dict[str, Version]] = {"subject_transforms": (2, 10), "consumer": (2, 14)}

OPERATIONS: Final[dict[str, Version]] = {
    "pause_consumer": (2, 11),
    "resume_consumer": (2, 11),
    "unpin_consumer": (2, 11),
    "reset_consumer": (2, 14),
    "step_down(to=)": (2, 11),
    "batch get": (2, 11),
    "no_hdr": (2, 12),
    "pedantic": (2, 11),
}
"""Operations that an older server ignores or does not answer at all."""

ASK_AGAIN: Final = 10.0
"""Seconds after which the client asks again for a level that it did not learn."""

# These values mean the same as an unset field, and a server that does not know the field treats it as unset.
_NEUTRAL: Final[tuple[Any, ...]] = (None, False, 0, "", [], {}, "none", "default")


class Capabilities:
    """The level of the JetStream side behind an Api. The client asks once for each server of the connection.

    Thread-safe. Two threads can ask at the same time, which costs one additional request.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: tuple[object, int | None] = (None, None)
        self._failed_at = float("inf")

    def level(self, timeout: Timeout = DEFAULT) -> int | None:
        """The API level; None if the account has no permission to ask, or no server answers."""
        info = self._api.nc.server_info
        here = (info.server_id, info.client_id)
        asked, level = self._known
        if asked != here or (level is None and time.monotonic() >= self._failed_at + ASK_AGAIN):
            level = self._probe(timeout)
            self._known = (here, level)
        return level

    def _probe(self, timeout: Timeout) -> int | None:
        self._failed_at = float("inf")
        try:
            return self._api.request("INFO", None, AccountInfo, timeout=timeout, read=True).api.level
        except (ApiError, JetStreamUnavailable, RequestTimeout):
            self._failed_at = time.monotonic()  # the server starts, or has no leader at the moment
        except PermissionViolation:
            pass
        return None

    def publish_level(self, timeout: Timeout = DEFAULT) -> int:
        """The level for headers of published messages. If it is not available, the level of the connected server."""
        level = self.level(timeout)
        return self._api.nc.server_info.api_lvl if level is None else level

    def forget(self) -> None:
        """Ask again at the next need, for example after an upgrade behind a leaf node."""
        self._known = (None, None)

    def at_least(self, version: Version, timeout: Timeout = DEFAULT) -> bool | None:
        """True if the JetStream side is that release or later; None if the client cannot find out."""
        # Levels begin with 2.11. Before, the client uses the release of the server at the other end of the connection,
        # which means nothing for a stream behind a domain or an import.
        server = self._api.nc.server_info
        if version < (2, 11) and self._api.prefix == "$JS.API." and server.jetstream:
            return parse_version(server.version)[:2] >= version
        level = self.level(timeout)
        if level is None:
            return None
        if version >= (2, 11):
            return level >= LEVELS[version]
        return True if level >= 1 else None

    def require(self, what: str, version: Version, timeout: Timeout = DEFAULT) -> None:
        """Raise NotSupported if the server is certainly older."""
        if self.at_least(version, timeout) is False:
            raise self.not_supported(what, version)

    def not_supported(self, what: str, version: Version) -> NotSupported:
        return NotSupported(
            f"{what} needs nats-server {version[0]}.{version[1]} or later; the connected one is "
            f"{self._api.nc.server_info.version or 'unknown'} (API level {self._known[1]}) and would ignore it"
        )

    # --- configurations -------------------------------------------------------------------------------------

    def check_config(self, config: StreamConfig | ConsumerConfig, timeout: Timeout = DEFAULT) -> None:
        """Before sending: refuse fields that the server certainly does not have."""
        for name, version in needed(config):
            self.require(f"{type(config).__name__}.{name}", version, timeout)

    def check_echo(self, sent: StreamConfig | ConsumerConfig, echo: Any, done: str) -> None:
        """After the answer: raise NotSupported if the server did not keep fields that were sent."""
        unknown = sorted(set(unknown_names(sent)) - set(unknown_names(echo)))
        if unknown:
            raise NotSupported(
                f"the server ignored {', '.join(unknown)}, which came from a newer one. The {done} without, and is "
                "still there. Use a newer server, or a configuration without them (`extra=None`)."
            )
        kept = {name for name, _ in needed(echo)}
        lost = [(name, version) for name, version in needed(sent) if name not in kept and name != "pause_until"]
        if not lost:
            return
        listed = ", ".join(f"{name} (needs nats-server {v[0]}.{v[1]})" for name, v in lost)
        raise NotSupported(
            f"the server ignored {listed}. The {done} without, and is still there. "
            "Use a newer server, or leave them out."
        )


def needed(config: StreamConfig | ConsumerConfig) -> Iterator[tuple[str, Version]]:
    """The fields of a configuration that are set and do not exist on all supported servers, with their release."""
    if isinstance(config, ConsumerConfig):
        yield from _set(config, CONSUMER_FIELDS, "")
        for (name, value), version in CONSUMER_VALUES.items():
            if getattr(config, name) == value:
                yield f"{name}={value!r}", version
        return
    yield from _set(config, STREAM_FIELDS, "")
    if config.placement is not None:
        yield from _set(config.placement, PLACEMENT_FIELDS, "placement.")
    if config.mirror is not None:
        yield from _set(config.mirror, SOURCE_FIELDS, "mirror.")
    for number, source in enumerate(config.sources or ()):
        yield from _set(source, SOURCE_FIELDS, f"sources[{number}].")


def _set(config: Any, fields: dict[str, Version], prefix: str) -> Iterator[tuple[str, Version]]:
    for name, version in fields.items():
        if getattr(config, name) not in _NEUTRAL:
            yield prefix + name, version


def server_at_least(connection: Connection, release: tuple[int, int, int]) -> bool:
    """True if the connected server has this release or a later one; a build without a number is newer than any."""
    version = connection.server_info.version_tuple
    return version == (0, 0, 0) or version >= release
