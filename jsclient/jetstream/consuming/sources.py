"""The consumer behind pulls, as fetches and iterators see it: its subject, its limits, and the reason of a silence."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors, waiting
from jsclient.durations import Deadline, Timeout
from jsclient.jetstream.api import headers as header_names
from jsclient.jetstream.api.ack_and_nak import NEXT
from jsclient.jetstream.api.models import ConsumerInfo, StreamInfo
from jsclient.jetstream.consuming.pull_options import Paused, PullOptions, PullOptionsDict, bytes_of_a_pull, options_for
from jsclient.message import Msg

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.jetstream.api.models import ConsumerConfig
    from jsclient.jetstream.context import JetStream

ASK_TIMEOUT: Final = 1.0
"""The most seconds for these questions, because they delay the report of a server that does not answer at all."""

LOOK_AGAIN: Final = 0.25
"""Seconds after which the client looks once more for a missing stream, which may be in re-creation just now."""

EXAMINE_EVERY: Final = 5.0
"""Seconds between two CONSUMER.INFO that fetches of one handle send to find out about silence."""


class QuestionLimit:
    """A rate limit for CONSUMER.INFO, which is expensive for a server with many consumers."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._lock = waiting.new_lock()
        self._from = float("-inf")

    def allow(self) -> bool:
        """True to ask now; the next time is then `every` seconds later."""
        with self._lock:
            now = time.monotonic()
            if now < self._from:
                return False
            self._from = now + self._every
            return True

    def shorten(self, seconds: float) -> None:
        """Ask again after this number of seconds already."""
        with self._lock:
            self._from = min(self._from, time.monotonic() + seconds)


class PullSource:
    """The properties of a consumer that pulls need: their subject, its pin ids, and questions about problems."""

    def __init__(self, connection: Connection, pull_subject: str) -> None:
        self.nc = connection
        """The connection."""
        self.pull_subject = pull_subject
        self.pins: dict[str, str] = {}
        """By priority group, the id under which the server has pinned us."""
        self.questions: QuestionLimit = QuestionLimit(EXAMINE_EVERY)
        """The limit of all fetches."""
        self.pull_prefix = b""
        """The start of the body of every pull."""

    ack_none = False

    def pull_bytes(self, messages: int) -> int:
        """The limit in bytes for each pull of a fetch of `messages` messages; 0 is unlimited."""
        return 0

    def learn_size(self, nbytes: int) -> None:
        """A message of this number of bytes has come."""

    def learn_pin(self, group: str, message: Msg) -> None:
        """Keep the id under which the server has pinned us."""
        pin = header_names.readable(message).get(header_names.PIN_ID)
        if pin:
            self.pins[group] = pin

    def examine(self, timeout: float) -> Exception | Paused | None:
        """Ask the server for the reason of the silence; None if it names none within `timeout` seconds."""
        return None

    def ask_position(self, timeout: float) -> ConsumerInfo | None:
        """Ask how far the deliveries have come; None without an answer within `timeout` seconds."""
        return None

    def why_nobody(self, error: errors.PullNoResponders, timeout: float) -> Exception | None:
        """No server takes pulls: the error if the consumer is gone or out of reach; None if it may only lack a leader.

        Raises PermissionViolation.
        """
        return error

    def why_deleted(self, deleted: errors.JetStreamError, timeout: float) -> Exception:
        """The error for a consumer that is gone: `deleted`, or the stream's own fate."""
        return deleted


def recreated(js: JetStream, stream: str, made: dt.datetime, timeout: float | None) -> errors.StreamRecreated | None:
    """The error for a stream that is younger than its consumer; raises StreamNotFound and errors of requests."""
    info = js.api.request(f"STREAM.INFO.{stream}", None, StreamInfo, timeout=timeout, every=ASK_TIMEOUT)
    if info.created is None or info.created <= made:
        return None
    return errors.StreamRecreated(404, "", f"stream {stream!r} was deleted and made again at {info.created}")


class AckedConsumer(PullSource):
    """The consumer behind a message: its next pull is the ack (+NXT). Its other properties are unknown."""

    def __init__(self, connection: Connection, ack: bytes) -> None:
        super().__init__(connection, ack.decode())
        self.pull_prefix = NEXT + b" "

    def __str__(self) -> str:
        return "the consumer of an acked message"


class ConsumerSource(PullSource):
    """The state that a Consumer shares with the handles that `typed` makes of it."""

    def __init__(self, js: JetStream, stream_name: str, name: str, info: ConsumerInfo | None) -> None:
        super().__init__(js.nc, js.api.subject(f"CONSUMER.MSG.NEXT.{stream_name}.{name}"))
        self.js = js
        self.stream_name = stream_name
        self.name = name
        self._info_operation = f"CONSUMER.INFO.{stream_name}.{name}"
        self.info = info
        """The last answer of the server; None before the first."""
        self._size = js.nc.max_payload  # estimated size of a message, from the largest recent ones

    def ask(self, timeout: Timeout) -> ConsumerInfo:
        """CONSUMER.INFO."""
        self.info = self.js.api.request(self._info_operation, None, ConsumerInfo, timeout=timeout, read=True)
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
        """Its creation time, by the server's clock. With None (a handle that never asked) nothing can be compared."""
        return None if self.info is None else self.info.created

    # --- the reason of a silence ------------------------------------------------------------------------------

    def why_deleted(self, deleted: errors.JetStreamError, timeout: float) -> Exception:
        if self._made is None:
            return deleted
        deadline = Deadline(timeout)
        error: Exception = deleted
        for wait in (LOOK_AGAIN, 0.0):
            try:
                return recreated(self.js, self.stream_name, self._made, deadline.remaining()) or deleted
            except errors.StreamNotFound as not_found:
                error = not_found
                waiting.Gate().wait(deadline.at_most(wait))
            except errors.JsClientError:
                return error  # no permission to ask, or no answer
        return error

    def why_nobody(self, error: errors.PullNoResponders, timeout: float) -> Exception | None:
        deadline = Deadline(timeout)
        try:
            self.js.api.request(self._info_operation, None, ConsumerInfo, timeout=timeout)
        except errors.ConsumerNotFound:
            return self.why_deleted(error, deadline.at_most(timeout))
        except (errors.StreamNotFound, errors.JetStreamUnavailable):
            return error  # not even the API answers: a cut leaf link, or no JetStream
        except errors.PermissionViolation:
            raise
        except errors.JsClientError:
            return None
        return None

    def look_up(self, timeout: float) -> ConsumerInfo | Exception | None:
        """The consumer's information, the error if it is gone, or None without an answer."""
        deadline = Deadline(timeout)
        try:
            info = self.js.api.request(self._info_operation, None, ConsumerInfo, timeout=timeout, read=True)
        except errors.ConsumerNotFound:
            text = f"consumer {self.name!r} of stream {self.stream_name!r} does not exist (any more)"
            return self.why_deleted(errors.ConsumerDeleted(404, "", text), deadline.at_most(timeout))
        except errors.StreamNotFound as error:
            return error
        except errors.JsClientError:
            return None  # no permission to ask, or no answer: only the missing heartbeat is certain
        if self._made is not None and info.created is not None and info.created > self._made:
            other = self.why_deleted(errors.ConsumerDeleted(404, ""), deadline.at_most(timeout))
            if isinstance(other, errors.StreamRecreated):
                return other
        return info

    def examine(self, timeout: float) -> Exception | Paused | None:
        info = self.look_up(timeout)
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
    """The source of a Consumer."""
    source: ConsumerSource = consumer._source
    return source
