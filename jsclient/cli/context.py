"""`context ...`: the connection settings that the NATS CLI keeps in files, read and written in its format."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import jsclient
from jsclient import contexts, errors, nuid
from jsclient.cli.arguments import Run, group
from jsclient.cli.output import complain, confirm, line, page, record, result, table

_SECRET: Final = ("password", "token", "user_seed", "user_jwt")
_SETTINGS: Final = {
    "url": ("--server", "-s", "--url"),
    "user": ("--user",),
    "password": ("--password",),
    "token": ("--token",),
    "creds": ("--creds",),
    "nkey": ("--nkey",),
    "ca": ("--tlsca", "--ca"),
    "cert": ("--tlscert", "--cert"),
    "key": ("--tlskey", "--key"),
    "inbox_prefix": ("--inbox-prefix",),
    "jetstream_domain": ("--domain", "--jetstream-domain"),
    "jetstream_api_prefix": ("--api-prefix", "--js-api-prefix", "--jetstream-api-prefix"),
    "description": ("--description",),
}
"""Setting in the file -> options: those of a connection, and the names in the file."""


class _Action(NamedTuple):
    run: Run
    text: str
    names: tuple[str, ...] = ("name",)
    """Arguments; one that ends in ? may be left out."""
    options: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    context = group(commands, "context")
    for name, action in _ACTIONS.items():
        made = context.add_parser(name, help=action.text, description=action.text, aliases=action.aliases)
        made.add_argument("-j", "--json", action="store_true", help="JSON lines instead of text")
        made.set_defaults(run=action.run)
        for argument in action.names:
            made.add_argument(argument.rstrip("?"), nargs="?" if argument.endswith("?") else None)
        if "settings" in action.options:
            for setting, spellings in _SETTINGS.items():
                made.add_argument(*spellings, dest=setting)
            made.add_argument("--tlsfirst", dest="tls_first", action="store_true", default=None)
        if "select" in action.options:
            made.add_argument("--select", action="store_true", help="and use it from now on")
        if "force" in action.options:
            made.add_argument("-f", "--force", action="store_true", help="do not ask")
        if "connect" in action.options:
            made.add_argument("--connect", action="store_true", help="and connect with it")


def _file(name: str) -> Path:
    if not name or "/" in name or os.sep in name or ".." in name or "\0" in name:
        raise errors.ConfigError(f"{name!r} is no context name")
    return contexts.config_dir() / "context" / f"{name}.json"


def _existing(name: str) -> Path:
    path = _file(name)
    if not path.exists():
        known = ", ".join(contexts.context_names()) or "none"
        raise errors.ConfigError(f"there is no NATS context {name!r} (known: {known})")
    return path


def list_contexts(options: argparse.Namespace) -> None:
    selected = contexts.selected_context()
    names = contexts.context_names()
    if options.json:
        for name in names:
            record({"name": name, "selected": name == selected})
    elif names:
        rows = []
        for name in names:
            try:
                plain = contexts.read_context(name)
            except errors.ConfigError as error:
                complain(str(error))
                continue
            rows.append(
                (f"{name}{'*' if name == selected else ''}", plain.get("url", ""), plain.get("description", ""))
            )
        table(("NAME", "URL", "DESCRIPTION"), rows)
    else:
        line("no contexts")


def show_context(options: argparse.Namespace) -> None:
    name = options.name or contexts.selected_context()
    if not name:
        raise errors.ConfigError("no NATS context is selected; name one")
    plain = {
        key: "********" if key in _SECRET and value else value
        for key, value in contexts.read_context(name).items()
        if value not in ("", None, False)
    }
    if options.json:
        record({"name": name, **plain})
    else:
        page(f"Context {name}", plain.items())


def select_context(options: argparse.Namespace) -> None:
    _existing(options.name)
    (contexts.config_dir() / "context.txt").write_text(options.name, encoding="utf-8")
    _done(options, "selected")


def unselect_context(options: argparse.Namespace) -> None:
    (contexts.config_dir() / "context.txt").unlink(missing_ok=True)
    result(options.json, {"done": "unselected"}, "no context is selected")


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """Settings of the options; an empty one removes what was set."""
    wanted = {name: getattr(options, name) for name in (*_SETTINGS, "tls_first")}
    return {name: value for name, value in wanted.items() if value is not None}


def add_context(options: argparse.Namespace) -> int:
    return _save(options, {**dict.fromkeys(_SETTINGS, ""), **_given(options)})


def copy_context(options: argparse.Namespace) -> int:
    _existing(options.source)
    return _save(options, {**contexts.read_context(options.source), **_given(options)})


def edit_context(options: argparse.Namespace) -> None:
    path, changes = _existing(options.name), _given(options)
    if not changes:
        raise errors.ConfigError("nothing to change: name at least one setting, such as --server URL")
    before = path.read_text(encoding="utf-8")
    _write(path, {**contexts.read_context(options.name), **changes})
    try:
        contexts.load_context(options.name)
    except errors.ConfigError:
        _write_private(path.resolve(), before)
        raise
    _done(options, "saved")


def validate_contexts(options: argparse.Namespace) -> int:
    """One context, or all of them; the exit status is 1 if one cannot be used."""
    names = [options.name] if options.name else contexts.context_names()
    bad = 0
    for name in names:
        problem = _problem(name, options.connect)
        bad += bool(problem)
        result(options.json, {"context": name, "error": problem or None}, f"{name}: {problem or 'ok'}")
    if not names:
        line("no contexts")
    return 1 if bad else 0


def _problem(name: str, try_it: bool) -> str:
    try:
        settings = contexts.load_context(name)
        contexts.jetstream_options(name)
        if try_it:
            jsclient.connect(**settings).close()
        return ""
    except errors.JsClientError as error:
        return errors.brief(error)


def _write(path: Path, plain: Mapping[str, Any]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write_private(path.resolve(), json.dumps(dict(plain), indent=2))  # a link to a file stays one


def _save(options: argparse.Namespace, plain: Mapping[str, Any]) -> int:
    path = _file(options.name)
    if path.exists():
        confirm(f"Replace context {options.name}?", options.force)
    _write(path, plain)
    contexts.load_context(options.name)  # a setting that cannot be used is reported now
    if options.select:
        select_context(options)
    else:
        _done(options, "saved")
    return 0


def _write_private(path: Path, text: str) -> None:
    """Replace the file: the old one may be readable by others, or be open in their processes."""
    part = path.with_name(f".{nuid.next_nuid()}.part")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def remove_context(options: argparse.Namespace) -> None:
    path = _existing(options.name)
    confirm(f"Remove context {options.name}?", options.force)
    path.unlink()
    if contexts.selected_context() == options.name:
        (contexts.config_dir() / "context.txt").unlink()
    _done(options, "removed")


def _done(options: argparse.Namespace, what: str) -> None:
    result(options.json, {"context": options.name, "done": what}, f"{what} {options.name}")


_ACTIONS: Final[dict[str, _Action]] = {
    "ls": _Action(list_contexts, "List them; the selected one has a star.", (), aliases=("list", "l")),
    "info": _Action(show_context, "Settings of one; secrets are not shown.", ("name?",), aliases=("show",)),
    "select": _Action(select_context, "Use this one from now on.", aliases=("switch", "set")),
    "unselect": _Action(unselect_context, "Select none.", ()),
    "add": _Action(
        add_context, "Save settings under a name.", options=("settings", "select", "force"), aliases=("save", "create")
    ),
    "copy": _Action(
        copy_context,
        "Save the settings of one under another name; options change them.",
        ("source", "name"),
        ("settings", "select", "force"),
        ("cp",),
    ),
    "edit": _Action(edit_context, "Change settings of one; an empty value removes one.", options=("settings",)),
    "validate": _Action(validate_contexts, "Read one, or all of them.", ("name?",), ("connect",)),
    "rm": _Action(remove_context, "Remove one.", options=("force",), aliases=("remove", "delete")),
}
