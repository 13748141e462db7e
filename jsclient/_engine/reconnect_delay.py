"""How long to wait before the next attempt to connect again. Which server it goes to is said by `servers`."""

from __future__ import annotations

import random
from typing import Final

FIRST_JITTER: Final = 0.1  # seconds within which the first attempt after a loss begins: a herd does not start as one
BACKOFF_FIRST: Final = 0.05  # most seconds before the second round through the pool; doubles from there
BACKOFF_MAX: Final = 4.0  # as async-nats does; Go's fixed 2 s is slow at first and hard on a herd
HEALTHY_AFTER: Final = 1.0  # seconds a link must have lived for the back-off to start anew
FLAP_ROUND: Final = 3  # a link that died young goes on from here: 0.2 s, not 4 s
FLAP_SPACING: Final = 2.0  # seconds between two links to a server that drops us before it has served us


def before_first(rng: random.Random) -> float:
    """Seconds before the first attempt after a link was lost."""
    return rng.uniform(0.0, FIRST_JITTER)


def before_round(number: int, rng: random.Random) -> float:
    """Seconds before round `number` (1, 2, ...) through the servers: any part of what doubles with each round."""
    return rng.uniform(0.0, min(BACKOFF_MAX, BACKOFF_FIRST * 2.0 ** min(number - 1, 16)))
