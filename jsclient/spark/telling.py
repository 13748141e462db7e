"""What people have to see although nothing failed: accepted losses, short windows, repeated rows.

The library itself never prints. Here it must: Spark's Python workers configure no logging, and the NullHandler of a
library silences even Python's last resort, so a loss that the user allowed would be seen by nobody. A line goes to
stderr, which Spark shows (planner and commit: the log of the driver; tasks: that of the executor), unless the
application has a handler of its own.
"""

from __future__ import annotations

import logging
import sys
from typing import Final

log: logging.Logger = logging.getLogger("jsclient.spark")

PREFIX: Final = "jetstream: "


def tell(text: str) -> None:
    """Log a warning, and print it where no handler would show it."""
    log.warning("%s", text)
    if not _shown():
        print(f"{PREFIX}{text}", file=sys.stderr, flush=True)


def _shown() -> bool:
    """Whether some handler of the application takes the warnings of this logger."""
    logger: logging.Logger | None = log
    if not log.isEnabledFor(logging.WARNING):
        return True  # the application has said that it does not want them
    while logger is not None:
        if any(not isinstance(h, logging.NullHandler) and h.level <= logging.WARNING for h in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False
