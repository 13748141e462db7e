"""Backups: taken and restored, on the server under test."""

from __future__ import annotations

import itertools
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from jsclient import backup, errors, keyvalue
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig, StreamSource
from jsclient.testing import NatsServer, wait_until


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
    assert found == backup.load(tmp_path)
    assert found.manifest is not None
    assert found.format() == found.manifest.format == ("archive" if archives else "tar")
    assert (found.manifest.messages, found.manifest.first_seq, found.manifest.last_seq) == (299, 1, 300)
    assert found.manifest.consumers == 1
    if not archives:
        with pytest.raises(errors.NotSupported):
            backup.restore_stream(js, tmp_path, name="OTHER")


@pytest.mark.parametrize("payload", [b"", b"NATSARC1" * 1000, bytes(100_000), os.urandom(100_000)])
def test_the_format_is_read_from_packed_data(js: JetStream, archives: bool, payload: bytes, tmp_path: Path) -> None:
    js.create_stream(StreamConfig(name="ORDERS", subjects=["orders.>"]))
    for _ in range(5):
        js.publish("orders.eu", payload)
    assert backup.backup_stream(js, "ORDERS", tmp_path).format() == ("archive" if archives else "tar")


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
    assert backup.verify(tmp_path).manifest is None
    with pytest.raises(backup.BackupError, match="Nothing of it is left"):
        backup.restore_stream(js, tmp_path)
    with pytest.raises(errors.StreamNotFound):
        js.stream("ORDERS")


def test_under_another_name(js: JetStream, archives: bool, tmp_path: Path) -> None:
    if not archives:
        return  # refused with NotSupported: test_looking_into_a_backup
    filled(js)
    backup.backup_stream(js, "ORDERS", tmp_path)
    info = backup.restore_stream(js, tmp_path, name="COPY", subjects=["copy.>"], storage="memory")
    assert info.config.name == "COPY"
    assert info.config.storage == "memory"
    assert info.state.messages == 299
    assert contents(js, "COPY") == contents(js, "ORDERS")


def test_a_restore_warns_of_messages_that_are_gone(
    js: JetStream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(js, 10)
    backup.backup_stream(js, "ORDERS", tmp_path)
    stated = json.loads((tmp_path / "backup.json").read_text())
    stated["config"]["max_msgs"] = 4
    (tmp_path / "backup.json").write_text(json.dumps(stated))
    js.delete_stream("ORDERS")
    held = backup.restore_stream(js, tmp_path).state.messages
    assert f"{9 - held} of 9 messages are missing" in caplog.text


def test_a_source_under_load_brings_each_message_once(js: JetStream, tmp_path: Path) -> None:
    js.create_stream(StreamConfig(name="ORIGIN", subjects=["origin"]))
    copy = js.create_stream(StreamConfig(name="COPY", sources=[StreamSource(name="ORIGIN")]))
    over = threading.Event()

    def publish() -> None:
        for number in itertools.count():
            js.publish("origin", b"%d" % number)
            if over.is_set():
                return

    publisher = threading.Thread(target=publish)
    publisher.start()
    wait_until(lambda: copy.info().state.messages > 100)
    backup.backup_stream(js, "COPY", tmp_path / "COPY")
    over.set()
    publisher.join()
    backup.backup_stream(js, "ORIGIN", tmp_path / "ORIGIN")
    total = js.stream("ORIGIN").info().state.messages
    copy.delete()
    js.delete_stream("ORIGIN")  # server 2.15 recognizes the origin while it is not made again
    backup.restore_account(js, tmp_path)
    restored = js.stream("COPY")
    js.publish("origin", b"%d" % total)
    wait_until(lambda: restored.get_last_msg("origin").data == b"%d" % total)
    assert [int(data) for _, _, data, _ in contents(js, "COPY")] == list(range(total + 1))


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


def test_a_backup_that_fails_leaves_nothing(js: JetStream, tmp_path: Path) -> None:
    js.create_stream(StreamConfig(name="S", subjects=["s.*"]))
    js.publish("s.a", b"x" * 1000)

    def fail(received: int, expected: int) -> None:
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        backup.backup_stream(js, "S", tmp_path / "b", progress=fail)
    assert list((tmp_path / "b").iterdir()) == []
    backup.backup_stream(js, "S", tmp_path / "b")
