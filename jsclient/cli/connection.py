"""The connection that the options of a command describe, and objects that use it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

import jsclient
from jsclient import contexts, errors
from jsclient.cli.arguments import Options
from jsclient.cli.output import complain

if TYPE_CHECKING:
    from jsclient.jetstream import JetStream

T = TypeVar("T")

SHORTEST_CONNECT: Final = 0.1

_CREDENTIALS: Final = {
    **dict.fromkeys(("user", "password"), "password"),
    "token": "token",
    "credentials": "creds",
    **dict.fromkeys(("nkey_seed", "nkey_seed_file", "jwt"), "nkey"),
}
"""Option of `connect` -> kind of credentials. A later source with another kind replaces the earlier one."""


def _context_name(options: Options) -> str | None:
    if options.no_context:
        return None
    named: str | None = options.context or os.environ.get("NATS_CONTEXT")
    if named:
        return named
    selected = contexts.selected_context()
    if selected and selected not in contexts.context_names():
        complain(f"warning: the selected context {selected!r} does not exist (any more); it is not used")
        return None
    return selected


def _merge(settings: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Add the options of a later source. A password alone belongs to a user from another source."""
    given = {key: value for key, value in given.items() if value}
    kinds = {_CREDENTIALS[key] for key in given if key in _CREDENTIALS and key != "password"}
    if kinds:
        for key in [key for key in settings if key in _CREDENTIALS and _CREDENTIALS[key] not in kinds]:
            del settings[key]
    settings.update(given)


_SOURCES: Final = {
    "servers": ("NATS_URL", "server"),
    "user": ("NATS_USER", "user"),
    "password": ("NATS_PASSWORD", "password"),
    "token": ("NATS_TOKEN", "token"),
    "credentials": ("NATS_CREDS", "creds"),
    "nkey_seed_file": ("NATS_NKEY", "nkey"),
}
_TLS: Final = {
    "ca_file": ("NATS_CA", "tlsca"),
    "cert_file": ("NATS_CERT", "tlscert"),
    "key_file": ("NATS_KEY", "tlskey"),
    "handshake_first": ("", "tlsfirst"),
}
"""Option of `connect`, or of TLSOptions -> (environment variable, option of the command line)."""


def connect(options: Options) -> jsclient.Connection:
    """The context, the environment, and the options, in this order. Later ones win."""
    name = _context_name(options)
    settings: dict[str, Any] = dict(contexts.load_context(name)) if name else {}
    _merge(settings, {key: os.environ.get(variable) for key, (variable, _) in _SOURCES.items()})
    _merge(settings, {key: getattr(options, option) for key, (_, option) in _SOURCES.items()})
    if "password" in settings and "user" not in settings:
        del settings["password"]
    elif "user" in settings and "password" not in settings:
        settings["token"] = settings.pop("user")
    tls = {key: getattr(options, option) or os.environ.get(name) for key, (name, option) in _TLS.items()}
    if given := {key: value for key, value in tls.items() if value}:
        settings["tls"] = attrs.evolve(settings.get("tls") or jsclient.TLSOptions(), **given)
    settings.setdefault("name", f"jsclient-cli-{os.getpid()}")
    settings["connect_timeout"] = max(options.timeout, SHORTEST_CONNECT)
    return jsclient.connect(**settings)


def jetstream(connection: jsclient.Connection, options: Options) -> JetStream:
    """The JetStream context of the options: --domain and --api-prefix, else the settings of the NATS context."""
    from jsclient.jetstream import JetStream

    name = _context_name(options)
    settings: dict[str, Any] = contexts.jetstream_options(name) if name else {}
    if options.domain or options.api_prefix:
        settings = {"domain": options.domain, "api_prefix": options.api_prefix}
    return JetStream(connection, timeout=options.timeout, **settings)


@contextlib.contextmanager
def opened(options: Options) -> Iterator[JetStream]:
    """JetStream over a connection that ends with the block."""
    with connect(options) as nc:
        yield jetstream(nc, options)


def over_jetstream(make: Callable[[Any, Options], T]) -> Callable[[Options], contextlib.AbstractContextManager[T]]:
    """Opens an object that a function makes from JetStream and the options; the connection ends with the block."""

    @contextlib.contextmanager
    def opens(options: Options) -> Iterator[T]:
        with opened(options) as js:
            yield make(js, options)

    return opens


def watched(watcher: Any, options: Options) -> Iterator[Any]:
    """Entries of a watcher, up to the end set by --once and --count."""
    left = options.count
    while not watcher.stopped and left != 0:
        entry = watcher.next()
        if entry is not None:
            yield entry
            left = None if left is None else left - 1
        elif options.once:
            return


def arriving(source: Any, options: Options, wanted: Callable[[Any], bool] | None = None) -> Iterator[Any]:
    """Messages of an object with `next`, up to the end set by --count and --wait. Raises NoMessages without any."""
    count, wait = 0, vars(options).get("wait")
    while options.count is None or count < options.count:
        try:
            message = source.next(wait)
        except errors.TimedOut:
            break
        if wanted is None or wanted(message):
            count += 1
            yield message
    if not count:
        raise errors.NoMessages(f"no message within {wait:g} s")
