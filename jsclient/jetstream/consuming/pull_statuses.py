"""The statuses that a server sends about a pull: one table for every way to take messages. Pure.

`classify` finds the row of a status. `jsclient/jetstream/README.md` shows the same rows, which a test checks.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

from jsclient import errors
from jsclient.jetstream.api import headers as names

Kind = Literal["alive", "quiet", "report", "terminal"]


class StatusMeaning(NamedTuple):
    """The meaning of a status of a pull inbox."""

    kind: Kind
    """"alive" is a heartbeat. "quiet": this pull ended in good order. "report": report to the application and continue.
    "terminal": no pull of this consumer can work any more.
    """
    error: Exception | None = None
    all_pulls: bool = False
    """Every pull of the consumer is gone, not only this one."""
    unserved: tuple[int, int] | None = None
    """Messages and bytes of the pull that will not come, if the server names them."""
    back_off: bool = False
    forget_pin: bool = False
    again: bool = False
    """A fetch survives it, and pulls again for missing messages within its timeout."""
    reason: str = ""
    """The reason of a quiet end: "no messages", "timeout", "max bytes", "complete"."""


class Row(NamedTuple):
    """A status by its code (0: any) and a part of its description in small letters, with its meaning."""

    code: int
    text: str
    meaning: str
    kind: Kind
    error: type[Exception] | None = None
    reason: str = ""
    all_pulls: bool = False
    back_off: bool = False
    forget_pin: bool = False
    again: bool = False


#: The first row that fits counts.
STATUSES: Final = (
    Row(100, "", "a sign of life", "alive"),
    Row(404, "", "there is no message", "quiet", reason="no messages"),
    # 2.8 sent it as 408.
    Row(408, "exceeds maxbytes", "the next message needs more bytes than the pull has", "quiet",
        errors.MaxBytesExceeded, "max bytes"),
    Row(409, "exceeds maxbytes", "the next message needs more bytes than the pull has", "quiet",
        errors.MaxBytesExceeded, "max bytes"),
    Row(408, "requests pending", "there is no message", "quiet", reason="no messages"),
    Row(408, "", "the life of the pull has ended", "quiet", reason="timeout"),
    Row(409, "batch completed", "the pull has brought what it could", "quiet", reason="complete"),
    Row(409, "consumer deleted", "the consumer was deleted, or its stream", "terminal", errors.ConsumerDeleted,
        all_pulls=True),
    Row(409, "leadership change", "another server leads the consumer now", "report",
        errors.ConsumerLeadershipChanged, all_pulls=True, back_off=True, again=True),
    Row(409, "server shutdown", "the server that led the consumer goes down", "report", errors.PullServerShutdown,
        all_pulls=True, back_off=True, again=True),
    Row(409, "push based", "it is a push consumer", "terminal", errors.NotPullConsumer, all_pulls=True),
    Row(409, "maxwaiting", "max_waiting pulls wait already", "report", errors.MaxWaitingExceeded, back_off=True),
    # The server would refuse the same pull again and again.
    Row(409, "exceeded", "the pull exceeds a limit of the consumer's configuration", "report", errors.BadPullRequest,
        back_off=True),
    Row(423, "", "the priority group is pinned to another client", "report", errors.PinIdMismatch, all_pulls=True,
        forget_pin=True, again=True),
    Row(400, "", "the server does not take such a pull", "terminal", errors.BadPullRequest),
    Row(503, "", "nobody answers: no stream, no consumer, or no leader", "report", errors.PullNoResponders,
        back_off=True, again=True),
    Row(0, "", "not known to this client", "report", errors.PullStatusError, back_off=True),
)  # fmt: skip


def row_of(code: int, description: str) -> Row:
    """The row of a status; descriptions are compared as parts, without case."""
    text = description.lower()
    return next(row for row in STATUSES if row.code in (code, 0) and row.text in text)


def classify(code: int, description: str, headers: Any = None, subject: str = "") -> StatusMeaning:
    """The meaning of one status; `subject` is the subject of the pull."""
    row = row_of(code, description)
    unserved = _unserved(headers) or ((0, 0) if row.reason == "complete" else None)
    error = None if row.error is None else _error(row.error, code, description, subject)
    return StatusMeaning(row.kind, error, row.all_pulls, unserved, row.back_off, row.forget_pin, row.again, row.reason)


def _error(of: type[Exception], code: int, description: str, subject: str) -> Exception:
    if of is errors.PullNoResponders:
        text = f"nobody answers pulls on {subject or 'the consumer'}: no such stream or consumer, or no leader"
        return errors.PullNoResponders(text, subject)
    if of is errors.NotPullConsumer:
        return errors.NotPullConsumer(f"cannot pull: {description}")
    return of(code, description)


def _unserved(headers: Any) -> tuple[int, int] | None:
    if not headers:
        return None
    messages = headers.get(names.PENDING_MESSAGES)
    if messages is None:
        return None
    try:
        # Servers send -1 for a pull without unserved messages, which must never add to the open ones.
        return max(int(messages), 0), max(int(headers.get(names.PENDING_BYTES) or 0), 0)
    except ValueError:
        return None
