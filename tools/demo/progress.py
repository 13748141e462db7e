"""Progress: a bar on a terminal, and lines elsewhere."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import Any

from tqdm import tqdm


class Bar:
    """A tqdm bar that is updated in steps of a thousand, from any thread."""

    def __init__(self, name: str, total: int) -> None:
        self._bar: Any = tqdm(total=total, desc=name, unit=" rows", unit_scale=True, disable=None, file=sys.stderr)
        self._lock = threading.Lock()
        self._waiting = 0

    def step(self, count: int = 1) -> None:
        self._waiting += count
        if self._waiting >= 1000:
            self._flush()

    def say(self, text: str) -> None:
        """Print a line where there is no bar to look at, such as in a pipe."""
        if self._bar.disable:
            print(f"   {text}", flush=True)

    def _flush(self) -> None:
        with self._lock:
            count, self._waiting = self._waiting, 0
            self._bar.update(count)

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._flush()
        self._bar.close()
