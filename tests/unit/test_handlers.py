"""Which functions of an application can be handlers, and what they may return."""

from __future__ import annotations

import concurrent.futures
import functools
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import attrs
import pytest

from jsclient import ConnectOptions, ReconnectPolicy, TLSOptions, errors, handlers
from jsclient.errors import ConfigError
from jsclient.instruments import Instrumentation
from jsclient.instruments.metrics import Prometheus
from jsclient.instruments.tracing import OpenTelemetry
from jsclient.jetstream.consuming.pull_options import PullOptions
from jsclient.jetstream.consuming.push import PushOptions
from jsclient.services import ServiceConfig
from jsclient.workers.options import PoolOptions


async def coroutine(*arguments: Any) -> None: ...


def generator(*arguments: Any) -> Iterator[None]:
    yield


async def async_generator(*arguments: Any) -> AsyncIterator[None]:
    yield


class Async:
    async def __call__(self, *arguments: Any) -> None: ...

    async def method(self, *arguments: Any) -> None: ...

    @staticmethod
    async def static(*arguments: Any) -> None: ...

    @classmethod
    async def of_class(cls, *arguments: Any) -> None: ...

    partial = functools.partialmethod(method, 1)


class Generating:
    def __call__(self, *arguments: Any) -> Iterator[None]:
        yield


class Nested:
    __call__ = Async()


class Plain:
    def __call__(self, *arguments: Any) -> None: ...


def bridged(function: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """What a decorator makes that runs the coroutine, as asyncio.run and asgiref do."""

    @functools.wraps(function)
    def run(*arguments: Any) -> None:
        with pytest.raises(StopIteration):
            function(*arguments).send(None)

    return run


REFUSED = {
    "async def": coroutine,
    "generator": generator,
    "async generator": async_generator,
    "method": Async().method,
    "static method": Async.static,
    "method of the class": Async.of_class,
    "partial method": Async().partial,
    "object": Async(),
    "object with a generator": Generating(),
    "object of an object": Nested(),
    "partial": functools.partial(coroutine, 1),
    "partial of partial": functools.partial(functools.partial(Async().method, 1), 2),
    "partial of an object": functools.partial(Async(), 1),
    "cached": functools.lru_cache(coroutine),
    "partial of cached": functools.partial(functools.cache(generator), 1),
    "mock": AsyncMock(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_nobody_would_run_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"the handler is an? .*function: a call does not run its body"):
        handlers.check(REFUSED[name], "the handler")
    gc.collect()  # a coroutine that was made meanwhile would warn


@pytest.mark.parametrize("wrong", [3, "handle", object()])
def test_what_cannot_be_called_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="the handler must be a function, not "):
        handlers.check(wrong, "the handler")
    handlers.check(None, "on_error")
    with pytest.raises(ConfigError, match="the handler must be a function, not None"):
        handlers.required(None, "the handler")


PLAIN: list[Any] = [
    print, [].append, len, lambda m: m, Plain(), Plain, Plain().__call__, MagicMock(), functools.partial(print),
    functools.lru_cache(len), bridged(coroutine),
]  # fmt: skip


def test_plain_functions_pass() -> None:
    for function in PLAIN:
        handlers.check(function, "the handler")
    bridged(coroutine)(1)


class Waitable(Awaitable[None]):
    def __await__(self) -> Generator[Any, None, None]:
        yield


def test_what_is_returned_and_will_not_run_is_refused_and_closed() -> None:
    for make in (coroutine, generator, async_generator, Waitable, AsyncMock(), lambda: (one for one in [1])):
        with pytest.raises(ConfigError, match="which nobody runs"):
            handlers.ran(make())
    gc.collect()  # the tests fail at "was never awaited"
    values: list[Any] = [None, True, 0, "text", [1], map(str, [1]), iter([]), concurrent.futures.Future(), MagicMock()]
    for value in values:
        assert handlers.ran(value) is value


def test_a_generator_that_does_not_want_to_be_closed_is_refused_all_the_same() -> None:
    def stubborn() -> Iterator[int]:
        try:
            yield 1
        finally:
            raise ValueError("not yet")

    begun = stubborn()
    next(begun)
    with pytest.raises(ConfigError, match="which nobody runs"):
        handlers.ran(begun)


CALLABLE = [
    (ConnectOptions, {}, [name for name in attrs.fields_dict(ConnectOptions) if name.startswith("on_")]),
    (
        ConnectOptions,
        {},
        ["socket_factory", "ws_headers", "token", "credentials", "auth_callback", "user", "nkey_seed"],
    ),
    (ConnectOptions, {"user": "joe"}, ["password"]),
    (ConnectOptions, {"jwt": "x"}, ["signature_callback"]),
    (ReconnectPolicy, {}, ["delay", "choose"]),
    (TLSOptions, {}, ["key_password"]),
    (PullOptions, {}, ["on_error", "on_event"]),
    (PushOptions, {}, ["on_error"]),
    (PoolOptions, {}, ["key", "on_event"]),
    (ServiceConfig, {"name": "s", "version": "1.0.0"}, ["stats_handler", "on_error", "on_stop"]),
]


class Measuring(Instrumentation):
    async def begin(self, operation: Any) -> None: ...  # type: ignore[override]


def test_instruments_are_looked_at_too() -> None:
    with pytest.raises(ConfigError, match="begin of the instrumentation is an async function"):
        ConnectOptions(instrumentation=Measuring())
    for make in (lambda: OpenTelemetry(name=coroutine), lambda: Prometheus(label=coroutine)):  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="a call does not run its body"):
            make()


@pytest.mark.parametrize("function", [coroutine, generator, async_generator, Async(), functools.partial(coroutine, 1)])
def test_options_refuse_them(function: Any) -> None:
    for options, others, names in CALLABLE:
        for name in names:
            with pytest.raises(errors.ConfigError, match="a call does not run its body"):
                options(**others, **{name: function})
