"""Key-value buckets: the last value (and some history) of every key, in a stream (ADR-8).

from jsclient import keyvalue

kv = keyvalue.create_key_value(js, keyvalue.KeyValueConfig(bucket="profiles"))
revision = kv.put("sue.color", b"blue")
entry = kv.get("sue.color")                     # entry.value, entry.revision, entry.created
kv.update("sue.color", b"red", revision)        # compare and set
with kv.watch("sue.*") as watcher:              # current values, then every change
    for entry in watcher:
        ...
"""

from __future__ import annotations

from jsclient.keyvalue.batch import KeyValueBatch
from jsclient.keyvalue.bucket import KeyValue
from jsclient.keyvalue.config import MAX_HISTORY, KeyValueConfig, KeyValueConfigDict, KeyValueStatus
from jsclient.keyvalue.entry import KeyValueEntry, Operation
from jsclient.keyvalue.key_codecs import (
    BASE64_KEYS,
    BASE64_VALUES,
    PATH_KEYS,
    KeyChain,
    KeyCodec,
    ValueChain,
    ValueCodec,
)
from jsclient.keyvalue.keys import ALL_KEYS
from jsclient.keyvalue.manager import (
    create_key_value,
    create_or_update_key_value,
    delete_key_value,
    key_value,
    key_value_store_names,
    key_value_stores,
    update_key_value,
)
from jsclient.keyvalue.watch import KeyWatcher

__all__ = [
    "ALL_KEYS",
    "BASE64_KEYS",
    "BASE64_VALUES",
    "MAX_HISTORY",
    "PATH_KEYS",
    "KeyChain",
    "KeyCodec",
    "KeyValue",
    "KeyValueBatch",
    "KeyValueConfig",
    "KeyValueConfigDict",
    "KeyValueEntry",
    "KeyValueStatus",
    "KeyWatcher",
    "Operation",
    "ValueChain",
    "ValueCodec",
    "create_key_value",
    "create_or_update_key_value",
    "delete_key_value",
    "key_value",
    "key_value_store_names",
    "key_value_stores",
    "update_key_value",
]
