"""Acknowledge many messages with one wait."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from jsclient import errors, kinds
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Deadline, Timeout
from jsclient.jetstream.api.ack_and_nak import ACK
from jsclient.jetstream.consuming.stale_acks import ASK_AFTER, forgotten, stale_delivery
from jsclient.jetstream.message import JetStreamMsg

if TYPE_CHECKING:
    from jsclient.message import Msg

ACK_TIMEOUT: Final = 5.0
"""Seconds to wait for confirmations; the server answers acks in the order it reads them."""


_headers: Final = attrgetter("raw_headers")


class Confirmed(NamedTuple):
    """The acks that the server confirmed, and the others, in the given order."""

    confirmed: list[JetStreamMsg]
    unconfirmed: list[JetStreamMsg]
    """These messages may be acked, or may be redelivered. You may ack them again."""
    errors: list[errors.JsClientError]
    """The reason for each unconfirmed message: the error that `double_ack` would have raised for it."""

    def __bool__(self) -> bool:
        """True if all were confirmed."""
        return not self.unconfirmed


def double_ack_many(messages: Iterable[JetStreamMsg], timeout: Timeout = DEFAULT) -> Confirmed:
    """`double_ack` of all messages with one write and one wait of at most `timeout` seconds (5 by default).

    Ten together cost a fifth of ten one by one, a hundred a fifteenth. It never raises for acks without a confirmation:
    see the result. If any message was acked or has no reply, it sends nothing and raises MsgAlreadyAcked or MsgNoReply.
    It can also raise ConnectionClosed. With ack policy "all" pass only the last message.
    """
    kinds.check(Iterable, messages=messages)
    wanted = list(messages)
    strange = [item for item in wanted if not hasattr(item, "claim")]
    if strange:
        raise errors.ConfigError(f"messages must be messages of a consumer, not {type(strange[0]).__name__}")
    deadline = Deadline.of(timeout, ACK_TIMEOUT)
    if not wanted:
        return Confirmed([], [], [])
    _claim_all(wanted)
    found: dict[int, Msg] = {}
    ended: BaseException | None = None
    left = range(len(wanted))
    stale: set[int] = set()
    try:
        if deadline.at_most(ASK_AFTER) == ASK_AFTER:
            ended = _ask_for(wanted, left, Deadline(ASK_AFTER), found)
            open_ = [number for number in left if number not in found]
            if open_ and (ended is None or isinstance(ended, errors.TimedOut)):
                forgot = {id(message) for message in forgotten([wanted[number] for number in open_], deadline)}
                stale = {number for number in open_ if id(wanted[number]) in forgot}
                open_ = [number for number in open_ if number not in stale]
                ended = _ask_for(wanted, open_, deadline, found) if open_ else None
        else:
            ended = _ask_for(wanted, left, deadline, found)
    finally:
        complete = _all_confirmed(wanted, found)
        if not complete:
            for number, message in enumerate(wanted):
                if number not in found or found[number].status is not None:
                    message.release()
    if complete:
        return Confirmed(wanted, [], [])
    if isinstance(ended, errors.ConnectionClosed):
        raise ended
    return _sort(wanted, found, stale, ended)


def _ask_for(
    wanted: list[JetStreamMsg], numbers: Sequence[int], deadline: Deadline, found: dict[int, Msg]
) -> BaseException | None:
    """Ack these messages, and put the answers into `found`; returns the error that ended the wait early."""
    subjects = [wanted[number].msg.raw_reply or b"" for number in numbers]
    try:
        answers, ended = engine_of(wanted[0].connection).request_each(subjects, ACK, deadline)
    except (errors.TimedOut, errors.ConnectionLost, errors.BufferFull) as error:
        return error
    all_of_them = len(numbers) == len(wanted)  # then the answers have the same numbers
    found.update(answers if all_of_them else {numbers[index]: answer for index, answer in answers.items()})
    return ended


def _all_confirmed(wanted: list[JetStreamMsg], found: dict[int, Msg]) -> bool:
    """True if all acks are confirmed. A refusal is a status, which is in headers."""
    return len(found) == len(wanted) and not any(map(_headers, found.values()))


def _sort(wanted: list[JetStreamMsg], found: dict[int, Msg], stale: set[int], ended: BaseException | None) -> Confirmed:
    result = Confirmed([], [], [])
    for number, message in enumerate(wanted):
        reply = found.get(number)
        if reply is not None and reply.status is None:
            result.confirmed.append(message)
            continue
        result.unconfirmed.append(message)
        if reply is not None:  # 503
            text = "nobody takes the ack: the consumer was deleted, or has no leader at the moment"
            result.errors.append(errors.NoResponders(text, message.reply))
        elif number in stale:
            result.errors.append(stale_delivery(message))
        elif isinstance(ended, errors.JsClientError):
            result.errors.append(type(ended)(*ended.args))
        else:
            result.errors.append(errors.RequestTimeout("the server did not confirm the ack in time"))
    return result


def _claim_all(messages: list[JetStreamMsg]) -> None:
    claimed: list[JetStreamMsg] = []
    try:
        for message in messages:
            message.claim()
            claimed.append(message)
    except BaseException:
        for message in claimed:
            message.release()
        raise
