"""A try of what breaks in practice: a temporary stream, two publishes, a pull of two messages, and their acks."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from jsclient import errors, nuid
from jsclient.jetstream import ConsumerConfig, JetStream, Stream, StreamConfig

CLOCK_OFF: Final = 2.0
"""Seconds between our clock and the server's from which on times in headers and TTLs mislead."""
WINDOW: Final = 60.0
"""Seconds of the duplicate window of the temporary stream."""


class Finding(NamedTuple):
    """`level`: "ok", "warn" or "fail"."""

    level: str
    what: str
    text: str
    advice: str = ""


Left = Callable[[], float]


def try_delivery(js: JetStream, left: Left) -> Iterator[Finding]:
    """Findings of the try; `left()` gives the seconds for the next request. Removes the stream again."""
    unique = nuid.next_nuid()
    config = StreamConfig(
        name=f"JSCLIENT_CHECK_{unique}",
        subjects=[f"jsclient.check.{unique}"],
        storage="memory",
        duplicate_window=WINDOW,
        max_age=WINDOW,
    )
    try:
        stream = js.create_stream(config, timeout=left())
    except errors.ConnectionClosed:
        raise
    except errors.JsClientError as error:
        yield Finding("ok", "acks", f"not tried, because it needs a temporary stream: {errors.brief(error)}")
        for info in itertools.islice(js.streams(timeout=left()), 1):
            yield from _clock(js.stream(info.config.name, fetch_info=False), left)
        yield from _present(js, left)
        return
    try:
        yield from _clock(stream, left)
        yield from _window(js, f"jsclient.check.{unique}", left)
        yield from _pull(stream, left, acks=True)
    except errors.NotStored:
        yield Finding("ok", "acks", "not tried: the subjects of its streams are in another account")
        yield from _present(js, left)
    finally:
        stream.delete(timeout=left())


def _present(js: JetStream, left: Left) -> Iterator[Finding]:
    """A pull without acks, from a stream that holds messages."""
    for info in js.streams(timeout=left()):
        stream = js.stream(info.config.name, fetch_info=False)
        if info.state.messages >= 2 and not info.config.name.startswith("JSCLIENT_CHECK_"):
            yield from _pull(stream, left, acks=False)
            return


def _clock(stream: Stream, left: Left) -> Iterator[Finding]:
    before = dt.datetime.now(dt.timezone.utc)
    info = stream.info(timeout=left())
    after = dt.datetime.now(dt.timezone.utc)
    theirs = info.ts or info.created
    if theirs is None:
        return
    off = max((before - theirs).total_seconds(), (theirs - after).total_seconds(), 0.0)
    if info.ts is None and off <= left():
        off = 0.0  # server 2.9 gives the time of creation, which is a little earlier
    advice = "synchronize the clocks: TTLs, schedules and start times use the server's clock" if off > CLOCK_OFF else ""
    yield Finding("warn" if advice else "ok", "clock", f"{off:.3f} s apart", advice)


def _window(js: JetStream, subject: str, left: Left) -> Iterator[Finding]:
    for payload in (b"1", b"2"):
        js.publish(subject, payload, msg_id=payload.decode(), timeout=left())
    if js.publish(subject, b"2", msg_id="2", timeout=left()).duplicate:
        yield Finding("ok", "duplicate window", "the stream recognizes a repeated message id")
    else:
        yield Finding("fail", "duplicate window", "the stream stored one id twice", "do not retry publishes")


def _pull(stream: Stream, left: Left, acks: bool) -> Iterator[Finding]:
    config = ConsumerConfig(ack_policy="explicit" if acks else "none", inactive_threshold=WINDOW)
    consumer = stream.create_consumer(config, timeout=left())
    try:
        batch = consumer.fetch(2, timeout=min(left(), 2.0))
    except errors.JsClientError as error:
        yield Finding("fail", "pull", errors.brief(error), "permit publish on $JS.API.CONSUMER.MSG.NEXT.>")
        return
    if len(batch) < 2:
        advice = "if $JS.API is imported from another account, its export needs response_type: stream"
        yield Finding("fail", "pull", f"{len(batch)} of 2 messages arrived", advice)
        return
    yield Finding("ok", "pull", "two messages arrived")
    if not acks:
        return
    try:
        for message in batch:
            message.double_ack(min(left(), 2.0))
    except errors.JsClientError as error:
        yield Finding("fail", "acks", errors.brief(error), "permit publish on $JS.ACK.>, and import it with $JS.API")
    else:
        yield Finding("ok", "acks", "the server confirmed both")
