"""`group ...`: partitioned consumer groups."""

from __future__ import annotations

from typing import Any, Final

from jsclient.cli.arguments import Options, arg, positive, split
from jsclient.cli.commands import Commands
from jsclient.cli.connection import opened, over_jetstream
from jsclient.cli.output import Columns, listing, page, record
from jsclient.errors import ConfigError
from jsclient.groups import Filter, PartitionedGroup, create_elastic, open_group, partitioned_groups
from jsclient.jetstream import JetStream


@over_jetstream
def _opened(js: JetStream, options: Options) -> PartitionedGroup:
    return open_group(js, options.stream, options.group)


cli: Commands = Commands(_opened)

_MEMBERS: Final = arg("members", nargs="+")


def _numbers(text: str) -> list[int]:
    return [int(number) for number in split(text)]


def _kind(group: PartitionedGroup) -> str:
    return "elastic" if group.elastic else "static"


_LISTED: Final[Columns] = {
    "GROUP": lambda pair: pair[0].name,
    "KIND": lambda pair: _kind(pair[0]),
    "PARTITIONS": lambda pair: pair[1].partitions,
    "FILTERS": lambda pair: " ".join(pair[1].filters),
    "MEMBERS": lambda pair: len(pair[1].members),
}


@cli("group ls STREAM", opens=opened)
def list_groups(js: JetStream, options: Options) -> None:
    """The groups of a stream."""

    def plain(pair: Any) -> dict[str, Any]:
        return {"name": pair[0].name, "elastic": pair[0].elastic, **pair[1].stored}

    listing(options, [(one, one.config()) for one in partitioned_groups(js, options.stream)], _LISTED, plain=plain)


@cli("group info STREAM GROUP")
def show_group(one: PartitionedGroup, options: Options) -> None:
    """Members, their partitions, and what waits."""
    config, lag, members = one.config(), one.lag(), one.members()
    assigned = config.assignment()
    if options.json:
        told = {name: {"partitions": assigned.get(name, []), "active": bool(info)} for name, info in members.items()}
        record({"config": config.stored, "lag": lag.partitions, "origin_lag": lag.origin, "members": told})
        return
    pairs = [
        ("Kind", _kind(one)),
        ("Partitions", config.partitions),
        ("Filters", " ".join(config.filters)),
        ("Waiting", f"{lag.total:,}"),
        ("Not copied yet", f"{lag.origin:,}" if one.elastic else None),
    ]
    page(f"Group {one.name} of stream {one.stream}", pairs)
    rows = [(name, info, assigned.get(name, [])) for name, info in members.items()]
    columns: Columns = {
        "MEMBER": lambda row: row[0],
        "ACTIVE": lambda row: "yes" if row[1] else "no",
        "ITS PARTITIONS": lambda row: " ".join(map(str, row[2])) or "none",
        "WAITING": lambda row: f"{sum(lag.partitions[partition] for partition in row[2]):,}",
        "UNFINISHED": lambda row: f"{row[1].num_ack_pending:,}" if row[1] else "-",
    }
    listing(options, rows, columns)


@cli(
    "group create STREAM GROUP",
    arg("--partitions", type=positive, required=True, help="fixed for good: take more than you need"),
    arg("--filter", help="subjects of the stream that it takes (default: all)"),
    arg("--wildcards", type=_numbers, default=(), help="which * of the filter decide, such as 1,2 (default: all)"),
    arg("--max-msgs", type=positive, default=0, help="limit of the group's own stream"),
    opens=opened,
)
def create_group(js: JetStream, options: Options) -> Any:
    """Make an elastic group; nothing happens if it is there."""
    if options.wildcards and not options.filter:
        raise ConfigError("--wildcards needs --filter")
    settings: dict[str, Any] = {
        "partitions": options.partitions,
        "filters": [Filter(options.filter, options.wildcards)] if options.filter else [],
        "max_msgs": options.max_msgs,
    }
    made = create_elastic(js, options.stream, options.group, **settings)
    return made.config().stored, f"group {options.group} has {options.partitions} partitions"


@cli("group add STREAM GROUP", _MEMBERS, aliases=())
def add_members(one: PartitionedGroup, options: Options) -> Any:
    """Let members take part."""
    config = one.add(*options.members)
    return config.stored, f"members: {' '.join(config.members)}"


@cli("group drop STREAM GROUP", _MEMBERS)
def drop_members(one: PartitionedGroup, options: Options) -> Any:
    """Let members take part no more."""
    config = one.drop(*options.members)
    return config.stored, f"members: {' '.join(config.members) or 'none'}"


@cli("group step-down STREAM GROUP MEMBER")
def step_down(one: PartitionedGroup, options: Options) -> None:
    """Let another process of a member take over."""
    one.step_down(options.member)


_REMOVAL: Final = "Delete group {group!r} of stream {stream!r}, with what waits in it?"


@cli("group rm STREAM GROUP", ask=_REMOVAL)
def remove_group(one: PartitionedGroup, options: Options) -> None:
    """Delete a group with what waits in it."""
    one.delete()
