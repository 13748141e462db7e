"""Calls: the requests that are under way, one object for each.

`requests` sends them and waits; the reader gives them their replies.
"""

from __future__ import annotations

from typing import Any, Final

from jsclient import errors, nuid, waiting
from jsclient._connection.mailbox import OVERHEAD, message_size
from jsclient.message import Msg
from jsclient.protocol.frames import Frame

FURTHER_SIZE: Final = 4_096
"""Bytes of a further reply (see `Requests.later_reply`) at most: an ack is small."""

MOST_REPLIES: Final = 64 * 1024 * 1024
"""Bytes of replies to one request that may wait for the caller, as `PENDING_BYTES` of a subscription. The reader drops
more."""


class Call:
    """One question under way, and what its thread waits on: a ticket that gets the reply, or why none comes."""

    # Class attributes, because most calls keep these values.
    frame: Frame = b""

    counted: bool = False
    """True if `messages_out` includes the last copy."""

    answered: bool = False
    """True if the call needs no more from the reader."""

    several: bool = False
    """True if the first reply may announce a second one."""

    borrows: bool = True
    """True if the calling thread may read the first reply from the socket."""

    def __init__(self, prefix: bytes, subject: str = "") -> None:
        self.prefix: bytes = prefix
        self.token: bytes = nuid.new_token()
        self.reply: bytes = prefix + self.token
        """The subject of its reply."""
        self.subject: str = subject
        self.ticket: waiting.Ticket[Any] = waiting.Ticket()

    @property
    def under_way(self) -> bool:
        """True until its first reply."""
        return not self.answered

    def take(self, token: bytes, message: Msg) -> bool:
        """The reader: whether the message is the one that the thread waits for."""
        if not self.answered:
            self.answered = True
            return True
        if self.several:
            put_further(self.ticket, message)
        return False


def put_further(ticket: waiting.Ticket[Any], message: Msg) -> None:
    """Keep a reply after the first one, for a thread that takes it later. At most two messages wait."""
    if len(message.data) <= FURTHER_SIZE and ticket.size() < 2:
        ticket.put(message)


class ManyCall(Call):
    """One that takes replies until its thread ends it. The reader counts up what waits, the thread counts down."""

    received: int = 0
    taken: int = 0
    dropped: int = 0
    borrows: bool = False

    @property
    def under_way(self) -> bool:
        return not self.received

    def take(self, token: bytes, message: Msg) -> bool:
        size = message_size(message) + OVERHEAD
        if self.received - self.taken + size > MOST_REPLIES:
            self.dropped += 1
            return False
        self.received += size
        return True

    def took(self, message: Msg) -> None:
        """Raises SlowConsumer if others were dropped."""
        self.taken += message_size(message) + OVERHEAD
        if self.dropped:
            raise errors.SlowConsumer(
                f"replies to {self.subject!r} were dropped: {MOST_REPLIES} bytes of them waited. They do "
                "not come again. Take them faster, or ask for fewer.",
                self.subject,
                self.dropped,
            )


class EachCall(Call):
    """Many requests in one call. It keeps the first reply to each; the last of these wakes the thread."""

    def __init__(self, prefix: bytes, count: int) -> None:
        super().__init__(prefix)
        self.numbers: dict[bytes, int] = {nuid.new_token(): number for number in range(count)}  # by token
        self.replies: dict[int, Msg] = {}

    @property
    def complete(self) -> bool:
        return len(self.replies) == len(self.numbers)

    def take(self, token: bytes, message: Msg) -> bool:
        self.replies.setdefault(self.numbers[token], message)
        if self.answered or not self.complete:
            return False
        self.answered = True
        return True
