"""`counter ...`: distributed counters (server 2.12)."""

from __future__ import annotations

from typing import Any, Final

from jsclient import errors, nuid
from jsclient.cli.arguments import Options, arg
from jsclient.cli.commands import Commands
from jsclient.cli.connection import opened
from jsclient.cli.output import details, listing
from jsclient.jetstream import JetStream
from jsclient.jetstream.api import headers as header_names
from jsclient.jetstream.counters import Counters, counter_sources, counter_value

cli: Commands = Commands(opened)

_SUBJECT: Final = arg("subject")
_STREAM: Final = arg("--stream", help="the stream of the counter (default: the one that takes the subject)")
_COUNT: Final = arg("value", nargs="?", type=int, default=1, help="how many (default 1); of any size")


def _counters(js: JetStream, options: Options) -> Counters:
    if not (options.stream or options.subject):
        raise errors.ConfigError("name a subject or --stream")
    return Counters(js.stream(options.stream or js.stream_name_by_subject(options.subject)))


def _told(subject: str, value: int) -> tuple[dict[str, str], str]:
    return {"subject": subject, "value": str(value)}, str(value)  # text: a value may have more than 53 bits


@cli("counter get", _SUBJECT, _STREAM)
def show_value(js: JetStream, options: Options) -> Any:
    """Print the value of a counter."""
    return _told(options.subject, _counters(js, options).load(options.subject))


@cli("counter view", _SUBJECT, _STREAM)
def show_counter(js: JetStream, options: Options) -> None:
    """A counter with what it was made of."""
    message = _counters(js, options).stream.get_last_msg(options.subject)
    value, sources = counter_value(message), counter_sources(message)
    last = message.headers.get(header_names.INCREMENT)
    told = {stream: {subject: str(part) for subject, part in of.items()} for stream, of in sources.items()}
    plain = {**_told(message.subject, value)[0], "increment": last, "sources": told}
    parts = [(f"  {stream} {subject}", part) for stream, of in sources.items() for subject, part in of.items()]
    known = [("value", value), ("last increment", last), ("sources", None if parts else "none")]
    details(options, plain, f"Counter {message.subject}", [*known, *parts])


@cli("counter increment", _SUBJECT, _COUNT, _STREAM)
def increment(js: JetStream, options: Options) -> Any:
    """Add to a counter; prints the new value."""
    return _add(js, options, options.value)


@cli("counter decrement", _SUBJECT, _COUNT, _STREAM)
def decrement(js: JetStream, options: Options) -> Any:
    """Subtract from a counter; prints the new value."""
    return _add(js, options, -options.value)


def _add(js: JetStream, options: Options, count: int) -> Any:
    counters = _counters(js, options)
    taken_by = js.stream_name_by_subject(options.subject)
    if taken_by != counters.stream.name:
        raise errors.ConfigError(f"{options.subject!r} goes to stream {taken_by!r}, not to {counters.stream.name!r}")
    # The id: a publish is repeated if its answer was lost, and counts once. The repeat's answer has no value.
    ack = js.publish(options.subject, incr=count, msg_id=nuid.next_nuid())
    return _told(options.subject, int(ack.val) if ack.val else counters.load(options.subject, direct=False))


@cli("counter ls", arg("subject", nargs="?", help="wildcards allowed"), _STREAM)
def list_counters(js: JetStream, options: Options) -> None:
    """Counters of a stream, and their values."""
    counters = _counters(js, options)
    found = sorted(counters.get_all(options.subject or ">"), key=lambda one: one.subject)
    if not found:
        raise errors.NoMessages(f"stream {counters.stream.name!r} has no such counter yet")
    columns = {"COUNTER": lambda one: one.subject, "VALUE": lambda one: one.value}
    listing(options, found, columns, plain=lambda one: _told(one.subject, one.value)[0])
