"""Backups: taken and restored, on the server under test."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import jsclient
from jsclient import backup, errors, keyvalue
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig, StreamSource
from jsclient.testing import NatsServer, wait_until

YEAR = 365 * 86400 * 10**9


@pytest.fixture
def js(server: NatsServer) -> Iterator[JetStream]:
    with jsclient.connect(server.url) as nc:
        context = JetStream(nc)
        yield context
        for name in list(context.stream_names()):
            context.delete_stream(name)


@pytest.fixture
def archives(server: NatsServer) -> bool:
    return server.version >= (2, 15, 0)


def filled(js: JetStream, messages: int = 300, size: int = 100) -> None:
    """A stream with a hole, headers, two subjects and a consumer in the middle."""
    stream = js.create_stream(StreamConfig(name="ORDERS", subjects=["orders.>"]))
    for number in range(messages):
        js.publish_async(
            f"orders.{'eu' if number % 3 else 'us'}", bytes(size) + b"%d" % number, headers={"N": str(number)}
        )
    js.publish_async_complete(30)
    stream.delete_msg(7)
    consumer = stream.create_consumer(ConsumerConfig(durable_name="C"))
    for message in consumer.fetch(min(100, messages - 1), timeout=5):
        message.double_ack()


def contents(js: JetStream, name: str) -> list[tuple[Any, ...]]:
    read = js.ordered_consumer(name).fetch(js.stream(name).info().state.messages, timeout=5)
    return [(one.subject, one.metadata.stream_seq, one.data, one.headers and one.headers.to_dict()) for one in read]


def test_a_stream_comes_back_as_it_was(js: JetStream, tmp_path: Path) -> None:
    filled(js)
    before = contents(js, "ORDERS")
    told: list[int] = []
    taken = backup.backup_stream(js, "ORDERS", tmp_path / "o", progress=lambda done, total: told.append(done))
    assert taken.manifest is not None
    assert taken.manifest.messages == 299
    assert told[-1] == taken.manifest.bytes
    js.delete_stream("ORDERS")
    info = backup.restore_stream(js, tmp_path / "o")
    assert info.state.messages == 299
    assert contents(js, "ORDERS") == before
    consumer = js.consumer("ORDERS", "C").info()
    assert consumer.ack_floor.stream_seq == 101  # 100 messages and the hole
    assert js.publish("orders.eu", b"next").seq == 301


def test_a_backup_is_never_written_over_another(js: JetStream, tmp_path: Path) -> None:
    filled(js, 10)
    backup.backup_stream(js, "ORDERS", tmp_path)
    with pytest.raises(backup.BackupError, match="holds a backup already"):
        backup.backup_stream(js, "ORDERS", tmp_path)
    with pytest.raises(errors.StreamNameInUse):
        backup.restore_stream(js, tmp_path)
    with pytest.raises(errors.StreamNotFound):
        backup.backup_stream(js, "NOTHING", tmp_path / "n")
    assert not list((tmp_path / "n").iterdir())
    with pytest.raises(backup.BackupError, match="no backup"):
        backup.load(tmp_path / "n")


def test_looking_into_a_backup(js: JetStream, archives: bool, tmp_path: Path) -> None:
    filled(js)
    backup.backup_stream(js, "ORDERS", tmp_path)
    found = backup.verify(tmp_path)
    assert found.consumers == ["C"]
    if archives:
        assert found == backup.Contents("ORDERS", "archive", 299, 1, 300, {"orders.us": 99, "orders.eu": 200}, ["C"])
        some = list(backup.extract(tmp_path, subject="*.us", first_seq=10, last_seq=20))
        assert [one.seq for one in some] == [10, 13, 16, 19]
        assert some[0].headers is not None
        assert some[0].headers["N"] == "9"
    else:
        assert found.format == "tar"
        with pytest.raises(errors.NotSupported):
            backup.extract(tmp_path)
        with pytest.raises(errors.NotSupported):
            backup.restore_stream(js, tmp_path, name="OTHER")


def test_a_damaged_backup_is_noticed_before_anything_is_sent(js: JetStream, tmp_path: Path) -> None:
    js.create_stream(StreamConfig(name="ORDERS", subjects=["orders.>"]))
    for _ in range(300):
        js.publish_async("orders.eu", os.urandom(32_000))  # blocks that do not compress
    js.publish_async_complete(30)
    backup.backup_stream(js, "ORDERS", tmp_path)
    data = tmp_path / "stream.tar.s2"
    data.write_bytes(data.read_bytes()[:-100_000])
    js.delete_stream("ORDERS")
    with pytest.raises(backup.BackupCorrupt, match="is not what was backed up"):
        backup.verify(tmp_path)
    with pytest.raises(backup.BackupCorrupt):
        backup.restore_stream(js, tmp_path)
    (tmp_path / "manifest.json").unlink()  # as from the NATS CLI: there is no digest to compare
    with pytest.raises(backup.BackupCorrupt):
        backup.verify(tmp_path)
    with pytest.raises(backup.BackupError, match="Nothing of it is left"):
        backup.restore_stream(js, tmp_path)
    with pytest.raises(errors.StreamNotFound):
        js.stream("ORDERS")


def test_under_another_name_and_in_part(js: JetStream, archives: bool, tmp_path: Path) -> None:
    if not archives:
        return  # refused with NotSupported: test_looking_into_a_backup
    filled(js)
    backup.backup_stream(js, "ORDERS", tmp_path)
    before = {seq: (subject, data) for subject, seq, data, _ in contents(js, "ORDERS")}
    info = backup.restore_stream(js, tmp_path, name="COPY", subjects=["copy.>"], storage="memory")
    assert info.config.name == "COPY"
    assert info.config.storage == "memory"
    assert info.state.messages == 299

    def american(entry: backup.Entry) -> backup.Entry | None:
        moved = attrs.evolve(entry, name="us." + entry.name, time=entry.time - YEAR)
        return moved if entry.name == "orders.us" else None

    info = backup.restore_stream(
        js, tmp_path, name="US", subjects=["us.>"], messages=american, consumers=False, replicas=1
    )
    assert (info.state.messages, info.state.first_seq, info.state.last_seq) == (99, 1, 300)
    assert list(js.consumer_names("US")) == []
    stored = js.stream("US").get_msg(info.state.first_seq).time
    assert stored is not None
    age = dt.datetime.now(dt.timezone.utc) - stored
    assert dt.timedelta(days=365) <= age < dt.timedelta(days=366), "restored into the past"
    for subject, seq, data, _ in contents(js, "US"):
        assert ("us." + before[seq][0], before[seq][1]) == (subject, data)


def test_what_a_source_had_brought_is_not_copied_again(js: JetStream, tmp_path: Path) -> None:
    origin = js.create_stream(StreamConfig(name="ORIGIN", subjects=["origin"]))
    for number in range(10):
        js.publish("origin", b"%d" % number)
    copy = js.create_stream(StreamConfig(name="COPY", sources=[StreamSource(name="ORIGIN")], retention="workqueue"))
    wait_until(lambda: copy.info().state.messages == 10)
    for message in copy.create_consumer(ConsumerConfig(durable_name="W")).fetch(10, timeout=5):
        message.double_ack()  # the queue is empty: no message tells any more how far it had come
    wait_until(lambda: copy.info().state.messages == 0)
    wait_until(lambda: not any(one.lag for one in copy.info().sources or ()))
    outcomes = backup.backup_account(js, tmp_path)
    assert [one.stream for one in outcomes if one.done] == ["COPY", "ORIGIN"]
    copy.delete()
    origin.delete()
    outcomes = backup.restore_account(js, tmp_path)
    assert [(one.stream, one.error) for one in outcomes] == [("ORIGIN", None), ("COPY", None)]
    js.publish("origin", b"new")
    restored = js.stream("COPY")
    wait_until(lambda: restored.info().state.last_seq == 11)
    assert restored.info().state.messages == 1
    assert restored.get_msg(11).data == b"new"
    js.publish("origin", b"newer")
    wait_until(lambda: restored.info().state.last_seq == 12)


def test_an_account_is_checked_before_anything_is_written(js: JetStream, tmp_path: Path) -> None:
    keyvalue.create_key_value(js, keyvalue.KeyValueConfig(bucket="b")).put("k", b"v")
    filled(js, 20)
    backup.backup_account(js, tmp_path, exclude=["NOTHING"])
    js.delete_stream("ORDERS")
    with pytest.raises(backup.BackupError, match="KV_b: a stream of that name exists.*Nothing was restored"):
        backup.restore_account(js, tmp_path)
    assert list(js.stream_names()) == ["KV_b"]
    assert [one.stream for one in backup.restore_account(js, tmp_path, exclude=["KV_b"])] == ["ORDERS"]
    with pytest.raises(errors.ConfigError, match="no streams NOPE"):
        backup.backup_account(js, tmp_path / "x", include=["NOPE"])


def test_the_files_are_those_of_the_nats_cli(js: JetStream, tmp_path: Path) -> None:
    filled(js, 10)
    backup.backup_stream(js, "ORDERS", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.json", "manifest.json", "stream.tar.s2"]
    plain = json.loads((tmp_path / "backup.json").read_text())
    assert plain["config"]["name"] == "ORDERS"
    assert plain["state"]["messages"] == 9
    assert tmp_path.stat().st_mode & 0o777 in (0o700, 0o755)
