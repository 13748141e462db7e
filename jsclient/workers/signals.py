"""SIGTERM and SIGINT for services: block until one comes."""

from __future__ import annotations

import signal
import threading
from typing import Any

from jsclient.waiting import Gate

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def until_signal(ended: threading.Event) -> int | None:  # noqa: TID251
    """Wait for SIGTERM, SIGINT or the event; returns the signal's number. Restores the handlers. Main thread only."""
    received: list[int] = []
    wake = Gate()  # an Event's lock may be held by the very thread that the handler interrupts

    def note(number: int, frame: Any) -> None:
        received.append(number)
        wake.set()

    previous = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        while not received and not ended.is_set():
            wake.wait(0.25)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return received[0] if received else None
