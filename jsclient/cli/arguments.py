"""Arguments that all commands share, and the connection they describe."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Callable
from typing import Any, Final

import jsclient
from jsclient import contexts, errors
from jsclient.jetstream import JetStream

SHORTEST_CONNECT: Final = 0.1

Run = Callable[[argparse.Namespace], "int | None"]


_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|ms|[smhdw]))+")
_PART: Final = re.compile(r"([0-9.]+)(ns|us|ms|[smhdw])")


def seconds(text: str) -> float:
    """An argument in seconds, 0 or more; also as the NATS CLI writes it: 500ms, 1h30m, 7d."""
    if _DURATION.fullmatch(text):
        return sum(float(count) * _UNITS[unit] for count, unit in _PART.findall(text))
    try:
        value = float(text)
    except ValueError:
        value = math.inf
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be 0 or more seconds, such as 90, 1.5 or 1h30m, not {text}")
    return value


_SIZE: Final = re.compile(r"([0-9]+)(?:([kmgt])?i?b?)?", re.IGNORECASE)


def count_of_bytes(text: str) -> int:
    """An argument in bytes; also as the NATS CLI writes it: 64k, 1GB, 10MiB, each of them by 1,024. -1: no limit."""
    if text == "-1":
        return -1
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"must be bytes, such as 1048576, 1MB or 1MiB, not {text}")
    return int(found[1]) << 10 * " kmgt".index((found[2] or " ").lower())


def storage(text: str) -> str:
    """An argument that names a storage: file or memory, or the first letter."""
    for word in ("file", "memory"):
        if text in (word, word[0]):
            return word
    raise argparse.ArgumentTypeError(f"must be file or memory, not {text}")


def pair(text: str) -> tuple[str, str]:
    """An argument KEY=VALUE."""
    key, found, value = text.partition("=")
    if not found or not key:
        raise argparse.ArgumentTypeError(f"must be KEY=VALUE, not {text}")
    return key, value


def split(texts: str | list[str] | None) -> list[str]:
    """What an option was given with commas, or several times."""
    given = [texts] if isinstance(texts, str) else texts or []
    return [part.strip() for text in given for part in text.split(",") if part.strip()]


def taken_as_it_is(parser: argparse.ArgumentParser, *names: str) -> None:
    """Options of the NATS CLI that ask for what is done anyhow."""
    parser.add_argument(*names, action="store_true", help=argparse.SUPPRESS)


def positive(text: str) -> int:
    """An argument that counts something: 1 or more."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {text}")
    return value


def common_arguments() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    group = common.add_argument_group("connection")
    group.add_argument("-s", "--server", help="URL, or several with commas (NATS_URL; default: the context, localhost)")
    group.add_argument("--context", help="a NATS CLI context: name or file (default: NATS_CONTEXT, the selected one)")
    group.add_argument("--user")
    group.add_argument("--password", help="better: NATS_PASSWORD")
    group.add_argument("--creds", help="a .creds file (NATS_CREDS)")
    group.add_argument("--nkey", help="a file with an nkey seed (NATS_NKEY)")
    group.add_argument("--tlsca", help="certificate authority to trust (NATS_CA)")
    group.add_argument("--tlscert", help="client certificate (NATS_CERT)")
    group.add_argument("--tlskey", help="its key (NATS_KEY)")
    group.add_argument("--domain", help="JetStream domain")
    group.add_argument("--api-prefix", help="prefix of the JetStream API, such as JS.acc@hub.API")
    group.add_argument("--timeout", type=seconds, default=5.0, help="seconds to wait for answers (default 5)")
    group.add_argument("-j", "--json", action="store_true", help="JSON lines instead of text")
    return common


ALIASES: Final[dict[str, tuple[str, ...]]] = {
    "ls": ("list", "l"),
    "rm": ("delete", "del"),
    "del": ("rm", "delete"),
    "add": ("create", "new"),
    "edit": ("update",),
    "info": ("nfo", "i"),
    "copy": ("cp",),
    "subjects": ("subj",),
    "pub": ("publish",),
    "sub": ("subscribe",),
    "increment": ("incr",),
    "decrement": ("decr",),
    "stream": ("str", "st", "s"),
    "consumer": ("con", "obs", "c"),
    "counter": ("ctr",),
    "server": ("srv",),
    "context": ("ctx",),
}
"""Other spellings that the NATS CLI knows."""


def command(
    commands: Any,
    common: argparse.ArgumentParser,
    name: str,
    run: Run,
    text: str,
    aliases: tuple[str, ...] | None = None,
) -> argparse.ArgumentParser:
    """A sub-command with the common options. `aliases`: its other spellings, where they are not those of ALIASES."""
    if aliases is None:
        aliases = ALIASES.get(name, ())
    made: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text, parents=[common], aliases=aliases
    )
    made.set_defaults(run=run)
    return made


def group(commands: Any, name: str, text: str) -> Any:
    """A command that has sub-commands of its own."""
    made = commands.add_parser(name, help=text, description=text, aliases=ALIASES.get(name, ()))
    return made.add_subparsers(dest="action", required=True, metavar="ACTION")


def _context_name(options: argparse.Namespace) -> str | None:
    return options.context or os.environ.get("NATS_CONTEXT") or contexts.selected_context()


def connect(options: argparse.Namespace) -> jsclient.Connection:
    """Context first, then the environment, then options: the later wins."""
    name = _context_name(options)
    settings: dict[str, Any] = contexts.load_context(name) if name else {}
    given = {
        "servers": options.server or os.environ.get("NATS_URL"),
        "user": options.user or os.environ.get("NATS_USER"),
        "password": options.password or os.environ.get("NATS_PASSWORD"),
        "credentials": options.creds or os.environ.get("NATS_CREDS"),
        "nkey_seed_file": options.nkey or os.environ.get("NATS_NKEY"),
    }
    settings.update({key: value for key, value in given.items() if value})
    ca, cert, key = (
        options.tlsca or os.environ.get("NATS_CA"),
        options.tlscert or os.environ.get("NATS_CERT"),
        options.tlskey or os.environ.get("NATS_KEY"),
    )
    if ca or cert or key:
        settings["tls"] = jsclient.TLSOptions(ca_file=ca, cert_file=cert, key_file=key)
    settings.setdefault("name", f"jsclient-cli-{os.getpid()}")
    settings["connect_timeout"] = max(options.timeout, SHORTEST_CONNECT)
    return jsclient.connect(**settings)


def jetstream(connection: jsclient.Connection, options: argparse.Namespace) -> JetStream:
    """The JetStream context of the options: --domain and --api-prefix, else what the NATS context says."""
    name = _context_name(options)
    settings: dict[str, Any] = contexts.jetstream_options(name) if name else {}
    if options.domain or options.api_prefix:
        settings = {"domain": options.domain, "api_prefix": options.api_prefix}
    return JetStream(connection, timeout=options.timeout, **settings)


def headers_of(pairs: list[str] | None) -> dict[str, list[str]] | None:
    """`-H Name:value` options as headers."""
    headers: dict[str, list[str]] = {}
    for pair in pairs or ():
        name, colon, value = pair.partition(":")
        if not colon:
            raise errors.InvalidHeader(f"a header is given as Name:value, not {pair!r}")
        headers.setdefault(name.strip(), []).append(value.strip())
    return headers or None
