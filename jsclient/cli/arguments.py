"""Arguments that all commands share, and the connection they describe."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import attrs

import jsclient
from jsclient import contexts, errors
from jsclient.cli.output import complain

if TYPE_CHECKING:
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
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {text}")
    return int(text)


class Command(NamedTuple):
    module: str
    """Of `jsclient.cli`; it adds the command to the parser."""
    text: str
    """One line of help."""


COMMANDS: Final[dict[str, Command]] = {
    "pub": Command("core", "Publish one message, or a line of standard input each."),
    "sub": Command("core", "Print the messages of a subject."),
    "request": Command("core", "Send a request and print the answers."),
    "req": Command("core", "Send a request and print the answers."),
    "reply": Command("core", "Answer requests on a subject."),
    "rtt": Command("core", "Time of a ping to the server, and what server it is."),
    "stream": Command("streams", "Streams."),
    "consumer": Command("consumers", "Consumers."),
    "next": Command("consumers", "Take messages from a pull consumer."),
    "kv": Command("buckets", "Key-value buckets."),
    "obj": Command("objects", "Object stores."),
    "object": Command("objects", "Object stores."),
    "counter": Command("counters", "Distributed counters (server 2.12)."),
    "service": Command("services", "Services of the micro protocol."),
    "micro": Command("services", "Services of the micro protocol."),
    "worker": Command("worker", "Handle the messages of a consumer, or a group, as a service."),
    "group": Command("groups", "Partitioned consumer groups (server 2.11), those of orbit.go's pcgroups."),
    "lock": Command("locks", "Locks, semaphores and elections: their holders."),
    "dead": Command("dead", "Dead letters of worker pools: look, replay, remove."),
    "events": Command("events", "Print advisories of JetStream as they arrive."),
    "trace": Command("events", "Where a message would go (server 2.11); no subscriber gets it."),
    "latency": Command("events", "Time of a message to a subscriber, in percentiles."),
    "check": Command("check", "Look at connection, rights, versions, limits and clock; print what to do."),
    "top": Command("top", "A live view of streams and consumers: rates, lag, what is wrong."),
    "account": Command("account", "The account: limits, use, backups."),
    "backup": Command("account", "Backups on disk; needs no server."),
    "context": Command("context", "Saved connection settings, shared with the NATS CLI."),
    "errors": Command("errors_lookup", "What an error code of JetStream means, and what to do."),
    "server": Command("server", "Servers: run a private one; list, report and change those of a system account."),
    "bench": Command("bench", "Messages per second: publish, take, store, fetch."),
    "completion": Command("completion", 'Print completion for a shell: eval "$(jsclient completion bash)".'),
}

CONNECTION: Final = "Connection options (--server, --context, --creds, --tlsca ...): see jsclient --help"


class Parser(argparse.ArgumentParser):
    """Reports arguments that it does not know itself, so the usage of the sub-command is printed."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


def common_arguments(shown: bool = False) -> argparse.ArgumentParser:
    """The options of every command that connects; without `shown` its help names only the last two."""
    common = argparse.ArgumentParser(add_help=False)
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
    "errors": ("error", "err"),
}
"""Other spellings that the NATS CLI knows."""


def command(
    commands: Any,
    common: argparse.ArgumentParser,
    name: str,
    run: Run,
    text: str = "",
    aliases: tuple[str, ...] | None = None,
) -> argparse.ArgumentParser:
    """A command with the common options; `text` only where it is not one of COMMANDS. `aliases`: its other spellings,
    if they are not those of ALIASES."""
    if aliases is None:
        aliases = ALIASES.get(name, ())
    text = text or COMMANDS[name].text
    made: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text, epilog=CONNECTION, parents=[common], aliases=aliases
    )
    made.set_defaults(run=run)
    return made


def group(commands: Any, name: str, text: str = "") -> Any:
    """A command that has sub-commands."""
    text = text or COMMANDS[name].text
    made = commands.add_parser(name, help=text, description=text, aliases=ALIASES.get(name, ()))
    return made.add_subparsers(dest="action", required=True, metavar="ACTION")


# --- the connection -------------------------------------------------------------------------------------------

_CREDENTIALS: Final = {
    **dict.fromkeys(("user", "password"), "password"),
    "token": "token",
    "credentials": "creds",
    **dict.fromkeys(("nkey_seed", "nkey_seed_file", "jwt"), "nkey"),
}
"""Option of `connect` -> kind of credentials; a later source with another kind replaces the earlier one."""


def _context_name(options: argparse.Namespace) -> str | None:
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
    """Add what a later source gives. A password alone belongs to a user that is given elsewhere."""
    given = {key: value for key, value in given.items() if value}
    kinds = {_CREDENTIALS[key] for key in given if key in _CREDENTIALS and key != "password"}
    if kinds:
        for key in [key for key in settings if key in _CREDENTIALS and _CREDENTIALS[key] not in kinds]:
            del settings[key]
    settings.update(given)


def _tls(settings: dict[str, Any], options: argparse.Namespace) -> None:
    """Each TLS setting replaces that one setting of the context."""
    environ = os.environ
    given = {
        "ca_file": options.tlsca or environ.get("NATS_CA"),
        "cert_file": options.tlscert or environ.get("NATS_CERT"),
        "key_file": options.tlskey or environ.get("NATS_KEY"),
        "handshake_first": options.tlsfirst,
    }
    given = {key: value for key, value in given.items() if value}
    if given:
        settings["tls"] = attrs.evolve(settings.get("tls") or jsclient.TLSOptions(), **given)


def connect(options: argparse.Namespace) -> jsclient.Connection:
    """Context first, then the environment, then options: the later wins."""
    name = _context_name(options)
    settings: dict[str, Any] = dict(contexts.load_context(name)) if name else {}
    environ = os.environ
    _merge(
        settings,
        {
            "servers": environ.get("NATS_URL"),
            "user": environ.get("NATS_USER"),
            "password": environ.get("NATS_PASSWORD"),
            "token": environ.get("NATS_TOKEN"),
            "credentials": environ.get("NATS_CREDS"),
            "nkey_seed_file": environ.get("NATS_NKEY"),
        },
    )
    _merge(
        settings,
        {
            "servers": options.server,
            "user": options.user,
            "password": options.password,
            "token": options.token,
            "credentials": options.creds,
            "nkey_seed_file": options.nkey,
        },
    )
    if "password" in settings and "user" not in settings:
        del settings["password"]
    elif "user" in settings and "password" not in settings:
        settings["token"] = settings.pop("user")
    _tls(settings, options)
    settings.setdefault("name", f"jsclient-cli-{os.getpid()}")
    settings["connect_timeout"] = max(options.timeout, SHORTEST_CONNECT)
    return jsclient.connect(**settings)


def jetstream(connection: jsclient.Connection, options: argparse.Namespace) -> JetStream:
    """The JetStream context of the options: --domain and --api-prefix, else what the NATS context says."""
    from jsclient.jetstream import JetStream

    name = _context_name(options)
    settings: dict[str, Any] = contexts.jetstream_options(name) if name else {}
    if options.domain or options.api_prefix:
        settings = {"domain": options.domain, "api_prefix": options.api_prefix}
    return JetStream(connection, timeout=options.timeout, **settings)


@contextlib.contextmanager
def opened(options: argparse.Namespace) -> Iterator[JetStream]:
    """JetStream over a connection that ends with the block."""
    with connect(options) as nc:
        yield jetstream(nc, options)


def headers_of(pairs: list[str] | None) -> dict[str, list[str]] | None:
    """`-H Name:value` options as headers."""
    headers: dict[str, list[str]] = {}
    for pair in pairs or ():
        name, colon, value = pair.partition(":")
        if not colon:
            raise errors.InvalidHeader(f"a header is given as Name:value, not {pair!r}")
        headers.setdefault(name.strip(), []).append(value.strip())
    return headers or None
