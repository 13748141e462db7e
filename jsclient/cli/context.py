"""`context ...`: the connection settings that the NATS CLI keeps in files, read and written in its format."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jsclient
from jsclient import contexts, errors, nuid
from jsclient.cli.arguments import FORCE, Options, arg
from jsclient.cli.commands import Commands
from jsclient.cli.output import Columns, columns, complain, confirm, details, line, listing, record, result

cli: Commands = Commands()

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
"""Setting in the file -> options of a connection, and their names in the file."""

_GIVEN: Final = (
    *(arg(*spellings, dest=setting) for setting, spellings in _SETTINGS.items()),
    arg("--tlsfirst", dest="tls_first", action="store_true", default=None),
)
_SAVED: Final = (*_GIVEN, arg("--select", action="store_true", help="and use it from now on"), FORCE)


def _file(name: str) -> Path:
    if not name or "/" in name or os.sep in name or ".." in name or "\0" in name:
        raise errors.ConfigError(f"{name!r} is no context name")
    return contexts.config_dir() / "context" / f"{name}.json"


def _selection() -> Path:
    return contexts.config_dir() / "context.txt"


def _existing(name: str) -> Path:
    path = _file(name)
    if not path.exists():
        known = ", ".join(contexts.context_names()) or "none"
        raise errors.ConfigError(f"there is no NATS context {name!r} (known: {known})")
    return path


@cli.local("context ls", aliases=("list", "l"))
def list_contexts(options: Options) -> None:
    """List them; the selected one has a star."""
    selected, names = contexts.selected_context(), contexts.context_names()
    if options.json:
        for name in names:
            record({"name": name, "selected": name == selected})
        return
    found = []
    for name in names:
        try:
            found.append({"url": "", "description": "", **contexts.read_context(name), "name": name})
        except errors.ConfigError as error:
            complain(str(error))
    titles: Columns = {
        "NAME": lambda one: f"{one['name']}{'*' if one['name'] == selected else ''}",
        **columns(URL="url", DESCRIPTION="description"),
    }
    listing(options, found, titles, empty="" if names else "no contexts")


@cli.local("context info [NAME]", aliases=("show",))
def show_context(options: Options) -> None:
    """Settings of one; secrets are not shown."""
    name = options.name or contexts.selected_context()
    if not name:
        raise errors.ConfigError("no NATS context is selected; name one")
    plain = {
        key: "********" if key in _SECRET and value else value
        for key, value in contexts.read_context(name).items()
        if value not in ("", None, False)
    }
    details(options, {"name": name, **plain}, f"Context {name}", plain.items())


def _done(options: Options, what: str) -> Any:
    return {"context": options.name, "done": what}, f"{what} {options.name}"


@cli.local("context select NAME", aliases=("switch", "set"))
def select_context(options: Options) -> Any:
    """Use this one from now on."""
    _existing(options.name)
    _selection().write_text(options.name, encoding="utf-8")
    return _done(options, "selected")


@cli.local("context unselect")
def unselect_context(options: Options) -> Any:
    """Select none."""
    _selection().unlink(missing_ok=True)
    return {"done": "unselected"}, "no context is selected"


def _given(options: Options) -> dict[str, Any]:
    """Settings from the options; an empty one removes the setting."""
    wanted = {name: getattr(options, name) for name in (*_SETTINGS, "tls_first")}
    return {name: value for name, value in wanted.items() if value is not None}


@cli.local("context add NAME", *_SAVED, aliases=("save", "create"))
def add_context(options: Options) -> Any:
    """Save settings under a name."""
    return _save(options, {**dict.fromkeys(_SETTINGS, ""), **_given(options)})


@cli.local("context copy SOURCE NAME", *_SAVED)
def copy_context(options: Options) -> Any:
    """Save the settings of one under another name; options change them."""
    return _save(options, {**contexts.read_context(options.source), **_given(options)})


@cli.local("context edit NAME", *_GIVEN, aliases=())
def edit_context(options: Options) -> Any:
    """Change settings of one; an empty value removes one."""
    path, changes = _existing(options.name), _given(options)
    if not changes:
        raise errors.ConfigError("nothing to change: name at least one setting, such as --server URL")
    _write(path, {**contexts.read_context(options.name), **changes})
    return _done(options, "saved")


_CONNECT: Final = arg("--connect", action="store_true", help="and connect with it")


@cli.local("context validate [NAME]", _CONNECT)
def validate_contexts(options: Options) -> int:
    """Read one, or all of them; the exit status is 1 if one cannot be used."""
    names = [options.name] if options.name else contexts.context_names()
    bad = 0
    for name in names:
        problem = _problem(name, options.connect)
        bad += bool(problem)
        result(options, {"context": name, "error": problem or None}, f"{name}: {problem or 'ok'}")
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


def _save(options: Options, plain: Mapping[str, Any]) -> Any:
    path = _file(options.name)
    if path.exists():
        confirm(f"Replace context {options.name}?", options.force)
    _write(path, plain)
    return select_context(options) if options.select else _done(options, "saved")


def _write(path: Path, plain: Mapping[str, Any]) -> None:
    """Replace the file, because the old one may be readable by others, or be open in their processes. A link stays a
    link."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.resolve().with_name(f".{nuid.next_nuid()}.part")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(json.dumps(dict(plain), indent=2))
        contexts.load_context(str(part))  # a setting that cannot be used is reported, and not saved
        os.replace(part, path.resolve())
    finally:
        part.unlink(missing_ok=True)


@cli.local("context rm NAME", FORCE, aliases=("remove", "delete"))
def remove_context(options: Options) -> Any:
    """Remove one."""
    path = _existing(options.name)
    confirm(f"Remove context {options.name}?", options.force)
    path.unlink()
    if contexts.selected_context() == options.name:
        _selection().unlink()
    return _done(options, "removed")
