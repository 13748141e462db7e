"""The number of messages that a pool requests: one for each free worker, and some ahead while handlers are fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from jsclient.jetstream.consuming.pull_options import MAX_BYTES
from jsclient.workers.options import PREFETCH_SECONDS

if TYPE_CHECKING:
    from jsclient.workers.parts import Worker

SAMPLE: Final = 64
SAMPLE_SECONDS: Final = 0.02
"""Handler calls, or seconds of them, after which a worker has the prefetch worked out again."""

FIRST_SAMPLE: Final = 2
"""The same while nothing is prefetched: a pull per message is expensive for handlers that take microseconds."""


class Prefetch:
    """Sets the window of the pool's iterator. `unit` is the size of a batch, 1 without; `max_batch` (0: none) the
    consumer's limit of one pull, which a server refuses to exceed."""

    def __init__(self, messages: Any, workers: Sequence[Worker], unit: int, limit: int, max_batch: int) -> None:
        self.size: int = 0
        """Messages that may wait in this process; 0: no worker gets one before it is free to handle it."""
        self._messages = messages
        self._workers = workers
        self._unit = unit
        self._limit = limit
        self._max_batch = max_batch
        self._mean = 0.0  # seconds per handler call
        self._bytes = 0  # of the largest message among those looked at lately

    def sample(self, worker: Worker, size: int) -> None:
        """A worker has counted enough calls. `size` is the size of its last payload."""
        mean = worker.spent / worker.calls
        worker.calls, worker.spent = 0, 0.0
        self._mean = mean if not self._mean else self._mean * 0.7 + mean * 0.3
        self._bytes = max(size, self._bytes * 9 // 10)
        self._set_size()

    def _set_size(self) -> None:
        """As much as the pool handles in a tenth of a second, at most 64 MiB; nothing when one message takes longer."""
        wanted = 0
        if self._mean < PREFETCH_SECONDS:
            wanted = int(PREFETCH_SECONDS * len(self._workers) / max(self._mean, 1e-6))
        wanted = min(wanted, self._limit, MAX_BYTES // max(self._bytes, 1))
        if wanted == self.size:
            return
        self.size = wanted
        if wanted:
            self._resize(len(self._workers) * self._unit + wanted)

    def make_room(self, worker: Worker) -> None:
        """A free worker needs a message, and no other one receives now: request one message for each free worker."""
        if worker.calls >= FIRST_SAMPLE:
            self.sample(worker, 0)
        if self.size:
            return
        free = sum(1 for worker in self._workers if not worker.held)
        self._resize(max(free, 1) * self._unit)

    def shrink(self, seconds: float) -> None:
        """Handlers have become slow, they take `seconds` by now: pull nothing more until a worker is free."""
        self._mean = max(self._mean, seconds)
        self.size = 0
        self._messages.resize(0, 0)

    def _resize(self, limit: int) -> None:
        limit = min(limit, self._max_batch or limit)
        self._messages.resize(limit, limit if limit <= len(self._workers) * self._unit else (limit + 1) // 2)
