"""A handler that computes, for the case `processes-worker-2`; and the same work without a service, as a program."""

from __future__ import annotations

import sys
import time
from typing import Any


def handle(message: Any) -> int:
    """About a millisecond of pure Python."""
    return sum(number * number for number in range(12_000))


if __name__ == "__main__":
    count, start = int(sys.argv[1]), time.perf_counter()
    for _ in range(count):
        handle(None)
    print(count / (time.perf_counter() - start))
