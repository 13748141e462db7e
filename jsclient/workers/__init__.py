"""Threaded worker services on JetStream: a pool, its acks, retries, dead letters and shutdown.

def handle(message):
    process(message.data)                # returns: ack; raises: again later; Reject: never again

with WorkerPool(consumer, handle, threads=8, attempts=5, dead_letter="dead.orders") as pool:
    pool.run_until_signal()
"""

from jsclient.workers.letters import DeadLetters, FiltersDict, Letter, LettersDict
from jsclient.workers.options import PoolOptions, PoolOptionsDict
from jsclient.workers.outcomes import BatchFailed, Reject, Retry
from jsclient.workers.pool import PoolEvent, StopReport, WorkerPool
from jsclient.workers.stats import PoolSnapshot

__all__ = [
    "BatchFailed",
    "DeadLetters",
    "FiltersDict",
    "Letter",
    "LettersDict",
    "PoolEvent",
    "PoolOptions",
    "PoolOptionsDict",
    "PoolSnapshot",
    "Reject",
    "Retry",
    "StopReport",
    "WorkerPool",
]
