"""Re-creating the consumer of an ordered read, until it works."""

from __future__ import annotations

import datetime as dt
import threading
from typing import TYPE_CHECKING, Any, Final, Protocol

from jsclient import errors
from jsclient.durations import Deadline
from jsclient.jetstream.api import consumer_requests
from jsclient.jetstream.consuming.diagnosis import recreated

if TYPE_CHECKING:
    from jsclient.jetstream.api.models import ConsumerInfo
    from jsclient.jetstream.context import JetStream

FIRST_DELAY: Final = 0.25
LONGEST_DELAY: Final = 1.0
"""Back-off between attempts; elections last 4 to 8 s."""

CREATE_TIMEOUT: Final = 5.0

PATIENCE: Final = 2.0
"""Seconds for an attempt at first. A cluster that has not yet noticed the death of a server may place the consumer
there, and no answer ever comes. The next consumer has another name and may be placed elsewhere.
"""

IMPATIENT: Final = 6
"""Attempts with this little patience, longer than elections last. After that a server may only be slow."""

CREATE_AGAIN: Final = 1.0
"""Seconds after which a CONSUMER.CREATE without an answer is sent again, because requests get lost while leaders
change. All requests name the same consumer, so an answer to any of them is sufficient.
"""

SHORTEST_CREATE: Final = 0.15
"""Seconds for creating a consumer within a call that does not wait at all: a poll must make progress, too."""

OFFLINE_DELAY: Final = 1.0
"""Seconds between two looks at the link while it is down; its return ends the wait."""

GONE_ATTEMPTS: Final = 3
"""Number of answers "stream not found" after which the client accepts it: a cluster that starts may give it wrongly."""

MENDED: Final = (
    errors.NoHeartbeat,
    errors.ConsumerLeadershipChanged,
    errors.PullServerShutdown,
    errors.NoResponders,
    errors.ConsumerDeleted,
)
"""Errors that a new consumer fixes."""

HOPELESS: Final = (errors.ConfigError, errors.NotSupported, errors.PermissionViolation, errors.StreamRecreated)


def take_turn(order: Any, timeout: float | None) -> bool:
    """Wait for the thread that takes from the mailbox; False if it is still busy after `timeout` seconds."""
    taken: bool = order.acquire() if timeout is None else order.acquire(timeout=min(timeout, threading.TIMEOUT_MAX))
    return taken


QUESTIONS: Final = (0.05, 0.4, 0.8, 1.5, 3.0)
"""Seconds after a server has left the cluster at which an ordered read that gets nothing asks for its consumer. That
consumer is on one server only. In lame duck mode a server announces its end up to a second before its consumers stop.
"""

QUESTION_TIMEOUT: Final = 0.5
"""Seconds for the answer. A call with a shorter timeout has only that time, and then silence proves nothing."""

QUIET: Final = 0.04
"""Seconds without a frame before such a question is worth asking."""


class SameStream:
    """A check that the stream is still the one with which the read began.

    On a new stream of the same name, continuing after the last sequence would leave out its messages.
    """

    def __init__(self) -> None:
        self._made: dt.datetime | None = None  # when the first consumer was created

    def check(self, js: JetStream, stream: str, info: ConsumerInfo, deadline: Deadline) -> None:
        """Call it after creating a consumer; raises StreamRecreated.

        Without permission for STREAM.INFO there is no check. If no server answers, the call raises that error, and the
        next attempt asks again.
        """
        if self._made is None:
            self._made = info.created
            return
        try:
            error = recreated(js, stream, self._made, max(deadline.at_most(CREATE_TIMEOUT), SHORTEST_CREATE))
        except (errors.PermissionViolation, errors.JetStreamUnavailable):
            return
        if error is not None:
            raise error


class Vain:
    """Pauses after consumers that ended before they delivered a message: the next one may end like them."""

    def __init__(self) -> None:
        self._made = False
        self._count = 0
        self._not_before = 0.0

    def made(self) -> None:
        """A new consumer exists."""
        self._made = True

    def pause(self, expected: int, now: float) -> float:
        """Seconds before the next one is created. `expected`: the number of the message that the last one owes."""
        if self._made:
            self._made = False
            self._count = 0 if expected > 1 else self._count + 1
            if self._count >= 2:
                self._not_before = now + min(FIRST_DELAY * 2 ** (self._count - 2), LONGEST_DELAY)
        return max(0.0, self._not_before - now)

    def over(self) -> None:
        """The link came back: the trouble that ended the last consumers may be over."""
        self._not_before = 0.0


class Resettable(Protocol):
    """The iterator of an ordered read, as far as `ConsumerRecreator` knows it."""

    source: Any

    @property
    def ending(self) -> bool: ...

    def make_next(self, timeout: float) -> bool:
        """Make the next consumer. False means that the link is down, which does not count as an attempt."""
        ...

    def pause(self, delay: float) -> bool:
        """Wait before the next attempt; True if the link came back."""
        ...

    def give_up(self, error: Exception) -> None:
        """Called with an error that cannot be fixed."""
        ...

    def tell(self, error: Exception) -> None:
        """Called with every other failure."""
        ...


class ConsumerRecreator:
    """Re-creates the consumer of an ordered read, over any number of calls."""

    def __init__(self, max_attempts: int | None) -> None:
        self._max_attempts = max_attempts
        self._begin()

    def _begin(self) -> None:
        self._attempts = self._gone = 0
        self._delay = FIRST_DELAY

    def run(self, reading: Resettable, deadline: Deadline) -> bool:
        """Try until it works, or must be given up. False if time is up: call it again."""
        while not reading.ending:
            patience = PATIENCE if self._attempts < IMPATIENT else CREATE_TIMEOUT
            timeout = max(deadline.at_most(patience), SHORTEST_CREATE)
            try:
                if reading.make_next(timeout):
                    break
                reading.pause(deadline.at_most(OFFLINE_DELAY))
            except (errors.ConnectionClosed, errors.ForkedConnection, errors.Cancelled):
                raise
            except errors.JsClientError as error:
                if self._is_over(reading, error):
                    break
                reading.tell(error)
                back = reading.pause(deadline.at_most(self._delay))
                self._delay = FIRST_DELAY if back else min(self._delay * 2, LONGEST_DELAY)
            if deadline.expired():
                return False
        self._begin()
        return True

    def _is_over(self, reading: Resettable, error: errors.JsClientError) -> bool:
        if isinstance(error, errors.StreamNotFound):
            self._gone += 1
            if self._gone >= GONE_ATTEMPTS:
                reading.give_up(error)
                return True
        elif isinstance(error, HOPELESS):
            reading.give_up(error)
            return True
        self._attempts += 1
        if self._max_attempts is not None and self._attempts >= self._max_attempts:
            lost = errors.OrderedConsumerReset(f"{reading.source} could not be made again in {self._attempts} attempts")
            lost.__cause__ = error
            reading.give_up(lost)
            return True
        return False


def proves_nothing(found: Any, patience: float) -> bool:
    """True if the only finding is silence, within less time than an answer may take."""
    return isinstance(found, errors.NoHeartbeat) and patience < QUESTION_TIMEOUT


def why_silent(js: JetStream, stream: str, name: str, what: str, timeout: float) -> Exception | None:
    """Nothing came for a while: the reason to re-create an ordered consumer, or None if it exists and is healthy.

    The consumer may be gone, or its server may not answer. In both cases a new one costs less than waiting for the old.
    """
    try:
        consumer_requests.info(js, stream, name, timeout=timeout)
    except (errors.ConsumerNotFound, errors.StreamNotFound):
        return errors.ConsumerDeleted(404, "", f"{what} does not exist any more")
    except errors.PermissionViolation:
        return None  # no permission for the question: the alarm will report it
    except errors.JsClientError as error:
        return errors.NoHeartbeat(f"no heartbeat and no message of {what}, and no answer: {errors.brief(error)}")
    return None
