"""Checks that reject bad input with one of our errors before it reaches the wire."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from jsclient import errors, kinds, protocol
from jsclient.message import HeadersLike
from jsclient.protocol import subjects
from jsclient.protocol.errors import InvalidArgument, InvalidHeader, NamingError
from jsclient.protocol.headers import encode_plain

T = TypeVar("T")

MOST_THREADS: Final = 10_000
"""The maximum of threads that is useful in one process; a larger count is a mistake."""


def _translated(check: Callable[..., T], *args: str) -> T:
    try:
        return check(*args)
    except InvalidHeader as error:
        raise errors.InvalidHeader(error.what) from None
    except NamingError as error:
        raise errors.InvalidName(error.what) from None
    except InvalidArgument as error:
        raise errors.InvalidSubject(error.what) from None


def subject(text: str, what: str = "subject") -> bytes:
    """A subject to publish to; raises InvalidSubject."""
    return _translated(subjects.check_subject, text, what)


def filter_subject(text: str, what: str = "subject") -> bytes:
    """A subject to subscribe to or to filter by, wildcards allowed; raises InvalidSubject."""
    return _translated(subjects.check_filter, text, what)


class FilterInSubject(str):
    """The subject of an API request with a filter as its last tokens: wildcards are part of it."""

    __slots__ = ()


def queue_group(text: str) -> bytes:
    """A queue group; raises InvalidSubject."""
    return _translated(subjects.check_queue, text)


def name(text: str, what: str = "name") -> bytes:
    """A stream, consumer or bucket name; raises InvalidName."""
    return _translated(subjects.check_name, text, what)


def headers(given: HeadersLike) -> HeadersLike:
    """Headers from a caller. Raises InvalidHeader for an encoded block, which layers may pass on unchecked."""
    if isinstance(given, (dict, protocol.Headers)):
        return given
    try:
        return protocol.Headers(given)  # type: ignore[arg-type]
    except InvalidHeader as error:
        raise errors.InvalidHeader(error.what) from None


def header_block(given: HeadersLike) -> bytes:
    """The encoded header block; raises InvalidHeader."""
    if given.__class__ is dict:
        plain = encode_plain(given)
        if plain is not None:
            return plain
    try:
        block = given if isinstance(given, protocol.Headers) else protocol.Headers(given)  # type: ignore[arg-type]
        return block.encode()
    except InvalidHeader as error:
        raise errors.InvalidHeader(error.what) from None


def positive(value: object, name: str) -> int:
    """A count of 1 or more; raises ConfigError for a smaller one or another type."""
    if isinstance(value, bool) or not hasattr(type(value), "__index__") or value < 1:  # type: ignore[operator]
        raise errors.ConfigError(f"{name} must be a positive int, got {value!r:.60}")
    kinds.check(int, **{name: value})
    return value  # type: ignore[return-value]


def threads(value: object, name: str) -> int:
    """A count of threads, or of objects per thread. Raises ConfigError for more than MOST_THREADS."""
    count = positive(value, name)
    if count > MOST_THREADS:
        raise errors.ConfigError(f"{name} must be at most {MOST_THREADS:,}, got {count}")
    return count


def inbox_prefix(text: str) -> str:
    """A prefix for inboxes: a subject without wildcards that does not end in a dot; raises InvalidSubject."""
    subject(text, "inbox prefix")
    return text


def client_name(text: str) -> str:
    """The client's name in CONNECT. Raises InvalidName for control characters, which would garble server logs."""
    if not isinstance(text, str):
        raise errors.InvalidName(f"client name must be a str, not {type(text).__name__}")
    if any(ord(char) < 32 or ord(char) == 127 for char in text):
        raise errors.InvalidName(f"client name must not contain control characters: {text!r:.80}")
    return text


def host_name(text: str, what: str) -> str:
    """A name or address of a host. Raises ConfigError for a text that no resolver accepts."""
    if not text.isprintable() or not text:
        raise errors.ConfigError(f"{what} must be a host name or an address, got {text!r:.80}")
    return text


def path(given: str | os.PathLike[str], what: str) -> Path:
    """The path of a file or folder, which need not exist. Raises ConfigError for a path that is always invalid."""
    if not isinstance(given, (str, os.PathLike)):
        raise errors.ConfigError(f"{what} must be a str or an os.PathLike, not {type(given).__name__}")
    text = os.fspath(given)
    try:
        known = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        known = False
    if not known:
        raise errors.ConfigError(f"{what} must be the name of a file or folder, got {text!r:.80}")
    return Path(text)


def utf8(text: str, what: str, advice: str = "; give bytes") -> bytes:
    """The bytes to send for a text. Raises ConfigError for text that UTF-8 cannot encode, such as some file names."""
    if not isinstance(text, str):
        raise errors.ConfigError(f"{what} must be a str, not {type(text).__name__}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise errors.ConfigError(f"{what} that is text must be UTF-8 ({error.reason}){advice}") from None


def payload(value: object) -> bytes:
    """The payload of a message as bytes. Raises ConfigError."""
    if isinstance(value, str):
        return utf8(value, "a payload")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise errors.ConfigError(f"a payload is bytes or str, not {type(value).__name__}; encode it, or use a codec")
