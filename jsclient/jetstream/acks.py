"""Acknowledge many messages with one wait."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from jsclient import errors
from jsclient.durations import DEFAULT, Deadline, Timeout
from jsclient.jetstream.message import ACK, JetStreamMsg
from jsclient.nuid import new_token
from jsclient.states import LinkEvent, Wake

if TYPE_CHECKING:
    from jsclient.connection import Connection

ACK_TIMEOUT: Final = 5.0
"""Seconds to wait for confirmations; the server answers acks in the order it reads them."""


class Confirmed(NamedTuple):
    """Which acks the server confirmed, in the order given."""

    confirmed: list[JetStreamMsg]
    unconfirmed: list[JetStreamMsg]
    """Outcome unknown: they may be acked or come again, and may be acked again."""

    def __bool__(self) -> bool:
        """True when all were confirmed."""
        return not self.unconfirmed


def ack_confirmed(messages: Iterable[JetStreamMsg], timeout: Timeout = DEFAULT) -> Confirmed:
    """Double-ack all messages with one wait of at most `timeout` seconds (5 by default).

    Never raises for what the server did not confirm: see the result. Raises MsgAlreadyAcked or MsgNoReply, and
    sends nothing, if that is true for any of them; ConnectionClosed. With ack policy "all" give it the last message.
    """
    wanted = list(messages)
    deadline = Deadline.of(timeout, ACK_TIMEOUT)
    if not wanted:
        return Confirmed([], [])
    connection = wanted[0].connection
    _claim_all(wanted)
    open_: set[int] = set(range(len(wanted)))
    try:
        _exchange(connection, wanted, open_, deadline)
    finally:
        for number in open_:
            wanted[number].release()
    return Confirmed([m for i, m in enumerate(wanted) if i not in open_], [wanted[i] for i in sorted(open_)])


def _claim_all(messages: list[JetStreamMsg]) -> None:
    claimed: list[JetStreamMsg] = []
    try:
        for message in messages:
            message._claim()
            claimed.append(message)
    except BaseException:
        for message in claimed:
            message.release()
        raise


def _exchange(connection: Connection, messages: list[JetStreamMsg], left: set[int], deadline: Deadline) -> None:
    """Send all acks, then strike out of `left` what is confirmed, until all are answered or time is up."""
    base = connection.new_inbox()
    inbox = connection.open_inbox(base + ".*")
    prefix = base.encode() + b"."
    unanswered: dict[bytes, int] = {}
    try:
        for number, message in enumerate(messages):
            reply, token = message.msg.raw_reply or b"", new_token()
            unanswered[token] = number
            connection.post(b"PUB %b %b%b 4\r\n%b\r\n" % (reply, prefix, token, ACK))
        while unanswered:
            item = inbox.next(deadline.remaining())
            if item is None:
                return
            if item is LinkEvent.DISCONNECTED:
                return  # acks that were not sent are kept and go out later; what was sent may be lost
            if isinstance(item, (LinkEvent, Wake)):
                continue
            answered = unanswered.pop(item.raw_subject[len(prefix) :], None)
            if answered is not None and item.status is None:  # else 503: nobody takes acks of this consumer any more
                left.discard(answered)
    except errors.SubscriptionClosed:
        return
    finally:
        inbox.close()
