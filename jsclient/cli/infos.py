"""Pages about one stream, consumer, bucket or object, with all information from the server, grouped for people.

The pages are built from the wire models, so they show a new field of a model without a change here.
"""

from __future__ import annotations

from typing import Any

from jsclient.cli.arguments import Options
from jsclient.cli.output import Pairs, details, fields, line, text_of, told
from jsclient.jetstream import AccountInfo, ConsumerInfo, StreamInfo


def limits_of(info: AccountInfo) -> list[tuple[str, int, int]]:
    """(name of the resource, number in use, limit). A limit below 0 means unlimited."""
    limits = info.limits
    return [
        ("memory", info.memory, limits.max_memory),
        ("storage", info.storage, limits.max_storage),
        ("streams", info.streams, limits.max_streams),
        ("consumers", info.consumers, limits.max_consumers),
    ]


def show(info: StreamInfo | ConsumerInfo, options: Options) -> None:
    """All about a stream or a consumer."""
    if isinstance(info, StreamInfo):
        first = told([("created", info.created), ("domain", info.domain)])
        details(options, info, f"Stream {info.config.name}", first, stream_parts(info))
    else:
        first = told([("created", info.created), ("kind", "push" if info.config.is_push else "pull")])
        title = f"Consumer {info.name} of stream {info.stream_name}"
        details(options, info, title, first, _consumer_parts(info))


def show_bucket(what: str, name: str, pairs: dict[str, Any], info: StreamInfo, options: Options) -> None:
    """All about a bucket: of keys, or of objects."""
    value = {"bucket": name, **pairs, "stream": info.to_dict()}
    first = told([("created", info.created), *pairs.items()])
    details(options, value, f"{what} {name}", first, stream_parts(info))


def stream_parts(info: StreamInfo) -> dict[str, Pairs]:
    return {
        "Configuration": fields(info.config, leave_out=("name",)),
        "State": fields(info.state),
        "Cluster": fields(info.cluster),
        "Mirror": fields(info.mirror),
        "Sources": [(source.name, text_of("", source)) for source in info.sources or ()],
        "Copies": [(one.name, text_of("", one)) for one in info.alternates or ()],
    }


def _consumer_parts(info: ConsumerInfo) -> dict[str, Pairs]:
    shown_elsewhere = ("stream_name", "name", "config", "created", "ts", "cluster", "extra")
    return {
        "Configuration": fields(info.config, leave_out=("name",)),
        "State": fields(info, leave_out=shown_elsewhere),
        "Cluster": fields(info.cluster),
    }


def show_changes(before: Any, after: Any) -> None:
    """One line for each setting that differs between two configurations."""
    for name in before.__struct_fields__:
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            line(f"{name}: {old} -> {new}")
