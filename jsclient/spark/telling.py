"""What people have to see although nothing failed: accepted losses, short windows, repeated rows.

Where the application has configured no logging, Python itself writes warnings to stderr, which Spark shows (planner and
commit: the log of the driver; tasks: that of the executor).
"""

from __future__ import annotations

import logging

log: logging.Logger = logging.getLogger("jsclient.spark")


def tell(text: str) -> None:
    """Log a warning."""
    log.warning("jetstream: %s", text)
