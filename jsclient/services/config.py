"""The configuration of a service, and the rules for its names and subjects (ADR-32)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from jsclient import codecs, kinds
from jsclient.codecs import Codec
from jsclient.errors import ConfigError, InvalidName

if TYPE_CHECKING:
    from jsclient.services.endpoint import Endpoint
    from jsclient.services.service import Service


StatsHandler = Callable[["Endpoint"], Any]

NAME = re.compile(r"[A-Za-z0-9\-_]+")
SUBJECT = re.compile(r"[^\s>]+(?:\.>)?|>")
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?"
)


@attrs.frozen(kw_only=True)
class ServiceConfig:
    """The configuration of a service. `queue_group` None means "q". "" means none: every instance gets every request.

    `stats_handler(endpoint)` returns the value that STATS shows as `data` of an endpoint (any JSON value). If it fails,
    STATS is sent without this data. `on_stop(service)` is called once when the service has stopped, also when the
    connection has closed. `service.error` has the reason, unless the application has closed it.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        name: Name of the service: letters, digits, `-` and `_`.
        version: A semantic version, for example 1.0.0.
        description: Text for people.
        metadata: Keys and values for people and tools.
        queue_group: None means "q"; "" means none: every instance gets every request.
        stats_handler: `(endpoint)` -> the data that STATS shows for it.
        on_error: `(endpoint, error)`, called in the thread of the endpoint. It gets exceptions of handlers, answers
            that could not be sent, and errors that end an endpoint. Without it these are logged.
        on_stop: `(service)`, called once when the service has stopped.
        codec: The codec with which endpoints with `decode=` read requests and write answers.
    """

    name: str = attrs.field(validator=kinds.field(str))
    version: str = attrs.field(validator=kinds.field(str))
    description: str = attrs.field(default="", validator=kinds.field(str))
    metadata: Mapping[str, str] = attrs.field(factory=dict, validator=kinds.field(kinds.TEXT_MAP))
    queue_group: str | None = attrs.field(default=None, validator=kinds.field(str, None))
    stats_handler: StatsHandler | None = attrs.field(default=None, validator=kinds.field(Callable, None))
    on_error: Callable[[Endpoint, BaseException], object] | None = attrs.field(
        default=None, validator=kinds.field(Callable, None)
    )
    on_stop: Callable[[Service], object] | None = attrs.field(default=None, validator=kinds.field(Callable, None))
    codec: Codec = codecs.JSON

    def __attrs_post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise InvalidName(f"service name {self.name!r} must be letters, digits, '-' and '_' only, and not empty")
        if not _SEMVER.fullmatch(self.version):
            raise ConfigError(f"version {self.version!r} of service {self.name} is not a semantic version like 1.2.3")
        check_queue_group(self.queue_group)
        codecs.check(self.codec)


def check_queue_group(group: str | None) -> None:
    if group and not SUBJECT.fullmatch(group):
        raise InvalidName(f"queue group {group!r} must have no spaces, and '>' at its end only")
