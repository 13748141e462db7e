"""All commands: their names, how they are declared, and the parsers made of them.

A command's module is imported only when it is used.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NoReturn, TypeVar

import attrs

import jsclient
from jsclient.cli.arguments import FORCE, JSON, Argument, OneOf, Options, arg, common_arguments
from jsclient.cli.output import confirm, result

F = TypeVar("F", bound=Callable[..., Any])


COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "pub": ("core", "Publish a message: an argument, all of standard input, or each of its lines.", "publish"),
    "sub": ("core", "Print the messages of a subject.", "subscribe"),
    "request": ("core", "Send a request and print the answers.", "req"),
    "rtt": ("core", "Time of a ping to the server, and what server it is."),
    "bench": ("bench", "Measure publishing and fetching with this server."),
    "stream": ("streams", "Streams.", "str", "st", "s"),
    "consumer": ("consumers", "Consumers.", "con", "obs", "c"),
    "next": ("consumers", "Take messages from a pull consumer."),
    "kv": ("buckets", "Key-value buckets."),
    "obj": ("objects", "Object stores.", "object"),
    "service": ("services", "Services of the micro protocol.", "micro"),
    "worker": ("worker", "Handle the messages of a consumer, or a group, as a service."),
    "group": ("groups", "Partitioned consumer groups (server 2.11), those of orbit.go's pcgroups."),
    "lock": ("locks", "Locks, semaphores and elections: their holders."),
    "dead": ("dead", "Dead letters of worker pools: look, replay, remove."),
    "events": ("events", "Print advisories of JetStream as they arrive."),
    "check": ("check", "Look at connection, rights, versions, limits and clock; print what to do."),
    "top": ("top", "A live view of streams and consumers: rates, lag, what is wrong."),
    "backup": ("backups", "Backups on disk; needs no server."),
    "context": ("context", "Saved connection settings, shared with the NATS CLI.", "ctx"),
    "errors": ("errors_lookup", "What an error code of JetStream means, and what to do.", "error", "err"),
    "server": ("server", "Run a private server.", "srv"),
    "completion": ("completion", 'Print completion for a shell: eval "$(jsclient completion bash)".'),
}
"""Name -> (module of `jsclient.cli` that declares it, one line of help, other spellings)."""

ALIASES: Final[dict[str, tuple[str, ...]]] = {
    "ls": ("list", "l"),
    "rm": ("delete", "del"),
    "del": ("rm", "delete"),
    "add": ("create", "new"),
    "edit": ("update",),
    "copy": ("cp",),
    "info": ("nfo", "i"),
    "subjects": ("subj",),
}
"""Other spellings of actions that the NATS CLI knows."""


CONNECTION: Final = "Connection options (--server, --context, --creds, --tlsca ...): see jsclient --help"


class Parser(argparse.ArgumentParser):
    """Reports unknown arguments itself, so it prints the usage of the sub-command."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


@attrs.frozen
class _Declared:
    path: str
    arguments: tuple[Argument | OneOf, ...]
    function: Callable[..., Any]
    opens: Callable[[Options], Any] | None
    connects: bool = True
    ask: str = ""
    aliases: tuple[str, ...] | None = None
    more: Callable[[argparse.ArgumentParser], None] | None = None

    def add_to(self, commands: Any, common: argparse.ArgumentParser) -> None:
        name = self.path.rpartition(" ")[2]
        text, _, notes = inspect.cleandoc(self.function.__doc__ or "").partition("\n\n")
        text, aliases = " ".join(text.split()), list(ALIASES.get(name, ()))
        if self.path in COMMANDS:
            _, text, *aliases = COMMANDS[self.path]
        made: argparse.ArgumentParser = commands.add_parser(
            name,
            help=text,
            description=text,
            epilog=f"{notes} {CONNECTION if self.connects else ''}".strip(),
            parents=[common] if self.connects else [],
            aliases=aliases if self.aliases is None else self.aliases,
        )
        for argument in (*self.arguments, *((FORCE,) if self.ask else ()), *(() if self.connects else (JSON,))):
            argument.add_to(made)
        made.set_defaults(run=self.run)
        if self.more is not None:
            self.more(made)

    def run(self, options: Options) -> int:
        if self.ask:
            confirm(self.ask.format(**vars(options)), options.force)
        if self.opens is None:
            said = self.function(options)
        else:
            with self.opens(options) as opened:
                said = self.function(opened, options)
        if isinstance(said, tuple):
            result(options, *said)
            return 0
        return said or 0


class Commands:
    """The commands of a module. Each is declared by a decorator of the function that runs it.

    The function gets the object that the module's `opens` makes from the options (a connection, or JetStream), and the
    options. It returns an exit status, None, or an output as (a value for --json, a text). The first paragraph of its
    docstring is the help of the command. The other paragraphs come at the end of the help.

    A command may have its own `opens`. `ask` is a question to the user before it runs, with fields of the options.
    `aliases` replace ALIASES. `more` is a function that adds to the parser.
    """

    def __init__(self, opens: Callable[[Options], Any] | None = None) -> None:
        self._opens = opens
        self._all: list[_Declared] = []

    def __call__(self, usage: str, *arguments: Any, **more: Any) -> Callable[[F], F]:
        """`usage` has the words of the command, then its first arguments in capitals. Optional ones are in brackets."""
        words = usage.split()
        path = " ".join(word for word in words if word.islower())
        positional = (
            arg(word.strip("[]").lower(), nargs="?" if word.startswith("[") else None)
            for word in words
            if not word.islower()
        )

        def declare(function: F) -> F:
            declared = _Declared(path, (*positional, *arguments), function, **{"opens": self._opens, **more})
            self._all.append(declared)
            return function

        return declare

    def alone(self, usage: str, *arguments: Any, **more: Any) -> Callable[[F], F]:
        """Declares a function that gets only the options, and connects by itself."""
        return self(usage, *arguments, opens=None, **more)

    def local(self, usage: str, *arguments: Any, **more: Any) -> Callable[[F], F]:
        """Declares a function that needs no server; it has no options for the connection."""
        return self(usage, *arguments, opens=None, connects=False, **more)

    def add_to(self, commands: Any, common: argparse.ArgumentParser) -> None:
        """Add them, and their groups, to a parser."""
        groups = {"": commands}
        for declared in self._all:
            name = declared.path.rpartition(" ")[0]
            if name not in groups:
                groups[name] = _group(commands, name)
            declared.add_to(groups[name], common)


def _group(commands: Any, name: str) -> Any:
    """A command that has sub-commands."""
    _, text, *aliases = COMMANDS[name]
    made = commands.add_parser(name, help=text, description=text, aliases=aliases)
    return made.add_subparsers(dest="action", required=True, metavar="ACTION")


OPTIONS_FIRST: Final = "Options of the connection may come before or after the command."
STATUS: Final = "Exit status: 0 done, 1 failed, 2 wrong usage, 3 nothing there, 130 interrupted."


class _Main(Parser):
    """The parser of the first word. It has all commands without their arguments."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(2, f"jsclient: {message}\nTry: jsclient --help\n")


def parse(words: Sequence[str]) -> Options:
    """The options of one command; usage errors end the program with status 2."""
    main = argparse.ArgumentParser(prog="jsclient", parents=[common_arguments(first=True)], add_help=False)
    main.add_argument("rest", nargs=argparse.REMAINDER)
    options, unknown = main.parse_known_args(words)
    name = _command(options.rest[:1])
    if unknown or not name:
        return _no_command(unknown, options.rest)
    return _parser_of([COMMANDS[name][0]]).parse_args(options.rest, options)


def parser() -> argparse.ArgumentParser:
    """A parser with all commands, for completion and for the page of the site."""
    return _parser_of(list(dict.fromkeys(known[0] for known in COMMANDS.values())))


def parser_for(words: Sequence[str]) -> argparse.ArgumentParser:
    """A parser with the command of these words; with the names of all commands if there is none."""
    name = _command(words)
    return _parser_of([COMMANDS[name][0]]) if name else _names_alone()[0]


def _command(words: Iterable[str]) -> str:
    """The first of these words that is a command, in its first spelling; "" without one."""
    for word in words:
        for name, (_, _, *aliases) in COMMANDS.items():
            if word in (name, *aliases):
                return name
    return ""


def _parser_of(modules: list[str]) -> argparse.ArgumentParser:
    made, commands = _main()
    common = common_arguments()
    for module in modules:
        importlib.import_module(f"jsclient.cli.{module}").cli.add_to(commands, common)
    return made


def _main() -> tuple[argparse.ArgumentParser, argparse._SubParsersAction[Parser]]:
    made = _Main(
        prog="jsclient",
        usage="jsclient [CONNECTION OPTIONS] COMMAND ...",
        description="NATS JetStream from the command line.",
        epilog=f"{OPTIONS_FIRST} {STATUS}",
        parents=[common_arguments(shown=True)],
    )
    made.add_argument("--version", action="version", version=jsclient.__version__)
    commands = made.add_subparsers(
        dest="command", required=True, metavar="COMMAND", prog="jsclient", parser_class=Parser
    )
    return made, commands


def _names_alone() -> tuple[argparse.ArgumentParser, Iterable[str]]:
    """All commands without their arguments, and all their spellings. This imports no module of a command."""
    made, commands = _main()
    for name, (_, text, *aliases) in COMMANDS.items():
        commands.add_parser(name, help=text, aliases=aliases)
    return made, commands.choices


def _no_command(unknown: list[str], rest: list[str]) -> Options:
    """Help, the version, or an error."""
    made, names = _names_alone()
    if unknown and unknown[0] not in ("-h", "--help", "--version"):
        made.error(f"there is no option {unknown[0]}")
    if rest and not unknown:
        near = difflib.get_close_matches(rest[0], names, n=3)
        made.error(f"there is no command {rest[0]!r}" + (f"; did you mean {' or '.join(near)}?" if near else ""))
    return made.parse_args(unknown)
