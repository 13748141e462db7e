"""`completion bash|zsh|fish`: a script for the shell, made from the arguments themselves."""

from __future__ import annotations

import argparse
from typing import Any

from jsclient.cli.arguments import COMMANDS
from jsclient.cli.output import line


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    text = COMMANDS["completion"].text
    made = commands.add_parser("completion", help=text, description=text)
    made.add_argument("shell", choices=("bash", "zsh", "fish"))
    made.set_defaults(run=show)


def words(commands: Any, aliases: bool = True) -> dict[str, list[str]]:
    """path of sub-commands -> the words that may follow it; with or without paths in other spellings."""
    found = {"": _names(commands)}
    for name in commands.choices if aliases else found[""]:
        _add(found, name, commands.choices[name], aliases)
    return found


def _names(commands: Any) -> list[str]:
    """Each command once: its other spellings are understood, not offered."""
    first = {id(parser): name for name, parser in reversed(commands.choices.items())}
    return [name for name, parser in commands.choices.items() if first[id(parser)] == name]


def _add(found: dict[str, list[str]], path: str, parser: argparse.ArgumentParser, aliases: bool) -> None:
    found[path] = []
    for action in parser._actions:  # argparse has no other way to ask
        if isinstance(action, argparse._SubParsersAction):
            names = _names(action)
            found[path] += names
            for name in action.choices if aliases else names:
                _add(found, f"{path} {name}", action.choices[name], aliases)
        else:
            found[path] += [option for option in action.option_strings if option.startswith("--")]
            if not action.option_strings and action.choices:
                found[path] += [str(choice) for choice in action.choices]


def show(options: argparse.Namespace) -> None:
    from jsclient.cli.commands import parser  # imports all commands

    subparsers = next(a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    line(_SHELLS[options.shell](words(subparsers, aliases=options.shell != "fish")))


def _bash(known: dict[str, list[str]]) -> str:
    same: dict[str, list[str]] = {}
    for path, following in known.items():
        same.setdefault(" ".join(following), []).append(f'"{path}"')
    cases = "\n".join(f'    {"|".join(paths)}) words="{following}" ;;' for following, paths in same.items())
    return f"""_jsclient() {{
  local path="" word words=""
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$word" in -*) ;; *) path="${{path:+$path }}$word" ;; esac
  done
  while :; do
    case "$path" in
{cases}
    esac
    [ -n "$words" ] || [ -z "$path" ] && break
    case "$path" in *" "*) path="${{path% *}}" ;; *) path="" ;; esac
  done
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _jsclient jsclient"""


def _zsh(known: dict[str, list[str]]) -> str:
    return "autoload -U +X bashcompinit && bashcompinit\n" + _bash(known)


def _fish(known: dict[str, list[str]]) -> str:
    lines = ["complete -c jsclient -f"]
    for path, following in known.items():
        names = path.split()
        if names:
            condition = " ; and ".join(f"__fish_seen_subcommand_from {name}" for name in names)
        else:
            condition = "__fish_use_subcommand"
        plain = " ".join(word for word in following if not word.startswith("--"))
        if plain:
            lines.append(f"complete -c jsclient -n '{condition}' -a '{plain}'")
        lines += [f"complete -c jsclient -n '{condition}' -l {word[2:]}" for word in following if word.startswith("--")]
    return "\n".join(lines)


_SHELLS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
