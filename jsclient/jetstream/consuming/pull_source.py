"""Where pulls go: what fetches and iterators need to know of a consumer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from jsclient import waiting
from jsclient.jetstream.api import headers as header_names
from jsclient.jetstream.api.ack_and_nak import NEXT
from jsclient.jetstream.consuming.pull_options import Paused
from jsclient.message import Msg

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.errors import ConsumerDeleted, PullNoResponders
    from jsclient.jetstream.api.models import ConsumerInfo

EXAMINE_EVERY: Final = 5.0
"""Seconds between two CONSUMER.INFO that fetches of one handle send to find out about silence."""


class QuestionLimit:
    """When the next CONSUMER.INFO may be sent: that request is expensive for a server with many consumers."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._lock = waiting.new_lock()
        self._from = float("-inf")

    def allow(self) -> bool:
        """Whether to ask now; then the next time is `every` seconds later."""
        with self._lock:
            now = time.monotonic()
            if now < self._from:
                return False
            self._from = now + self._every
            return True

    def shorten(self, seconds: float) -> None:
        """Ask again in so many seconds already."""
        with self._lock:
            self._from = min(self._from, time.monotonic() + seconds)


class PullSource:
    """What pulls need to know of a consumer: where they go, its pin ids, and how to find out what is wrong."""

    def __init__(self, connection: Connection, pull_subject: str) -> None:
        self.nc = connection
        """The connection."""
        self.pull_subject = pull_subject
        """For layers."""
        self.pins: dict[
            str, str
        ] = {}  #: For layers: priority group -> the id by which the server knows its pinned client: us
        self.questions: QuestionLimit = QuestionLimit(EXAMINE_EVERY)  #: For layers: of all fetches
        self.pull_prefix = b""  #: For layers: of the body of every pull

    ack_none = False

    def pull_bytes(self, messages: int) -> int:
        """For layers: how many bytes each pull of a fetch of so many messages may bring; 0: no limit."""
        return 0

    def learn_size(self, nbytes: int) -> None:
        """For layers: a message of so many bytes has come."""

    def learn_pin(self, group: str, message: Msg) -> None:
        """For layers: the id under which the server has pinned us."""
        pin = header_names.readable(message).get(header_names.PIN_ID)
        if pin:
            self.pins[group] = pin

    def examine(self, timeout: float) -> Exception | Paused | None:
        """Ask the server why nothing comes; None when it does not tell within `timeout` seconds."""
        return None

    def ask_position(self, timeout: float) -> ConsumerInfo | None:
        """For layers: ask how far the deliveries have come; None where nobody tells within `timeout` seconds."""
        return None

    def why_nobody(self, error: PullNoResponders, timeout: float) -> Exception | None:
        """Nobody takes pulls: the reason, or None if the consumer may only be without a leader."""
        return error

    def why_deleted(self, deleted: ConsumerDeleted, timeout: float) -> Exception:
        """Ask the server whether it is the whole stream that was deleted."""
        return deleted


class AckedConsumer(PullSource):
    """The consumer behind a message: its next pull is the ack (+NXT). Nothing else is known of it."""

    def __init__(self, connection: Connection, ack: bytes) -> None:
        super().__init__(connection, ack.decode())
        self.pull_prefix = NEXT + b" "

    def __str__(self) -> str:
        return "the consumer of an acked message"
