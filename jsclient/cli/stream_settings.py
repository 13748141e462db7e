"""The settings of a stream as options of `stream add` and `stream edit`, in the words of the NATS CLI."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from jsclient import errors
from jsclient.cli.arguments import count_of_bytes, pair, positive, seconds, split, storage, taken_as_it_is
from jsclient.jetstream import (
    Placement,
    Republish,
    StreamConfig,
    StreamConsumerLimits,
    StreamSource,
    SubjectTransform,
)
from jsclient.jetstream.api import model_base

RETENTIONS: Final = {"limits": "limits", "interest": "interest", "workqueue": "workqueue", "work": "workqueue"}
RETENTIONS_TOO: Final = {**RETENTIONS, "workq": "workqueue"}

_SWITCHES: Final = {
    "allow-rollup": "allow_rollup_hdrs",
    "deny-delete": "deny_delete",
    "deny-purge": "deny_purge",
    "allow-direct": "allow_direct",
    "allow-mirror-direct": "mirror_direct",
    "allow-msg-ttl": "allow_msg_ttl",
    "allow-schedules": "allow_msg_schedules",
    "allow-counter": "allow_msg_counter",
    "allow-batch": "allow_atomic",
    "allow-fast": "allow_batched",
    "discard-per-subject": "discard_new_per_subject",
}
"""Option -> field; each has a --no- of its own."""

_REMOVALS: Final = {"no-mirror": "mirror", "no-transform": "subject_transform", "no-republish": "republish"}
"""Options of `stream edit` that end what a stream was made for."""


def new_stream(parser: argparse.ArgumentParser) -> None:
    """Options of `stream add`."""
    parser.add_argument("--storage", type=storage, help="file (default) or memory")
    parser.add_argument("--mirror", metavar="STREAM", help="a copy of this stream, without subjects of its own")
    parser.add_argument("--source", action="append", metavar="STREAM", help="copy from this stream; may be repeated")
    parser.add_argument("--config", type=Path, metavar="FILE", help="JSON of a stream; options change it")
    parser.add_argument(
        "--first-sequence", dest="first_seq", type=positive, help="sequence of its first message (server 2.10)"
    )
    parser.add_argument("--limit-consumer-inactive", type=seconds, help="longest --inactive-threshold of a consumer")
    parser.add_argument("--limit-consumer-max-pending", type=positive, help="largest --max-pending of a consumer")
    parser.add_argument("--persist-mode", choices=("default", "async"))
    all_streams(parser)
    taken_as_it_is(parser, "--defaults")


def present_stream(parser: argparse.ArgumentParser) -> None:
    """Options of `stream edit`."""
    all_streams(parser)
    parser.add_argument("--config", type=Path, metavar="FILE", help="JSON of a stream; options change it")
    parser.add_argument("--no-mirror", action="store_true", help="a mirror becomes a stream of its own (server 2.12)")
    parser.add_argument("--no-transform", action="store_true", help="end the transform of subjects")
    parser.add_argument("--no-republish", action="store_true", help="end republishing")
    parser.add_argument("--dry-run", action="store_true", help="print what would change")
    taken_as_it_is(parser, "-f", "--force")


def all_streams(parser: argparse.ArgumentParser) -> None:
    """The options that new, copied and present streams share."""
    parser.add_argument("--subjects", action="append", help="with commas")
    parser.add_argument("--retention", choices=tuple(RETENTIONS_TOO), metavar="|".join(RETENTIONS))
    parser.add_argument("--replicas", dest="num_replicas", type=positive)
    parser.add_argument("--max-age", type=seconds, help="seconds, or as 90d; 0: without limit")
    parser.add_argument("--max-msgs", type=int)
    parser.add_argument("--max-msgs-per-subject", type=int)
    parser.add_argument("--max-bytes", type=count_of_bytes, help="bytes, or as 10GB")
    parser.add_argument("--max-msg-size", type=count_of_bytes, help="bytes, or as 64KB")
    parser.add_argument("--max-consumers", type=int)
    parser.add_argument("--dupe-window", dest="duplicate_window", type=seconds, help="seconds")
    parser.add_argument("--discard", choices=("old", "new"))
    parser.add_argument("--compression", choices=("none", "s2"))
    parser.add_argument("--description")
    parser.add_argument("--metadata", type=pair, action="append", metavar="KEY=VALUE", help="may be repeated")
    parser.add_argument("--cluster", help='where its servers have to be; "": anywhere')
    parser.add_argument("--tag", "--tags", action="append", help='tags that its servers have; "": any')
    parser.add_argument("--transform-source", metavar="SUBJECT", help="with --transform-destination (server 2.10)")
    parser.add_argument("--transform-destination", metavar="SUBJECT", help="the subject under which it is stored")
    parser.add_argument("--republish-source", metavar="SUBJECT", help="what is published again, once stored")
    parser.add_argument("--republish-destination", metavar="SUBJECT")
    parser.add_argument("--republish-headers", action="store_true", help="its headers alone")
    parser.add_argument(
        "--subject-del-markers-ttl",
        dest="subject_delete_marker_ttl",
        type=seconds,
        help="how long markers stay (server 2.11)",
    )
    for option, field in _SWITCHES.items():
        parser.add_argument(f"--{option}", dest=field, action=argparse.BooleanOptionalAction)


def wanted_stream(options: argparse.Namespace) -> StreamConfig:
    """What `stream add` creates. Raises ConfigError for a file that holds no configuration."""
    changes = settings(options)
    if options.config is None:
        if not changes.keys() & {"subjects", "mirror", "sources"}:
            raise errors.ConfigError("a stream needs --subjects, --mirror or --source")
        return StreamConfig(name=options.stream, **changes)
    return config_file(options.config).replace(name=options.stream, **changes)


def config_file(path: Path) -> StreamConfig:
    """A configuration as `stream info --json` prints it, or its part `config`."""
    try:
        plain = model_base.decode_json(path.read_bytes())
        return model_base.from_wire(plain.get("config", plain), StreamConfig)
    except (errors.BadResponse, AttributeError) as error:
        raise errors.ConfigError(f"{path} holds no configuration of a stream: {error}") from None


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """The given options as keywords of StreamConfig. Most of them are stored under the name of their field."""
    limits = {
        "inactive_threshold": getattr(options, "limit_consumer_inactive", None),
        "max_ack_pending": getattr(options, "limit_consumer_max_pending", None),
    }
    mirror = getattr(options, "mirror", None)
    transform, republish = _both(options, "transform"), _both(options, "republish")
    headers_only = options.republish_headers or None
    wanted = {
        **{field: getattr(options, field, None) for field in StreamConfig.__struct_fields__},
        "subjects": split(options.subjects) or None,
        "retention": RETENTIONS_TOO.get(options.retention),
        "mirror": StreamSource(name=mirror) if mirror else None,
        "sources": [StreamSource(name=name) for name in split(getattr(options, "source", None))] or None,
        "metadata": dict(options.metadata) if options.metadata else None,
        "placement": _placement(options),
        "subject_transform": SubjectTransform(**transform) if transform else None,
        "republish": Republish(**republish, headers_only=headers_only) if republish else None,
        "consumer_limits": StreamConsumerLimits(**limits) if any(limits.values()) else None,
    }
    ended = {field: None for option, field in _REMOVALS.items() if getattr(options, option.replace("-", "_"), False)}
    return {**{key: value for key, value in wanted.items() if value is not None}, **ended}


def _both(options: argparse.Namespace, what: str) -> dict[str, Any] | None:
    """--WHAT-source and --WHAT-destination, which belong together."""
    source, destination = getattr(options, f"{what}_source"), getattr(options, f"{what}_destination")
    if (source is None) != (destination is None):
        raise errors.ConfigError(f"--{what}-source and --{what}-destination belong together: give both")
    return None if source is None else {"src": source, "dest": destination}


def _placement(options: argparse.Namespace) -> Placement | None:
    if options.cluster is None and options.tag is None:
        return None
    return Placement(cluster=options.cluster, tags=None if options.tag is None else split(options.tag))


def changed(config: StreamConfig, changes: dict[str, Any]) -> StreamConfig:
    """A present stream with these settings; of where it is placed only what was said changes."""
    placed = changes.get("placement")
    if placed is not None:
        before = config.placement or Placement()
        cluster = before.cluster if placed.cluster is None else placed.cluster
        tags = before.tags if placed.tags is None else placed.tags
        changes = {
            **changes,
            "placement": Placement(cluster=cluster or None, tags=tags or None) if cluster or tags else None,
        }
    return config.replace(**changes)
