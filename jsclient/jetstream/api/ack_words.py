"""What a client says to the server about a delivered message: the bodies of acks."""

from __future__ import annotations

from typing import Final

ACK: Final = b"+ACK"
NAK: Final = b"-NAK"
IN_PROGRESS: Final = b"+WPI"  # resets ack_wait; "work in progress"
TERM: Final = b"+TERM"
NEXT: Final = b"+NXT"
