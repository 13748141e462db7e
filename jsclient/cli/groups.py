"""`group ...`: partitioned consumer groups."""

from __future__ import annotations

import argparse
from typing import Any

from jsclient.cli.arguments import command, connect, group, jetstream, positive
from jsclient.cli.output import confirm, page, record, result, table
from jsclient.errors import ConfigError
from jsclient.groups import Filter, PartitionedGroup, create_elastic, group_names, open_group


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    groups = group(commands, "group")
    for name, run, text in (
        ("ls", list_groups, "The groups of a stream."),
        ("info", show_group, "Members, their partitions, and what waits."),
        ("create", create_group, "Make an elastic group; nothing happens if it is there."),
        ("add", add_members, "Let members take part."),
        ("drop", drop_members, "Let members take part no more."),
        ("step-down", step_down, "Let another process of a member take over."),
        ("rm", remove_group, "Delete a group with what waits in it."),
    ):
        made = command(groups, common, name, run, text, () if name == "add" else None)
        made.add_argument("stream")
        if name == "ls":
            continue
        made.add_argument("group")
        if name == "create":
            made.add_argument(
                "--partitions", type=positive, required=True, help="fixed for good: take more than you need"
            )
            made.add_argument("--filter", help="subjects of the stream that it takes (default: all)")
            made.add_argument("--wildcards", help="which * of the filter decide, such as 1 or 1,2 (default: all of it)")
            made.add_argument("--max-msgs", type=positive, default=0, help="limit of the group's own stream")
        if name in ("add", "drop"):
            made.add_argument("members", nargs="+")
        if name == "step-down":
            made.add_argument("member")
        if name == "rm":
            made.add_argument("-f", "--force", action="store_true", help="do not ask")


def list_groups(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        found = [(one, one.config()) for one in group_names(jetstream(nc, options), options.stream)]
    if options.json:
        for one, config in found:
            record({"name": one.name, "elastic": one.elastic, **config.stored})
        return
    rows = [
        (
            one.name,
            "elastic" if one.elastic else "static",
            config.partitions,
            " ".join(config.filters),
            len(config.members),
        )
        for one, config in found
    ]
    table(("GROUP", "KIND", "PARTITIONS", "FILTERS", "MEMBERS"), rows)


def _open(nc: Any, options: argparse.Namespace) -> PartitionedGroup:
    return open_group(jetstream(nc, options), options.stream, options.group)


def show_group(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        one = _open(nc, options)
        config, lag, members = one.config(), one.lag(), one.members()
    assigned = config.assignment()
    if options.json:
        told = {name: {"partitions": assigned.get(name, []), "active": bool(info)} for name, info in members.items()}
        record({"config": config.stored, "lag": lag.partitions, "origin_lag": lag.origin, "members": told})
        return
    pairs = [
        ("Kind", "elastic" if one.elastic else "static"),
        ("Partitions", config.partitions),
        ("Filters", " ".join(config.filters)),
        ("Waiting", f"{lag.total:,}"),
        ("Not copied yet", f"{lag.origin:,}" if one.elastic else None),
    ]
    page(f"Group {one.name} of stream {one.stream}", pairs)
    rows = [
        (
            name,
            "yes" if info else "no",
            " ".join(str(partition) for partition in assigned.get(name, [])) or "none",
            f"{sum(lag.partitions[partition] for partition in assigned.get(name, [])):,}",
            f"{info.num_ack_pending:,}" if info else "-",
        )
        for name, info in members.items()
    ]
    table(("MEMBER", "ACTIVE", "ITS PARTITIONS", "WAITING", "UNFINISHED"), rows)


def create_group(options: argparse.Namespace) -> None:
    if options.wildcards and not options.filter:
        raise ConfigError("--wildcards needs --filter")
    try:
        wildcards = [int(number) for number in (options.wildcards or "").split(",") if number]
    except ValueError:
        raise ConfigError(f"--wildcards are numbers with commas, not {options.wildcards!r}") from None
    filters = [Filter(options.filter, wildcards)] if options.filter else []
    with connect(options) as nc:
        js, partitions = jetstream(nc, options), options.partitions
        one = create_elastic(
            js, options.stream, options.group, partitions=partitions, filters=filters, max_msgs=options.max_msgs
        )
        stored = one.config().stored
    _told(options, f"group {options.group} has {partitions} partitions", stored)


def _told(options: argparse.Namespace, text: str, stored: dict[str, Any]) -> None:
    result(options.json, stored, text)


def add_members(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        config = _open(nc, options).add(*options.members)
    _told(options, f"members: {' '.join(config.members)}", config.stored)


def drop_members(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        config = _open(nc, options).drop(*options.members)
    _told(options, f"members: {' '.join(config.members) or 'none'}", config.stored)


def step_down(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        _open(nc, options).step_down(options.member)


def remove_group(options: argparse.Namespace) -> None:
    confirm(f"Delete group {options.group!r} of stream {options.stream!r}, with what waits in it?", options.force)
    with connect(options) as nc:
        _open(nc, options).delete()
