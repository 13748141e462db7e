"""Server addresses that travel to the executors without showing their passwords."""

from __future__ import annotations

from typing import Any, Final

from jsclient.secret import Secret

HIDDEN: Final = "***"


class ServerUrl(Secret):
    """A server address that may carry `user:password@` or `token@`; it is shown without them."""

    __slots__ = ()

    def __repr__(self) -> str:
        scheme, mark, rest = self.reveal().rpartition("://")
        _user, at, host = rest.rpartition("@")
        return f"{scheme}{mark}{HIDDEN}@{host}" if at else self.reveal()

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return str(self)

    def secrets(self) -> list[str]:
        """The parts that must not be shown."""
        user, at, _ = self.reveal().rpartition("://")[2].rpartition("@")
        return [part for part in user.split(":")[-1:] if part] if at else []

    def __reduce__(self) -> tuple[Any, ...]:
        return (ServerUrl, (self.reveal(),))
