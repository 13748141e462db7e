"""Server addresses that travel to the executors without showing their passwords."""

from __future__ import annotations

from typing import Any

from jsclient.auth.secret import Secret
from jsclient.urls import masked


class ServerUrl(Secret):
    """A server address that may contain `user:password@`, `token@` or a query; its repr leaves them out."""

    __slots__ = ()

    def __repr__(self) -> str:
        return masked(self.reveal())

    def __str__(self) -> str:
        return repr(self)

    def __format__(self, spec: str) -> str:
        return str(self)

    def secrets(self) -> list[str]:
        """The secret parts of the address."""
        rest = self.reveal().rpartition("://")[2]
        user, at, _ = rest.rpartition("@")
        query = rest.partition("?")[2]
        return [part for part in [(user.partition(":")[2] or user) if at else "", query] if part]

    def __reduce__(self) -> tuple[Any, ...]:
        return (ServerUrl, (self.reveal(),))
