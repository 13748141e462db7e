"""Options of a command as fields of a configuration class. An option is stored under the name of its field, as `dest`
says it; `placement.tags` is part `tags` of field `placement`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, TypeVar

import attrs

from jsclient import errors
from jsclient.cli.arguments import Options, arg, ignored, pair
from jsclient.cli.infos import show_changes
from jsclient.jetstream import (
    ConsumerConfig,
    Placement,
    Republish,
    StreamConfig,
    StreamConsumerLimits,
    SubjectTransform,
)
from jsclient.jetstream.api import model_base

C = TypeVar("C", StreamConfig, ConsumerConfig)

REMOVED: Final = object()
"""Stored by an option that ends what a stream was made for."""

CONFIG: Final = arg("--config", type=Path, metavar="FILE", help="JSON as `info --json` prints it; options change it")
METADATA: Final = arg("--metadata", type=pair, action="append", metavar="KEY=VALUE", help="may be repeated")
EDITING: Final = (
    CONFIG,
    arg("--dry-run", action="store_true", help="print what would change"),
    ignored("-f", "--force"),
)

_PARTS: Final[dict[str, Any]] = {
    "placement": Placement,
    "subject_transform": SubjectTransform,
    "republish": Republish,
    "consumer_limits": StreamConsumerLimits,
}


def given(options: Options, kind: Any) -> dict[str, Any]:
    """The options of a command that are fields of this class."""
    known = kind.__struct_fields__ if issubclass(kind, model_base.Wire) else attrs.fields_dict(kind)
    found: dict[str, Any] = {}
    for name, value in vars(options).items():
        field, _, part = name.partition(".")
        if value is None or field not in known:
            continue
        if part:
            found[field] = {**found.get(field, {}), part: value}
        else:
            found[field] = None if value is REMOVED else dict(value) if field == "metadata" else value
    return found


def changed(config: C, changes: dict[str, Any]) -> C:
    """A configuration with these fields. Parts that the options do not name stay as they are."""
    changes = dict(changes)
    for field, kind in _PARTS.items():
        parts = changes.get(field)
        if isinstance(parts, dict):
            before = getattr(config, field)
            if before is None and len(parts.keys() & {"src", "dest"}) == 1:
                raise errors.ConfigError(f"the source and the destination of {field} belong together: give both")
            after = (before or kind()).replace(**{name: part or None for name, part in parts.items()})
            changes[field] = None if after == kind() else after
    return config.replace(**changes)


def config_file(path: Path, kind: type[C]) -> C:
    """A configuration as `info --json` prints it, or its part `config`."""
    what = "stream" if kind is StreamConfig else "consumer"
    try:
        plain = model_base.decode_json(path.read_bytes())
        return model_base.from_wire(plain.get("config", plain), kind)
    except (errors.BadResponse, AttributeError) as error:
        raise errors.ConfigError(f"{path} holds no configuration of a {what}: {error}") from None


def edited(options: Options, before: C, changes: dict[str, Any], names: tuple[str, ...]) -> C | None:
    """The configuration that `edit` leads to; its `names` stay. None: --dry-run has shown it."""
    if not changes and options.config is None:
        raise errors.ConfigError("nothing to change: name at least one setting, or --config FILE")
    base = before
    if options.config is not None:
        base = config_file(options.config, type(before)).replace(**{name: getattr(before, name) for name in names})
    after = changed(base, changes)
    if options.dry_run:
        show_changes(before, after)
        return None
    return after
