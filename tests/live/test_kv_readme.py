"""The key-value programs of the nats.go jetstream README, in Python, with what they print."""

from __future__ import annotations

import pytest

from jsclient import errors, keyvalue
from jsclient.jetstream import JetStream
from jsclient.keyvalue import KeyValueConfig, KeyValueEntry


def show(entry: KeyValueEntry | None) -> None:
    assert entry is not None
    print(f'{entry.key} @ {entry.revision} -> "{entry.value.decode()}"')


def test_basic_usage_of_a_bucket(js: JetStream, capsys: pytest.CaptureFixture[str]) -> None:
    # Create a new bucket. Its name is required and has to be unique within a JetStream account.
    kv = keyvalue.create_key_value(js, KeyValueConfig(bucket="profiles"))
    # Put creates or updates the value of a key.
    kv.put("sue.color", b"blue")
    # An entry has key and value, and also metadata (revision, time and so on).
    show(kv.get("sue.color"))
    # Update fails if the key is not there or its revision has changed.
    kv.update("sue.color", b"red", 1)
    # Create fails if the key exists.
    try:
        kv.create("sue.color", b"purple")
    except errors.KeyExists as error:
        print("nats:", error)
    # Delete is not destructive: it adds a marker, earlier revisions stay.
    kv.delete("sue.color")
    # Getting a deleted key is an error.
    try:
        kv.get("sue.color")
    except errors.KeyNotFound as error:
        print("nats:", error)
    # A bucket can be deleted once it is no longer needed.
    keyvalue.delete_key_value(js, "profiles")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == 'sue.color @ 1 -> "blue"'
    assert printed[1].startswith("nats: key exists")
    assert printed[2].startswith("nats: key not found")
    assert len(printed) == 3
    assert list(keyvalue.key_value_store_names(js)) == []


def test_watching_a_bucket(js: JetStream, capsys: pytest.CaptureFixture[str]) -> None:
    kv = keyvalue.create_key_value(js, KeyValueConfig(bucket="profiles"))
    kv.put("sue.color", b"blue")
    # By default a watcher gives the most recent value of every matching key first.
    with kv.watch("sue.*") as watcher:
        kv.put("sue.age", b"43")
        kv.put("sue.color", b"red")
        # In this case a single entry, for sue.color.
        show(watcher.next())
        # After all current values it gives None.
        if watcher.next() is not None:
            print("Unexpected entry received")
        # After that, changes as they happen.
        show(watcher.next())
        show(watcher.next())
    assert capsys.readouterr().out.splitlines() == [
        'sue.color @ 1 -> "blue"',
        'sue.age @ 2 -> "43"',
        'sue.color @ 3 -> "red"',
    ]


def test_listing_the_keys(js: JetStream, capsys: pytest.CaptureFixture[str]) -> None:
    kv = keyvalue.create_key_value(js, KeyValueConfig(bucket="profiles"))
    kv.put("sue.color", b"blue")
    kv.put("sue.age", b"43")
    kv.put("bucket", b"profiles")
    # Prints all 3 keys
    for key in kv:
        print(key)
    assert capsys.readouterr().out.splitlines() == ["sue.color", "sue.age", "bucket"]


def test_purge_and_purge_deletes(js: JetStream) -> None:
    kv = keyvalue.create_key_value(js, KeyValueConfig(bucket="profiles"))
    kv.put("sue.color", b"blue")
    kv.put("sue.age", b"43")
    kv.put("bucket", b"profiles")
    # Removes all keys: of each only a delete marker is left.
    kv.purge_all()
    assert (list(kv.keys()), kv.status().values) == ([], 3)
    # Removes the markers too; those younger than 30 minutes stay unless told otherwise.
    kv.purge_deletes()
    assert kv.status().values == 3
    kv.purge_deletes(older_than=0)
    assert kv.status().values == 0


def test_the_status_of_a_bucket(js: JetStream, capsys: pytest.CaptureFixture[str]) -> None:
    kv = keyvalue.create_key_value(js, KeyValueConfig(bucket="profiles"))
    kv.put("sue.color", b"blue")
    kv.put("sue.age", b"43")
    kv.put("bucket", b"profiles")
    status = kv.status()
    print(status.bucket)  # prints `profiles`
    print(status.values)  # prints `3`
    print(status.bytes)  # prints the size of all values in bytes
    bucket, values, size = capsys.readouterr().out.split()
    assert (bucket, values) == ("profiles", "3")
    assert int(size) > 14
