"""The settings of a consumer as options of `consumer add`, `edit` and `copy`, in the words of the NATS CLI."""

from __future__ import annotations

import argparse
import datetime as dt
from typing import Any, Final

from jsclient.cli.arguments import DESCRIPTION, OneOf, Options, arg, ignored, positive, seconds, split
from jsclient.cli.settings import CONFIG, EDITING, METADATA, changed, config_file, given
from jsclient.jetstream import ConsumerConfig

_POLICIES: Final = {"pinned_client": "pinned", "overflow": "overflow", "prioritized": "prioritized"}
"""Priority policy -> option."""


def moment(text: str, sign: int = 1) -> dt.datetime:
    """RFC 3339 (without a zone: the local one), or how long from now; with `sign` -1, how long ago."""
    try:
        return dt.datetime.now(dt.timezone.utc) + sign * dt.timedelta(seconds=seconds(text))
    except argparse.ArgumentTypeError:
        pass
    try:
        found = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no point in time such as 2026-01-31T12:00:00Z") from None
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


def percent(text: str) -> str:
    return f"{int(text)}%"


_ALL: Final = (
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
    arg("--sample", dest="sample_freq", type=percent, metavar="PERCENT", help="acks that the server tells as metrics"),
    arg("--target", dest="deliver_subject", metavar="SUBJECT", help="a push consumer that delivers there"),
    METADATA,
    arg("--replicas", dest="num_replicas", type=positive),
    DESCRIPTION,
)
"""What new, copied and present consumers share."""

COPIED: Final = (
    *_ALL,
    arg("--deliver", type=_start, help="all, last, new, subject (the last of each), a sequence, 1h ago, RFC 3339"),
    arg("--ack", dest="ack_policy", choices=("explicit", "all", "none")),
    arg("--replay", dest="replay_policy", choices=("instant", "original")),
    arg("--ephemeral", action="store_true", help="removed when nobody uses it"),
    arg("--memory", dest="mem_storage", action="store_true", default=None, help="keep its state in memory"),
    arg(
        "--pause",
        dest="pause_until",
        type=moment,
        metavar="UNTIL",
        help="RFC 3339, or as 1h30m: deliver nothing before",
    ),
    arg("--deliver-group", metavar="QUEUE", help="with --target: subscribers of this queue group share the messages"),
    arg("--flow-control", action="store_true", default=None, help="with --target"),
    arg("--heartbeat", dest="idle_heartbeat", type=seconds, help="with --target: seconds between signs of life"),
    arg("--bps", dest="rate_limit_bps", type=positive, help="with --target: bits per second at the most"),
    OneOf(
        [
            arg(
                f"--{word}-groups", dest=policy, type=split, action="extend", metavar="GROUPS", help=f"of pulls, {word}"
            )
            for policy, word in _POLICIES.items()
        ]
    ),
    arg("--pinned-ttl", dest="priority_timeout", type=seconds, help="how long a silent client keeps its pin"),
)
"""Options of `consumer copy`, and of `add`: some are said when a consumer is made, and never again."""

NEW: Final = (CONFIG, *COPIED, ignored("--pull"), ignored("--defaults"))
PRESENT: Final = (*_ALL, *EDITING)


def settings(options: Options) -> dict[str, Any]:
    """The given options as keywords of ConsumerConfig."""
    found = given(options, ConsumerConfig)
    if filters := found.get("filter_subjects"):
        one = filters[0] if len(filters) == 1 else None
        found |= {"filter_subject": one, "filter_subjects": None if one else filters}
    return found


def wanted_consumer(options: Options) -> ConsumerConfig:
    """What `consumer add` creates. Raises ConfigError for a file that holds no configuration."""
    if options.config is None:
        return named_consumer(ConsumerConfig(ack_policy="explicit", deliver_policy="all"), options, options.consumer)
    return named_consumer(config_file(options.config, ConsumerConfig), options, options.consumer)


def named_consumer(config: ConsumerConfig, options: Options, name: str) -> ConsumerConfig:
    """A new consumer of this name: a configuration, changed as the options say."""
    changes = {**settings(options), **(options.deliver or {}), "name": None, "durable_name": name}
    if options.ephemeral:
        changes |= {"name": name, "durable_name": None}
    for policy in _POLICIES:
        if names := getattr(options, policy):
            changes |= {"priority_policy": policy, "priority_groups": names}
    return changed(config, changes)
