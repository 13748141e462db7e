"""Validates subjects, queue groups and names for a control line, and matches wildcards.

Every check returns the encoded bytes, so a caller cannot check one thing and send another.
"""

from __future__ import annotations

import re

from .errors import NamingError, SubjectError

# Control characters (C0, DEL and C1 with U+0085) and the blank end a token for the server or for a reader of logs.
_TOKEN = r"[^\x00-\x20\x7f-\x9f.]+"
_SUBJECT = re.compile(rf"{_TOKEN}(?:\.{_TOKEN})*")
_QUEUE = re.compile(r"[^\x00-\x20\x7f-\x9f]+")
# ADR-6: names become tokens of subjects and names of directories.
_NAME = re.compile(r"[^\x00-\x20\x7f-\x9f.*>/\\]+")
MAX_NAME = 255  # server: JSMaxNameLen


def check_subject(subject: str, what: str = "subject") -> bytes:
    """A subject to publish to (or a reply): non-empty tokens, no blanks, no wildcards. Raises SubjectError.

    `what`: how errors call it.
    """
    raw = check_filter(subject, what)
    if ("*" in subject or ">" in subject) and has_wildcard(subject):
        raise SubjectError(f"{what} must not contain wildcards: {subject!r:.80}")
    return raw


def check_filter(subject: str, what: str = "subject") -> bytes:
    """A subject to subscribe to or filter by: as above, `*` as a token and `>` as the last one are allowed.

    `what`: how errors call it.
    """
    if not isinstance(subject, str):
        raise SubjectError(f"{what} is a str, not {type(subject).__name__}")
    if not _SUBJECT.fullmatch(subject):
        why = "is empty" if not subject else "has an empty token, a blank or a control character"
        raise SubjectError(f"{what} {why}: {subject!r:.80}")
    if ">" in subject and ">" in subject.split(".")[:-1]:
        raise SubjectError(f"in a {what} '>' is the last token: {subject!r:.80}")
    return _encode(subject, what)


def check_queue(queue: str) -> bytes:
    """A queue group: not empty, no blanks, no control characters. Raises SubjectError."""
    if not isinstance(queue, str) or not _QUEUE.fullmatch(queue):
        raise SubjectError(f"queue group is empty or has a blank or a control character: {queue!r:.80}")
    return _encode(queue, "queue group")


def check_name(name: str, what: str = "name") -> bytes:
    """A stream, consumer or bucket name: one token without blanks . * > / and backslash. Raises NamingError.

    `what`: how errors call it.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        why = "is empty" if name == "" else "must be one token without blanks, '.', '*', '>', '/' and '\\'"
        raise NamingError(f"{what} {why}: {name!r:.80}")
    try:
        raw = name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise NamingError(f"{what} cannot be encoded as UTF-8: {name!r:.80}") from None
    if len(raw) > MAX_NAME:
        raise NamingError(f"{what} is longer than {MAX_NAME} bytes: {name!r:.80}")
    return raw


def has_wildcard(subject: str) -> bool:
    """True when a token is `*` or `>`; `a*b` is a literal."""
    tokens = subject.split(".")
    return "*" in tokens or ">" in tokens


def matches(pattern: str, subject: str) -> bool:
    """True when a literal subject is selected by the pattern."""
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        if len(given) <= len(wanted):
            return False  # '>' matches one token at least
        del given[len(wanted) :]
    if len(wanted) != len(given):
        return False
    return all(token in ("*", name) for token, name in zip(wanted, given, strict=True))


def _encode(text: str, what: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise SubjectError(f"{what} cannot be encoded as UTF-8: {text!r:.80}") from None
