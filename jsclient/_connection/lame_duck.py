"""Leaving a server that is about to stop (lame duck mode), over the new link that the connector has made.

The client sends nothing new over the old link and waits for the answers in flight. Then it ends the subscriptions, and
a PONG confirms that all their messages have arrived. From the last UNSUB to the first SUB on the new link it takes two
round trips. The client may miss core messages in this time, as at any reconnect. Reply inboxes stay subscribed to the
end, and late answers come over the new link.
"""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors, protocol, waiting
from jsclient._connection.link import discard
from jsclient._connection.sender import LinkFrame
from jsclient._connection.sinks import ReplySink, SinkSubscription
from jsclient.durations import Deadline
from jsclient.states import ConnectionState

if TYPE_CHECKING:
    from jsclient._connection.link import Link
    from jsclient._connection.session import Session

SPREAD: Final = 4.0
"""Seconds within which the clients of a server leave it, each at a random moment. All together they would overload the
other servers. The server waits for ten seconds before it closes the first client."""

PATIENCE: Final = 0.5
"""Seconds to wait for answers in flight on the old link. The new link brings the other answers."""

SETTLE: Final = 1.0
"""Seconds that the old server has to confirm that it has read everything."""

GLANCE: Final = 0.005


def may_leave(session: Session, old: Link) -> bool:
    """True while the link is up, and there is another server."""
    stands = session.link is old and old.error is None and session.state is ConnectionState.CONNECTED
    return stands and session.pool.has_alternative()


def replace(session: Session, old: Link, new: Link) -> None:
    """Move from one link to the other. A thread that sends meanwhile waits, for a few round trips at most."""
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
        # Not moved: the old link has ended just now, or it stalls and it is unclear what has arrived. That is a loss.
        old.shutdown()
    if not moves:
        discard(new.stream)
        return
    withdrawn = session.outbox.detach()
    session.pings.fail(lambda: reason)
    session.engine.link_left(withdrawn)
    session.adopt(new)


def _drain(session: Session) -> bool:
    """Wait for answers in flight, and end the subscriptions. False when the server does not confirm it."""
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
        outbox.frames.append(LinkFrame(b"".join(map(protocol.unsub, ended))))
    ticket: waiting.Ticket[Any] = waiting.Ticket()
    session.pings.send(ticket, closing=True)
    session.recall_reader()
    outbox.drain(deadline)
    try:
        return waiting.get(ticket, deadline.remaining()) is None
    except queue.Empty:
        return False
