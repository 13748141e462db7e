"""`context ...`: the connection settings that the NATS CLI keeps in files, read and written in its format."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any, Final

from jsclient import contexts, errors, nuid
from jsclient.cli.arguments import group
from jsclient.cli.output import ask, complain, line, page, record, result, table

_SECRET: Final = ("password", "token", "user_seed", "user_jwt")
_SETTINGS: Final = ("url", "user", "password", "token", "creds", "nkey", "ca", "cert", "key", "inbox_prefix")
_JETSTREAM: Final = ("jetstream_domain", "jetstream_api_prefix")

_ALIASES: Final = {
    "ls": ("list", "l"),
    "info": ("show",),
    "select": ("switch", "set"),
    "add": ("save", "create"),
    "rm": ("remove", "delete"),
}
"""What the NATS CLI calls them, too."""


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    context = group(commands, "context")
    for name, run, text in (
        ("ls", list_contexts, "List them; the selected one has a star."),
        ("info", show_context, "Settings of one; secrets are not shown."),
        ("select", select_context, "Use this one from now on."),
        ("add", add_context, "Save settings under a name."),
        ("rm", remove_context, "Remove one."),
    ):
        made = context.add_parser(name, help=text, description=text, aliases=_ALIASES[name])
        made.add_argument("-j", "--json", action="store_true", help="JSON lines instead of text")
        made.set_defaults(run=run)
        if name != "ls":
            made.add_argument("name", nargs="?" if name == "info" else None)
        if name == "add":
            for setting in (*_SETTINGS, *_JETSTREAM):
                made.add_argument(f"--{setting.replace('_', '-')}", default="")
            made.add_argument("--description", default="")
            made.add_argument("--select", action="store_true", help="and use it from now on")
        if name in ("add", "rm"):
            made.add_argument("-f", "--force", action="store_true", help="do not ask")


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


def add_context(options: argparse.Namespace) -> int:
    path = _file(options.name)
    if path.exists() and not ask(f"Replace context {options.name}?", options.force):
        return 1
    plain = {"description": options.description}
    plain.update({name: getattr(options, name) for name in (*_SETTINGS, *_JETSTREAM)})
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write_private(path.resolve(), json.dumps(plain, indent=2))  # a link to a file stays one
    contexts.load_context(options.name)  # what cannot be used is said now
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


def remove_context(options: argparse.Namespace) -> int:
    path = _existing(options.name)
    if not ask(f"Remove context {options.name}?", options.force):
        return 1
    path.unlink()
    if contexts.selected_context() == options.name:
        (contexts.config_dir() / "context.txt").unlink()
    _done(options, "removed")
    return 0


def _done(options: argparse.Namespace, what: str) -> None:
    result(options.json, {"context": options.name, "done": what}, f"{what} {options.name}")
