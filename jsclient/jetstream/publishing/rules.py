"""The rules of a publisher for messages whose ack does not come, and for how long they apply."""

from __future__ import annotations

from typing import Final

import attrs

from jsclient.jetstream.publishing.attempts import ASK_AFTER, ATTEMPT_TIMEOUT, FORBIDDEN_ATTEMPTS, RETRY_WAIT, TRIES

ACK_TIMEOUT: Final = 30.0
"""Seconds until the client gives up a message without an ack (async-nats)."""

SWEEP: Final = 0.5
"""Seconds between two looks at the pending messages, at most; a tenth of the ack timeout if that is less."""

HOLD_FOR: Final = 120.0
"""Seconds for which messages are held while the link is down, or as long as the stated window or the ack timeout."""


@attrs.frozen
class Rules:
    """The rules of one publisher. By default they are the rules of `publish_async`."""

    ack_timeout: float = ACK_TIMEOUT
    """Seconds until the client gives up a message without an ack."""
    hold_for: float = HOLD_FOR
    """Seconds for which messages wait for the link."""
    resend_after: float = attrs.field()
    """Seconds of silence after which a message is sent again."""
    retry_wait: float = RETRY_WAIT
    """Seconds before the client sends a message again after a 503 or a temporary refusal."""
    retry_attempts: int | None = None
    """The number of these retries; None retries as long as a stream exists for the message."""
    ask_after: int = ASK_AFTER
    """The number of the 503 after which the client asks whether there is a stream."""
    tries: int = TRIES
    """The number of the 503 from which on that answer counts."""
    unasked_attempts: int = FORBIDDEN_ATTEMPTS
    """Number of retries of a message if this user has no permission to ask that."""
    copies_allowed: bool = False
    """True if a message without an id may be stored twice. It is sent again indefinitely, like one with an id."""
    looks_beyond_window: bool = True
    """True to look for a message whose id the stream has forgotten. If False, its outcome is unknown immediately."""

    @resend_after.default
    def _resend_after(self) -> float:
        return min(ATTEMPT_TIMEOUT, max(self.ack_timeout / 3, 2 * min(SWEEP, self.ack_timeout / 10)))

    @property
    def tick(self) -> float:
        """Seconds between two looks at the pending messages."""
        return min(SWEEP, self.ack_timeout / 10, self.resend_after / 2)
