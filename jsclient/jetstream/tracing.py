"""Message trace (server 2.11): the servers that a message passes report its path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jsclient import checks, kinds
from jsclient.connection import Connection, engine_of
from jsclient.durations import Deadline, Timeout, resolve
from jsclient.errors import NotSupported, TimedOut
from jsclient.jetstream.api import headers as header_names
from jsclient.jetstream.api import model_base
from jsclient.jetstream.api.model_base import Timestamp, Wire
from jsclient.message import HeadersLike, Payload
from jsclient.protocol import Headers

TRACE_TIMEOUT: Final = 2.0


class TraceEvent(Wire, kw_only=True, frozen=True):
    """An action of one server on the message.

    `type`: "in" arrived, "eg" left to a client, route, leaf or gateway, "js" stored, "sm" subject mapping,
    "se"/"si" service export and import. `error` says why it went no further.
    """

    type: str = ""
    ts: Timestamp | None = None
    subj: str = ""
    kind: int = 0
    cid: int = 0
    name: str = ""
    acc: str = ""
    to: str = ""
    sub: str = ""
    queue: str = ""
    hop: str = ""
    stream: str = ""
    subject: str = ""
    nointerest: bool = False
    error: str = ""


class TraceServer(Wire, kw_only=True, frozen=True):
    name: str = ""
    id: str = ""
    host: str = ""
    ver: str = ""
    cluster: str = ""
    domain: str = ""


class TraceRequest(Wire, kw_only=True, frozen=True):
    """The message as a server received it: its headers, and its size in bytes with them."""

    header: dict[str, list[str]] | None = None
    msgsize: int = 0


class Trace(Wire, kw_only=True, frozen=True):
    """The report of one server; `hops` is the number of servers to which it passed the message on."""

    server: TraceServer = TraceServer()
    request: TraceRequest = TraceRequest()
    hops: int = 0
    events: list[TraceEvent] | None = None

    @property
    def stored_in(self) -> list[str]:
        """The streams of this server that take the message."""
        return [event.stream for event in self.events or () if event.type == "js" and not event.error]


def trace(
    nc: Connection,
    subject: str,
    payload: Payload = b"",
    *,
    headers: HeadersLike | None = None,
    deliver: bool = False,
    timeout: Timeout = TRACE_TIMEOUT,
) -> list[Trace]:
    """Publish a message and return the report of each server, the first server first (server 2.11).

    Without `deliver` the servers only trace the message: no subscriber gets it and no stream stores it. Returns when
    every server has answered. If only some answer in time, it returns their reports; if none does, it raises TimedOut.

    Options:
        payload: The body, as in `Connection.publish`; by default empty. Raises PayloadTooLarge.
        headers: Headers, or a mapping of names to one value or several. Raises InvalidHeader.
        timeout: Seconds for the whole call, by default 5. None waits indefinitely.
    """
    kinds.check(Connection, nc=nc)
    kinds.check(str, bytes, bytearray, memoryview, payload=payload)
    kinds.check(bool, deliver=deliver)
    if not nc.server_info.at_least(2, 11):
        raise NotSupported(f"message trace needs nats-server 2.11 or later; this one is {nc.server_info.version}")
    checks.subject(subject)
    if headers is not None:
        checks.header_block(headers)
    out = _copy(headers)
    seconds = resolve(timeout, TRACE_TIMEOUT)
    deadline = Deadline(seconds)
    reports: list[Trace] = []
    with engine_of(nc).sends_within(deadline), nc.subscribe(nc.new_inbox()) as answers:
        out[header_names.TRACE_DEST] = answers.subject
        if not deliver:
            out[header_names.TRACE_ONLY] = "true"
        nc.publish(subject, payload, headers=out)
        while len(reports) < 1 + sum(report.hops for report in reports):
            try:
                reports.append(model_base.decode(answers.next(deadline.remaining()).data, Trace))
            except TimedOut:
                if not reports:
                    raise TimedOut(
                        f"no server traced the message to {subject!r} within {seconds:g} s. It may have been "
                        "delivered. Check that the servers allow traces."
                    ) from None
                break
    return reports


def _copy(headers: Any) -> Headers:
    if isinstance(headers, Headers):
        return Headers(headers)
    pairs: Mapping[str, Any] = headers or {}
    return Headers(pairs)
