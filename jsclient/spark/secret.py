"""Values that travel to the executors and are shown to nobody."""

from __future__ import annotations

from typing import Any, Final

HIDDEN: Final = "***"


class Secret:
    """A string that pickles, compares and hashes, but whose str, repr and format are `***`."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The string itself; only for handing it to the connection."""
        return self._value

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(("Secret", self._value))

    def __bool__(self) -> bool:
        return bool(self._value)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Secret, (self._value,))


class ServerUrl(Secret):
    """A server address that may carry `user:password@` or `token@`; it is shown without them."""

    __slots__ = ()

    def __repr__(self) -> str:
        scheme, mark, rest = self._value.rpartition("://")
        user, at, host = rest.rpartition("@")
        return f"{scheme}{mark}{HIDDEN}@{host}" if at else self._value

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return str(self)

    def secrets(self) -> list[str]:
        """The parts that must not be shown."""
        user, at, _ = self._value.rpartition("://")[2].rpartition("@")
        return [part for part in user.split(":")[-1:] if part] if at else []

    def __reduce__(self) -> tuple[Any, ...]:
        return (ServerUrl, (self._value,))
