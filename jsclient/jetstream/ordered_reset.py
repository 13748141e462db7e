"""Making the consumer of an ordered read again, until it works."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors
from jsclient.jetstream.gone import recreated

if TYPE_CHECKING:
    from jsclient.jetstream.context import JetStream
    from jsclient.jetstream.models import ConsumerInfo

FIRST_DELAY: Final = 0.25
LONGEST_DELAY: Final = 5.0
"""Back-off between attempts; elections last 4 to 8 s."""

CREATE_TIMEOUT: Final = 5.0

OFFLINE_DELAY: Final = 1.0
"""Between two looks at the link while it is down; its return ends the wait."""

GONE_ATTEMPTS: Final = 3
"""How often "stream not found" must be answered before it is believed: a cluster that starts may say so."""


def take_turn(order: Any, timeout: float | None) -> bool:
    """Wait for the thread that takes from the mailbox; False when it is still at it after `timeout` seconds."""
    taken: bool = order.acquire() if timeout is None else order.acquire(timeout=min(timeout, threading.TIMEOUT_MAX))
    return taken


class SameStream:
    """Whether the stream is still the one that the read began with: on another one of the same name, going on after
    the last sequence would leave out what it holds."""

    def __init__(self) -> None:
        self._made: dt.datetime | None = None  # when the first consumer was made

    def check(self, js: JetStream, stream: str, info: ConsumerInfo, timeout: float = CREATE_TIMEOUT) -> None:
        """After a consumer was made; raises StreamRecreated. Who may not ask is not told."""
        if self._made is None:
            self._made = info.created
            return
        try:
            error = recreated(js, stream, self._made, timeout)
        except errors.JsClientError:
            return
        if error is not None:
            raise error


class Attempts:
    """What has been tried since the consumer was lost: a call that waits for a short time only goes on where the one
    before it stopped."""

    def __init__(self) -> None:
        self.done = 0
        self.gone = 0
        self.delay = FIRST_DELAY


def make_again(
    create: Callable[[], bool],
    *,
    stopped: Callable[[], bool],
    pause: Callable[[float], bool],
    fail: Callable[[Exception], Any],
    report: Callable[[Exception], Any],
    max_attempts: int | None,
    what: str,
    attempts: Attempts | None = None,
) -> bool:
    """Call `create` until it returns True; False means that the link is down, which is no attempt.

    `pause(seconds)` waits and returns True when the link came back. What cannot be mended goes to `fail`, every
    other failure to `report`. Returns whether the consumer was made.
    """
    tried = attempts or Attempts()
    while not stopped():
        try:
            if create():
                return True
            pause(OFFLINE_DELAY)
            continue
        except errors.StreamNotFound as error:
            tried.gone += 1
            failure: Exception = error
            if tried.gone >= GONE_ATTEMPTS:
                fail(error)
                return False
        except (errors.ConnectionClosed, errors.ForkedConnection):
            raise
        except (errors.ConfigError, errors.NotSupported, errors.PermissionViolation, errors.StreamRecreated) as error:
            fail(error)
            return False
        except errors.JsClientError as error:
            failure = error
        tried.done += 1
        if max_attempts is not None and tried.done >= max_attempts:
            lost = errors.OrderedConsumerReset(f"{what} could not be made again in {tried.done} attempts")
            lost.__cause__ = failure
            fail(lost)
            return False
        report(failure)
        tried.delay = FIRST_DELAY if pause(tried.delay) else min(tried.delay * 2, LONGEST_DELAY)
    return False
