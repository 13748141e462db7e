"""Time that passes in a test, and why: for the few tests that are about time itself, or about what nobody tells.

Everything else waits for a condition (`jsclient.testing.wait_until`). `tools/rules.py` finds other ways to sleep.
"""

from __future__ import annotations

import threading


def time_passes(seconds: float, why: str) -> None:
    """Nothing ends this early. `why` is for the reader: what needs the time, and why no condition can be waited for."""
    assert why
    threading.Event().wait(seconds)
