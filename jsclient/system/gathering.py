"""Answers of many servers to one request, and facts about servers that did not answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Generic, Literal, TypeVar

import attrs
import msgspec

from jsclient.errors import BadResponse, TimedOut
from jsclient.first_use import prepared
from jsclient.jetstream.api.model_base import decode_hook
from jsclient.protocol.errors import BAD_JSON

T = TypeVar("T")


@attrs.frozen
class Answer(Generic[T]):
    """The answer of one server: the typed `value`, and `data`, the complete JSON of the endpoint.

    Attributes:
        id: Id of the server.
        name: Its name.
        version: Its version.
        cluster: Its cluster; "" when it has none.
        host: Its host.
        data: The JSON of the endpoint, with the names of the server.
    """

    id: str
    name: str
    version: str
    cluster: str
    host: str
    data: dict[str, Any] = attrs.field(repr=False)
    _kind: Any = attrs.field(default=dict, repr=False, eq=False, alias="kind")

    @property
    def value(self) -> T:
        """The answer, in the type of the endpoint; a dict for `ask`. Raises BadResponse for a malformed answer."""
        try:
            typed: T = msgspec.convert(self.data, prepared(self._kind), dec_hook=decode_hook)
        except msgspec.ValidationError as error:
            raise BadResponse(f"{self.name}: {error}", msgspec.json.encode(self.data)) from None
        return typed


@attrs.frozen
class Refusal:
    """One server's error instead of an answer, such as 404 of HEALTHZ for a stream that it does not know.

    Attributes:
        id: Id of the server.
        name: Its name.
        code: HTTP-like number of the error.
        description: The server's text.
        data: The data that it sent in addition to the error.
    """

    id: str
    name: str
    code: int
    description: str
    data: dict[str, Any] = attrs.field(factory=dict, repr=False)


@attrs.frozen
class Gathered(Sequence[Answer[T]], Generic[T]):
    """A sequence of answers, one per server.

    `errors` has the servers that answered with an error. `missing` has the names of servers that did not answer in
    time. `unknown` is the number of further servers in the cluster whose names did not arrive.

    Attributes:
        answers: The answers, one per server.
        errors: Servers that answered with an error.
        missing: Names of servers that did not answer in time.
        unknown: Number of further servers in the cluster whose names did not arrive.
    """

    answers: tuple[Answer[T], ...]
    errors: tuple[Refusal, ...] = ()
    missing: tuple[str, ...] = ()
    unknown: int = 0

    @property
    def complete(self) -> bool:
        """Every server that the cluster counts has answered, with an answer or an error. False when none did: then
        it is not known how many there are."""
        return bool(self.answers or self.errors) and not self.missing and not self.unknown

    def raise_unless_complete(self) -> Gathered[T]:
        """Return this, or raise TimedOut that names the servers which did not answer."""
        if self.complete:
            return self
        names = ", ".join(self.missing) or "none known by name"
        raise TimedOut(
            f"{len(self.missing) + self.unknown} servers did not answer ({names}); {len(self.answers)} did. "
            "Ask again with a longer timeout, or look at the servers."
        )

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, index: Any) -> Any:
        return self.answers[index]

    def __iter__(self) -> Iterator[Answer[T]]:
        return iter(self.answers)


class _Route(msgspec.Struct):
    name: str | None = None


class _Known(msgspec.Struct):
    """The part of a server's statistics about other servers."""

    active_servers: int = 1
    routes: list[_Route] | None = None


class _Server(msgspec.Struct):
    id: str
    name: str = ""
    ver: str = ""
    cluster: str = ""
    host: str = ""


class _Error(msgspec.Struct):
    code: int = 0
    description: str = ""


class _Envelope(msgspec.Struct):
    """The common fields of all answers. The endpoint's own JSON is in `data` or `statsz`."""

    server: _Server
    data: dict[str, Any] | None = None
    statsz: dict[str, Any] | None = None
    error: _Error | None = None


_decode_envelope: Final = msgspec.json.Decoder(_Envelope).decode
_decode_object: Final = msgspec.json.Decoder(dict[str, Any]).decode


def servers_known_to(statsz: dict[str, Any]) -> int:
    """The minimum number of servers, from the statistics of one of them.

    `active_servers` counts the servers that it has heard of. A server that has just started may count only itself,
    although its routes to the others are up. Raises BadResponse for a malformed answer.
    """
    try:
        known = msgspec.convert(statsz, prepared(_Known))
    except msgspec.ValidationError as error:
        raise BadResponse(f"not the figures of a server: {error}", str(statsz)[:512].encode()) from None
    return max(known.active_servers, 1 + len({route.name for route in known.routes or ()} - {None, ""}))


def sort_answer(payload: bytes, kind: Any = dict, key: Literal["data", "statsz"] = "data") -> Answer[Any] | Refusal:
    """An envelope as an Answer, or as the error that it carries. Raises BadResponse for a malformed answer."""
    try:
        envelope = _decode_envelope(payload)
    except BAD_JSON as error:
        raise BadResponse(f"not an answer of a server: {error}", payload) from None
    server, refusal = envelope.server, envelope.error
    data: dict[str, Any] = getattr(envelope, key) or {}
    if refusal is not None:
        return Refusal(server.id, server.name, refusal.code, refusal.description, data)
    return Answer(
        id=server.id,
        name=server.name,
        version=server.ver,
        cluster=server.cluster,
        host=server.host,
        data=data,
        kind=kind,
    )


def decode_event(payload: bytes) -> dict[str, Any]:
    """Raises BadResponse for a malformed event."""
    try:
        return _decode_object(payload)
    except BAD_JSON as error:
        raise BadResponse(f"not an event of a server: {error}", payload) from None
