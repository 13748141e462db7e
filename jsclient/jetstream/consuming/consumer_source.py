"""A pull consumer as fetches and iterators see it: its pulls, its limits, the reason of its silence."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from jsclient import errors
from jsclient.durations import Timeout
from jsclient.jetstream.api.models import ConsumerConfig, ConsumerInfo
from jsclient.jetstream.consuming import diagnosis
from jsclient.jetstream.consuming.pull_options import Paused, PullOptions, PullOptionsDict, bytes_of_a_pull, options_for
from jsclient.jetstream.consuming.pull_source import PullSource

if TYPE_CHECKING:
    from jsclient.jetstream.context import JetStream


class ConsumerSource(PullSource):
    """The state that a Consumer shares with the handles that `typed` makes of it."""

    def __init__(self, js: JetStream, stream_name: str, name: str, info: ConsumerInfo | None) -> None:
        super().__init__(js.nc, js.api.subject(f"CONSUMER.MSG.NEXT.{stream_name}.{name}"))
        self.js = js
        self.stream_name = stream_name
        self.name = name
        self.info = info
        """The last answer of the server; None before the first."""
        self._size = js.nc.max_payload  # estimated size of a message, from the largest recent ones

    def ask(self, timeout: Timeout) -> ConsumerInfo:
        """CONSUMER.INFO."""
        operation = f"CONSUMER.INFO.{self.stream_name}.{self.name}"
        self.info = self.js.api.request(operation, None, ConsumerInfo, timeout=timeout, read=True)
        return self.info

    @property
    def config(self) -> ConsumerConfig | None:
        """The configuration; None for a handle that never asked."""
        return None if self.info is None else self.info.config

    @property
    def ack_none(self) -> bool:  # type: ignore[override]
        """True if its messages need no ack."""
        config = self.config
        return config is not None and config.ack_policy == "none"

    def pull_bytes(self, messages: int) -> int:
        return bytes_of_a_pull(messages, self._size, self.config)

    def pull_options(self, given: PullOptionsDict) -> PullOptions:
        """Options of `messages`; its defaults keep to the known limits of the consumer."""
        return options_for(given, self.config)

    def learn_size(self, nbytes: int) -> None:
        self._size = max(nbytes, self._size // 4)

    @property
    def _made(self) -> dt.datetime | None:
        return None if self.info is None else self.info.created

    def why_nobody(self, error: errors.PullNoResponders, timeout: float) -> Exception | None:
        return diagnosis.why_nobody(self.js, self.stream_name, self.name, self._made, error, timeout)

    def why_deleted(self, deleted: errors.ConsumerDeleted, timeout: float) -> Exception:
        return diagnosis.why_gone(self.js, self.stream_name, self._made, deleted, timeout)

    def examine(self, timeout: float) -> Exception | Paused | None:
        info = diagnosis.examine(self.js, self.stream_name, self.name, self._made, timeout)
        if info is None or isinstance(info, Exception):
            return info
        if info.config.is_push:
            return errors.NotPullConsumer(f"{self} is a push consumer")
        if info.paused:
            return Paused(info.config.pause_until)
        limit = info.config.max_waiting
        if limit and info.num_waiting >= limit:
            text = f"{info.num_waiting} pulls wait on {self} already, its max_waiting is {limit}"
            return errors.MaxWaitingExceeded(409, "Exceeded MaxWaiting", text)
        return None

    def ask_position(self, timeout: float) -> ConsumerInfo | None:
        try:
            return self.ask(timeout)
        except errors.JsClientError:
            return None  # it is gone, no permission to ask, or no answer

    def __str__(self) -> str:
        return f"consumer {self.name!r} of stream {self.stream_name!r}"


def source_of(consumer: Any) -> ConsumerSource:
    """For layers: the source of a Consumer."""
    source: ConsumerSource = consumer._source
    return source
