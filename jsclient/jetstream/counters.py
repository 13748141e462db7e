"""Distributed counters (nats-server 2.12, ADR-49): a number per subject of a stream with `allow_msg_counter`.

    counters = Counters(js.create_stream(name="HITS", subjects=["hits.*"], allow_msg_counter=True, allow_direct=True))
    counters.add("hits.home", 5)

A value may be larger than 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from jsclient import kinds
from jsclient.durations import DEFAULT, Timeout
from jsclient.errors import BadResponse, ConfigError
from jsclient.jetstream.api import headers as names
from jsclient.jetstream.stream import Stream
from jsclient.protocol.errors import BAD_JSON


class CounterEntry(NamedTuple):
    """One counter as a stream stores it."""

    subject: str
    value: int
    seq: int
    """Sequence of the message that has it."""
    sources: dict[str, dict[str, int]]
    """For a counter that aggregates other streams: stream -> subject -> value there."""


class Counters:
    """The counters of one stream; thread-safe. Making it sends nothing.

    Raises ConfigError if the cached information shows that the stream has no counters (`allow_msg_counter`).

    Attributes:
        stream: The stream that holds the counters.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
        direct: True reads by direct get, which any replica answers; False reads from the leader. By default the
            stream's `allow_direct` decides.
    """

    def __init__(self, stream: Stream) -> None:
        kinds.check(Stream, stream=stream)
        info = stream.cached_info
        if info is not None and not info.config.allow_msg_counter:
            raise ConfigError(f"stream {stream.name!r} has no counters: it needs allow_msg_counter")
        self.stream = stream

    def add(self, subject: str, increment: int = 1, *, timeout: Timeout = DEFAULT) -> int:
        """Add `increment` to a counter (a negative one subtracts) and return the new value; raises as `publish` does.

        PublishUnknown means that the server may have added it. Increments have no message id, so a retry may count
        twice.
        """
        ack = self.stream.js.publish(subject, incr=increment, timeout=timeout)
        if ack.val is None:
            raise BadResponse(f"the stream has stored the increment of {subject!r} and told no value", b"")
        return int(ack.val)

    def load(self, subject: str, *, direct: bool | None = None, timeout: Timeout = DEFAULT) -> int:
        """The value of a counter; raises MessageNotFound for a new one. `direct`: see `Stream.get_last_msg`."""
        return self.get(subject, direct=direct, timeout=timeout).value

    def get(self, subject: str, *, direct: bool | None = None, timeout: Timeout = DEFAULT) -> CounterEntry:
        """A counter with its sources; raises as `load` does."""
        return _entry(self.stream.get_last_msg(subject, direct=direct, timeout=timeout))

    def get_all(self, *subjects: str, timeout: Timeout = DEFAULT) -> Iterator[CounterEntry]:
        """All counters that match any of the subjects, wildcards allowed; lazily. See `Stream.get_last_msgs`."""
        for message in self.stream.get_last_msgs(subjects or (">",), timeout=timeout):
            yield _entry(message)

    def __repr__(self) -> str:
        return f"<Counters of {self.stream.name}>"


def _entry(message: Any) -> CounterEntry:
    return CounterEntry(message.subject, counter_value(message), message.seq, counter_sources(message))


def counter_value(msg: Any) -> int:
    """The value of a counter in a message of its stream (from get_last_msg, or delivered by a consumer).

    Raises BadResponse for a message that is not a counter.
    """
    try:
        return int(msgspec.json.decode(msg.data)["val"])
    except (*BAD_JSON, LookupError, TypeError, ValueError) as error:
        raise BadResponse(f"the message on {msg.subject!r} is not a counter: {msg.data[:80]!r}", msg.data) from error


def counter_sources(msg: Any) -> dict[str, dict[str, int]]:
    """The parts of a counter aggregated from other streams: stream name -> subject -> value there."""
    text = msg.headers.get(names.COUNTER_SOURCES)
    if text is None:
        return {}
    try:
        plain = msgspec.json.decode(text)
        return {stream: {subject: int(value) for subject, value in of.items()} for stream, of in plain.items()}
    except (*BAD_JSON, AttributeError, TypeError, ValueError) as error:
        raise BadResponse(f"the sources of the counter cannot be read: {text[:80]!r}") from error
