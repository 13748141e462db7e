"""Names of buckets and keys: their allowed characters, and their subjects."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from jsclient.errors import BadBucket, ConfigError, InvalidName
from jsclient.jetstream.api.names import api_prefix, check_name

if TYPE_CHECKING:
    from jsclient.jetstream import StreamSource

STREAM_PREFIX: Final = "KV_"
SUBJECT_ROOT: Final = "$KV."
ALL_KEYS: Final = ">"

MAX_BUCKET: Final = 250
"""Bytes of a bucket name: the stream name has 255, and its files are named after it."""

MAX_LINE: Final = 4096
"""Bytes the server accepts on a control line (its default `max_control_line`). A longer one ends the connection."""

LINE_OVERHEAD: Final = 196
"""Bytes of such a line in addition to subject and API prefix (verb, reply inbox, sizes), rounded up."""

_BUCKET = re.compile(r"[a-zA-Z0-9_-]+")
_KEY = re.compile(r"[-/_=a-zA-Z0-9]+(?:\.[-/_=a-zA-Z0-9]+)*")
_FILTER = re.compile(r"(?:(?:[-/_=a-zA-Z0-9]+|\*)(?:\.(?:[-/_=a-zA-Z0-9]+|\*))*(?:\.>)?)|>")
valid_key: Callable[[str], re.Match[str] | None] = _KEY.fullmatch


def check_bucket(bucket: Any, what: str = "bucket") -> str:
    """A bucket name: letters, digits, '-' and '_'. Raises InvalidName with the reason."""
    if not isinstance(bucket, str):
        raise InvalidName(f"the {what} name must be a str, not {type(bucket).__name__}")
    if not bucket:
        raise InvalidName(f"the {what} name is empty")
    if not _BUCKET.fullmatch(bucket):
        raise InvalidName(f"the {what} name {bucket[:80]!r} may only have letters, digits, '-' and '_'")
    if len(bucket) > MAX_BUCKET:
        raise InvalidName(f"the {what} name has {len(bucket)} characters, more than {MAX_BUCKET}")
    return bucket


def refuse_key(key: Any, limit: int) -> InvalidName:
    """The error for an invalid key (call it only for one)."""
    if not isinstance(key, str):
        return InvalidName(f"a key must be a str, not {type(key).__name__}")
    if not key:
        return InvalidName("a key must not be empty")
    if len(key) > limit:
        return InvalidName(f"a key of {len(key)} characters is longer than the {limit} that fit on a protocol line")
    shown = repr(key[:80])
    if key.startswith(".") or key.endswith(".") or ".." in key:
        return InvalidName(f"the key {shown} must not start or end with '.' nor contain '..'")
    if "*" in key or ">" in key:
        return InvalidName(f"the key {shown} has a wildcard: those are for watch and keys only")
    return InvalidName(f"the key {shown} may only have letters, digits and the signs - / _ . =")


def check_key(key: Any, limit: int = MAX_LINE) -> str:
    """A key. Raises InvalidName with the reason."""
    if isinstance(key, str) and valid_key(key) and len(key) <= limit:
        return key
    raise refuse_key(key, limit)


def check_revision(revision: Any, least: int = 0, name: str = "revision") -> None:
    """Raises ConfigError unless it is a number that a revision can have."""
    if isinstance(revision, bool) or not isinstance(revision, int) or not least <= revision < 2**64:
        raise ConfigError(f"{name} must be an int of {least} or more, and at most 64 bits, got {revision!r:.80}")


def check_filter(pattern: Any, limit: int = MAX_LINE) -> str:
    """A key or a pattern of keys: `*` as a whole token, `>` as the last one. Raises InvalidName."""
    if not isinstance(pattern, str):
        raise InvalidName(f"a key pattern must be a str, not {type(pattern).__name__}")
    if len(pattern) > limit:
        raise refuse_key(pattern, limit)
    if not _FILTER.fullmatch(pattern):
        raise InvalidName(
            f"the key pattern {pattern[:80]!r} must be tokens of letters, digits and - / _ = between dots, "
            "with '*' for one token and '>' for the rest"
        )
    return pattern


def stream_name(bucket: str) -> str:
    return STREAM_PREFIX + check_bucket(bucket)


def key_limit(api_prefix: str, stream: str, subject_prefix: str) -> int:
    """The longest key for which every request fits on a protocol line."""
    # The longest one: <api>DIRECT.GET.<stream>.<subject>
    return (
        MAX_LINE - LINE_OVERHEAD - len(api_prefix) - len("CONSUMER.CREATE...") - 2 * len(stream) - len(subject_prefix)
    )


def origin_of(mirror: StreamSource, bucket: str) -> tuple[str, str | None]:
    """The bucket that a mirror copies, and the prefix of its keys if writes must go through another API prefix."""
    try:
        origin = check_name(mirror.name.removeprefix(STREAM_PREFIX), "bucket")
        if mirror.external is None or not mirror.external.api:
            return origin, None
        return origin, f"{api_prefix(prefix=mirror.external.api)}{SUBJECT_ROOT}{origin}."
    except ConfigError as error:
        raise BadBucket(f"bucket {bucket!r} is a mirror of what cannot be a bucket: {error}", bucket) from None
