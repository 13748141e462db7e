"""Which thread reads the socket of a link: its reader or, to save a wake-up, the thread that waits for what comes.

What the reader reads for others wakes two threads, one after the other: a get of a key takes 122 us of CPU and 215 of
wall, with one thread 75 and 150. So the reader lends its right to read, and parks, when it has just woken somebody and
nobody else waits. A borrower may have a signal handler on top of it at any point. That may raise, or go
on for long and wait for what the reader has to bring. Therefore:

1. The right is `lock`. A borrower has it while it reads what is there, by one call that does not block. While it waits
   it has nothing, and the reader may take over at any time.
2. What it has read stays in its `Turn`, as bytes, until it is its own. Each step that others see is one call into C.
3. Others end a turn only while its thread is seen beneath other code: first they take its permit, so that it reads no
   more, then they look, then they move its bytes. Within a call it is never ended: for a slow thread the reader waits.
4. A handler that makes a call of ours ends the turn beneath it itself: `recall`.
5. Only calls into C are lent: TLS, websockets, and sockets with a `recv` in Python code are the reader's.

A reply that comes alone is found without the parser; all else is parsed by a copy of it. What belongs to others, and
what is large, is left to the reader. Where others have ended the turn its bytes are gone: popleft raises.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol

from jsclient import protocol, waiting
from jsclient._transport import Transport
from jsclient._transport.tcp import RECV_SIZE
from jsclient.durations import Deadline
from jsclient.message import Msg
from jsclient.protocol.parser import only_message

if TYPE_CHECKING:
    from jsclient._connection.calls import EachCall
    from jsclient._connection.mailbox import Mailbox

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
    return trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("jsclient._connection.")


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


class Filled(Protocol):
    """A subscription with a mailbox that a borrower of the right to read fills."""

    mailbox: Mailbox
    sid: bytes
    received: int


def read_messages(reading: Reading, inbox: Filled, deadline: Deadline) -> None:
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


def _deliver(reading: Reading, turn: Turn, inbox: Filled) -> None:
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


def read_replies(reading: Reading, sid: bytes, call: EachCall, deadline: Deadline) -> Msg | None:
    """As `read_reply`, for replies to many requests: gives them to the call, and returns the last when it has all."""
    number_of, cut = call.numbers.get, len(call.reply) - len(call.token)

    def take(turn: Turn) -> Msg | None:
        parser, events = _parse(reading, turn)
        numbers: list[Any] = [number_of(event.raw_subject[cut:]) if event.sid == sid else None for event in events]
        if parser is None or None in numbers:
            return None
        _keep(reading, turn, parser, events, deque(maxlen=0))  # an exception before the next line ends the call, too
        deque(map(call.replies.setdefault, numbers, events), 0)
        return events[-1] if call.complete else None

    return reading.borrow(take, call.ticket.empty, deadline)


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


PARK, LONGEST_PARK = 0.002, 0.02  # seconds without a borrower after which the reader reads again: longer and longer
PATIENCE, LOOK = 0.1, 0.003  # seconds between two looks: of the reader at a borrower, of a borrower at its own wait


class Reading:
    """The right to read from the stream of a link. The reader's unless it is `lent`."""

    def __init__(self, stream: Transport, parser: protocol.Parser[Msg]) -> None:
        self.parser = parser  # borrowers put another one in its place
        self.lock: Any = waiting.new_turn()  # the right
        self.seat: Any = waiting.new_turn()  # of the borrowers only one enters
        self.left: deque[bytes] = deque()  # read by borrowers; it comes before what the stream brings
        self.lent: bool = False
        self.borrowed: int = 0
        self.messages_in = self.bytes_in = 0  # of borrowers; the reader counts them when it is back
        self.last_frame: float = time.monotonic()
        self.error: OSError | None = None  # that a borrower has met: the stream tells it only once
        self._stream, self._turn = stream, Turn()
        self._reader = 0  # its thread
        self._poller: Any = None
        self._parked: waiting.Ticket[None] = waiting.Ticket()

    def begin(self) -> None:  # the reader, once
        self.lock.acquire()
        self._reader = threading.get_ident()

    def lend(self) -> None:
        """From here on others may read. The reader then looks whether anybody waits, and parks if not."""
        self._poller = self._poller or self._stream.new_poller()
        self._parked = waiting.Ticket()
        self.lent = True
        self.lock.release()

    def park(self, until: float) -> bool:
        """Wait as long as there are borrowers; True when `until` (monotonic) was reached, False to read again."""
        pause = PARK
        while True:
            seen = self.borrowed
            try:
                waiting.get(self._parked, pause)
                return False
            except queue.Empty:
                if self.borrowed == seen or time.monotonic() >= until:
                    return self.borrowed != seen
                pause = min(2 * pause, LONGEST_PARK)

    def take_back(self) -> None:
        """The right is the reader's again: what was left comes first."""
        self.lent = False
        while not self.lock.acquire(True, PATIENCE):
            self._turn.permit.clear()
            if waiting.is_beneath(waiting.holder(self.lock), Reading._read):
                self.lock = waiting.new_turn()
        self._turn.end(self.left)

    def recall(self) -> Msg | None:
        """Somebody waits for what only the reader brings. Cheap, and safe in signal handlers. Returns None."""
        if self.is_ours():
            self._turn.permit.clear()
            self._turn.end(self.left)
            waiting.free(self.lock)
        if self.lent:
            self._parked.put(None)
        return None

    def is_ours(self) -> bool:
        """True in a signal handler on top of a borrower that has the right at this moment."""
        return self.lock._is_owned() and threading.get_ident() != self._reader

    def borrow(self, take: Callable[[Turn], Msg | None], wanted: Callable[[], bool], until: Deadline) -> Msg | None:
        """Read chunk by chunk until `take` returns something or leaves a chunk, or nothing is `wanted` any more."""
        seat, found = self.seat, None
        if seat._is_owned():
            return self.recall()  # a signal handler on top of a borrower
        try:
            if not seat.acquire(False):
                return self.recall()  # two want to read: the reader serves both
            self.borrowed += self.lent
            while True:
                if found is not None or not self.lent or self.left or not wanted():
                    return found
                look = until.at_most(LOOK)
                if not look:
                    return None
                # Not `recv` alone: after a signal handler that would go on, although the reader has taken over.
                found = self._read(take) if self._poller.poll(1000 * look) else None
        finally:
            try:
                waiting.free(seat)
            finally:
                if seat._is_owned():
                    waiting.free(seat)  # an exception has struck in the first

    def _read(self, take: Callable[[Turn], Msg | None]) -> Msg | None:
        """Take the right for one chunk, and leave to the reader what `take` does not want of it."""
        lock, turn = self.lock, Turn()
        self._turn = turn  # before the right is ours, so that the thread that ends the turn finds it
        try:
            if not lock.acquire(False) or lock is not self.lock or not self.lent or self.left:
                return None  # the reader has taken over
            turn.chunks.extend(self._stream.take(turn.permit))
            return take(turn) if turn.chunks else None
        except (OSError, IndexError) as error:  # IndexError: the turn was ended
            if not raised_here(error):
                raise  # by a signal handler
            if isinstance(error, OSError) and not isinstance(error, BlockingIOError):
                self.error = error
            return None
        finally:
            try:
                self._return(lock, turn)
            finally:
                if turn.chunks or lock._is_owned():
                    self._return(lock, turn)

    def _return(self, lock: Any, turn: Turn) -> None:
        turn.end(self.left)
        waiting.free(lock)
        if self.left or self.error is not None:
            self.recall()
