"""Asking which services are there. The number of answers is unknown, so a gap between answers ends it."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec

from jsclient import kinds
from jsclient.connection import Connection
from jsclient.durations import DEFAULT, Timeout, plain, resolve
from jsclient.errors import NoResponders
from jsclient.first_use import prepared
from jsclient.protocol.errors import BAD_JSON
from jsclient.services.models import ServiceInfo, ServicePing, ServiceStats, control_subject

DISCOVERY_TIMEOUT: Final = 2.0  # seconds for the first answer
STALL: Final = 0.3  # seconds without a further answer that end the list (ADR-47 suggests a tenth of the timeout)

T = TypeVar("T", bound=ServicePing)

log: logging.Logger = logging.getLogger("jsclient.services")


def ping(
    nc: Connection, name: str = "", id: str = "", *, timeout: Timeout = DEFAULT, stall: float | dt.timedelta = STALL
) -> Iterator[ServicePing]:
    """The running instances, lazily, as they answer. Without an instance the iterator is empty.

    `name` limits it to the instances of one service, `id` to one of them (by default all). It ends after `timeout`
    seconds in all, or `stall` seconds (0.3) after the last answer.
    """
    return _ask(nc, "PING", ServicePing, name, id, timeout, stall)


def info(
    nc: Connection, name: str = "", id: str = "", *, timeout: Timeout = DEFAULT, stall: float | dt.timedelta = STALL
) -> Iterator[ServiceInfo]:
    """Information about the instances and the subjects of their endpoints.

    The options are the same as for `ping`.
    """
    return _ask(nc, "INFO", ServiceInfo, name, id, timeout, stall)


def stats(
    nc: Connection, name: str = "", id: str = "", *, timeout: Timeout = DEFAULT, stall: float | dt.timedelta = STALL
) -> Iterator[ServiceStats]:
    """The counters of their endpoints.

    The options are the same as for `ping`.
    """
    return _ask(nc, "STATS", ServiceStats, name, id, timeout, stall)


def _ask(
    nc: Connection, verb: str, kind: type[T], name: str, id: str, timeout: Timeout, stall: float | dt.timedelta
) -> Iterator[T]:
    kinds.check(Connection, nc=nc)
    kinds.check(str, name=name, id=id)
    kinds.check(float, dt.timedelta, stall=stall)
    subject = control_subject(verb, name, id)
    return _answers(nc, subject, kind, resolve(timeout, DISCOVERY_TIMEOUT), plain(stall), only_one=bool(id))


def _answers(
    nc: Connection, subject: str, kind: type[T], timeout: float | None, stall: float, only_one: bool
) -> Iterator[T]:
    """The answers of services. Strangers can answer, too: the client logs anything else and leaves it out."""
    try:
        for message in nc.request_many(subject, timeout=timeout, stall=stall):
            try:
                found = msgspec.json.decode(message.data, type=prepared(kind))
            except BAD_JSON as error:
                log.warning("not an answer of a service on %s: %s", subject, error)
                continue
            yield found
            if only_one:
                return
    except NoResponders:
        return
