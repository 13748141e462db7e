"""NATS CLI contexts: the files that `nats context add` writes, as options for `connect`.

jsclient.connect(**load_context("production"))     # by name
jsclient.connect(**load_context())                 # the selected one
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from jsclient.auth.secret import ENV_PREFIX, Literal
from jsclient.errors import ConfigError
from jsclient.options import TLSOptions

MAX_CONTEXT_SIZE: Final = 1024 * 1024
# Settings of the CLI that change a connection or its permissions, and that we cannot apply. They raise an error.
_REFUSED: Final = {
    "nsc": "export the credentials with `nsc generate creds` and name the file as creds",
    "socks_proxy": "use the option socket_factory for a proxy",
    "windows_cert_store": "export the certificate to a file",
}


def load_context(name: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """The options of a context: keyword arguments for `ConnectOptions` and `connect`.

    `name` is a context name or the path of a context file (anything with a `/` or ending in `.json`). Without it the
    selected context applies. Files are in `$XDG_CONFIG_HOME/nats/context`, by default `~/.config/nats/context`. For the
    JetStream settings see `jetstream_options`. Raises ConfigError, which never quotes the file.
    """
    return _connect_options(read_context(name))


def jetstream_options(name: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """The JetStream settings of a context: `domain` or `api_prefix` for `JetStream(nc, **...)`.

    `name` is the context, or the path of its file; by default the selected one.
    """
    fields = read_context(name)
    pairs = {"domain": _text(fields, "jetstream_domain"), "api_prefix": _text(fields, "jetstream_api_prefix")}
    return {key: value for key, value in pairs.items() if value}


def read_context(name: str | os.PathLike[str] | None = None) -> Mapping[str, Any]:
    """All settings of a context, under the names in the file. `name` works as in `load_context`. Raises ConfigError."""
    return _read(_context_path(name))


def context_names() -> list[str]:
    """The names of all contexts, sorted."""
    return sorted(path.stem for path in (config_dir() / "context").glob("*.json"))


def selected_context() -> str | None:
    """The name that `nats context select` has stored, or None."""
    try:
        return (config_dir() / "context.txt").read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def config_dir() -> Path:
    """The folder in which the NATS CLI keeps its contexts."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "nats"


def _context_path(name: str | os.PathLike[str] | None) -> Path:
    if name is None:
        name = selected_context()
        if name is None:
            raise ConfigError("no NATS context is selected; name one, or run `nats context select`")
    text = os.fspath(name)
    if "/" in text or os.sep in text or text.endswith(".json"):
        return Path(text).expanduser()
    if not text or ".." in text or "\0" in text:
        raise ConfigError(f"{text!r} is no context name")
    path = config_dir() / "context" / f"{text}.json"
    if not path.exists():
        known = ", ".join(context_names()) or "none"
        raise ConfigError(f"there is no NATS context {text!r} in {path.parent} (known: {known})")
    return path


def _read(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_CONTEXT_SIZE + 1)
    except OSError as error:
        raise ConfigError(f"cannot read the NATS context {path}: {error.strerror or error}") from None
    if len(data) > MAX_CONTEXT_SIZE:
        raise ConfigError(f"the NATS context {path} is larger than 1 MB: that is no context file")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise ConfigError(f"the NATS context {path} is not JSON: write it again with `nats context save`") from None
    if not isinstance(fields, dict):
        raise ConfigError(f"the NATS context {path} is not a JSON object: write it again with `nats context save`")
    return fields


def _text(fields: Mapping[str, Any], key: str) -> str | None:
    value = fields.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise ConfigError(f"{key} in the NATS context must be text")
    return value


def _literal(fields: Mapping[str, Any], key: str) -> str | Literal | None:
    """The CLI takes `env:NAME` in a context literally, and so do we: a file cannot name environment variables."""
    value = _text(fields, key)
    return Literal(value) if value is not None and value.startswith(ENV_PREFIX) else value


def _path(fields: Mapping[str, Any], key: str) -> str | None:
    """A file name, with environment variables and ~ expanded as the CLI does."""
    value = _text(fields, key)
    if value and "://" in value:
        raise ConfigError(
            f"{key} in the NATS context must be a file; jsclient does not resolve {value.split(':')[0]}://"
        )
    if not value:
        return None
    path = os.path.expanduser(os.path.expandvars(value))
    return os.path.join(".", path) if path.startswith(ENV_PREFIX) else path


def _connect_options(fields: Mapping[str, Any]) -> dict[str, Any]:
    for key, advice in _REFUSED.items():
        if fields.get(key):
            raise ConfigError(f"the NATS context uses {key}, which jsclient does not support: {advice}")
    options: dict[str, Any] = {
        "servers": _text(fields, "url"),
        "inbox_prefix": _text(fields, "inbox_prefix"),
        "tls": _tls(fields),
        **_credentials(fields),
    }
    return {key: value for key, value in options.items() if value is not None}


def _credentials(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The first kind of credentials in the context, in the order of the CLI (contexts may hold several)."""
    user, creds, nkey = _literal(fields, "user"), _path(fields, "creds"), _path(fields, "nkey")
    password, jwt, seed = _literal(fields, "password"), _literal(fields, "user_jwt"), _literal(fields, "user_seed")
    if user:
        return {"user": user, "password": password or ""}
    if creds:
        return {"credentials": creds}
    if jwt or seed or nkey:
        return {"jwt": jwt, "nkey_seed": seed, "nkey_seed_file": None if seed else nkey}
    return {"token": _literal(fields, "token")}


def _tls(fields: Mapping[str, Any]) -> TLSOptions | None:
    files = {"ca_file": _path(fields, "ca"), "cert_file": _path(fields, "cert"), "key_file": _path(fields, "key")}
    first = fields.get("tls_first") is True
    if not first and not any(files.values()):
        return None
    return TLSOptions(**files, handshake_first=first)
