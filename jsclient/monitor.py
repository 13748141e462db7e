"""Snapshots of an account: streams and consumers with rates and lag, a few requests each (`jsclient top` draws it).

from jsclient.monitor import Monitor

monitor = Monitor(js)
before = monitor.snapshot()
...                                   # some seconds later
for consumer in monitor.snapshot().consumers:
    print(consumer.name, consumer.lag, consumer.done_per_second, consumer.trouble)
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import attrs

from jsclient import errors
from jsclient.durations import DEFAULT, Deadline, Timeout
from jsclient.jetstream import JetStream

__all__ = ["ConsumerRow", "Monitor", "Snapshot", "StreamRow"]

CONSUMER_REQUESTS: Final = 15
"""Consumer listings per snapshot. Streams take turns, so a snapshot stays below 20 requests."""

HISTORY: Final = 30
"""Number of rates stored per row, for sparklines."""

SNAPSHOT_TIMEOUT: Final = 5.0


@attrs.frozen
class StreamRow:
    """A stream. Rates are None until there is a second snapshot to compare with.

    Attributes:
        name: Name of the stream.
        storage: "file" or "memory".
        messages: Number of stored messages.
        bytes: Bytes that they take.
        first_seq: Sequence of the oldest one.
        last_seq: Sequence of the newest one.
        consumers: Number of its consumers.
        deleted: Number of messages deleted between the first and the last one.
        in_per_second: Messages stored per second since the previous snapshot; None in the first one.
        history: The latest of these rates, the oldest one first.
        trouble: The problem, such as "no leader"; "" if there is none.
    """

    name: str
    storage: str
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    consumers: int
    deleted: int
    in_per_second: float | None
    history: tuple[float, ...]
    trouble: str


@attrs.frozen
class ConsumerRow:
    """A consumer. `lag` counts messages that are pending or wait for an ack. `age` is in seconds since the last
    request.

    Attributes:
        stream: The stream that it reads.
        name: Name of the consumer.
        pending: Number of messages that were not delivered yet.
        ack_pending: Number of messages that were delivered and not acknowledged.
        redelivered: Number of these messages that were delivered more than once.
        waiting: Number of waiting pulls.
        paused: True if it is paused.
        lag: `pending` and `ack_pending` together.
        out_per_second: Deliveries per second since the previous listing; None the first time.
        done_per_second: Messages acknowledged per second since then; None the first time.
        eta: Seconds until the lag is gone at this rate; None if it does not shrink.
        age: Seconds since the server listed it.
        history: The latest rates of acknowledged messages, the oldest one first.
        trouble: The problem; "" if there is none.
    """

    stream: str
    name: str
    pending: int
    ack_pending: int
    redelivered: int
    waiting: int
    paused: bool
    lag: int
    out_per_second: float | None
    done_per_second: float | None
    eta: float | None
    age: float
    history: tuple[float, ...]
    trouble: str


@attrs.frozen
class Snapshot:
    """One snapshot of an account. It took `requests` requests, and `stale` consumers come from an earlier snapshot.

    Attributes:
        time: The time of the snapshot in seconds since 1970.
        streams: All streams of the account.
        consumers: All consumers that the monitor has found so far.
        requests: Number of requests to the server.
        stale: Number of consumers without a new listing in this snapshot.
    """

    time: float
    streams: tuple[StreamRow, ...]
    consumers: tuple[ConsumerRow, ...]
    requests: int
    stale: int


class Monitor:
    """Takes snapshots of an account. It keeps the previous numbers to compute rates. Not thread-safe.

    `first` names streams whose consumers every snapshot lists, for example the streams on a screen. The other streams
    take turns, with `consumer_requests` requests in each snapshot (15).

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """

    def __init__(self, js: JetStream, *, consumer_requests: int = CONSUMER_REQUESTS) -> None:
        self._js = js
        self._budget = consumer_requests
        self._streams: dict[str, _Series] = {}
        self._consumers: dict[tuple[str, str], _Series] = {}
        self._asked: dict[str, float] = {}
        self._requests = 0
        self.first: list[str] = []

    def snapshot(self, *, timeout: Timeout = DEFAULT) -> Snapshot:
        """Take a snapshot. Raises the same errors as other API calls."""
        deadline = Deadline.of(timeout, SNAPSHOT_TIMEOUT)
        self._requests = 0
        infos = list(self._list("STREAM.LIST", "streams", deadline))
        now = time.monotonic()
        names = [info["config"]["name"] for info in infos]
        for gone in set(self._streams) - set(names):
            del self._streams[gone]
        self._forget(set(names))
        rows = tuple(self._stream_row(info, now) for info in infos)
        with_consumers = [info["config"]["name"] for info in infos if info["state"].get("consumer_count")]
        for name in set(names) - set(with_consumers):
            self._forget_consumers(name, set())
        turn = self._turn(with_consumers)
        for name in turn:
            self._ask_consumers(name, deadline)
        now = time.monotonic()
        consumers = tuple(_consumer_row(stream, series, now) for (stream, _), series in self._consumers.items())
        stale = sum(row.stream not in turn for row in consumers)
        return Snapshot(time.time(), rows, consumers, self._requests, stale)

    def _list(self, operation: str, key: str, deadline: Deadline) -> Iterator[dict[str, Any]]:
        for page in self._js.api.pages(operation, key, timeout=deadline.remaining()):
            self._requests += 1
            yield from page.get(key) or ()

    def _stream_row(self, info: dict[str, Any], now: float) -> StreamRow:
        config, state = info["config"], info["state"]
        series = self._streams.setdefault(config["name"], _Series())
        rate = series.add(now, {"last": state.get("last_seq", 0)})
        cluster = info.get("cluster") or {}
        trouble = "no leader" if cluster.get("name") and not cluster.get("leader") else ""
        if not trouble and any(peer.get("offline") for peer in cluster.get("replicas") or ()):
            trouble = "replica offline"
        return StreamRow(
            name=config["name"],
            storage=config.get("storage", ""),
            messages=state.get("messages", 0),
            bytes=state.get("bytes", 0),
            first_seq=state.get("first_seq", 0),
            last_seq=state.get("last_seq", 0),
            consumers=state.get("consumer_count", 0),
            deleted=state.get("num_deleted", 0),
            in_per_second=rate.get("last"),
            history=series.history("last"),
            trouble=trouble,
        )

    def _turn(self, names: list[str]) -> list[str]:
        """The streams whose consumers to list now: the first ones, then the streams that waited longest."""
        first = [name for name in self.first if name in names][: self._budget]
        rest = sorted((name for name in names if name not in first), key=lambda name: self._asked.get(name, 0.0))
        return (first + rest)[: self._budget]

    def _ask_consumers(self, stream: str, deadline: Deadline) -> None:
        try:
            infos = list(self._list(f"CONSUMER.LIST.{stream}", "consumers", deadline))
        except errors.StreamNotFound:
            self._forget_consumers(stream, set())
            return
        now = time.monotonic()
        self._asked[stream] = now
        for info in infos:
            series = self._consumers.setdefault((stream, info["name"]), _Series())
            pending, unacked = info.get("num_pending", 0), info.get("num_ack_pending", 0)
            delivered = (info.get("delivered") or {}).get("consumer_seq", 0)
            figures = {"out": delivered, "done": delivered - unacked, "lag": pending + unacked}
            figures["redelivered"] = info.get("num_redelivered", 0)
            series.add(now, figures)
            series.info = info
        self._forget_consumers(stream, {info["name"] for info in infos})

    def _forget_consumers(self, stream: str, keep: set[str]) -> None:
        for key in [key for key in self._consumers if key[0] == stream and key[1] not in keep]:
            del self._consumers[key]

    def _forget(self, names: set[str]) -> None:
        for key in [key for key in self._consumers if key[0] not in names]:
            del self._consumers[key]
        self._asked = {name: when for name, when in self._asked.items() if name in names}


class _Series:
    """The latest numbers of one row, and their rates of change."""

    def __init__(self) -> None:
        self.time: float | None = None
        self.figures: dict[str, int] = {}
        self.rates: dict[str, float] = {}
        self.info: dict[str, Any] = {}
        self._history: dict[str, deque[float]] = {}

    def add(self, now: float, figures: dict[str, int]) -> dict[str, float]:
        if self.time is not None and now > self.time:
            past = now - self.time
            self.rates = {key: (value - self.figures.get(key, value)) / past for key, value in figures.items()}
            for key, rate in self.rates.items():
                self._history.setdefault(key, deque(maxlen=HISTORY)).append(rate)
        self.time, self.figures = now, figures
        return self.rates

    def history(self, key: str) -> tuple[float, ...]:
        return tuple(self._history.get(key, ()))


def _consumer_row(stream: str, series: _Series, now: float) -> ConsumerRow:
    info, rates = series.info, series.rates
    lag = series.figures["lag"]
    falling = -rates.get("lag", 0.0)
    return ConsumerRow(
        stream=stream,
        name=info["name"],
        pending=info.get("num_pending", 0),
        ack_pending=info.get("num_ack_pending", 0),
        redelivered=info.get("num_redelivered", 0),
        waiting=info.get("num_waiting", 0),
        paused=bool(info.get("paused")),
        lag=lag,
        out_per_second=rates.get("out"),
        done_per_second=rates.get("done"),
        eta=lag / falling if lag and falling > 0 else None,
        age=now - (series.time or now),
        history=series.history("done"),
        trouble=_trouble(info, series),
    )


def _trouble(info: dict[str, Any], series: _Series) -> str:
    """The problem of a consumer, in words; "" if there seems to be none."""
    config = info.get("config") or {}
    limit = config.get("max_ack_pending") or 0
    if info.get("paused"):
        return "paused"
    if limit > 0 and info.get("num_ack_pending", 0) >= limit:
        return "stuck: acks are missing"
    idle = not info.get("num_waiting") and not info.get("num_ack_pending") and series.rates.get("out", 0.0) <= 0
    if info.get("num_pending") and idle and not config.get("deliver_subject"):
        return "nobody pulls"
    if series.rates.get("redelivered", 0.0) > 0:
        return "redeliveries rise"
    lags = series.history("lag")
    if len(lags) == HISTORY and all(rate > 0 for rate in lags):
        return "lag rises"
    return ""
