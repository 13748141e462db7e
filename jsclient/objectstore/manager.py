"""Making, finding and deleting object stores. Every function takes the JetStream context first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from jsclient import kinds
from jsclient.durations import DEFAULT, Deadline, Timeout
from jsclient.errors import BadBucket, BucketExists, StreamNameInUse, StreamNotFound
from jsclient.jetstream import JetStream
from jsclient.jetstream.api.model_base import given
from jsclient.keyvalue import missing
from jsclient.keyvalue.listing import bucket_names, bucket_streams
from jsclient.objectstore.models import (
    STREAM_PREFIX,
    SUBJECT_ROOT,
    ObjectStoreConfig,
    ObjectStoreConfigDict,
    ObjectStoreStatus,
    stream_name,
)
from jsclient.objectstore.store import ObjectStore

if TYPE_CHECKING:
    from typing_extensions import Unpack


_ALL_STORES: Final = "$O.*.C.>"


def object_store(js: JetStream, bucket: str, *, fetch_info: bool = True, timeout: Timeout = DEFAULT) -> ObjectStore:
    """The handle of an existing store. Raises BucketNotFound if there is none.

    `fetch_info=False` sends no request, for accounts without permission to read stream information.

    Options:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """
    kinds.check(JetStream, js=js)
    kinds.check(bool, fetch_info=fetch_info)
    name = stream_name(bucket)
    if fetch_info:
        try:
            info = js.stream(name, timeout=timeout).cached_info
        except StreamNotFound as error:
            raise missing.not_found(stream_name(bucket)) from error
        if info is not None and info.config.mirror is not None and info.config.mirror.name == name:
            return ObjectStore(js, bucket)  # its objects belong to its origin, which has the same name
        if info is not None and not any(s.startswith(f"$O.{bucket}.") for s in info.config.subjects or ()):
            raise BadBucket(f"stream {name} is no object store", bucket)
    return ObjectStore(js, bucket)


def create_object_store(
    js: JetStream,
    config: ObjectStoreConfig | None = None,
    *,
    timeout: Timeout = DEFAULT,
    **fields: Unpack[ObjectStoreConfigDict],
) -> ObjectStore:
    """Make a store. The same configuration again is fine, another one raises BucketExists.

    `config`: an ObjectStoreConfig, or its fields as keywords.

    Options:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """
    config = given(ObjectStoreConfig, config, fields)
    try:
        js.create_stream(config.to_stream(), timeout=timeout)
    except StreamNameInUse as error:
        text = f"object store {config.bucket!r} exists with another configuration"
        raise BucketExists(text, config.bucket) from error
    return ObjectStore(js, config.bucket)


def update_object_store(
    js: JetStream,
    config: ObjectStoreConfig | None = None,
    *,
    timeout: Timeout = DEFAULT,
    **fields: Unpack[ObjectStoreConfigDict],
) -> ObjectStore:
    """Change a store to this configuration. Raises BucketNotFound if there is none.

    Settings of its stream that ObjectStoreConfig does not have stay unchanged.

    `config`: an ObjectStoreConfig, or its fields as keywords.

    Options:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """
    config = given(ObjectStoreConfig, config, fields)
    try:
        _update(js, config, Deadline.of(timeout, js.api.timeout))
    except StreamNotFound as error:
        raise missing.not_found(stream_name(config.bucket)) from error
    return ObjectStore(js, config.bucket)


def _update(js: JetStream, config: ObjectStoreConfig, deadline: Deadline) -> None:
    current = js.stream(stream_name(config.bucket), fetch_info=False).info(timeout=deadline).config
    js.update_stream(config.changed(current), timeout=deadline)


def create_or_update_object_store(
    js: JetStream,
    config: ObjectStoreConfig | None = None,
    *,
    timeout: Timeout = DEFAULT,
    **fields: Unpack[ObjectStoreConfigDict],
) -> ObjectStore:
    """Create a store, or change the existing one to this configuration, as `update_object_store` does.

    `config`: an ObjectStoreConfig, or its fields as keywords.

    Options:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """
    config = given(ObjectStoreConfig, config, fields)
    deadline = Deadline.of(timeout, js.api.timeout)
    try:
        _update(js, config, deadline)
    except StreamNotFound:
        js.create_stream(config.to_stream(), timeout=deadline)
    return ObjectStore(js, config.bucket)


def delete_object_store(js: JetStream, bucket: str, *, timeout: Timeout = DEFAULT) -> None:
    """Delete a store with everything in it. Raises BucketNotFound if there is none.

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


def object_store_names(js: JetStream, *, timeout: Timeout = DEFAULT) -> Iterator[str]:
    """Names of all stores and mirrors, page by page as you iterate.

    `timeout` bounds the whole call. By default each page has 5 s.
    """
    kinds.check(JetStream, js=js)
    return bucket_names(js, STREAM_PREFIX, _ALL_STORES, timeout)


def object_stores(js: JetStream, *, timeout: Timeout = DEFAULT) -> Iterator[ObjectStoreStatus]:
    """The status of all stores and mirrors, page by page as you iterate.

    `timeout` bounds the whole call. By default each page has 5 s.
    """
    kinds.check(JetStream, js=js)
    return map(ObjectStoreStatus, bucket_streams(js, STREAM_PREFIX, SUBJECT_ROOT, timeout))
