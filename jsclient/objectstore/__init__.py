"""Object stores: data of any size in a stream, in chunks, with digest, links and watchers (ADR-20).

from jsclient import objectstore

store = objectstore.create_object_store(js, objectstore.ObjectStoreConfig(bucket="configs"))
store.put("config-1", b"first config")
store.put_file("/var/log/big.log", "big")           # any size: about 4 MiB in memory
with store.get("big") as reader:                    # a readable binary file
    shutil.copyfileobj(reader, target)
for info in store.list():
    print(info.name, info.size)
"""

from __future__ import annotations

from jsclient.objectstore.digest import decode_digest, encode_digest, object_digest
from jsclient.objectstore.manager import (
    create_object_store,
    create_or_update_object_store,
    delete_object_store,
    object_store,
    object_store_names,
    object_stores,
    update_object_store,
)
from jsclient.objectstore.models import (
    CHUNK_SIZE,
    ObjectInfo,
    ObjectLink,
    ObjectMeta,
    ObjectStoreConfig,
    ObjectStoreConfigDict,
    ObjectStoreStatus,
)
from jsclient.objectstore.parts import ObjectFile
from jsclient.objectstore.reader import ObjectReader
from jsclient.objectstore.store import ObjectStore
from jsclient.objectstore.watch import ObjectWatcher

__all__ = [
    "CHUNK_SIZE",
    "ObjectFile",
    "ObjectInfo",
    "ObjectLink",
    "ObjectMeta",
    "ObjectReader",
    "ObjectStore",
    "ObjectStoreConfig",
    "ObjectStoreConfigDict",
    "ObjectStoreStatus",
    "ObjectWatcher",
    "create_object_store",
    "create_or_update_object_store",
    "decode_digest",
    "delete_object_store",
    "encode_digest",
    "object_digest",
    "object_store",
    "object_store_names",
    "object_stores",
    "update_object_store",
]
