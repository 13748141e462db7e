"""Making the consumer of an ordered read again, until it works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from jsclient import errors

FIRST_DELAY: Final = 0.25
LONGEST_DELAY: Final = 5.0
"""Back-off between attempts; elections last 4 to 8 s."""

CREATE_TIMEOUT: Final = 5.0

OFFLINE_DELAY: Final = 1.0
"""Between two looks at the link while it is down; its return ends the wait."""

GONE_ATTEMPTS: Final = 3
"""How often "stream not found" must be answered before it is believed: a cluster that starts may say so."""


def make_again(
    create: Callable[[], bool],
    *,
    stopped: Callable[[], bool],
    pause: Callable[[float], bool],
    fail: Callable[[Exception], Any],
    report: Callable[[Exception], Any],
    max_attempts: int | None,
    what: str,
) -> None:
    """Call `create` until it returns True; False means that the link is down, which is no attempt.

    `pause(seconds)` waits and returns True when the link came back. What cannot be mended goes to `fail`, every
    other failure to `report`.
    """
    attempts = gone = 0
    delay = FIRST_DELAY
    while not stopped():
        try:
            if create():
                return
            pause(OFFLINE_DELAY)
            continue
        except errors.StreamNotFound as error:
            gone += 1
            failure: Exception = error
            if gone >= GONE_ATTEMPTS:
                fail(error)
                return
        except (errors.ConnectionClosed, errors.ForkedConnection):
            raise
        except (errors.ConfigError, errors.NotSupported, errors.PermissionViolation) as error:
            fail(error)
            return
        except errors.JsClientError as error:
            failure = error
        attempts += 1
        if max_attempts is not None and attempts >= max_attempts:
            lost = errors.OrderedConsumerReset(f"{what} could not be made again in {attempts} attempts")
            lost.__cause__ = failure
            fail(lost)
            return
        report(failure)
        delay = FIRST_DELAY if pause(delay) else min(delay * 2, LONGEST_DELAY)
