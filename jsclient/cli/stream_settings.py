"""The settings of a stream as options of `stream add` and `stream edit`, in the words of the NATS CLI."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from jsclient import errors
from jsclient.cli.arguments import count_of_bytes, positive, seconds, split, storage, taken_as_it_is
from jsclient.jetstream import StreamConfig, StreamSource
from jsclient.jetstream.api import model_base

RETENTIONS: Final = {"limits": "limits", "interest": "interest", "workqueue": "workqueue", "work": "workqueue"}
RETENTIONS_TOO: Final = {**RETENTIONS, "workq": "workqueue"}

_SWITCHES: Final = {
    "allow-rollup": "allow_rollup_hdrs",
    "deny-delete": "deny_delete",
    "deny-purge": "deny_purge",
    "allow-direct": "allow_direct",
    "allow-msg-ttl": "allow_msg_ttl",
    "allow-schedules": "allow_msg_schedules",
    "allow-counter": "allow_msg_counter",
    "allow-batch": "allow_atomic",
}
"""Option -> field; each has a --no- of its own."""


def new_stream(parser: argparse.ArgumentParser) -> None:
    """Options of `stream add`."""
    parser.add_argument("--storage", type=storage, help="file (default) or memory")
    parser.add_argument("--mirror", metavar="STREAM", help="a copy of this stream, without subjects of its own")
    parser.add_argument("--source", action="append", metavar="STREAM", help="copy from this stream; may be repeated")
    parser.add_argument("--config", type=Path, metavar="FILE", help="JSON of a stream; options change it")
    _settings(parser)
    taken_as_it_is(parser, "--defaults")


def present_stream(parser: argparse.ArgumentParser) -> None:
    """Options of `stream edit`."""
    _settings(parser)
    parser.add_argument("--dry-run", action="store_true", help="print what would change")
    taken_as_it_is(parser, "-f", "--force")


def _settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--subjects", action="append", help="with commas")
    parser.add_argument("--retention", choices=tuple(RETENTIONS_TOO), metavar="|".join(RETENTIONS))
    parser.add_argument("--replicas", type=positive)
    parser.add_argument("--max-age", type=seconds, help="seconds, or as 90d; 0: without limit")
    parser.add_argument("--max-msgs", type=int)
    parser.add_argument("--max-msgs-per-subject", type=int)
    parser.add_argument("--max-bytes", type=count_of_bytes, help="bytes, or as 10GB")
    parser.add_argument("--max-msg-size", type=count_of_bytes, help="bytes, or as 64KB")
    parser.add_argument("--max-consumers", type=int)
    parser.add_argument("--dupe-window", type=seconds, help="seconds")
    parser.add_argument("--discard", choices=("old", "new"))
    parser.add_argument("--compression", choices=("none", "s2"))
    parser.add_argument("--description")
    for option in _SWITCHES:
        parser.add_argument(f"--{option}", action=argparse.BooleanOptionalAction)


def wanted_stream(options: argparse.Namespace) -> StreamConfig:
    """What `stream add` creates. Raises ConfigError for a file that holds no configuration."""
    changes = settings(options)
    if options.config is None:
        if not changes.keys() & {"subjects", "mirror", "sources"}:
            raise errors.ConfigError("a stream needs --subjects, --mirror or --source")
        return StreamConfig(name=options.stream, **changes)
    try:
        plain = model_base.decode_json(options.config.read_bytes())
        config = model_base.from_wire(plain.get("config", plain), StreamConfig)
    except (errors.BadResponse, AttributeError) as error:
        raise errors.ConfigError(f"{options.config} holds no configuration of a stream: {error}") from None
    return config.replace(name=options.stream, **changes)


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """What the options say, as keywords of StreamConfig; what they do not mention is left out."""
    sources = [StreamSource(name=name) for name in split(getattr(options, "source", None))]
    mirror = getattr(options, "mirror", None)
    wanted = {
        "subjects": split(options.subjects) or None,
        "storage": getattr(options, "storage", None),
        "retention": RETENTIONS_TOO.get(options.retention),
        "mirror": StreamSource(name=mirror) if mirror else None,
        "sources": sources or None,
        "num_replicas": options.replicas,
        "max_age": options.max_age,
        "max_msgs": options.max_msgs,
        "max_msgs_per_subject": options.max_msgs_per_subject,
        "max_bytes": options.max_bytes,
        "max_msg_size": options.max_msg_size,
        "max_consumers": options.max_consumers,
        "duplicate_window": options.dupe_window,
        "discard": options.discard,
        "compression": options.compression,
        "description": options.description,
        **{field: getattr(options, option.replace("-", "_")) for option, field in _SWITCHES.items()},
    }
    return {key: value for key, value in wanted.items() if value is not None}
