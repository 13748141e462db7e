"""The target of pulls: the interface of a consumer that fetches and iterators need."""

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
        """For layers."""
        self.pins: dict[
            str, str
        ] = {}  #: For layers: priority group -> the id by which the server knows its pinned client, which is us
        self.questions: QuestionLimit = QuestionLimit(EXAMINE_EVERY)  #: For layers: the limit of all fetches
        self.pull_prefix = b""  #: For layers: the start of the body of every pull

    ack_none = False

    def pull_bytes(self, messages: int) -> int:
        """For layers: the limit in bytes for each pull of a fetch of `messages` messages; 0 is unlimited."""
        return 0

    def learn_size(self, nbytes: int) -> None:
        """For layers: a message of this number of bytes has come."""

    def learn_pin(self, group: str, message: Msg) -> None:
        """For layers: the id under which the server has pinned us."""
        pin = header_names.readable(message).get(header_names.PIN_ID)
        if pin:
            self.pins[group] = pin

    def examine(self, timeout: float) -> Exception | Paused | None:
        """Ask the server for the reason of the silence; None if it names none within `timeout` seconds."""
        return None

    def ask_position(self, timeout: float) -> ConsumerInfo | None:
        """For layers: ask how far the deliveries have come; None without an answer within `timeout` seconds."""
        return None

    def why_nobody(self, error: PullNoResponders, timeout: float) -> Exception | None:
        """No server takes pulls: the reason, or None if the consumer may only be without a leader."""
        return error

    def why_deleted(self, deleted: ConsumerDeleted, timeout: float) -> Exception:
        """Ask the server if the complete stream was deleted."""
        return deleted


class AckedConsumer(PullSource):
    """The consumer behind a message: its next pull is the ack (+NXT). Its other properties are unknown."""

    def __init__(self, connection: Connection, ack: bytes) -> None:
        super().__init__(connection, ack.decode())
        self.pull_prefix = NEXT + b" "

    def __str__(self) -> str:
        return "the consumer of an acked message"
