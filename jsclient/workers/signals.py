"""SIGTERM and SIGINT for services: the first one stops, further ones change nothing, a third Ctrl-C interrupts."""

from __future__ import annotations

import signal
import threading
from typing import Any, Final

from jsclient.waiting import Gate

SIGNALS = (signal.SIGTERM, signal.SIGINT)

IMPATIENT: Final = 3
"""SIGINTs that end a service that is still stopping. Managers repeat signals. People press Ctrl-C on purpose."""


def ignore_signals() -> None:
    """At the end of a process: another signal would kill it, and its status would be a failure.

    Python restores the default before it exits, so a handler of our own would not protect the process.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class StopSignals:
    """While a service runs and stops: SIGTERM and SIGINT are noted. Restores the handlers. Main thread only.

    A service often gets a signal twice: from a manager that signals the process group, and from its parent.
    """

    def __init__(self) -> None:
        self._received: list[int] = []
        self._wake = Gate()  # an Event's lock may be held by the very thread that the handler interrupts

    def _note(self, number: int, frame: Any) -> None:
        self._received.append(number)
        self._wake.set()
        if self._received.count(signal.SIGINT) >= IMPATIENT:
            raise KeyboardInterrupt

    def __enter__(self) -> StopSignals:
        self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def wait(self, ended: threading.Event) -> None:  # noqa: TID251
        """Until the first signal or the event."""
        while not self._received and not ended.is_set():
            self._wake.wait(0.25)
