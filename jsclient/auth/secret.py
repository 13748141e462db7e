"""`Secret`: a string that never shows itself, and the source of its value at connect time."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from jsclient import handlers, kinds
from jsclient.errors import ConfigError

ENV_PREFIX: Final = "env:"


class Secret:
    """A string that repr, str and format show as `***`. It pickles with its value; `reveal()` returns the value.

    A value `env:NAME` stands for the environment variable NAME, read at every connect. So you can pickle such options
    without the secret. Only values that the application itself writes into an option may name the environment. Texts
    from URLs, files and callables are a `Literal`.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str | Secret) -> None:
        self._value: str = value.reveal() if isinstance(value, Secret) else value

    def reveal(self) -> str:
        """The text as given."""
        return self._value

    def resolve(self) -> str:
        """The text, or the value of the environment variable that it names. Raises ConfigError if that is not set."""
        if not self._value.startswith(ENV_PREFIX):
            return self._value
        name = self._value[len(ENV_PREFIX) :]
        value = os.environ.get(name)
        if value is None:
            raise ConfigError(f"the environment variable {name} of the credentials is not set")
        return value

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format("***", spec)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        import hmac  # it loads the library of OpenSSL, and few programs compare secrets

        return hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> tuple[Any, ...]:
        return (self.__class__, (self._value,))


class Literal(Secret):
    """A secret that came from outside. It stands for itself, even if it begins with `env:`.

    Otherwise a URL from elsewhere could name any environment variable, and the client would send it to that server.
    """

    __slots__ = ()

    def resolve(self) -> str:
        """The text as given."""
        return self._value


SecretSource = str | Secret | Callable[[], str | Secret]

IS_SECRET: Final = kinds.field(str, Secret, Callable, None)
"""The validator of a field that takes a SecretSource."""


def as_secret(value: Any) -> Any:
    """Converter for options: a string becomes a Secret. Anything else stays unchanged."""
    return Secret(value) if isinstance(value, str) else value


def read_secret(value: SecretSource | None, what: str) -> str | None:
    """The current text of an option. It looks up `env:NAME` and calls callables, whose results it takes literally. None
    stays."""
    if callable(value):
        value = handlers.ran(value())
        value = Literal(value) if isinstance(value, (str, Secret)) else value
    if value is None:
        return None
    if isinstance(value, str):
        value = Secret(value)
    if not isinstance(value, Secret):
        raise ConfigError(f"{what} must be text, a Secret or a callable that returns one, not {type(value).__name__}")
    return value.resolve()
