"""What a thread that reads the socket itself does with what it has read: see `reading`.

A reply that comes alone is found without the parser; all else is parsed by a copy of it. What belongs to others, and
what is large, is left to the reader. Where others have ended the turn its bytes are gone: popleft raises.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import protocol
from jsclient._transport.tcp import RECV_SIZE
from jsclient.message import Msg
from protocol.parser import only_message

if TYPE_CHECKING:
    from jsclient import waiting
    from jsclient._engine.mailbox import Mailbox
    from jsclient._engine.reading import Reading
    from jsclient._engine.sinks import Inbox
    from jsclient.durations import Deadline

LARGE: Final = 64 * 1024
"""Bytes per message from which on the reader reads them: most come in parts (a read takes 112 KiB), and parts are the
reader's. From 16 KiB on was too soon: 8,000 such messages took 1,100 to 2,200 switches of threads instead of 130."""


class Turn:
    """What one borrower has read and nobody has been given yet."""

    __slots__ = ("chunks", "permit")

    def __init__(self) -> None:
        self.permit = [RECV_SIZE]  # emptied when the turn is ended by somebody else
        self.chunks: deque[bytes] = deque()

    def end(self, left: deque[bytes]) -> None:
        """What it holds is the reader's from here on."""
        if not self.chunks:
            return
        try:
            left.extend(iter(self.chunks.popleft, None))
        except IndexError as error:
            if not raised_here(error):
                raise


def raised_here(error: BaseException) -> bool:
    """By a call of ours into C, and not by the code of a signal handler."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("jsclient._engine.")


def read_reply(
    reading: Reading, sid: bytes, subject: bytes, ticket: waiting.Ticket[Any], deadline: Deadline
) -> Msg | None:
    """The message to `subject`, if it comes alone; None: ask the ticket, as without us.

    That is: the reader brings it, or the ticket has got something meanwhile, or the deadline has come.
    """

    def take(turn: Turn) -> Msg | None:
        message = only_message(turn.chunks[0], subject, Msg) if reading.parser.between_frames else None
        if message is None or message.sid != sid:
            return None
        _count(reading, 1, len(turn.chunks.popleft()))
        return message

    return reading.borrow(take, ticket.empty, deadline)


def read_messages(reading: Reading, inbox: Inbox, deadline: Deadline) -> None:
    """Put what comes for an inbox into its mailbox until that holds something, or its taker is to look at it."""
    mailbox = inbox.mailbox

    def wanted() -> bool:
        return not (mailbox.items or mailbox.woken or mailbox.closed is not None)

    try:
        reading.borrow(lambda turn: _deliver(reading, turn, inbox), wanted, deadline)
    finally:
        try:
            _wake_takers(reading, mailbox)
        finally:
            _wake_takers(reading, mailbox)  # an exception has struck in the first


def _wake_takers(reading: Reading, mailbox: Mailbox) -> None:
    """Others take from the mailbox, too, and count on the reader."""
    if mailbox._waiters:
        if mailbox.items:
            mailbox._notify(len(mailbox.items))
        reading.recall()


def _deliver(reading: Reading, turn: Turn, inbox: Inbox) -> None:
    """Put the messages of the chunk into the mailbox, unless there is something for others in it."""
    parser, events = _parse(reading, turn)
    mailbox, sid = inbox.mailbox, inbox.sid
    if parser is None:
        return
    for event in events:
        if event.sid != sid:
            return
    _keep(reading, turn, parser, events, mailbox.items)
    inbox.received += len(events)
    mailbox.last_frame = reading.last_frame


def _parse(reading: Reading, turn: Turn) -> tuple[protocol.Parser[Msg] | None, list[Any]]:
    """What a copy of the parser finds in the chunk, and the copy; no parser if the chunk is the reader's."""
    chunk, parser = turn.chunks[0], reading.parser
    if not chunk or not parser.completed_by(chunk):
        return None, []  # the end of the stream; or a part of something large: to copy all parts each time is quadratic
    parser = parser.copy()
    try:
        events = parser.feed(chunk)
    except protocol.ProtocolError:
        return None, []
    return (parser, events) if len(chunk) < LARGE * max(len(events), 1) else (None, [])


def _keep(reading: Reading, turn: Turn, parser: protocol.Parser[Msg], events: list[Any], into: deque[Any]) -> None:
    """Take the chunk. All of it or nothing: if the turn was ended, popleft raises before anything else is done."""
    chunk = turn.chunks[0]
    taken = iter(turn.chunks.popleft, chunk)
    replaced: Iterator[Any] = filter(None, map(setattr, (reading,), ("parser",), (parser,)))
    into.extend(chain(taken, replaced, events))
    _count(reading, len(events), len(chunk))


def _count(reading: Reading, messages: int, nbytes: int) -> None:
    reading.messages_in += messages
    reading.bytes_in += nbytes
    reading.last_frame = time.monotonic()
