"""Who reads the socket of a link: its reader thread or, to save a wake-up, the thread that waits for what comes.

What the reader reads for a thread that waits wakes two threads, one after the other. On an idle machine each meets a
sleeping core with cold caches: 122 us of CPU and 215 of wall for a get of a key, with one thread 75 and 150; a message
without ack 3.1 and 5.1, with one thread 2.2 and 3.7 (Python 3.11, same hour). So the reader lends its right to read,
and parks, when it has just woken somebody and nobody else waits. Who then waits for a reply (`request`) or for messages
(`Inbox.next`) reads the socket himself. TLS and websockets are always the reader's: reading them is more than one call.

Two things may happen to a borrower that cannot happen to the reader. Ctrl-C strikes him at any point. And he may be
the main thread, on top of which a signal handler runs for as long as it likes, and makes calls of its own. So he has
the right only from the moment that something is there to be read until he has read it: while he waits, the reader may
take over at any time. And what he has read stays in his `_Turn`, in bytes, until it is his: a reply that comes alone
is found without the parser, messages are parsed by a copy of it. Each step that others can see is one call into C: a
signal comes before it or after it. So even then a turn can be ended, by moving its bytes to the reader.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from operator import setitem
from typing import TYPE_CHECKING, Any, Final

import protocol
from jsclient import waiting
from jsclient._transport.tcp import RECV_SIZE, Transport
from jsclient.durations import Deadline
from jsclient.message import Msg
from protocol.parser import only_message

if TYPE_CHECKING:
    from jsclient._engine.mailbox import Mailbox
    from jsclient._engine.sinks import Inbox

AT_ONCE: Final = 0.005
"""Seconds between two chunks up to which the reader lends: who asks now and then would only have it woken twice."""

LARGE: Final = 16 * 1024
"""Bytes per message from which on the reader does not lend: they come in parts, and those are the reader's."""

PARK: Final = 0.002
"""Seconds without a borrower after which the reader reads again; doubled as long as there are some."""

LONGEST_PARK: Final = 0.02

PATIENCE: Final = 0.1
"""Seconds after which the reader takes the right from a borrower who does not return it."""

LOOK: Final = 0.003
"""Seconds between two looks of a borrower whether his wait has ended (he was stopped, the connection was closed)."""


class _Turn:
    """What one borrower has read and nobody has been given yet."""

    __slots__ = ("chunks", "permit")

    def __init__(self) -> None:
        self.permit = [RECV_SIZE]  # emptied when the turn is ended by somebody else
        self.chunks: deque[bytes] = deque()


class Reading:
    """The right to read from the stream of a link. The reader's unless it is `lent`."""

    def __init__(self, stream: Transport, parser: protocol.Parser[Msg]) -> None:
        self.parsers = [parser]  # one, in a list for the sake of `setitem`
        # Ownership of an RLock is recorded in C together with the acquisition: see `outbox`.
        self.lock = waiting.new_turn()  # the right
        self.seat = waiting.new_turn()  # of the one borrower; the reader never wants it
        self.left: deque[bytes] = deque()  # read by borrowers; it comes before what the stream brings
        self.lent = False
        self.borrowed = 0
        self.messages_in = 0  # of borrowers; the reader counts them when he is back
        self.bytes_in = 0
        self.last_frame = time.monotonic()
        self.error: OSError | None = None  # that a borrower has met: the stream tells it only once
        self._stream = stream
        self._reader = 0  # his thread
        self._parked: waiting.Ticket[None] | None = None
        self._poller: Any = None
        self._turn = _Turn()

    @property
    def parser(self) -> protocol.Parser[Msg]:
        return self.parsers[0]

    # --- the reader's side ------------------------------------------------------------------------------

    def lend(self) -> None:
        """From here on others may read. The reader, which then looks whether anybody waits, and parks if not."""
        self._poller = self._poller or self._stream.new_poller()
        self._parked = waiting.Ticket()
        self.lent = True
        self.lock.release()

    def park(self, until: float) -> bool:
        """Wait as long as there are borrowers; True when `until` (monotonic) was reached, False to read again."""
        parked, pause = self._parked, PARK
        assert parked is not None
        while True:
            seen = self.borrowed
            try:
                waiting.get(parked, pause)
                return False
            except queue.Empty:
                if self.borrowed == seen:
                    return False
                if time.monotonic() >= until:
                    return True
            pause = min(2 * pause, LONGEST_PARK)

    def take_back(self) -> None:
        """The right is the reader's again: what was left comes first."""
        self.lent = False
        if not self.lock.acquire(True, PATIENCE):
            # A signal handler came over the borrower just then, and goes on and on: perhaps it waits for us.
            self.lock = waiting.new_turn()
            self.lock.acquire()
            self._turn.permit.clear()  # first: he may be at work again at any moment
            self._move(self._turn)

    def begin(self) -> None:
        """The reader, once: the right is his."""
        self.lock.acquire()
        self._reader = threading.get_ident()

    # --- everybody's ------------------------------------------------------------------------------------

    def recall(self) -> None:
        """Somebody waits for what only the reader brings him. Cheap, and safe in signal handlers."""
        if self.is_ours():
            # We are a signal handler on top of a borrower who has just read something: that is the reader's now.
            self._move(self._turn)
            self._turn.permit.clear()
            self._release(self.lock)
        self._call_reader()

    def is_ours(self) -> bool:
        """True in a signal handler on top of a borrower who has the right at this moment."""
        return self.lock._is_owned() and threading.get_ident() != self._reader

    def _call_reader(self) -> None:
        parked = self._parked
        if self.lent and parked is not None:
            parked.put(None)

    # --- the borrower's side ----------------------------------------------------------------------------

    def read_reply(self, sid: bytes, subject: bytes, ticket: waiting.Ticket[Any], deadline: Deadline) -> Msg | None:
        """The message to `subject`, if it comes alone; None: ask the ticket, as without us.

        That is: the reader brings it, or the ticket has got something meanwhile, or the deadline has come.
        """

        def take(turn: _Turn) -> Msg | None:
            message = only_message(turn.chunks[0], subject, Msg) if self.parser.between_frames else None
            if message is None or message.sid != sid:
                return None
            self._count(1, len(turn.chunks.popleft()))
            return message

        return self._borrow(take, ticket.empty, deadline)

    def read_messages(self, inbox: Inbox, deadline: Deadline) -> None:
        """Put what comes for an inbox into its mailbox until that holds something, or its taker is to look at it."""
        mailbox = inbox.mailbox

        def wanted() -> bool:
            return not (mailbox.items or mailbox.woken or mailbox.closed is not None)

        try:
            self._borrow(lambda turn: self._deliver(turn, inbox), wanted, deadline)
        finally:
            try:
                self._wake_takers(mailbox)
            finally:
                self._wake_takers(mailbox)  # twice, because Ctrl-C may strike in the first

    def _wake_takers(self, mailbox: Mailbox) -> None:
        """Others take from the mailbox, too, and count on the reader."""
        if mailbox._waiters:
            if mailbox.items:
                mailbox._notify(len(mailbox.items))
            self._call_reader()

    def _deliver(self, turn: _Turn, inbox: Inbox) -> None:
        """Parse the chunk and put its messages into the mailbox, unless there is something for others in it."""
        chunk, mailbox, sid = turn.chunks[0], inbox.mailbox, inbox.sid
        parser = self.parser.copy()
        if not chunk or not parser.completed_by(chunk):
            return  # the end of the stream; or a part of something large: to copy all its parts each time is quadratic
        try:
            events = parser.feed(chunk)
        except protocol.ProtocolError:
            return
        for event in events:
            if event.sid != sid:
                return
        # All of it or nothing: if the turn was ended, popleft raises before anything else is done.
        taken = iter(turn.chunks.popleft, chunk)
        parsed: Iterator[Any] = filter(None, map(setitem, (self.parsers,), (0,), (parser,)))
        mailbox.items.extend(chain(taken, parsed, events))
        self._count(len(events), len(chunk))
        inbox.received += len(events)
        mailbox.last_frame = self.last_frame

    def _borrow(
        self, take: Callable[[_Turn], Msg | None], wanted: Callable[[], bool], deadline: Deadline
    ) -> Msg | None:
        """Read chunk by chunk until `take` returns something or leaves a chunk, or nothing is `wanted` any more."""
        seat = self.seat
        if seat._is_owned():
            self.recall()  # a signal handler on top of a borrower
            return None
        found = None
        try:
            if not seat.acquire(False):
                self._call_reader()  # two want to read: both are served by the reader
                return None
            if self.lent:
                self.borrowed += 1
            while found is None and self.lent and not self.left and wanted() and not deadline.expired():
                # Not `recv` alone: after a signal handler that would go on, although the reader has taken over.
                if self._poller.poll(1000 * deadline.at_most(LOOK)):
                    found = self._read(take)
            return found
        finally:
            try:
                self._release(seat)
            finally:
                if seat._is_owned():
                    self._release(seat)  # Ctrl-C has struck in the first

    def _read(self, take: Callable[[_Turn], Msg | None]) -> Msg | None:
        """Take the right for one chunk, and leave to the reader what `take` does not want of it."""
        lock, turn = self.lock, _Turn()
        self._turn = turn  # nobody else has the seat; before the right is ours, so that whoever ends the turn finds it
        try:
            if not lock.acquire(False) or lock is not self.lock or not self.lent or self.left:
                return None  # the reader has taken over
            turn.chunks.extend(self._stream.take(turn.permit))
            if not turn.permit and turn.chunks:
                # Ended within `take`, which the borrower had no chance to leave: do these bytes come before those that
                # the reader has read meanwhile? Nobody knows. Start afresh.
                self._stream.shutdown()
                return None
            return take(turn) if turn.chunks else None
        except (OSError, IndexError) as error:
            if not _raised_here(error):
                raise  # by a signal handler
            if isinstance(error, OSError) and not isinstance(error, BlockingIOError):
                self.error = error
                self._call_reader()
            return None  # IndexError: the turn was ended
        finally:
            try:
                self._return(lock, turn)
            finally:
                if turn.chunks or self.left or lock._is_owned():
                    self._return(lock, turn)  # Ctrl-C has struck in the first

    def _count(self, messages: int, nbytes: int) -> None:
        self.messages_in += messages
        self.bytes_in += nbytes
        self.last_frame = time.monotonic()

    def _return(self, lock: Any, turn: _Turn) -> None:
        """Give the right back, and with it what is left in the turn."""
        if turn.chunks and turn.permit:  # without a permit they are the reader's already, or nobody's
            self._move(turn)
        self._release(lock)
        if self.left:
            self._call_reader()

    def _move(self, turn: _Turn) -> None:
        try:
            self.left.extend(iter(turn.chunks.popleft, None))
        except IndexError as error:
            if not _raised_here(error):
                raise

    @staticmethod
    def _release(lock: Any) -> None:
        try:
            while lock._is_owned():
                lock.release()
        except RuntimeError as error:
            if not _raised_here(error):
                raise  # else a signal handler came between the two and has done it


def _raised_here(error: BaseException) -> bool:
    """By a call of ours into C, and not by the code of a signal handler."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals is globals()
