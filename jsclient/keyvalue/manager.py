"""Making, finding and deleting buckets. Every function takes the JetStream context first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from jsclient import kinds
from jsclient.durations import DEFAULT, Deadline, Timeout, resolve
from jsclient.errors import BadBucket, BucketExists, ConfigError, StreamNameInUse, StreamNotFound
from jsclient.jetstream import JetStream, StreamSource
from jsclient.jetstream.api.model_base import given
from jsclient.keyvalue import missing
from jsclient.keyvalue.bucket import KeyValue
from jsclient.keyvalue.config import KeyValueConfig, KeyValueConfigDict, KeyValueStatus
from jsclient.keyvalue.keys import STREAM_PREFIX, SUBJECT_ROOT, stream_name
from jsclient.keyvalue.listing import bucket_names, bucket_streams

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from jsclient.jetstream import StreamInfo

_ALL_BUCKETS: Final = "$KV.*.>"


def key_value(
    js: JetStream,
    bucket: str,
    *,
    fetch_info: bool = True,
    mirror: StreamSource | None = None,
    timeout: Timeout = DEFAULT,
) -> KeyValue:
    """The handle of an existing bucket. Raises BucketNotFound if there is none, BadBucket if it is another stream.

    `fetch_info=False` sends no request, for accounts without permission to read stream information. The bucket is then
    taken to allow direct reads. If it is a mirror, give its origin as
    `mirror=StreamSource(name="orders", domain="hub")`.

    Options:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """
    kinds.check(JetStream, js=js)
    kinds.check(bool, fetch_info=fetch_info)
    kinds.check(StreamSource, None, mirror=mirror)
    name = stream_name(bucket)
    if not fetch_info:
        return KeyValue(js, bucket, mirror=mirror)
    if mirror is not None:
        raise ConfigError("mirror goes with fetch_info=False: otherwise the server says what the bucket copies")
    try:
        info = js.stream(name, timeout=timeout).cached_info
    except StreamNotFound as error:
        raise missing.not_found(stream_name(bucket)) from error
    if info is not None and (info.config.max_msgs_per_subject or 0) < 1:
        raise BadBucket(f"stream {name} is no key-value bucket: it does not keep a number of values per key", bucket)
    return KeyValue(js, bucket, info)


def create_key_value(
    js: JetStream,
    config: KeyValueConfig | None = None,
    *,
    timeout: Timeout = DEFAULT,
    **fields: Unpack[KeyValueConfigDict],
) -> KeyValue:
    """Make a bucket. The same configuration again is fine, another one raises BucketExists.

    A bucket of an old client that lacks the settings of newer ones (direct reads, discard policy) is updated.

    `config`: a KeyValueConfig, or its fields as keywords.

    Options:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """
    config = given(KeyValueConfig, config, fields)
    wanted = config.to_stream()
    deadline = Deadline(resolve(timeout, js.api.timeout))
    try:
        return KeyValue(js, config.bucket, js.create_stream(wanted, timeout=deadline.remaining()).cached_info)
    except StreamNameInUse as error:
        existing = js.stream(wanted.name, timeout=deadline.remaining()).cached_info
        if existing is not None and _only_old(existing, wanted):
            current = existing.config.replace(allow_direct=True, discard="new")
            return KeyValue(js, config.bucket, js.update_stream(current, timeout=deadline.remaining()).cached_info)
        text = f"bucket {config.bucket!r} exists with another configuration"
        raise BucketExists(text, config.bucket) from error


def _only_old(existing: StreamInfo, wanted: object) -> bool:
    """True if the bucket differs only in the two settings that clients before 2.9 did not make."""
    config = existing.config
    if config.allow_direct and config.discard == "new":
        return False
    for field in wanted.__struct_fields__:  # type: ignore[attr-defined]
        value = getattr(wanted, field)
        if field in ("allow_direct", "discard", "metadata", "extra") or value is None:
            continue
        if getattr(config, field) != value:
            return False
    return True


def update_key_value(
    js: JetStream,
    config: KeyValueConfig | None = None,
    *,
    timeout: Timeout = DEFAULT,
    **fields: Unpack[KeyValueConfigDict],
) -> KeyValue:
    """Change a bucket to this configuration. Raises BucketNotFound if there is none.

    Settings of its stream that KeyValueConfig does not have stay unchanged.

    `config`: a KeyValueConfig, or its fields as keywords.

    Options:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """
    config = given(KeyValueConfig, config, fields)
    try:
        return _update(js, config, Deadline.of(timeout, js.api.timeout))
    except StreamNotFound as error:
        raise missing.not_found(stream_name(config.bucket)) from error


def _update(js: JetStream, config: KeyValueConfig, deadline: Deadline) -> KeyValue:
    current = js.stream(stream_name(config.bucket), fetch_info=False).info(timeout=deadline).config
    return KeyValue(js, config.bucket, js.update_stream(config.changed(current), timeout=deadline).cached_info)


def create_or_update_key_value(
    js: JetStream,
    config: KeyValueConfig | None = None,
    *,
    timeout: Timeout = DEFAULT,
    **fields: Unpack[KeyValueConfigDict],
) -> KeyValue:
    """Create a bucket, or change the existing one to this configuration, as `update_key_value` does.

    `config`: a KeyValueConfig, or its fields as keywords.

    Options:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """
    config = given(KeyValueConfig, config, fields)
    deadline = Deadline.of(timeout, js.api.timeout)
    try:
        return _update(js, config, deadline)
    except StreamNotFound:
        return KeyValue(js, config.bucket, js.create_stream(config.to_stream(), timeout=deadline).cached_info)


def delete_key_value(js: JetStream, bucket: str, *, timeout: Timeout = DEFAULT) -> None:
    """Delete a bucket with everything in it. Raises BucketNotFound if there is none.

    Options:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """
    kinds.check(JetStream, js=js)
    try:
        js.delete_stream(stream_name(bucket), timeout=timeout)
    except StreamNotFound as error:
        raise missing.not_found(stream_name(bucket)) from error


def key_value_store_names(js: JetStream, *, timeout: Timeout = DEFAULT) -> Iterator[str]:
    """Names of all buckets and mirrors, page by page as you iterate.

    `timeout` bounds the whole call. By default each page has 5 s.
    """
    kinds.check(JetStream, js=js)
    return bucket_names(js, STREAM_PREFIX, _ALL_BUCKETS, timeout)


def key_value_stores(js: JetStream, *, timeout: Timeout = DEFAULT) -> Iterator[KeyValueStatus]:
    """The status of all buckets and mirrors, page by page as you iterate.

    `timeout` bounds the whole call. By default each page has 5 s.
    """
    kinds.check(JetStream, js=js)
    return map(KeyValueStatus, bucket_streams(js, STREAM_PREFIX, SUBJECT_ROOT, timeout))
