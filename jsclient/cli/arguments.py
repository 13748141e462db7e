"""Arguments of commands: their types, how they are declared, and those that several commands share."""

from __future__ import annotations

import argparse
import datetime as dt
import math
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from jsclient import errors

Options = argparse.Namespace

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|ms|[smhdw]))+")
_PART: Final = re.compile(r"([0-9.]+)(ns|us|ms|[smhdw])")


def seconds(text: str) -> float:
    """An argument in seconds, 0 or more, also in the form of the NATS CLI (500ms, 1h30m, 7d)."""
    if _DURATION.fullmatch(text):
        return sum(float(count) * _UNITS[unit] for count, unit in _PART.findall(text))
    try:
        value = float(text)
    except ValueError:
        value = math.inf
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be 0 or more seconds, such as 90, 1.5 or 1h30m, not {text}")
    return value


def past(text: str) -> dt.datetime:
    """An argument in seconds: how long ago."""
    return dt.datetime.now(dt.timezone.utc) - dt.timedelta(seconds=seconds(text))


_SIZE: Final = re.compile(r"([0-9]+)(?:([kmgt])?i?b?)?", re.IGNORECASE)


def count_of_bytes(text: str) -> int:
    """An argument in bytes, also in the form of the NATS CLI (64k, 1GB, 10MiB, all based on 1,024). -1 is unlimited."""
    if text == "-1":
        return -1
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"must be bytes, such as 1048576, 1MB or 1MiB, not {text}")
    return int(found[1]) << 10 * " kmgt".index((found[2] or " ").lower())


def spelled(**words: str) -> Callable[[str], str]:
    """An argument that is one of these words, or one of their other spellings, which are separated by spaces."""

    def word(text: str) -> str:
        for name, others in words.items():
            if text in (name, *others.split()):
                return name
        raise argparse.ArgumentTypeError(f"must be {' or '.join(words)}, not {text}")

    return word


storage: Final = spelled(file="f", memory="m")


def pair(text: str) -> tuple[str, str]:
    """An argument KEY=VALUE."""
    key, found, value = text.partition("=")
    if not found or not key:
        raise argparse.ArgumentTypeError(f"must be KEY=VALUE, not {text}")
    return key, value


def split(texts: str | list[str] | None) -> list[str]:
    """The values of an option that was given with commas, or several times."""
    given = [texts] if isinstance(texts, str) else texts or []
    return [part.strip() for text in given for part in text.split(",") if part.strip()]


def positive(text: str) -> int:
    """An argument that is a count, 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {text}")
    return int(text)


def common_arguments(shown: bool = False, first: bool = False) -> argparse.ArgumentParser:
    """The options of every command that connects.

    Their help is `shown` only before the command. Options that are read `first` have defaults. After the command, an
    option that is not given keeps its value from before the command.
    """
    common = argparse.ArgumentParser(add_help=False, argument_default=None if first else argparse.SUPPRESS)
    group = common.add_argument_group("connection" if shown else "output")

    def add(*names: str, help: str, **more: Any) -> None:
        group.add_argument(*names, help=help if shown else argparse.SUPPRESS, **more)

    add("-s", "--server", help="URL, or several with commas (NATS_URL; default: the context, localhost)")
    add("--context", help="a NATS CLI context: name or file (default: NATS_CONTEXT, the selected one)")
    add("--no-context", action="store_true", help="use no context")
    add("--user", help="user name; without a password it is a token (NATS_USER)")
    add("--password", help="better: NATS_PASSWORD")
    add("--token", help="better: NATS_TOKEN")
    add("--creds", help="a .creds file (NATS_CREDS)")
    add("--nkey", help="a file with an nkey seed (NATS_NKEY)")
    add("--tlsca", help="certificate authority to trust (NATS_CA)")
    add("--tlscert", help="client certificate (NATS_CERT)")
    add("--tlskey", help="its key (NATS_KEY)")
    add("--tlsfirst", action="store_true", help="TLS before the server's INFO")
    add("--domain", help="JetStream domain")
    add("--api-prefix", help="prefix of the JetStream API, such as JS.acc@hub.API")
    group.add_argument("--timeout", type=seconds, help="seconds to wait for answers (default 5)")
    group.add_argument("-j", "--json", action="store_true", help="JSON lines instead of text")
    if first:
        common.set_defaults(timeout=5.0)
    return common


def headers_of(pairs: list[str] | None) -> dict[str, list[str]] | None:
    """`-H Name:value` options as headers."""
    headers: dict[str, list[str]] = {}
    for pair in pairs or ():
        name, colon, value = pair.partition(":")
        if not colon:
            raise errors.InvalidHeader(f"a header is given as Name:value, not {pair!r}")
        headers.setdefault(name.strip(), []).append(value.strip())
    return headers or None


class Argument(NamedTuple):
    """An argument of a command, as argparse takes it."""

    names: tuple[str, ...]
    settings: dict[str, Any]

    def add_to(self, parser: Any) -> None:
        parser.add_argument(*self.names, **self.settings)


def arg(*names: str, **settings: Any) -> Argument:
    return Argument(names, settings)


def ignored(*names: str) -> Argument:
    """An option of the NATS CLI for something that happens anyway."""
    return arg(*names, action="store_true", help=argparse.SUPPRESS)


class OneOf:
    """Arguments that exclude each other."""

    def __init__(self, *arguments: Argument, required: bool = False) -> None:
        self._arguments = arguments
        self._required = required

    def add_to(self, parser: Any) -> None:
        together = parser.add_mutually_exclusive_group(required=self._required)
        for argument in self._arguments:
            argument.add_to(together)


FORCED: Final = ignored("-f", "--force")
FORCE: Final = arg("-f", "--force", action="store_true", help="do not ask")
HEADERS: Final = arg("-H", "--header", action="append", metavar="NAME:VALUE")
NAMES: Final = arg("-n", "--names", action="store_true", help="names alone")
RAW: Final = arg("--raw", action="store_true", help="payloads alone")
DESCRIPTION: Final = arg("--description")
JSON: Final = arg("-j", "--json", action="store_true", default=argparse.SUPPRESS, help="JSON lines instead of text")
WATCHING: Final = (
    arg("--once", action="store_true", help="end after what is there now"),
    arg("--count", type=positive, help="end after so many"),
)
