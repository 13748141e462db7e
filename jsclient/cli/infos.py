"""Pages about one stream, consumer, bucket or object: everything that the server tells, grouped and for people.

The pages come from the wire models themselves, so they show a new field of a model without a change here.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from jsclient.cli.arguments import Options
from jsclient.cli.output import Pairs, details, line, size
from jsclient.jetstream import ConsumerInfo, StreamInfo

_BYTES: Final = {"bytes", "max_bytes", "max_msg_size", "size", "chunk_size"}
#: Limits: the server writes none of these as 0 or -1.
_LIMITS: Final = {"max_age", "max_ack_pending", "max_waiting", "max_batch", "inactive_threshold", "rate_limit_bps"}
_UNITS: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "m"))


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
        "Sources": [(source.name, _text("", source)) for source in info.sources or ()],
        "Copies": [(one.name, _text("", one)) for one in info.alternates or ()],
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


def told(pairs: Pairs) -> Iterator[tuple[str, str]]:
    """Pairs for `page`, with values for people."""
    for name, value in pairs:
        yield name.replace("_", " "), value if isinstance(value, str) else _text(name, value)


def fields(value: Any, leave_out: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
    """The fields of a wire model that are set, also those that this version does not know."""
    if value is None:
        return
    for name in value.__struct_fields__:
        if name == "extra":
            yield from ((key.replace("_", " "), _text(key, one)) for key, one in (value.extra or {}).items())
        elif name not in leave_out:
            yield name.removeprefix("num_").replace("_", " "), _text(name, getattr(value, name))


def _text(name: str, value: Any) -> str:
    """A value for people; "" if it is not set."""
    if value is None or value == "" or value == [] or value == {}:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (float, dt.timedelta)):
        return duration(value.total_seconds() if isinstance(value, dt.timedelta) else value, name in _LIMITS)
    if isinstance(value, int):
        return _count(name, value)
    if isinstance(value, dt.datetime):
        return _moment(value)
    if isinstance(value, msgspec.Struct):
        inner = (f"{key} {text}" for key, text in fields(value) if text)
        return ", ".join(inner)
    if isinstance(value, dict):
        return ", ".join(f"{key}={one}" for key, one in value.items())
    if isinstance(value, (list, tuple)):
        separator = "; " if isinstance(value[0], msgspec.Struct) else ", "
        return separator.join(_text("", one) for one in value)
    return str(value).encode(errors="backslashreplace").decode()


def _count(name: str, value: int) -> str:
    if value < 0 or (value == 0 and name in _LIMITS):
        return "unlimited"
    return size(value) if name in _BYTES else f"{value:,}"


def _moment(value: dt.datetime) -> str:
    if value.year < 1970:
        return ""  # the server's zero
    age = (dt.datetime.now(dt.timezone.utc) - value).total_seconds()
    return f"{value.astimezone():%Y-%m-%d %H:%M:%S %z}" + (f" ({duration(age)} ago)" if age >= 1 else "")


def duration(seconds: float, limit: bool = False) -> str:
    """Seconds for people: 1d2h, 1m30s, 0.25s; of a limit 0 is unlimited."""
    if limit and seconds == 0:
        return "unlimited"
    if seconds < 60:
        return f"{seconds:.3g}s"
    text = ""
    for length, unit in _UNITS:
        count, seconds = divmod(seconds, length)
        text += f"{count:.0f}{unit}" if count else ""
    return text + (f"{seconds:.0f}s" if seconds >= 1 and "d" not in text else "")
