"""The settings of a consumer as options of `consumer add`, `edit` and `copy`, in the words of the NATS CLI."""

from __future__ import annotations

import argparse
import datetime as dt
from pathlib import Path
from typing import Any, Final

from jsclient import errors
from jsclient.cli.arguments import pair, positive, seconds, split, taken_as_it_is
from jsclient.jetstream import ConsumerConfig
from jsclient.jetstream.api import model_base

_GROUPS: Final = {
    "pinned_groups": "pinned_client",
    "overflow_groups": "overflow",
    "prioritized_groups": "prioritized",
}
"""Option -> priority policy."""


def present_consumer(parser: argparse.ArgumentParser) -> None:
    """Options of `consumer edit`."""
    all_consumers(parser)
    parser.add_argument("--config", type=Path, metavar="FILE", help="JSON of a consumer; options change it")
    parser.add_argument("--dry-run", action="store_true", help="print what would change")
    taken_as_it_is(parser, "-f", "--force")


def new_consumer(parser: argparse.ArgumentParser) -> None:
    """Options of `consumer add`."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="JSON of a consumer; options change it")
    copied_consumer(parser)
    for taken in ("--pull", "--defaults"):
        taken_as_it_is(parser, taken)


def copied_consumer(parser: argparse.ArgumentParser) -> None:
    """Options of `consumer copy`, and of `add`: what is said when a consumer is made, and never again."""
    all_consumers(parser)
    parser.add_argument("--deliver", help="all, last, new, subject (the last of each), a sequence, 1h ago, RFC 3339")
    parser.add_argument("--ack", dest="ack_policy", choices=("explicit", "all", "none"))
    parser.add_argument("--replay", dest="replay_policy", choices=("instant", "original"))
    parser.add_argument("--ephemeral", action="store_true", help="removed when nobody uses it")
    parser.add_argument(
        "--memory", dest="mem_storage", action="store_true", default=None, help="keep its state in memory"
    )
    parser.add_argument("--pause", metavar="UNTIL", help="RFC 3339, or as 1h30m: deliver nothing before (server 2.11)")
    parser.add_argument(
        "--deliver-group", metavar="QUEUE", help="with --target: subscribers of this queue group share the messages"
    )
    parser.add_argument("--flow-control", action="store_true", default=None, help="with --target")
    parser.add_argument(
        "--heartbeat", dest="idle_heartbeat", type=seconds, help="with --target: seconds between signs of life"
    )
    parser.add_argument(
        "--bps", dest="rate_limit_bps", type=positive, help="with --target: bits per second at the most"
    )
    for option in _GROUPS:
        text = f"a consumer with pulls that belong to these groups, {option.split('_')[0]} (server 2.11)"
        parser.add_argument(f"--{option.replace('_', '-')}", action="append", metavar="GROUPS", help=text)
    parser.add_argument(
        "--pinned-ttl",
        dest="priority_timeout",
        type=seconds,
        help="with --pinned-groups: how long a silent client keeps its pin",
    )


def all_consumers(parser: argparse.ArgumentParser) -> None:
    """The options that new, copied and present consumers share."""
    parser.add_argument("--filter", action="append", help="subjects, with commas")
    parser.add_argument("--ack-wait", "--wait", type=seconds, help="seconds")
    parser.add_argument("--max-deliver", type=int, help="-1: without limit")
    parser.add_argument(
        "--max-pending", dest="max_ack_pending", type=int, help="messages delivered and not acknowledged, at the most"
    )
    parser.add_argument("--max-waiting", type=positive, help="pulls that wait, at the most")
    parser.add_argument("--max-pull-batch", dest="max_batch", type=positive, help="messages that a pull may ask for")
    parser.add_argument("--max-pull-expire", dest="max_expires", type=seconds, help="how long a pull may wait")
    parser.add_argument("--max-pull-bytes", dest="max_bytes", type=positive, help="bytes that a pull may ask for")
    parser.add_argument("--inactive-threshold", type=seconds, help="seconds unused until it is removed")
    parser.add_argument("--headers-only", action=argparse.BooleanOptionalAction, help="messages without their payload")
    parser.add_argument("--sample", type=int, metavar="PERCENT", help="acks that the server tells as metrics")
    parser.add_argument(
        "--target", dest="deliver_subject", metavar="SUBJECT", help="a push consumer that delivers there"
    )
    parser.add_argument("--metadata", type=pair, action="append", metavar="KEY=VALUE", help="may be repeated")
    parser.add_argument("--replicas", dest="num_replicas", type=positive)
    parser.add_argument("--description")


def wanted_consumer(options: argparse.Namespace) -> ConsumerConfig:
    """What `consumer add` creates. Raises ConfigError for a file that holds no configuration."""
    if options.config is None:
        return named_consumer(ConsumerConfig(ack_policy="explicit", deliver_policy="all"), options, options.consumer)
    return named_consumer(config_file(options.config), options, options.consumer)


def config_file(path: Path) -> ConsumerConfig:
    """A configuration as `consumer info --json` prints it, or its part `config`."""
    try:
        plain = model_base.decode_json(path.read_bytes())
        return model_base.from_wire(plain.get("config", plain), ConsumerConfig)
    except (errors.BadResponse, AttributeError) as error:
        raise errors.ConfigError(f"{path} holds no configuration of a consumer: {error}") from None


def named_consumer(config: ConsumerConfig, options: argparse.Namespace, name: str) -> ConsumerConfig:
    """A new consumer of this name: a configuration, changed as the options say."""
    groups = [(policy, names) for option, policy in _GROUPS.items() if (names := getattr(options, option)) is not None]
    if len(groups) > 1:
        raise errors.ConfigError("a consumer has groups of one kind: pinned, overflow or prioritized")
    given: dict[str, Any] = {}
    if options.pause is not None:
        given["pause_until"] = until(options.pause)
    for policy, names in groups:
        given.update(priority_policy=policy, priority_groups=split(names))
    given |= {"name": name if options.ephemeral else None, "durable_name": None if options.ephemeral else name}
    if options.deliver is not None:
        given |= {"opt_start_seq": None, "opt_start_time": None, **_start(options.deliver)}
    return config.replace(**given, **settings(options))


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """The given options as keywords of ConsumerConfig. Most of them are stored under the name of their field."""
    wanted = {
        **{field: getattr(options, field, None) for field in ConsumerConfig.__struct_fields__},
        "sample_freq": None if options.sample is None else f"{options.sample}%",
        "metadata": dict(options.metadata) if options.metadata else None,
    }
    given = {key: value for key, value in wanted.items() if value is not None}
    if filters := split(options.filter):
        one = filters[0] if len(filters) == 1 else None
        given |= {"filter_subject": one, "filter_subjects": None if one else filters}
    return given


def _start(text: str) -> dict[str, Any]:
    """--deliver as fields of the configuration."""
    if text in ("all", "last", "new", "last_per_subject"):
        return {"deliver_policy": text}
    if text == "subject":
        return {"deliver_policy": "last_per_subject"}
    if text.isdigit():
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": int(text)}
    if (ago := duration(text)) is not None:
        start = dt.datetime.now(dt.timezone.utc) - dt.timedelta(seconds=ago)
        return {"deliver_policy": "by_start_time", "opt_start_time": start}
    return {"deliver_policy": "by_start_time", "opt_start_time": point_in_time(text)}


def until(text: str) -> dt.datetime:
    """RFC 3339, or how long from now."""
    ahead = duration(text)
    if ahead is None:
        return point_in_time(text)
    return dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=ahead)


def duration(text: str) -> float | None:
    """`1h30m` in seconds; None for what is a date."""
    try:
        return seconds(text)
    except argparse.ArgumentTypeError:
        return None


def point_in_time(text: str) -> dt.datetime:
    """RFC 3339 as a datetime; without a zone it is the local one."""
    try:
        found = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise errors.ConfigError(f"{text!r} is no point in time such as 2026-01-31T12:00:00Z") from None
    return found if found.tzinfo is not None else found.astimezone()
