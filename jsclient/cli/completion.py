"""`completion bash|zsh|fish`: a script for the shell. It asks `completion words` for what may come next."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any, Final

from jsclient import contexts, errors
from jsclient.cli.arguments import Options, arg, common_arguments
from jsclient.cli.commands import Commands, parser_for
from jsclient.cli.output import line

SECONDS: Final = 0.7
"""Seconds for requests to the server, because the user waits for the completion."""

_BASH: Final = """_jsclient() {
  local IFS=$'\\n'
  COMPREPLY=($(jsclient completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o bashdefault -o default -F _jsclient jsclient"""
_SHELLS: Final = {
    "bash": _BASH,
    "zsh": f"autoload -U +X bashcompinit && bashcompinit\n{_BASH}",
    "fish": "complete -c jsclient -a '(jsclient completion words -- (commandline -opc)[2..] (commandline -ct))'",
}


cli: Commands = Commands()


@cli.local(
    "completion",
    arg("shell", choices=(*_SHELLS, "words"), metavar="bash|zsh|fish"),
    arg("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS),
)
def show(options: Options) -> None:
    if options.shell in _SHELLS:
        line(_SHELLS[options.shell])
        return
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    *before, begun = words or [""]
    for candidate in sorted(set(_Line(before).candidates(begun))):
        if candidate.startswith(begun):
            line(candidate)


class _Line:
    """The words before the completed one, parsed as far as possible."""

    def __init__(self, before: list[str]) -> None:

        self._parser: argparse.ArgumentParser = parser_for(before)
        self._path: list[str] = []
        self._given: list[str] = []  # positional arguments of the command
        self._values: dict[str, Any] = {}
        self._waiting: argparse.Action | None = None  # an option, for its value
        for word in before:
            self._read(word)

    def _read(self, word: str) -> None:
        if self._waiting is not None:
            self._values[self._waiting.dest] = word
            self._waiting = None
        elif word.startswith("-"):
            name, _, value = word.partition("=")
            action = self._parser._option_string_actions.get(name)
            if action is not None and (value or action.nargs == 0):
                self._values[action.dest] = value or True
            else:
                self._waiting = action
        elif (deeper := _subcommands(self._parser)) is not None and word in deeper.choices:
            self._parser = deeper.choices[word]
            self._path.append(word)
        else:
            self._given.append(word)

    def candidates(self, begun: str) -> Iterable[str]:
        if self._waiting is not None:
            return self._names(self._waiting)
        if begun.startswith("-"):
            return [option for option in self._parser._option_string_actions if option.startswith("--")]
        if (deeper := _subcommands(self._parser)) is not None:
            first = {id(parser): name for name, parser in reversed(deeper.choices.items())}
            return first.values()  # their other spellings are understood, not offered
        positional = [action for action in self._parser._actions if not action.option_strings]
        rest = positional[len(self._given) :] or [action for action in positional[-1:] if action.nargs in ("*", "+")]
        return self._names(rest[0]) if rest else ()

    def _names(self, action: argparse.Action) -> Iterable[str]:
        """Words for an argument: its choices, or names from the server or a folder."""
        if action.choices:
            return map(str, action.choices)
        if action.dest == "context" or (self._path[:1] in (["context"], ["ctx"]) and action.dest in ("name", "source")):
            return contexts.context_names()
        look = _LOOKS.get(action.dest)
        if look is None:
            return ()
        from jsclient.cli.connection import opened

        options = common_arguments(first=True).parse_args([])
        vars(options).update({name: value for name, value in self._values.items() if name in vars(options)})
        options.timeout = SECONDS
        stream = self._values.get("stream") or (self._given or [""])[0]
        try:
            with opened(options) as js:
                return list(look(js, stream, self._path[0]))
        except (errors.JsClientError, OSError):
            return ()


def _buckets(js: Any, stream: str, command: str) -> Iterable[str]:
    prefix = "OBJ_" if command in ("obj", "object") else "KV_"
    return (name[len(prefix) :] for name in js.stream_names() if name.startswith(prefix))


_LOOKS: Final[dict[str, Callable[[Any, str, str], Iterable[str]]]] = {
    "stream": lambda js, stream, command: js.stream_names(),
    "consumer": lambda js, stream, command: js.consumer_names(stream),
    "bucket": _buckets,
}
"""Argument -> its names."""


def _subcommands(parser: argparse.ArgumentParser) -> Any:
    return next((action for action in parser._actions if isinstance(action, argparse._SubParsersAction)), None)
