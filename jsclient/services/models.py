"""The answers of a service to PING, INFO and STATS: the JSON of ADR-32, and the subjects of these verbs.

Processing times are integer nanoseconds here, because that is what the JSON carries and tools expect.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from jsclient import checks, kinds
from jsclient.errors import InvalidName

API_PREFIX: Final = "$SRV"
DEFAULT_QUEUE_GROUP: Final = "q"
PING_TYPE: Final = "io.nats.micro.v1.ping_response"
INFO_TYPE: Final = "io.nats.micro.v1.info_response"
STATS_TYPE: Final = "io.nats.micro.v1.stats_response"
VERBS: Final = ("PING", "INFO", "STATS")
ERROR_HEADER: Final = "Nats-Service-Error"
ERROR_CODE_HEADER: Final = "Nats-Service-Error-Code"


class ServicePing(msgspec.Struct, kw_only=True):
    """One instance of a service. All instances have the same `name`; `id` identifies this one.

    Attributes:
        name: Name of the service, the same for all its instances.
        id: Id of this instance.
        version: Version of the service.
        metadata: Texts of the service: name to value.
        type: The kind of this answer, in the words of the protocol.
    """

    name: str
    id: str
    version: str
    metadata: dict[str, str] | None = None
    type: str = PING_TYPE


class EndpointInfo(msgspec.Struct, kw_only=True):
    """An endpoint and its subject. `queue_group` is empty if every instance gets every request.

    Attributes:
        name: Name of the endpoint.
        subject: The subject on which it listens.
        queue_group: The queue group that shares its requests; "" means that every instance gets all.
        metadata: Texts of the endpoint: name to value.
    """

    name: str
    subject: str
    queue_group: str = ""
    metadata: dict[str, str] | None = None


class ServiceInfo(ServicePing, kw_only=True):
    """Information about a service and its endpoints.

    Attributes:
        description: Text for people.
        endpoints: The endpoints that it serves.
        type: The kind of this answer, in the words of the protocol.

    It also has the fields of `ServicePing`.
    """

    description: str = ""
    endpoints: list[EndpointInfo] = []
    type: str = INFO_TYPE


class EndpointStats(msgspec.Struct, kw_only=True):
    """Counters of one endpoint since the start or the last reset; times in nanoseconds.

    Attributes:
        name: Name of the endpoint.
        subject: The subject on which it listens.
        queue_group: The queue group that shares its requests.
        num_requests: Requests that were handled.
        num_errors: Of these, requests that ended with an error.
        last_error: The newest error, as text.
        processing_time: Nanoseconds in the handler, in all.
        average_processing_time: Nanoseconds in the handler, per request.
        data: The data that the service's `stats_handler` adds.
    """

    name: str
    subject: str
    queue_group: str = ""
    num_requests: int = 0
    num_errors: int = 0
    last_error: str = ""
    processing_time: int = 0
    average_processing_time: int = 0
    data: Any = None


class ServiceStats(ServicePing, kw_only=True):
    """Counters of all endpoints. `started` is RFC 3339 in UTC.

    Attributes:
        started: When the instance was started, RFC 3339 in UTC.
        endpoints: The counters of each endpoint.
        type: The kind of this answer, in the words of the protocol.

    It also has the fields of `ServicePing`.
    """

    started: str = ""
    endpoints: list[EndpointStats] = []
    type: str = STATS_TYPE


def control_subject(verb: str, name: str = "", id: str = "") -> str:
    """The request subject of all services, of one service, or of one instance.

    `name` selects one service, and `id` one instance of it. By default the subject reaches all services.
    """
    kinds.check(str, name=name, id=id)
    if verb not in VERBS:
        raise InvalidName(f"unknown verb {verb!r}: services answer to {', '.join(VERBS)}")
    if id and not name:
        raise InvalidName("an instance is asked by name and id; the name is missing")
    for part in (name, id):  # often taken from the answer of another service
        if part:
            checks.name(part, "service name or id")
    return ".".join(part for part in (API_PREFIX, verb, name, id) if part)
