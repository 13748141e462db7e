"""`consumer ...` and `next`: pull and push consumers of a stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from jsclient import errors
from jsclient.cli import settings
from jsclient.cli.arguments import FORCED, NAMES, RAW, OneOf, Options, arg, positive, seconds
from jsclient.cli.commands import Commands
from jsclient.cli.connection import opened
from jsclient.cli.infos import show
from jsclient.cli.output import columns, listing, print_message
from jsclient.jetstream import ConsumerConfig, ConsumerInfo, JetStream

cli: Commands = Commands(opened)


_ACKS: Final = columns(REDELIVERED="num_redelivered", ACK_FLOOR="ack_floor.stream_seq", ACK_POLICY="config.ack_policy")
_LISTED: Final = {**columns(NAME="name", PENDING="num_pending", UNACKED="num_ack_pending"), **_ACKS}
_REPORTED: Final = {
    **columns(CONSUMER="name", UNPROCESSED="num_pending", ACK_PENDING="num_ack_pending", REDELIVERED="num_redelivered"),
    **columns(PULLS="num_waiting"),
    "STATE": lambda info: "paused" if info.paused else "",
    "ACK FLOOR": _ACKS["ACK FLOOR"],
    "MODE": lambda info: "push" if info.config.is_push else "pull",
    **columns(ACK_POLICY="config.ack_policy", ACK_WAIT="config.ack_wait"),
}


@cli("consumer ls STREAM", NAMES)
def list_consumers(js: JetStream, options: Options) -> None:
    """List the consumers of a stream."""
    found: Iterable[Any] = (js.consumer_names if options.names else js.consumers)(options.stream)
    listing(options, found, _LISTED, empty="no consumers")


@cli("consumer report STREAM")
def report_consumers(js: JetStream, options: Options) -> None:
    """Lag, acks and pulls of the consumers of a stream."""
    infos = sorted(js.consumers(options.stream), key=lambda info: -info.num_pending)
    listing(options, infos, _REPORTED)


@cli("consumer info STREAM CONSUMER")
def consumer_info(js: JetStream, options: Options) -> None:
    """Configuration and state of a consumer."""
    show(js.consumer_info(options.stream, options.consumer), options)


@cli("consumer add STREAM CONSUMER", *settings.OF_NEW_CONSUMER)
def add_consumer(js: JetStream, options: Options) -> None:
    """Create a consumer."""
    show(_created(js, options.stream, settings.wanted_consumer(options)), options)


def _created(js: JetStream, stream: str, config: ConsumerConfig) -> ConsumerInfo:
    if config.is_push:
        return js.create_push_consumer(stream, config).info()
    return js.create_consumer(stream, config).info()


@cli("consumer edit STREAM CONSUMER", *settings.OF_CONSUMER)
def edit_consumer(js: JetStream, options: Options) -> None:
    """Change settings of a consumer."""
    before = js.consumer_info(options.stream, options.consumer).config
    after = settings.edited(options, before, settings.consumer_settings(options), ("name", "durable_name"))
    if after is None:
        return
    if after.is_push:
        show(js.update_push_consumer(options.stream, after).info(), options)
    else:
        show(js.update_consumer(options.stream, after).info(), options)


def _done(options: Options, what: str, **more: Any) -> tuple[dict[str, Any], str]:
    told = {"stream": options.stream, "consumer": options.consumer, "done": what, **more}
    return told, f"{what} {options.consumer}" + "".join(f" {key} {value}" for key, value in more.items())


@cli("consumer rm STREAM CONSUMER", ask="Delete consumer {consumer} of {stream}?")
def remove_consumer(js: JetStream, options: Options) -> Any:
    """Delete a consumer."""
    js.delete_consumer(options.stream, options.consumer)
    return _done(options, "deleted")


_UNTIL: Final = arg("until", type=settings.moment, help="RFC 3339, or seconds from now, or as 1h30m")


@cli("consumer pause STREAM CONSUMER", _UNTIL, FORCED)
def pause_consumer(js: JetStream, options: Options) -> Any:
    """Deliver nothing until a point in time (server 2.11)."""
    state = js.pause_consumer(options.stream, options.consumer, options.until)
    return _done(options, "paused", until=state.pause_until.isoformat() if state.pause_until else None)


@cli("consumer resume STREAM CONSUMER", FORCED)
def resume_consumer(js: JetStream, options: Options) -> Any:
    """End a pause."""
    js.resume_consumer(options.stream, options.consumer)
    return _done(options, "resumed")


_SEQUENCE: Final = arg("--sequence", type=positive, help="of the stream; default: the start of its policy")


@cli("consumer reset STREAM CONSUMER", _SEQUENCE)
def reset_consumer(js: JetStream, options: Options) -> None:
    """Begin again, from the start or a sequence (server 2.14)."""
    show(js.reset_consumer(options.stream, options.consumer, options.sequence), options)


@cli("consumer unpin STREAM CONSUMER GROUP", FORCED)
def unpin_consumer(js: JetStream, options: Options) -> Any:
    """Let another client of a group take over (server 2.11)."""
    js.unpin_consumer(options.stream, options.consumer, options.group)
    return _done(options, "unpinned")


_TAKING: Final = (
    arg("--count", type=positive, default=1),
    arg("--wait", type=seconds, default=5.0, help="seconds to wait for them (default 5)"),
    OneOf(
        arg("--no-ack", action="store_true", help="leave them unacknowledged"),
        arg("--nak", action="store_true", help="give them back at once"),
        arg("--term", action="store_true", help="have them never delivered again"),
    ),
    RAW,
)


@cli("consumer next STREAM CONSUMER", *_TAKING)
@cli("next STREAM CONSUMER", *_TAKING)
def next_messages(js: JetStream, options: Options) -> None:
    """Take messages from a pull consumer."""
    try:
        batch = js.consumer(options.stream, options.consumer, fetch_info=False).fetch(options.count, options.wait)
    except errors.PullNoResponders:
        js.consumer_info(options.stream, options.consumer)  # raises if there is no such stream or consumer
        raise
    for message in batch:
        print_message(message, options, options.count > 1, seq=message.metadata.stream_seq)
        if options.nak:
            message.nak()
        elif options.term:
            message.term()
        elif not options.no_ack:
            message.double_ack(options.timeout)
    js.nc.flush(options.timeout)
    if not batch:
        raise errors.NoMessages(f"no message for {options.consumer!r} within {options.wait:g} s")
