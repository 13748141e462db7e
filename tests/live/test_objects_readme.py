"""The object store programs of the nats.go jetstream README, in Python, with what they print."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from jsclient import errors, objectstore
from jsclient.jetstream import JetStream
from jsclient.objectstore import ObjectInfo, ObjectMeta, ObjectStoreConfig


def test_basic_usage_of_a_store(js: JetStream, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Create a new bucket. Its name is required and has to be unique within a JetStream account.
    os = objectstore.create_object_store(js, ObjectStoreConfig(bucket="configs"))
    # Put an object: its meta information, and a reader of its data.
    os.put(ObjectMeta(name="config-1"), io.BytesIO(b"first config"))
    # Also as text, as bytes, and as a file.
    os.put("config-2", "second config")
    os.put("config-3", b"third config")
    path = tmp_path / "config-4.txt"
    path.write_text("fourth config")
    os.put_file(path, "config-4.txt")
    # Get gives a reader that knows the object's info.
    with os.get("config-1") as reader:
        data, info = reader.read(), reader.info
    print(f'{info.bucket}.{info.name} -> "{data.decode()}"')
    assert os.get_string("config-2") == "second config"
    assert os.get_bytes("config-3") == b"third config"
    os.get_file("config-4.txt", tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "fourth config"
    # Delete removes the data; meta information stays, with a delete marker.
    os.delete("config-1")
    # Getting a deleted object is an error.
    try:
        os.get("config-1")
    except errors.ObjectNotFound as error:
        print("nats:", error)
    # A bucket can be deleted once it is no longer needed.
    objectstore.delete_object_store(js, "configs")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == 'configs.config-1 -> "first config"'
    assert printed[1].startswith("nats: object not found")
    assert len(printed) == 2
    assert list(objectstore.object_store_names(js)) == []


def show(info: ObjectInfo | None) -> None:
    assert info is not None
    print(f'{info.bucket}.{info.name} -> "{info.description or ""}"')


def test_watching_a_store(js: JetStream, capsys: pytest.CaptureFixture[str]) -> None:
    os = objectstore.create_object_store(js, ObjectStoreConfig(bucket="configs"))
    os.put("config-1", "first config")
    # By default a watcher gives the current state of all objects first.
    with os.watch() as watcher:
        # Create a second object, and update the meta information of the first one.
        os.put("config-2", "second config")
        os.update_meta("config-1", ObjectMeta(name="config-1", description="updated config"))
        # In this case a single info, for config-1.
        show(watcher.next())
        # After all current objects it gives None.
        if watcher.next() is not None:
            print("Unexpected object received")
        # After that, changes as they happen.
        show(watcher.next())
        show(watcher.next())
    assert capsys.readouterr().out.splitlines() == [
        'configs.config-1 -> ""',
        'configs.config-2 -> ""',
        'configs.config-1 -> "updated config"',
    ]


def test_updating_meta_information(js: JetStream) -> None:
    os = objectstore.create_object_store(js, ObjectStoreConfig(bucket="configs"))
    os.put("config", "data")
    os.update_meta("config", ObjectMeta(name="config", description="this is a config"))
    assert os.info("config").description == "this is a config"
    # An object can be moved to a new name, unless there is one of that name.
    os.update_meta("config", ObjectMeta(name="config-1", description="updated config"))
    assert (os.get_string("config-1"), "config" in os) == ("data", False)


def test_listing_and_status(js: JetStream, capsys: pytest.CaptureFixture[str]) -> None:
    os = objectstore.create_object_store(js, ObjectStoreConfig(bucket="configs"))
    for name in ("config-1", "config-2", "config-3"):
        os.put(name, "cfg1")
    # Prints all 3 objects
    for info in os.list():
        print(info.name)
    status = os.status()
    print(status.bucket)  # prints `configs`
    print(status.size)  # prints the size of the bucket in bytes
    printed = capsys.readouterr().out.split()
    assert printed[:4] == ["config-1", "config-2", "config-3", "configs"]
    assert int(printed[4]) > 12
