"""jsclient._connection.server_errors: every -ERR text that a server sends, its class, and what becomes of the link."""

from __future__ import annotations

import pytest

from jsclient import errors
from jsclient._connection.server_errors import Verdict, classify

STAYS, RECONNECT, AUTH = Verdict.STAYS, Verdict.RECONNECT, Verdict.AUTH


@pytest.mark.parametrize(
    ("text", "kind", "verdict"),
    [
        ("Authorization Violation", errors.AuthError, AUTH),
        ("Authentication Timeout", errors.AuthTimeout, AUTH),
        ("User Authentication Expired", errors.AuthExpired, AUTH),
        ("User Authentication Revoked", errors.AuthRevoked, AUTH),
        ("Account Authentication Expired", errors.AuthExpired, AUTH),
        ("Failed Account Registration", errors.AuthError, AUTH),
        ("maximum connections exceeded", errors.MaxConnectionsExceeded, RECONNECT),
        ("maximum account active connections exceeded", errors.MaxConnectionsExceeded, RECONNECT),
        ("maximum subscriptions exceeded", errors.MaxSubscriptionsExceeded, STAYS),
        ("Stale Connection", errors.StaleConnection, RECONNECT),
        ("Maximum Payload Violation", errors.ServerError, RECONNECT),
        ("maximum control line exceeded", errors.ServerError, RECONNECT),
        ("Unknown Protocol Operation", errors.ServerError, RECONNECT),
        ("Invalid Publish Subject", errors.ServerError, STAYS),
        ("Invalid Subject", errors.ServerError, STAYS),
        ('Permissions Violation for Publish to "x"', errors.PermissionViolation, STAYS),
        ('Permissions Violation for Publish with Reply of "x"', errors.PermissionViolation, STAYS),
        ('Permissions Violation for Subscription to "x"', errors.PermissionViolation, STAYS),
        ('Permissions Violation for Subscription to "x", too many tokens', errors.PermissionViolation, STAYS),
        ("Secure Connection - TLS Required", errors.TlsError, RECONNECT),
        ("no responders requires headers support", errors.ServerError, STAYS),
        ("Connection throttling is active. Please try again later.", errors.ServerError, STAYS),
        ("attempted to connect to route port", errors.ServerError, STAYS),
        ("something of a newer server", errors.ServerError, STAYS),
        ("", errors.ServerError, STAYS),
    ],
)
@pytest.mark.parametrize("change", [str, str.upper, str.lower])
def test_texts(text: str, kind: type[errors.JsClientError], verdict: Verdict, change: type[str]) -> None:
    found = classify(change(text))
    assert type(found.error) is kind
    assert found.verdict is verdict
    assert kind is errors.StaleConnection or change(text) in str(found.error)


@pytest.mark.parametrize(
    ("text", "operation", "subject", "queue", "sid"),
    [
        ('Permissions Violation for Publish to "a.b"', "publish", "a.b", "", None),
        ('Permissions Violation for Publish with Reply of "_INBOX.x"', "publish", "_INBOX.x", "", None),
        ('Permissions Violation for Subscription to "a.>"', "subscribe", "a.>", "", None),
        ('Permissions Violation for Subscription to "a" using queue "q"', "subscribe", "a", "q", None),
        ('Permissions Violation for Subscription to "a" using queue "q" (sid "17")', "subscribe", "a", "q", b"17"),
        ('Permissions Violation for Subscription to "a" (sid "3")', "subscribe", "a", "", b"3"),
        ("Permissions Violation", "publish", "", "", None),
    ],
)
def test_permissions_name_what_was_refused(
    text: str, operation: str, subject: str, queue: str, sid: bytes | None
) -> None:
    found = classify(text)
    assert (found.operation, found.subject, found.queue, found.sid) == (operation, subject, queue, sid)
    assert isinstance(found.error, errors.PermissionViolation)
    assert (found.error.operation, found.error.subject) == (operation, subject)


def test_hostile_texts_are_cut_and_made_printable() -> None:
    text = str(classify("x\x1b[31m\r\n\x00" + "y" * 100_000).error)
    assert len(text) < 1000
    assert text.isprintable()
