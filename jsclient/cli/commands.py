"""All commands by name, and the parsers made of them. A command's module is imported only when it is used."""

from __future__ import annotations

import argparse
import difflib
import importlib
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import jsclient
from jsclient.cli.arguments import ALIASES, COMMANDS, Parser, common_arguments

OPTIONS_FIRST: Final = "Options of the connection may come before or after the command."
STATUS: Final = "Exit status: 0 done, 1 failed, 2 wrong usage, 3 nothing there, 130 interrupted."


class _Main(Parser):
    """The parser of the first word: it knows all commands, and none of their arguments."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(2, f"jsclient: {message}\nTry: jsclient --help\n")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options of one command; usage errors end the program with status 2."""
    before, rest = _split(words)
    name = _full_name(rest[0]) if rest else ""
    if name not in COMMANDS:
        return _no_command(before, rest)
    made = _parser_of([COMMANDS[name].module])
    return made.parse_args(_with_options(made, before, rest))


def parser() -> argparse.ArgumentParser:
    """With all commands: for completion, and for the page of the site."""
    return _parser_of(list(dict.fromkeys(known.module for known in COMMANDS.values())))


def _parser_of(modules: list[str]) -> argparse.ArgumentParser:
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
    common = common_arguments()
    for module in modules:
        importlib.import_module(f"jsclient.cli.{module}").add_commands(commands, common)
    return made


def parser_for(words: Sequence[str]) -> argparse.ArgumentParser:
    """With the command of these words; with the names of all, if there is none."""
    _, rest = _split(words)
    name = _full_name(rest[0]) if rest else ""
    return _parser_of([COMMANDS[name].module]) if name in COMMANDS else _names_alone()


def _names_alone() -> argparse.ArgumentParser:
    """All commands without their arguments: that needs no module of a command."""
    made = _parser_of([])
    commands: Any = next(action for action in made._actions if isinstance(action, argparse._SubParsersAction))
    for name, known in COMMANDS.items():
        commands.add_parser(name, help=known.text, aliases=ALIASES.get(name, ()))
    return made


def _no_command(before: list[str], rest: list[str]) -> argparse.Namespace:
    """Help, the version, or an error."""
    made = _names_alone()
    commands: Any = next(action for action in made._actions if isinstance(action, argparse._SubParsersAction))
    if rest and rest[0].startswith("-") and rest[0] not in ("-h", "--help", "--version"):
        made.error(f"there is no option {rest[0]}")
    if rest and not rest[0].startswith("-"):
        near = difflib.get_close_matches(rest[0], commands.choices, n=3)
        made.error(f"there is no command {rest[0]!r}" + (f"; did you mean {' or '.join(near)}?" if near else ""))
    return made.parse_args([*before, *rest])


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """(options of the connection before the command, everything from the command on)."""
    values = {name: action.nargs != 0 for action in common_arguments()._actions for name in action.option_strings}
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-h", "--help", "--version", "--"):
        name = words[at].partition("=")[0]
        if name not in values and not (name[:2] in values and not name.startswith("--")):
            break
        takes_next = values.get(name, False) and "=" not in words[at]
        at += 2 if takes_next else 1
    return list(words[:at]), list(words[at:])


def _with_options(made: argparse.ArgumentParser, before: list[str], rest: list[str]) -> list[str]:
    """Put the options of the connection behind the command, or its action, that understands them."""
    depth = 0
    current: Any = made
    while depth < len(rest):
        deeper = [action for action in current._actions if isinstance(action, argparse._SubParsersAction)]
        if not deeper or rest[depth] not in deeper[0].choices:
            break
        current = deeper[0].choices[rest[depth]]
        depth += 1
    return [*rest[:depth], *before, *rest[depth:]]


def _full_name(word: str) -> str:
    return next((name for name in COMMANDS if word == name or word in ALIASES.get(name, ())), word)
