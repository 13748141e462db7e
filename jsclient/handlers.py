"""The functions of the application that the library calls: handlers, callbacks, hooks. They are plain functions.

The library runs no coroutine and no generator. `check` refuses such functions where they are given. `ran` refuses
a coroutine or a generator that a function has returned.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Generator
from types import MethodType, MethodWrapperType
from typing import Any, Final, TypeVar

from jsclient.errors import ConfigError

T = TypeVar("T")

_CACHED: Final = type(functools.lru_cache(len))

_DEEPEST: Final = 20
"""The number of nested partial objects, methods and caches to look through; more do not occur."""

_ADVICE: Final = "Give a plain function. In it, asyncio.run() can run a coroutine and a loop can run a generator."


def check(call: Any, what: str) -> None:
    """Raises ConfigError for a function whose body would not run, and for anything that cannot be called. None passes.

    Looks through partial objects, methods, `__call__` and caches. A decorated function counts as what its decorator
    made of it, because a decorator may run the coroutine.
    """
    if call is None:
        return
    if not callable(call):
        raise ConfigError(f"{what} must be a function, not {call!r:.60}")
    kind = _kind(call)
    if kind:
        raise ConfigError(f"{what} is {kind}: a call does not run its body. {_ADVICE}")


def required(call: Any, what: str) -> None:
    """The same if None is not allowed."""
    if call is None:
        raise ConfigError(f"{what} must be a function, not None")
    check(call, what)


def ran(result: T) -> T:
    """Return the result of a function of the application. Raises ConfigError if it is awaitable or a generator."""
    kind = type(result)
    if not (hasattr(kind, "__await__") or hasattr(kind, "throw") or hasattr(kind, "asend")):
        return result  # the usual case, which must be cheap
    if isinstance(result, (Coroutine, Generator)):
        try:
            result.close()  # Python warns of a coroutine that is neither awaited nor closed
        except Exception:  # in its `finally`
            pass
    elif not isinstance(result, (Awaitable, AsyncGenerator)):
        return result
    raise ConfigError(f"the function has returned {kind.__name__!r}, which nobody runs. {_ADVICE}")


def _kind(call: Any) -> str:
    """The kind of a function that would not run, in words; "" for a plain one."""
    for _ in range(_DEEPEST):
        if inspect.iscoroutinefunction(call):
            return "an async function"
        if inspect.isasyncgenfunction(call) or inspect.isgeneratorfunction(call):
            return "a generator function"
        if isinstance(call, functools.partial):
            call = call.func
        elif isinstance(call, (MethodType, staticmethod)):
            call = call.__func__
        elif isinstance(call, _CACHED):
            call = call.__wrapped__
        elif isinstance(call, type) or isinstance(call.__call__, MethodWrapperType):  # makes an object; is written in C
            break
        else:
            call = call.__call__
    return ""
