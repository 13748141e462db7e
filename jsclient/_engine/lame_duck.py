"""Leaving a server that is about to stop (lame duck mode), over the new link that the connector has made.

On the old link nothing new goes out, what is under way is answered, the subscriptions end, and a PONG confirms that all
they were sent has come. From the last UNSUB to the first SUB on the new link it takes two round trips. Core messages
may pass us by in them, as at any reconnect. Reply inboxes stay subscribed to the end: late answers come over the new
link.
"""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors, protocol, waiting
from jsclient._engine.link import discard
from jsclient._engine.sender import Unkept
from jsclient._engine.sinks import ReplySink, SinkSubscription
from jsclient.durations import Deadline
from jsclient.states import ConnectionState

if TYPE_CHECKING:
    from jsclient._engine.link import Link
    from jsclient._engine.session import Session

SPREAD: Final = 4.0
"""Seconds within which the clients of a server leave it, each at a random moment: as a herd they would run over the
neighbours. The server waits for ten before it closes the first one."""

PATIENCE: Final = 0.5
"""Seconds that what is under way on the old link has to be answered. The new link brings the other answers."""

SETTLE: Final = 1.0
"""Seconds that the old server has to say that it has read everything."""

GLANCE: Final = 0.005


def may_leave(session: Session, old: Link) -> bool:
    """True while the link stands, and there is a server to go to."""
    stands = session.link is old and old.error is None and session.state is ConnectionState.CONNECTED
    return stands and session.pool.has_alternative()


def replace(session: Session, old: Link, new: Link) -> None:
    """From one link to the other. A thread with something to send meanwhile waits, for a few round trips at most."""
    reason = errors.ConnectionLost(f"{old.server.url} is shutting down (lame duck mode)", sent=False)
    begun = session.go_offline(old)
    settled = begun and _drain(session)
    with session.lock:
        moves = settled and session.link is old and not session.closing.is_set()
        if begun:
            old.error = old.error or reason
        if moves:
            session.link = None
    if begun:
        # Not moved: the old link has ended just now, or it stalls and nobody knows what has arrived. That is a loss.
        old.shutdown()
    if not moves:
        discard(new.stream)
        return
    withdrawn = session.outbox.detach()
    session.pings.fail(lambda: reason)
    session.engine.link_left(withdrawn)
    session.adopt(new)


def _drain(session: Session) -> bool:
    """Get what is under way answered, and the subscriptions ended. False when the server does not confirm it."""
    outbox, patience, deadline = session.outbox, Deadline(PATIENCE), Deadline(PATIENCE + SETTLE)
    outbox.drain(patience)
    subscribed = session.engine.subscriptions.subscribed()
    sinks = [sub.sink for sub in subscribed if isinstance(sub, SinkSubscription) and isinstance(sub.sink, ReplySink)]
    asked = [(sink, set(sink.under_way())) for sink in sinks]
    while any(tokens.intersection(sink.under_way()) for sink, tokens in asked) and not patience.expired():
        if session.link is None or session.closing.wait(patience.at_most(GLANCE)):
            return False
    ended = [sub.sid for sub in subscribed if not (isinstance(sub, SinkSubscription) and sub.sink in sinks)]
    if ended:
        outbox.frames.append(Unkept(b"".join(map(protocol.unsub, ended))))
    ticket: waiting.Ticket[Any] = waiting.Ticket()
    session.pings.send(ticket, closing=True)
    session.recall_reader()
    outbox.drain(deadline)
    try:
        return waiting.get(ticket, deadline.remaining()) is None
    except queue.Empty:
        return False
