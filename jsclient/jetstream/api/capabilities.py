"""What the server can do, so that nothing it would ignore in silence is sent to it.

A server drops configuration fields that it does not know: a consumer with `filter_subjects` on a 2.9 server
delivers everything. Two nets: what needs a newer server is refused before sending, as far as the level is known;
and the configuration that comes back is compared with the one that was sent.
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
"""API level by release; levels are counted since 2.11, 0 is any server before."""

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
"""Seconds after which a level that nobody told is asked for again."""

# These values mean the same as not setting the field; a server that does not know the field does just that.
_NEUTRAL: Final[tuple[Any, ...]] = (None, False, 0, "", [], {}, "none", "default")


class Capabilities:
    """The level of the JetStream side behind an Api; asked once for each server the connection has been on.

    Thread-safe: two threads may ask at the same time, which costs one request too many.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: tuple[object, int | None] = (None, None)
        self._failed_at = float("inf")

    def level(self, timeout: Timeout = DEFAULT) -> int | None:
        """The API level; None when the account must not ask, or nobody answers."""
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
        """The level for headers of published messages; where it cannot be asked, that of the connected server."""
        level = self.level(timeout)
        return self._api.nc.server_info.api_lvl if level is None else level

    def forget(self) -> None:
        """Ask again at the next need, for example after an upgrade behind a leaf node."""
        self._known = (None, None)

    def at_least(self, version: Version, timeout: Timeout = DEFAULT) -> bool | None:
        """Whether the JetStream side is that release or later; None when it cannot be known."""
        # Levels begin with 2.11. Before, the release of the server at the other end of the connection has to do,
        # which says nothing about a stream behind a domain or an import.
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
        """Raise NotSupported when it is known that the server is older."""
        if self.at_least(version, timeout) is False:
            raise self.not_supported(what, version)

    def not_supported(self, what: str, version: Version) -> NotSupported:
        return NotSupported(
            f"{what} needs nats-server {version[0]}.{version[1]} or later; the connected one is "
            f"{self._api.nc.server_info.version or 'unknown'} (API level {self._known[1]}) and would ignore it"
        )

    # --- configurations -------------------------------------------------------------------------------------

    def check_config(self, config: StreamConfig | ConsumerConfig, timeout: Timeout = DEFAULT) -> None:
        """Before sending: refuse fields that the server is known not to know."""
        for name, version in needed(config):
            self.require(f"{type(config).__name__}.{name}", version, timeout)

    def check_echo(self, sent: StreamConfig | ConsumerConfig, echo: Any, done: str) -> None:
        """After the answer: refuse to go on when fields that were sent are missing in what the server keeps."""
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
    """Whether the server that we are connected to is so new; a build without a number is newer than any."""
    version = connection.server_info.version_tuple
    return version == (0, 0, 0) or version >= release
