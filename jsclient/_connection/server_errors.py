"""Maps the server's -ERR texts to an error class and to the effect on the link (features: nats.go processErr)."""

from __future__ import annotations

import enum
import re

from jsclient import errors


class Verdict(enum.Enum):
    """The effect of an -ERR on the link it came over."""

    STAYS = "stays"  # the server refused one operation
    RECONNECT = "reconnect"  # the server closes it; another attempt makes sense
    AUTH = "auth"  # the server closes it; another attempt only with other credentials


_SUBSCRIPTION = re.compile(
    r'permissions violation for subscription to "(?P<subject>[^"]*)"(?: using queue "(?P<queue>[^"]*)")?'
    r"(?:.*\(sid \"(?P<sid>\d+)\"\))?",
    re.IGNORECASE | re.DOTALL,
)
_PUBLISH = re.compile(
    r'permissions violation for publish(?: with reply of)? (?:to )?"(?P<subject>[^"]*)"', re.IGNORECASE
)

_AUTH: tuple[tuple[str, type[errors.AuthError], str], ...] = (
    ("user authentication expired", errors.AuthExpired, "get fresh credentials"),
    ("account authentication expired", errors.AuthExpired, "the account's JWT must be renewed on the server"),
    ("user authentication revoked", errors.AuthRevoked, "the operator has revoked this user: get other credentials"),
    ("authentication timeout", errors.AuthTimeout, "the server waited too long for CONNECT: is the link very slow?"),
    ("authentication expired", errors.AuthExpired, "get fresh credentials"),
    ("authorization violation", errors.AuthError, "check user, password, token or credentials of this connection"),
    ("failed account registration", errors.AuthError, "the account cannot be used on this server"),
)

_FATAL = ("unknown protocol operation", "maximum payload violation", "maximum control line exceeded")
"""The server closes the link after these. It may do so after others, too, and then its close is the proof."""


class ServerErr:
    """One -ERR: `error` to raise or report, `verdict`, and the subject it names."""

    __slots__ = ("error", "operation", "queue", "sid", "subject", "verdict")

    def __init__(self, error: errors.JsClientError, verdict: Verdict) -> None:
        self.error: errors.JsClientError = error
        self.verdict: Verdict = verdict
        self.subject: str = ""
        self.queue: str = ""
        self.operation: str = ""
        self.sid: bytes | None = None


def classify(text: str) -> ServerErr:
    """The meaning of an -ERR text, compared in lower case. Unknown texts are ServerError, and the link stays: a newer
    server may send a notice. If the server closes the link behind one, the text is the reason."""
    shown = "".join(char if char.isprintable() else "?" for char in text[:500])
    lower = shown.lower()
    if lower.startswith("permissions violation"):
        return _permission(shown)
    for prefix, kind, advice in _AUTH:
        if prefix in lower:
            return ServerErr(kind(f"the server refused us: {shown} ({advice})"), Verdict.AUTH)
    if "tls required" in lower:
        return ServerErr(
            errors.TlsError(
                f"the server says: {shown}. What was under way may have been done. Use a tls:// URL or a TLS option."
            ),
            Verdict.RECONNECT,
        )
    if lower.startswith("maximum subscriptions exceeded"):
        return ServerErr(errors.MaxSubscriptionsExceeded(f"the server says: {shown}"), Verdict.STAYS)
    if lower.startswith("maximum ") and "connections exceeded" in lower:
        return ServerErr(errors.MaxConnectionsExceeded(f"the server says: {shown}"), Verdict.RECONNECT)
    if "stale connection" in lower:
        return ServerErr(errors.StaleConnection("the server got no answer to its pings"), Verdict.RECONNECT)
    verdict = Verdict.RECONNECT if lower.startswith(_FATAL) else Verdict.STAYS
    return ServerErr(errors.ServerError(f"the server says: {shown}"), verdict)


def _permission(text: str) -> ServerErr:
    found = _SUBSCRIPTION.search(text)
    operation = "subscribe" if found else "publish"
    found = found or _PUBLISH.search(text)
    subject = found.group("subject") if found else ""
    error = errors.PermissionViolation(
        f"the server does not permit this user to {operation} {'to ' + repr(subject) if subject else ''}: {text}",
        subject,
        operation,
    )
    result = ServerErr(error, Verdict.STAYS)
    result.subject = subject
    result.operation = operation
    if operation == "subscribe" and found is not None:
        result.queue = found.group("queue") or ""
        sid = found.group("sid")
        result.sid = sid.encode() if sid else None
    return result
