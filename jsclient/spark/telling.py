"""Warnings for people although nothing failed: accepted losses, short windows, repeated rows.

If the application has not configured logging, Python itself writes warnings to stderr, which Spark shows. Warnings of
the planner and of commits are in the log of the driver, warnings of tasks in the log of the executor.
"""

from __future__ import annotations

import logging

log: logging.Logger = logging.getLogger("jsclient.spark")


def tell(text: str) -> None:
    """Log a warning."""
    log.warning("jetstream: %s", text)
