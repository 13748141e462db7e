"""A missing bucket or object store. Its user knows the bucket, so errors name the bucket instead of the stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from jsclient.errors import BucketGone, BucketNotFound, NoStreamForSubject, StreamNotFound

STILL_RIGHT: Final = "What was read before was right then, and nothing more comes."

_KINDS: Final = {"KV_": "bucket", "OBJ_": "object store"}


def _named(stream: str) -> tuple[str, str]:
    """The kind of the stream in words, and the name of the bucket."""
    for prefix, kind in _KINDS.items():
        if stream.startswith(prefix):
            bucket = stream.removeprefix(prefix)
            return f"{kind} {bucket!r}", bucket
    raise AssertionError(f"{stream} is the stream of no bucket")


def not_found(stream: str) -> BucketNotFound:
    """The error for a call that found no stream of this name."""
    what, bucket = _named(stream)
    return BucketNotFound(f"there is no {what}", bucket)


def deleted(stream: str, meaning: str = STILL_RIGHT) -> BucketNotFound:
    """The error for a reading that had begun when the stream went away."""
    what, bucket = _named(stream)
    return BucketNotFound(f"{what} was deleted while it was read. {meaning} Create it again, or stop reading.", bucket)


def not_written(stream: str, error: Exception) -> BucketGone:
    """The error for a write that no stream took: it is certainly not stored."""
    what, bucket = _named(stream)
    return BucketGone(f"there is no {what}", bucket, getattr(error, "subject", ""))


@contextmanager
def named(stream: str) -> Iterator[None]:
    """Turn errors of a missing stream into errors of its bucket. For rare calls: it costs a microsecond."""
    try:
        yield
    except StreamNotFound as error:
        raise not_found(stream) from error
    except BucketNotFound:
        raise
    except NoStreamForSubject as error:
        raise not_written(stream, error) from error
