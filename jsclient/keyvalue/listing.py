"""Lists the streams of all buckets or object stores. A mirror has no subjects, so a filter by subject leaves it out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from jsclient.durations import Timeout, whole
from jsclient.errors import StreamNotFound

if TYPE_CHECKING:
    from jsclient.jetstream import JetStream, StreamConfig, StreamInfo


def bucket_streams(js: JetStream, prefix: str, root: str, timeout: Timeout) -> Iterator[StreamInfo]:
    """Streams whose name begins with `prefix`, with subjects below `root` or as mirrors."""
    return (info for info in js.streams(timeout=timeout) if _is_bucket(info.config, prefix, root))


def bucket_names(js: JetStream, prefix: str, pattern: str, timeout: Timeout) -> Iterator[str]:
    """Their names without the prefix. Only a stream without such subjects costs one more request."""
    timeout = whole(timeout)
    return _bucket_names(js, prefix, js.stream_names(subject=pattern, timeout=timeout), timeout)


def _bucket_names(js: JetStream, prefix: str, names: Iterator[str], timeout: Timeout) -> Iterator[str]:
    known = set()
    for name in names:
        if name.startswith(prefix):
            known.add(name)
            yield name[len(prefix) :]
    for name in js.stream_names(timeout=timeout):
        if name.startswith(prefix) and name not in known and _is_mirror(js, name, prefix, timeout):
            yield name[len(prefix) :]


def _is_mirror(js: JetStream, name: str, prefix: str, timeout: Timeout) -> bool:
    try:
        return _mirrors(js.stream(name, fetch_info=False).info(timeout=timeout).config, prefix)
    except StreamNotFound:
        return False  # deleted meanwhile


def _is_bucket(config: StreamConfig, prefix: str, root: str) -> bool:
    if not config.name.startswith(prefix):
        return False
    return _mirrors(config, prefix) or any(subject.startswith(root) for subject in config.subjects or ())


def _mirrors(config: StreamConfig, prefix: str) -> bool:
    return config.mirror is not None and config.mirror.name.startswith(prefix)
