"""Handles the engines of a process when it forks or ends."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any, Final

from jsclient import errors
from jsclient._connection.engine import Engine, forget_engines, live_engines
from jsclient._connection.mailbox import Mailbox
from jsclient._connection.session import CLOSE_FLUSH
from jsclient._connection.sinks import SinkSubscription
from jsclient.durations import Deadline

FORKED_TEXT: Final = "this connection was made in the parent process, before the fork: a child has no part in it"

_ALLOWED: Final = frozenset(
    ("close", "closed", "options", "number", "refuse_pickle", "_forked_stream", "__class__", "__del__",
     "__dict__", "__init_subclass__", "__reduce__", "__reduce_ex__", "__repr__")
)  # fmt: skip


class ForkedEngine(Engine):
    """The class of an engine in a forked child: it closes silently and refuses everything else."""

    def __getattribute__(self, name: str) -> Any:
        if name not in _ALLOWED:
            raise errors.ForkedConnection(FORKED_TEXT)
        return object.__getattribute__(self, name)

    def __init__(self) -> None:
        raise TypeError("made by fork only")

    def close(self, wait: bool = True) -> None:
        """Frees the inherited descriptor and sends nothing: the session belongs to the parent."""
        stream = self.__dict__.pop("_forked_stream", None)
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()

    @property
    def closed(self) -> bool:
        return True

    def __repr__(self) -> str:
        return "<jsclient.Connection of the parent process>"


def _forked_error() -> errors.ForkedConnection:
    return errors.ForkedConnection(FORKED_TEXT)


def _after_fork_in_child() -> None:
    # The locks of `waiting` are free by now. Take no others: a thread that held one does not exist in this process.
    for live in live_engines():
        link = live.session.link
        # Drainables, too: a subscription that has received everything has left the table, but still holds messages.
        for sink in [*live.subscriptions.sinks.values(), *live.drainables.all()]:
            mailbox = getattr(sink, "mailbox", None)
            if isinstance(mailbox, Mailbox):
                mailbox.forked(_forked_error())
            if isinstance(sink, SinkSubscription):
                sink.sink.forked()
            callback = getattr(sink, "ordered_callback", None)
            if callback is not None:
                callback.forked()
        # A signal handler may have forked on top of a call that waits: that ends here.
        live.requests.fail(_forked_error)
        live.session.pings.fail(_forked_error)
        live.session.connected.set()
        for barrier in live.callback_pool.barriers:
            barrier.forked()
        live.events.forked(_forked_error())
        live.outbox.forked(_forked_error)
        kept = {"options": live.options, "number": live.number}
        live.__dict__.clear()
        live.__dict__.update(kept, _forked_stream=None if link is None else link.stream)
        live.__class__ = ForkedEngine
        live.close()
    forget_engines()


def _quiet(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The hook for exceptions that end a thread, but not for daemon threads that waited on a connection: they end at
    exit."""

    def tell(args: Any) -> None:
        daemon = args.thread is not None and args.thread.daemon
        if not (daemon and isinstance(args.exc_value, errors.ConnectionClosed)):
            hook(args)

    return tell


def _at_exit() -> None:
    """Normal interpreter exit: flush buffered data, for at most 2 s in all, and close. Starts no thread."""
    deadline = Deadline(CLOSE_FLUSH)
    threading.excepthook = _quiet(threading.excepthook)
    for live in live_engines():
        with contextlib.suppress(Exception):
            live.shutdown.close_now(flush=deadline.at_most(CLOSE_FLUSH))


def watch_process() -> None:
    """Handle the engines of this process when it forks or ends; called once."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork_in_child)
    atexit.register(_at_exit)
