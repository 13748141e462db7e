"""Services after ADR-32 ("micro"): endpoints with statistics that every NATS tool can discover.

from jsclient import services

config = services.ServiceConfig(name="adder", version="1.0.0", description="adds numbers")
with services.add_service(nc, config) as service:
    service.add_endpoint("add", handler, workers=4)
    math = service.add_group("math")                       # subjects below "math."
    math.add_endpoint("multiply", multiply)
    service.wait()                                         # until stop() or the connection closes

for found in services.info(nc):                            # which instances are there?
    print(found.name, found.id, [e.subject for e in found.endpoints])
"""

from __future__ import annotations

from jsclient.services.calling import call
from jsclient.services.discovery import info, ping, stats
from jsclient.services.endpoint import Endpoint, EndpointDict
from jsclient.services.models import (
    DEFAULT_QUEUE_GROUP,
    EndpointInfo,
    EndpointStats,
    ServiceInfo,
    ServicePing,
    ServiceStats,
    control_subject,
)
from jsclient.services.request import Request, TypedRequest, check_response
from jsclient.services.service import Group, Service, ServiceConfig, add_service

__all__ = [
    "DEFAULT_QUEUE_GROUP",
    "Endpoint",
    "EndpointDict",
    "EndpointInfo",
    "EndpointStats",
    "Group",
    "Request",
    "Service",
    "ServiceConfig",
    "ServiceInfo",
    "ServicePing",
    "ServiceStats",
    "TypedRequest",
    "add_service",
    "call",
    "check_response",
    "control_subject",
    "info",
    "ping",
    "stats",
]
