"""The settings of streams, consumers and buckets as options of commands, in the words of the NATS CLI.

An option is stored under the name of a field of the configuration class (`dest`). Rare settings have no option; use
--config for them.
"""

from __future__ import annotations

import argparse
import datetime as dt
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs

from jsclient import errors
from jsclient.cli.arguments import (
    DESCRIPTION,
    FORCED,
    OneOf,
    Options,
    arg,
    count_of_bytes,
    ignored,
    pair,
    positive,
    seconds,
    spelled,
    split,
    storage,
)
from jsclient.cli.infos import show_changes
from jsclient.jetstream import ConsumerConfig, StreamConfig, StreamSource
from jsclient.jetstream.api import model_base

C = TypeVar("C", StreamConfig, ConsumerConfig)

CONFIG: Final = arg("--config", type=Path, metavar="FILE", help="JSON as `info --json` prints it; options change it")
METADATA: Final = arg("--metadata", type=pair, action="append", metavar="KEY=VALUE", help="may be repeated")
EDITING: Final = (
    CONFIG,
    arg("--dry-run", action="store_true", help="print what would change"),
    FORCED,
)

OF_BUCKET: Final = (
    arg("--ttl", type=seconds, help="seconds until a value or object expires; 0: never"),
    arg("--replicas", type=positive),
    arg("--max-bucket-size", dest="max_bytes", type=count_of_bytes, help="bytes, or as 10GB"),
    arg("--compress", dest="compression", action=argparse.BooleanOptionalAction, help="on disk (server 2.10)"),
    DESCRIPTION,
)
"""Options of new and present buckets, of keys or of objects."""
STORAGE: Final = arg("--storage", type=storage, default="file", help="file (default) or memory")


def given(options: Options, kind: Any) -> dict[str, Any]:
    """The options of a command that are fields of this class."""
    known = kind.__struct_fields__ if issubclass(kind, model_base.Wire) else attrs.fields_dict(kind)
    found = {name: value for name, value in vars(options).items() if name in known and value not in (None, [])}
    return {**found, "metadata": dict(found["metadata"])} if "metadata" in found else found


def config_file(path: Path, kind: type[C]) -> C:
    """A configuration as `info --json` prints it, or its part `config`."""
    what = "stream" if kind is StreamConfig else "consumer"
    try:
        plain = model_base.decode_json(path.read_bytes())
        return model_base.from_wire(plain.get("config", plain), kind)
    except (errors.BadResponse, AttributeError) as error:
        why = errors.brief(error).replace("the answer", "it", 1)
        raise errors.ConfigError(f"{path} holds no configuration of a {what}: {why}") from None


def edited(options: Options, before: C, changes: dict[str, Any], names: tuple[str, ...]) -> C | None:
    """The configuration after `edit`; its `names` stay. None if --dry-run has only shown it."""
    if not changes and options.config is None:
        raise errors.ConfigError("nothing to change: name at least one setting, or --config FILE")
    base = before
    if options.config is not None:
        base = config_file(options.config, type(before)).replace(**{name: getattr(before, name) for name in names})
    after = base.replace(**changes)
    if options.dry_run:
        show_changes(before, after)
        return None
    return after


# --- streams ---------------------------------------------------------------------------------------------------

_RETENTION: Final = spelled(limits="", interest="", workqueue="work workq")

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
"""Option -> field; each also has a --no- form."""


def _setting(option: str, field: str, **more: Any) -> Any:
    return arg(f"--{option}", dest=field, **more)


def _sources(names: str) -> list[StreamSource]:
    return [StreamSource(name=name) for name in split(names)]


OF_ALL_STREAMS: Final = (
    arg("--subjects", type=split, action="extend", help="with commas"),
    arg("--retention", type=_RETENTION, metavar="limits|interest|workqueue"),
    _setting("replicas", "num_replicas", type=positive),
    arg("--max-age", type=seconds, help="seconds, or as 90d; 0: without limit"),
    arg("--max-msgs", type=int),
    arg("--max-msgs-per-subject", type=int),
    arg("--max-bytes", type=count_of_bytes, help="bytes, or as 10GB"),
    arg("--max-msg-size", type=count_of_bytes, help="bytes, or as 64KB"),
    arg("--max-consumers", type=int),
    _setting("dupe-window", "duplicate_window", type=seconds, help="seconds"),
    arg("--discard", choices=("old", "new")),
    arg("--compression", choices=("none", "s2")),
    DESCRIPTION,
    METADATA,
    *(_setting(option, field, action=argparse.BooleanOptionalAction) for option, field in _SWITCHES.items()),
)
"""Options of new and present streams."""

OF_NEW_STREAM: Final = (
    arg("--storage", type=storage, help="file (default) or memory"),
    arg("--mirror", type=lambda name: StreamSource(name=name), metavar="STREAM", help="be a copy of this stream"),
    _setting("source", "sources", type=_sources, action="extend", metavar="STREAM", help="copy from these streams"),
    CONFIG,
    *OF_ALL_STREAMS,
    ignored("--defaults"),
)
"""Options of `stream add`."""


OF_STREAM: Final = (*OF_ALL_STREAMS, *EDITING)
"""Options of `stream edit`."""


def wanted_stream(options: Options) -> StreamConfig:
    """The configuration that `stream add` creates. Raises ConfigError for a file that holds no configuration."""
    changes = given(options, StreamConfig)
    if options.config is not None:
        base = config_file(options.config, StreamConfig)
    elif changes.keys() & {"subjects", "mirror", "sources"}:
        base = StreamConfig()
    else:
        raise errors.ConfigError("a stream needs --subjects, --mirror or --source")
    return base.replace(**{**changes, "name": options.stream})


# --- consumers -------------------------------------------------------------------------------------------------

_GROUPS: Final[dict[str, Any]] = {"type": split, "action": "extend", "metavar": "GROUPS", "help": "it has such groups"}


def moment(text: str, sign: int = 1) -> dt.datetime:
    """RFC 3339 (without a zone: the local one), or how long from now; with `sign` -1, how long ago."""
    try:
        return dt.datetime.now(dt.timezone.utc) + sign * dt.timedelta(seconds=seconds(text))
    except argparse.ArgumentTypeError:
        pass
    try:
        found = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a point in time such as 2026-01-31T12:00:00Z, not {text}") from None
    return found if found.tzinfo is not None else found.astimezone()


def _start(text: str) -> dict[str, Any]:
    """--deliver as fields of the configuration."""
    if text in ("all", "last", "new", "last_per_subject", "subject"):
        found: dict[str, Any] = {"deliver_policy": "last_per_subject" if text == "subject" else text}
    elif text.isdigit():
        found = {"deliver_policy": "by_start_sequence", "opt_start_seq": int(text)}
    else:
        found = {"deliver_policy": "by_start_time", "opt_start_time": moment(text, -1)}
    return {"opt_start_seq": None, "opt_start_time": None, **found}


_OF_ALL_CONSUMERS: Final = (
    arg("--filter", dest="filter_subjects", type=split, action="extend", help="subjects, with commas"),
    arg("--ack-wait", "--wait", type=seconds, help="seconds"),
    arg("--max-deliver", type=int, help="-1: without limit"),
    arg("--max-pending", dest="max_ack_pending", type=int, help="most messages delivered and not acknowledged"),
    arg("--max-waiting", type=positive, help="pulls that wait, at the most"),
    arg("--max-pull-batch", dest="max_batch", type=positive, help="messages that a pull may ask for"),
    arg("--max-pull-expire", dest="max_expires", type=seconds, help="how long a pull may wait"),
    arg("--max-pull-bytes", dest="max_bytes", type=positive, help="bytes that a pull may ask for"),
    arg("--inactive-threshold", type=seconds, help="seconds unused until it is removed"),
    arg("--headers-only", action=argparse.BooleanOptionalAction, help="messages without their payload"),
    arg("--target", dest="deliver_subject", metavar="SUBJECT", help="a push consumer that delivers there"),
    METADATA,
    arg("--replicas", dest="num_replicas", type=positive),
    DESCRIPTION,
)
"""Options of new and present consumers."""

OF_NEW_CONSUMER: Final = (
    CONFIG,
    *_OF_ALL_CONSUMERS,
    arg("--deliver", type=_start, help="all, last, new, subject (the last of each), a sequence, 1h ago, RFC 3339"),
    arg("--ack", dest="ack_policy", choices=("explicit", "all", "none")),
    arg("--replay", dest="replay_policy", choices=("instant", "original")),
    arg("--ephemeral", action="store_true", help="removed when nobody uses it"),
    arg("--memory", dest="mem_storage", action="store_true", default=None, help="keep its state in memory"),
    arg("--pause", dest="pause_until", type=moment, metavar="UNTIL", help="deliver nothing before: RFC 3339, or 1h30m"),
    OneOf(
        arg("--pinned-groups", dest="pinned_client", **_GROUPS),
        arg("--overflow-groups", dest="overflow", **_GROUPS),
        arg("--prioritized-groups", dest="prioritized", **_GROUPS),
    ),
    arg("--pinned-ttl", dest="priority_timeout", type=seconds, help="how long a silent client keeps its pin"),
    ignored("--pull"),
    ignored("--defaults"),
)
"""Options of `consumer add`; a present consumer keeps some of them forever."""

OF_CONSUMER: Final = (*_OF_ALL_CONSUMERS, *EDITING)


def consumer_settings(options: Options) -> dict[str, Any]:
    """The given options as keywords of ConsumerConfig."""
    found = given(options, ConsumerConfig)
    if filters := found.get("filter_subjects"):
        one = filters[0] if len(filters) == 1 else None
        found |= {"filter_subject": one, "filter_subjects": None if one else filters}
    return found


def wanted_consumer(options: Options) -> ConsumerConfig:
    """The configuration that `consumer add` creates. Raises ConfigError for a file that holds no configuration."""
    if options.config is None:
        return named_consumer(ConsumerConfig(ack_policy="explicit", deliver_policy="all"), options, options.consumer)
    return named_consumer(config_file(options.config, ConsumerConfig), options, options.consumer)


def named_consumer(config: ConsumerConfig, options: Options, name: str) -> ConsumerConfig:
    """A new consumer of this name: a configuration, changed as the options say."""
    changes = {**consumer_settings(options), **(options.deliver or {}), "name": None, "durable_name": name}
    if options.ephemeral:
        changes |= {"name": name, "durable_name": None}
    for policy in ("pinned_client", "overflow", "prioritized"):
        if names := getattr(options, policy):
            changes |= {"priority_policy": policy, "priority_groups": names}
    return config.replace(**changes)
