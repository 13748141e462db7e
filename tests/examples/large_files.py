"""Large files: an object store keeps them, a message only names them."""

import hashlib
import io

import jsclient
from jsclient import objectstore
from jsclient.jetstream import JetStream, StreamConfig

with jsclient.connect("nats://127.0.0.1:4222") as nc:
    js = JetStream(nc)
    store = objectstore.create_object_store(
        js, objectstore.ObjectStoreConfig(bucket="videos", ttl=86400)
    )
    js.create_or_update_stream(StreamConfig(name="VIDEOS", subjects=["videos.>"]))

    data = io.BytesIO(b"frame" * 100_000)
    info = store.put(
        "holiday.mp4", data
    )  # a path or an open file needs the memory of a few chunks
    js.publish(
        "videos.uploaded", info.name
    )  # only now: the file is there when the message comes

    digest = hashlib.sha256()
    with store.get("holiday.mp4") as reader:
        while piece := reader.read(65536):
            digest.update(piece)  # damage raises DigestMismatch at the end
    assert digest.digest() == hashlib.sha256(data.getvalue()).digest()
