"""Leaving a server that is about to stop (lame duck mode) without the application noticing.

Every client of that server is told at the same moment. So each goes at a random one within some seconds: a herd would
run over the neighbours. The new link is made before the old one is given up. Then, on the old link: nothing new goes
out, what is under way is answered, the subscriptions are ended, and a PONG says that all they were sent has come. From
the last UNSUB to the first SUB on the new link it takes two round trips, during which core messages may pass us by, as
at any reconnect. Reply inboxes stay subscribed to the end: what is answered late comes over the new link.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import random
import time
from typing import TYPE_CHECKING, Any, Final

import protocol
from jsclient import errors, waiting
from jsclient._engine.sinks import BaseSubscription, ReplySink, SinkSubscription
from jsclient._engine.unkept import Unkept
from jsclient.durations import Deadline
from jsclient.states import ConnectionState
from jsclient.threads import Thread

if TYPE_CHECKING:
    from jsclient._engine.link import Link
    from jsclient._engine.session import Session

log = logging.getLogger("jsclient.connection")

SPREAD: Final = 4.0
"""Seconds within which the clients of a server leave it. The server waits for ten before it closes the first one."""

PATIENCE: Final = 0.5
"""Seconds that what is under way on the old link has to be answered. What is not will be answered on the new one."""

SETTLE: Final = 1.0
"""Seconds that the old server has to say that it has read everything."""

MOMENT: Final = 3.0
"""Seconds after the beginning of a move in which what could not be sent is sent again."""

GLANCE: Final = 0.005

RETRY: Final = 0.1
"""Least seconds between two attempts to reach another server: there is still one that serves us."""


def leave_later(session: Session, link: Link) -> None:
    """Reader or connector thread: `link` is that of a lame duck, and there are others."""
    link.leaving = True
    session.engine.clock.call_later(random.uniform(0.0, SPREAD), lambda: _start(session, link))


def _start(session: Session, link: Link) -> None:
    name = f"jsclient-connect-{session.engine.number}-move"
    try:
        Thread(name, _move, session, link).start()
    except (errors.NoThread, MemoryError) as error:
        link.leaving = False
        log.error("no thread to leave a lame duck with: %s", errors.brief(error), exc_info=error)


def _move(session: Session, old: Link) -> None:
    try:
        new = _other_link(session, old)
        if new is not None:
            _change(session, old, new)
    except Exception:  # the server ends the link itself in the end, and then we reconnect as after any loss
        log.exception("leaving a lame duck failed")
    finally:
        old.leaving = False


def _stays(session: Session, old: Link) -> bool:
    return session.link is old and old.error is None and session.state is ConnectionState.CONNECTED


def _other_link(session: Session, old: Link) -> Link | None:
    """A link to a server that is not shutting down; None when there is no such server, or `old` has ended."""
    if not (_stays(session, old) and session.pool.has_alternative()):
        return None
    server, pause = session.connector.next_server(others=True)  # asked once: it may choose a lame duck again and again
    if pause and session.closing.wait(pause):
        return None
    while _stays(session, old) and session.pool.has_alternative():
        if server is None:
            return None
        try:
            new = session.connector.open(server)
        except Exception as error:
            session.pool.failed(server)
            session.engine.connect_attempt_failed(server.url, error, tell=False)
            if session.closing.wait(max(RETRY, session.connector.delay())):
                return None
            server = session.pool.next(time.monotonic())
            continue
        if not new.info.ldm:
            return new
        session.pool.lame_duck(server)
        discard(new)
        server = session.pool.next(time.monotonic())
    return None


def discard(link: Link) -> None:
    """Close a link that nobody has used."""
    link.stream.shutdown()
    with contextlib.suppress(OSError):
        link.stream.close()


def _change(session: Session, old: Link, new: Link) -> None:
    """From one link to the other. A thread with something to send meanwhile waits, for a few round trips at most."""
    outbox = session.outbox
    session.moving_since = time.monotonic()
    with session.lock:
        stays = _stays(session, old)
        if stays:
            session.connected.clear()
            outbox.go_offline()
    if not stays:
        discard(new)
        return
    _wait_for_answers(session, Deadline(PATIENCE))
    settled = _end_subscriptions(session, Deadline(SETTLE))
    reason = errors.ConnectionLost(f"{old.server.url} is shutting down (lame duck mode)")
    with session.lock:
        ours = session.link is old and not session.closing.is_set()
        if ours:
            old.error = old.error or reason
            if settled:
                session.link = None
    if not (ours and settled):
        # The old link has ended just now, or stalls so that nobody knows what has arrived: then it is a loss as any.
        discard(new)
        old.shutdown()
        return
    old.shutdown()
    withdrawn = outbox.detach()
    session.pings.fail(lambda: errors.ConnectionLost("the connection moved to another server"))
    session.engine.link_left(withdrawn)
    session.adopt(new)


def _wait_for_answers(session: Session, deadline: Deadline) -> None:
    """Send what is queued, and wait until all that is under way now is answered."""
    session.outbox.drain(deadline)
    under_way = [(sink, set(sink.under_way())) for sink in _reply_sinks(session)]
    while not deadline.expired() and session.link is not None and not session.closing.is_set():
        if not any(tokens.intersection(sink.under_way()) for sink, tokens in under_way):
            return
        session.closing.wait(deadline.at_most(GLANCE))


def _reply_sinks(session: Session) -> list[ReplySink]:
    """Those that wait for answers: requests, acks of publishes."""
    sinks = [sub.sink for sub in session.engine.subscriptions.subscribed() if isinstance(sub, SinkSubscription)]
    return [sink for sink in sinks if isinstance(sink, ReplySink)]


def _end_subscriptions(session: Session, deadline: Deadline) -> bool:
    """UNSUB, and wait for all that was sent before the server read that; False when it does not say so."""
    ended = [sub for sub in session.engine.subscriptions.subscribed() if not _awaits_replies(sub)]
    frames = b"".join(protocol.unsub(sub.sid) for sub in ended)
    ticket: waiting.Ticket[Any] = waiting.Ticket()
    if frames:
        session.outbox.frames.append(Unkept(frames))
    session.pings.send(ticket, closing=True)
    session.recall_reader()
    session.outbox.drain(deadline)
    try:
        return waiting.get(ticket, deadline.remaining()) is None
    except queue.Empty:
        return False


def _awaits_replies(subscription: BaseSubscription) -> bool:
    return isinstance(subscription, SinkSubscription) and isinstance(subscription.sink, ReplySink)
