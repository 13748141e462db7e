"""Making, finding and deleting object stores. Every function takes the JetStream context first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from jsclient.declared import arguments
from jsclient.durations import DEFAULT, Timeout
from jsclient.errors import BadBucket, BucketExists, StreamNameInUse, StreamNotFound
from jsclient.hints import Unpack
from jsclient.jetstream import JetStream
from jsclient.jetstream.api.config_fields import given
from jsclient.keyvalue import missing
from jsclient.objectstore.models import (
    STREAM_PREFIX,
    ObjectStoreConfig,
    ObjectStoreConfigDict,
    ObjectStoreStatus,
    stream_name,
)
from jsclient.objectstore.store import ObjectStore
from jsclient.shared_options import with_shared_options

_ALL_STORES: Final = "$O.*.C.>"


@with_shared_options
@arguments
def object_store(js: JetStream, bucket: str, *, fetch_info: bool = True, timeout: Timeout = DEFAULT) -> ObjectStore:
    """The handle of an existing store; BucketNotFound when there is none.

    `fetch_info=False` sends nothing: for accounts that may not ask about streams.
    """
    name = stream_name(bucket)
    if fetch_info:
        try:
            info = js.stream(name, timeout=timeout).cached_info
        except StreamNotFound as error:
            raise missing.not_found(stream_name(bucket)) from error
        if info is not None and not any(s.startswith(f"$O.{bucket}.") for s in info.config.subjects or ()):
            raise BadBucket(f"stream {name} is no object store", bucket)
    return ObjectStore(js, bucket)


@with_shared_options
def create_object_store(
    js: JetStream,
    config: ObjectStoreConfig | None = None,
    *,
    timeout: Timeout = DEFAULT,
    **fields: Unpack[ObjectStoreConfigDict],
) -> ObjectStore:
    """Make a store; the same configuration again is fine, another one raises BucketExists.

    `config`: an ObjectStoreConfig, or its fields as keywords.
    """
    config = given(ObjectStoreConfig, config, fields)
    try:
        js.create_stream(config.to_stream(), timeout=timeout)
    except StreamNameInUse as error:
        text = f"object store {config.bucket!r} exists with another configuration"
        raise BucketExists(text, config.bucket) from error
    return ObjectStore(js, config.bucket)


@with_shared_options
def update_object_store(
    js: JetStream,
    config: ObjectStoreConfig | None = None,
    *,
    timeout: Timeout = DEFAULT,
    **fields: Unpack[ObjectStoreConfigDict],
) -> ObjectStore:
    """Change a store to this configuration; BucketNotFound when there is none.

    `config`: an ObjectStoreConfig, or its fields as keywords.
    """
    config = given(ObjectStoreConfig, config, fields)
    try:
        js.update_stream(config.to_stream(), timeout=timeout)
    except StreamNotFound as error:
        raise missing.not_found(stream_name(config.bucket)) from error
    return ObjectStore(js, config.bucket)


@with_shared_options
def create_or_update_object_store(
    js: JetStream,
    config: ObjectStoreConfig | None = None,
    *,
    timeout: Timeout = DEFAULT,
    **fields: Unpack[ObjectStoreConfigDict],
) -> ObjectStore:
    """Make a store, or change the one that is there to this configuration.

    `config`: an ObjectStoreConfig, or its fields as keywords.
    """
    config = given(ObjectStoreConfig, config, fields)
    js.create_or_update_stream(config.to_stream(), timeout=timeout)
    return ObjectStore(js, config.bucket)


@with_shared_options
@arguments
def delete_object_store(js: JetStream, bucket: str, *, timeout: Timeout = DEFAULT) -> None:
    """Delete a store with everything in it; BucketNotFound when there is none."""
    try:
        js.delete_stream(stream_name(bucket), timeout=timeout)
    except StreamNotFound as error:
        raise missing.not_found(stream_name(bucket)) from error


@with_shared_options
@arguments
def object_store_names(js: JetStream, *, timeout: Timeout = DEFAULT) -> Iterator[str]:
    """Names of all stores, page by page as you iterate; `timeout`: of all of it (default: 5 s a page)."""
    for name in js.stream_names(subject=_ALL_STORES, timeout=timeout):
        if name.startswith(STREAM_PREFIX):
            yield name[len(STREAM_PREFIX) :]


@with_shared_options
@arguments
def object_stores(js: JetStream, *, timeout: Timeout = DEFAULT) -> Iterator[ObjectStoreStatus]:
    """The status of all stores, page by page as you iterate; `timeout`: of all of it (default: 5 s a page)."""
    for info in js.streams(subject=_ALL_STORES, timeout=timeout):
        if info.config.name.startswith(STREAM_PREFIX):
            yield ObjectStoreStatus(info)
