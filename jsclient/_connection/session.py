"""The life of a link and of its successors: the reader, link loss, closing. It knows no subscriptions.

    Connector (its thread) --Link--> Session.adopt --> reader thread --events--> Engine
                  ^                                  |
                  +------------ link_down <----------+   (also called by a sender that fails)

A thread holds the state lock for decisions only, never across I/O, callbacks or another lock.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors, protocol, waiting
from jsclient._connection import server_errors
from jsclient._connection.connecting import Connector
from jsclient._connection.events import ConnectionEvent
from jsclient._connection.link import Link, discard, tick
from jsclient._connection.outbox import HIGH_WATER_FRAMES, Outbox
from jsclient._connection.pings import Pings
from jsclient._connection.reading import LARGE
from jsclient._connection.sender import LinkFrame
from jsclient._connection.server_errors import ServerErr, Verdict
from jsclient.durations import Deadline
from jsclient.options import ConnectOptions
from jsclient.protocol.parser import payload_limit
from jsclient.states import ConnectionState, LinkEvent
from jsclient.threads import Thread

if TYPE_CHECKING:
    from jsclient._connection.engine import Engine
    from jsclient._connection.servers import ServerPool

log = logging.getLogger("jsclient.connection")

CLOSE_FLUSH: Final = 2.0
"""Seconds that close() and interpreter exit give the server to read the frames sent."""

CLOSE_SLICE: Final = 0.05

CLOSE_STALL: Final = 0.5
"""Seconds without progress, after which close() gives up sending: the server accepts no byte."""

JOIN_TIMEOUT: Final = 1.0

LEND: Final = 0.005
"""Most seconds between two chunks for the reader to lend: a caller with rare requests would only wake it twice."""

PONG: Final = LinkFrame(protocol.PONG)

MAX_PONGS: Final = 2 * HIGH_WATER_FRAMES
"""Frames that may wait before pings go unanswered: a server that pings without reading must not fill our memory."""

BEHIND_DATA: Final = 10
"""Times `max_pings_out` that may be outstanding while data comes in: on a slow link the answer queues behind it."""


class Session:
    """Keeps one link up for its Connection, according to the options."""

    def __init__(self, engine: Engine, options: ConnectOptions, outbox: Outbox) -> None:
        self.engine = engine
        self.options = options
        self.outbox = outbox
        self._tick = tick(options.ping_interval)
        self.lock: Any = waiting.new_lock()
        self.state: ConnectionState = ConnectionState.CONNECTING
        self.link: Link | None = None
        self.last_error: BaseException | None = None
        self.reconnects: int = 0
        self.info: protocol.info.ServerInfo = protocol.ServerInfo()
        self.connected: waiting.Gate = waiting.Gate()
        self.closing: waiting.Gate = waiting.Gate()
        self.closed: waiting.Gate = waiting.Gate()
        self.pings: Pings = Pings(outbox)
        self.connector: Connector = Connector(engine, options, self)
        self.pool: ServerPool = self.connector.pool

    # --- a link is up -----------------------------------------------------------------------------------

    def adopt(self, link: Link) -> None:
        """The link is up: adopt it, or drop it unused if the connection was closed meanwhile."""
        with self.lock:
            if self.closing.is_set():
                abandoned = True
            else:
                abandoned = False
                self.link = link
                first = not self.connector.ever_connected
                if self.state in (ConnectionState.CONNECTING, ConnectionState.RECONNECTING):
                    self.state = ConnectionState.CONNECTED
        if abandoned:
            discard(link.stream)
            return
        try:
            reader = self._begin(link, first)
        except (errors.NoThread, MemoryError) as error:
            why = errors.brief(error) or "no memory"
            self.link_down(link, errors.ConnectionLost(f"no thread to read from {link.server.url} with: {why}"))
            link.stream.close()
            return
        link.reader = reader  # not before: close() joins it, from any thread
        self.outbox.nudge()

    def _begin(self, link: Link, first: bool) -> Thread:
        """Go online over the link that is ours now, and start its reader."""
        reader = Thread(f"jsclient-reader-{self.engine.number}", self._read, link)
        self.connector.connected(link)
        link.reading.parser.unlimited = self.engine.requests.sids
        link.messages_before = self.engine.messages_in()
        self._take_info(link, link.info)
        self.pings.begin()
        self.engine.link_up(link)
        if not first:
            self.reconnects += 1
        self.connected.set()
        self._announce(first)  # before the reader can announce the end of this link
        link.announced = True
        reader.start()
        return reader

    def _announce(self, first: bool) -> None:
        """The link is the current one: report it to the application."""
        self.engine.events.outage.end(self.engine.connected_url, first)
        self.engine.events.tell(ConnectionEvent("connected" if first else "reconnected"))

    # --- the reader -------------------------------------------------------------------------------------

    def _read(self, link: Link) -> None:
        try:
            with waiting.as_reader():
                self._read_and_report(link)
        finally:  # already reported, unless there was not enough memory
            self.link_down(link, errors.ConnectionLost("the reader failed for want of memory"))

    def _read_and_report(self, link: Link) -> None:
        error: BaseException | None = None
        try:
            error = self._read_until_end(link)
        except protocol.ProtocolError as broken:
            self._deliver_before(broken)
            error = errors.ConnectionLost(f"the server sent something that is not NATS: {broken.what}")
            log.error("protocol error from %s: %s", link.server.url, broken.what, exc_info=broken)
        except OSError as broken:
            error = errors.ConnectionLost(f"the link to {link.server.url} broke: {broken}")
        except BaseException as unexpected:
            log.exception("the reader failed")
            error = errors.ConnectionLost(f"the reader failed: {unexpected!r}")
        finally:
            sending = self.outbox.lock  # if it is the next link's, `detach` has waited for the writes of this one
            self.link_down(link, error)
            # No thread may be in a system call on the descriptor when its number becomes free.
            link.reading.lock.acquire(True, JOIN_TIMEOUT)
            owned = sending.acquire(True, JOIN_TIMEOUT)
            try:
                with contextlib.suppress(OSError):
                    link.stream.close()
            finally:
                if owned:
                    sending.release()

    def _deliver_before(self, broken: protocol.ProtocolError) -> None:
        if broken.events:
            with contextlib.suppress(Exception):
                self.engine.subscriptions.dispatch(broken.events, 0)

    def _read_until_end(self, link: Link) -> BaseException:
        # One recv, one feed, one dispatch per chunk: only the parser and `dispatch` cost anything per message.
        stream, reading = link.stream, link.reading
        recv, dispatch, lends = stream.recv, self.engine.subscriptions.dispatch, self.engine.lends
        monotonic = time.monotonic
        left = reading.left
        reading.begin()
        link.next_ping = monotonic() + self.options.ping_interval - self._tick
        received = begun = 0  # bytes since the last events: a large message comes in many chunks; and before that
        if link.events:
            self._control(link, link.events)
        while True:
            data = left.popleft() if left else recv()
            now = monotonic()
            if data:
                reading.last_frame = now
                events = reading.parser.feed(data)
                received += len(data)
                if events:
                    control = dispatch(events, received)
                    if control:
                        self._control(link, control)
                        if link.error is not None:
                            return link.error
                    if received + begun < LARGE * len(events) and lends():
                        self._lend(link, now)
                        if link.error is not None:
                            return link.error
                    received, begun = 0, reading.parser.held
            elif data is not None:
                if reading.error is not None:
                    raise reading.error
                return link.error or self._closed_by_server(link)
            elif link.error is not None:
                return link.error  # given up by another thread that a Ctrl-C kept from shutting the link down
            if stream.needs_flush:
                self.outbox.nudge()
            if now >= link.next_ping:
                self._keep_alive(link, now)
                if link.error is not None:
                    return link.error

    def _lend(self, link: Link, now: float) -> None:
        """A thread was woken: let it read the next data itself, as long as chunks follow each other quickly."""
        reading = link.reading
        at_once = now - link.last_lent < LEND
        link.last_lent = now
        if not at_once or not link.stream.can_take:
            return
        reading.lend()
        try:
            # Checked again, because another thread may have started to wait meanwhile.
            while True:
                if not (self.engine.nobody_waits() and reading.park(link.next_ping) and link.error is None):
                    return
                self._keep_alive(link, time.monotonic())
        finally:
            reading.take_back()
            self.engine.count_borrowed(reading)

    def _keep_alive(self, link: Link, now: float) -> None:
        interval, limit = self.options.ping_interval, self.options.max_pings_out
        unsent = self.outbox.unsent
        if link.line_moves(self.outbox.bytes_out - unsent, unsent):
            link.pings_out = 0
        if link.pings_out >= limit * (BEHIND_DATA if now - link.reading.last_frame < interval else 1):
            link.error = errors.StaleConnection(
                f"{link.server.url} left {link.pings_out} pings unanswered for {interval:g} s each"
            )
            return
        link.pings_out += 1
        # By the timetable, up to a tick early: delays here would add up until a dead link is noticed.
        link.next_ping = max(link.next_ping + interval, now + interval - self._tick)
        self.pings.send(None)
        self.outbox.nudge()

    def _control(self, link: Link, events: list[Any]) -> None:
        pinged = False
        for event in events:
            if isinstance(event, protocol.Ping):
                if len(self.outbox.frames) < MAX_PONGS:
                    self.outbox.enqueue_control(PONG)
                pinged = True
            elif isinstance(event, protocol.Pong):
                self._pong(link)
            elif isinstance(event, protocol.Info):
                link.info_in_clear = not link.stream.secure
                self._take_info(link, event.decode())
            elif isinstance(event, protocol.Err):
                self._err(link, server_errors.classify(event.text))
        if pinged:
            self.outbox.nudge()

    def _pong(self, link: Link) -> None:
        link.pings_out = 0
        link.answered = True
        seconds = self.pings.answered()
        if seconds is not None:
            # The shortest one: a PING may wait in a queue, and a handshake for a proxy that answers for the server.
            link.round_trip = min(link.round_trip, seconds)

    def _take_info(self, link: Link, info: protocol.ServerInfo) -> None:
        left = set(link.info.connect_urls or ()) - set(info.connect_urls or ())
        self.info = link.info = info
        self.engine.server_takes(info.max_payload, info.headers)
        link.reading.parser.restrict(payload_limit(info.max_payload))
        discovered = self.pool.update(info.connect_urls, info.ws_connect_urls, doubtful=link.info_in_clear)
        if discovered:
            urls = [server.url for server in discovered]
            self.engine.events.tell(ConnectionEvent("discovered_servers", servers=tuple(urls)), urls)
        if left:
            self.engine.events.link_event(LinkEvent.SERVER_LEFT)
        if info.ldm:
            self.pool.lame_duck(link.server)
            if not link.lame:
                link.lame = True
                log.warning("%s is in lame duck mode", link.server.url)
                self.engine.events.tell(ConnectionEvent("lame_duck"))
            if self.options.reconnect.enabled and not link.leaving and self.pool.has_alternative():
                # Move in our own time, instead of being cut off later.
                self.connector.leave(link)

    def _err(self, link: Link, err: ServerErr) -> None:
        log.debug("%s: %s", link.server.url, err.error)
        if err.verdict is Verdict.STAYS:
            if type(err.error) is errors.ServerError:
                link.last_words = (link.reading.last_frame, err.error)
            self.engine.events.refusals.came(err)
            return
        link.error = err.error

    @staticmethod
    def _closed_by_server(link: Link) -> BaseException:
        """The reason: an -ERR in the last chunk, if there was one."""
        when, error = link.last_words
        if error is not None and when == link.reading.last_frame:
            return error
        return errors.ConnectionLost(f"{link.server.url} closed the connection")

    def recall_reader(self) -> None:
        """Called before waiting for anything but the reply of a request: see `reading`."""
        link = self.link
        if link is not None:
            link.reading.recall()

    @property
    def pings_out(self) -> int:
        link = self.link
        return 0 if link is None else link.pings_out

    # --- going down -------------------------------------------------------------------------------------

    def sender_failed(self, stream: Any, error: BaseException) -> None:
        """A write failed or was interrupted: the reader of that link ends it (this thread may hold the send lock)."""
        link = self.link
        if link is not None and link.stream is stream:
            if link.error is None:
                link.error = (
                    errors.ConnectionLost(f"writing to {link.server.url} failed: {error}")
                    if isinstance(error, OSError)
                    else errors.ConnectionLost("a write was interrupted: this link cannot be used any further")
                )
            self.go_offline(link)
        stream.shutdown()

    def go_offline(self, link: Link) -> bool:
        """Calls made from now on wait for the next link, although the reader has not ended this one yet."""
        with self.lock:
            # Never for a link that has been replaced meanwhile: no one would end the new one and go online again.
            if self.link is not link or self.closing.is_set():
                return False
            self.connected.clear()
            self.outbox.go_offline()
            return True

    def link_down(self, link: Link, error: BaseException | None) -> None:
        """The link ends, for whatever reason: called by its reader, and by `end_close`. The first call counts."""
        reason = link.error or error
        with self.lock:
            if self.link is not link:
                return
            self.outbox.go_offline()  # first: a sender that sees the link gone then counts against pending_buffer
            self.link = None
            closing = self.closing.is_set()
            again = self.options.reconnect.enabled and not closing and self.state is ConnectionState.CONNECTED
            self.connected.clear()
            if again:
                self.state = ConnectionState.RECONNECTING
        if closing:
            reason = None  # we ended it ourselves
        else:
            self.last_error = reason
        try:
            self.engine.events.outage.begin(link.server.url, reason)
            self._tell_lost(link, reason)
        finally:  # also when there was no memory for one of these
            if again:
                self.connector.spawn()
            elif not closing:
                self.engine.shutdown.fail(reason or errors.ConnectionLost("the link is gone"))

    def _tell_lost(self, link: Link, reason: BaseException | None) -> None:
        link.shutdown()
        withdrawn = self.outbox.detach()
        served = link.answered or self.engine.messages_in() > link.messages_before
        self.pool.disconnected(time.monotonic(), served)
        make = _lost(reason)
        self.pings.fail(make)
        self.engine.link_lost(make, reason, withdrawn)

    def force_reconnect(self) -> None:
        """Give up the current link, if there is one, and connect now, without a delay."""
        self.connector.hurry.set()
        link = self.link
        if link is not None:
            link.error = link.error or errors.ConnectionLost("reconnecting, as asked for")
            self.outbox.drain(Deadline(JOIN_TIMEOUT))
            self.go_offline(link)
            link.shutdown()

    def drain_publishes(self) -> None:
        """The second half of a drain begins, unless the connection has ended meanwhile."""
        with self.lock:
            if self.state is ConnectionState.DRAINING_SUBSCRIPTIONS:
                self.state = ConnectionState.DRAINING_PUBLISHES

    # --- closing ----------------------------------------------------------------------------------------

    def begin_close(self) -> None:
        """First step: no new link will be made."""
        with self.lock:
            self.state = ConnectionState.CLOSED
            self.closing.set()
        self.connector.hurry.set()
        self.pings.fail(_closed, pongs_come=True)  # they do, for the final flush

    def final_flush(self, link: Link, timeout: float, last_words: Callable[[], list[bytes]]) -> None:
        """Give the server a chance to read the frames sent: a socket closed with unread input resets the stream.

        `last_words` is called when all data has come that the server had sent before it read our last frames.
        """
        if link.error is not None or threading.current_thread() is link.reader:
            return
        deadline = Deadline(timeout)
        if self._server_has_read(deadline):
            frames = last_words()
            if frames and link.error is None:
                self.outbox.frames.extend(frames)
                self._server_has_read(deadline, closing=True)

    def _server_has_read(self, deadline: Deadline, closing: bool = False) -> bool:
        """True if the server has read everything sent, in time. No other thread may send any more."""
        outbox = self.outbox
        ticket: waiting.Ticket[Any] = waiting.Ticket()
        self.pings.send(ticket, closing)
        self.recall_reader()
        outbox.refuse(self.engine.closed_error)
        taken, stall = -1, Deadline(CLOSE_STALL)
        left: int | None = None  # bytes of the queue, when the PING had left
        while not deadline.expired():
            outbox.drain(Deadline(deadline.at_most(CLOSE_SLICE)))
            if left is None and not outbox.frames:
                left = outbox.bytes_out
            try:
                error = waiting.get(ticket, deadline.at_most(CLOSE_SLICE))
                outbox.drain(Deadline(deadline.at_most(CLOSE_SLICE)))
                if error is not None or outbox.bytes_out == left:
                    return error is None
                # From a thread that was about to publish just then: the server should read that, too.
                ticket, left = waiting.Ticket(), None
                self.pings.send(ticket, closing=True)
            except queue.Empty:
                pass
            if outbox.bytes_out - outbox.unsent != taken or not outbox.unsent:
                taken, stall = outbox.bytes_out - outbox.unsent, Deadline(CLOSE_STALL)
            elif stall.expired():
                return False  # the server accepts nothing: waiting senders give up
        return False

    def end_close(self, link: Link | None) -> None:
        """Last step: end the threads that belong to the link."""
        if link is not None:
            link.shutdown()
        self.connector.abandon()
        self.pings.fail(_closed)
        self.connected.set()  # a thread that waits for a connection looks at the state
        current = threading.current_thread()
        try:
            if link is not None and link.reader is not None and link.reader is not current:
                link.reader.join(JOIN_TIMEOUT)
            if link is not None and link.announced and link.reader is not current:
                self.link_down(link, None)  # if the reader is late: report the loss to listeners before the end
            self.connector.join()
        finally:
            self.closed.set()


def _closed() -> BaseException:
    return errors.ConnectionClosed("the connection was closed")


def _lost(reason: BaseException | None) -> Any:
    text = errors.brief(reason) if reason is not None else "the link went down"
    return lambda: errors.ConnectionLost(text)
