"""What a publisher does about messages when the ack does not come, and for how long."""

from __future__ import annotations

from typing import Final

import attrs

from jsclient.jetstream.publishing.attempts import ASK_AFTER, ATTEMPT_TIMEOUT, FORBIDDEN_ATTEMPTS, RETRY_WAIT, TRIES

ACK_TIMEOUT: Final = 30.0
"""Seconds until a message without an ack is given up (async-nats)."""

SWEEP: Final = 0.5
"""Seconds between two looks at what is pending, at most; a tenth of the ack timeout if that is less."""

HOLD_FOR: Final = 120.0
"""Seconds for which messages are held while the link is down, or as long as the stated window or the ack timeout."""


@attrs.frozen
class Rules:
    """The rules of one publisher. The defaults are those of `publish_async`."""

    ack_timeout: float = ACK_TIMEOUT
    """Seconds until a message without an ack is given up."""
    hold_for: float = HOLD_FOR
    """Seconds for which messages wait for the link."""
    resend_after: float = attrs.field()
    """Seconds of silence after which a message is sent again."""
    retry_wait: float = RETRY_WAIT
    """Seconds before a message is sent again that nobody took."""
    retry_attempts: int | None = None
    """How often that may be; None: as long as there is a stream for it."""
    ask_after: int = ASK_AFTER
    """The 503 after which it is asked whether there is a stream."""
    tries: int = TRIES
    """The 503 from which on that answer counts."""
    unasked_attempts: int = FORBIDDEN_ATTEMPTS
    """How often a message is sent again when this user may not ask that."""
    copies_allowed: bool = False
    """Whether a message without an id may be stored twice: it is sent again like one with an id, for ever."""
    looks_beyond_window: bool = True
    """Whether a message is looked for when the stream has forgotten its id; if not, its outcome is unknown at once."""

    @resend_after.default
    def _resend_after(self) -> float:
        return min(ATTEMPT_TIMEOUT, max(self.ack_timeout / 3, 2 * min(SWEEP, self.ack_timeout / 10)))

    @property
    def tick(self) -> float:
        """Seconds between two looks at what is pending."""
        return min(SWEEP, self.ack_timeout / 10, self.resend_after / 2)
