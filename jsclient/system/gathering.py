"""Answers of many servers to one question, and what is known about those that did not answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import msgspec

from jsclient.errors import BadResponse, TimedOut
from protocol.errors import BAD_JSON


@attrs.frozen
class Answer:
    """What one server said. `data` is the JSON of the endpoint, as dicts and lists with the names of the server."""

    id: str
    """Id of the server."""
    name: str
    """Its name."""
    version: str
    """Its version."""
    cluster: str
    """Its cluster; "" when it has none."""
    host: str
    """Its host."""
    data: dict[str, Any] = attrs.field(repr=False)
    """The JSON of the endpoint, with the names of the server."""


@attrs.frozen
class Refusal:
    """One server's error instead of an answer, such as 404 of HEALTHZ for a stream that it does not know."""

    id: str
    """Id of the server."""
    name: str
    """Its name."""
    code: int
    """HTTP-like number of the error."""
    description: str
    """The server's text."""
    data: dict[str, Any] = attrs.field(factory=dict, repr=False)
    """What it sent beside the error."""


@attrs.frozen
class Gathered(Sequence[Answer]):
    """A sequence of answers, one per server.

    `errors`: servers that refused. `missing`: names of servers that are known and said nothing in time.
    `unknown`: how many more servers the cluster counts, of which not even the name is known.
    """

    answers: tuple[Answer, ...]
    """What came, one per server."""
    errors: tuple[Refusal, ...] = ()
    """Servers that refused."""
    missing: tuple[str, ...] = ()
    """Names of servers that are known and said nothing in time."""
    unknown: int = 0
    """Further servers that the cluster counts, of which not even the name is known."""

    @property
    def complete(self) -> bool:
        """Every server that the cluster counts has answered, with an answer or an error. False when none did: then
        it is not known how many there are."""
        return bool(self.answers or self.errors) and not self.missing and not self.unknown

    def raise_unless_complete(self) -> Gathered:
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

    def __iter__(self) -> Iterator[Answer]:
        return iter(self.answers)


def decode(payload: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """(server, whole envelope) of one answer; raises BadResponse for what no server sends."""
    try:
        envelope = msgspec.json.decode(payload)
        server = envelope["server"]
        if not isinstance(server["id"], str):
            raise TypeError("the server's id is not text")
    except (*BAD_JSON, KeyError, TypeError) as error:
        raise BadResponse(f"not an answer of a server: {error}", payload) from None
    return server, envelope


def sort_answer(payload: bytes, key: str = "data") -> Answer | Refusal:
    """An envelope as an Answer, or as the error that it carries."""
    server, envelope = decode(payload)
    data = envelope.get(key) or {}
    error = envelope.get("error")
    name = str(server.get("name", ""))
    if error:
        return Refusal(server["id"], name, int(error.get("code", 0)), str(error.get("description", "")), data)
    return Answer(
        id=server["id"],
        name=name,
        version=str(server.get("ver", "")),
        cluster=str(server.get("cluster", "")),
        host=str(server.get("host", "")),
        data=data,
    )
