"""A server that has no more of something: disk, what an account may have, payload, connections.

Each ends in a typed error, nothing that was acknowledged is lost, and the same connection works again when there is
more. The full disk is a small file system of its own, which needs the right to mount one.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import jsclient
from jsclient import errors, keyvalue, objectstore
from jsclient.jetstream import ConsumerConfig, JetStream, PublishFuture, Stream, StreamConfig
from jsclient.testing import NatsServer, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]

KIB, MIB = 1 << 10, 1 << 20


# --- disk -------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with 16 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "small", place], capture_output=True, check=False)
    if made.returncode != 0:
        pytest.skip("no right to mount a small file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def reloadable(server: NatsServer) -> NatsServer:
    """The server, if its JetStream is there after a reload."""
    if server.version < (2, 11):
        server.close()
        pytest.skip("a reload of 2.9.10 and 2.10.27 ends JetStream that flags have switched on")
    return server


def enlarge(place: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=256m", place], check=True)


@pytest.mark.parametrize("how", ["publish", "publish_async"])
def test_a_full_disk(small_disk: Path, how: str) -> None:
    """2.9.10 and 2.15.1 answer nothing any more, 2.10.27 refuses each message; the server is started again."""
    with NatsServer("jetstream { max_file: 1GB }\n", store_dir=small_disk / "store") as server:
        with jsclient.connect(server.url) as nc:
            js = JetStream(nc, publish_timeout=3, publish_async_ack_timeout=3)
            js.create_stream(StreamConfig(name="DISK", subjects=["disk"]))
            stored, failed = fill(js, how)
            assert failed, "the disk was large enough"
            assert all(isinstance(error, errors.JsClientError) for error in failed.values()), failed
            told = {type(error).__name__ for error in failed.values()}
            with pytest.raises(errors.JsClientError):
                js.create_stream(StreamConfig(name="MORE", subjects=["more"], max_bytes=MIB))
                for number in range(64):
                    js.publish("more", bytes(64 * KIB), msg_id=f"more-{number}")
            enlarge(small_disk)
            server.restart()
            wait_until(lambda: nc.is_connected, 20)
            ack = js.publish("disk", b"last", msg_id="last", timeout=20)
            there = ids_of(js.stream("DISK"))
        assert stored <= there, f"acknowledged and lost; {told}"
        refused = {name for name, error in failed.items() if not isinstance(error, errors.UnknownOutcome)}
        assert not refused & there, f"said to be not stored, and stored; {told}"
        assert ack.seq > len(stored) - 1


def ids_of(stream: Stream) -> set[str]:
    state = stream.info().state
    stored = [stream.get_msg(seq) for seq in range(state.first_seq, state.last_seq + 1)]
    return {message.headers["Nats-Msg-Id"] for message in stored}


def fill(js: JetStream, how: str) -> tuple[set[str], dict[str, Exception]]:
    """Publish more than fits: (ids that were acknowledged, errors by id)."""
    stored: set[str] = set()
    failed: dict[str, Exception] = {}
    futures: dict[str, PublishFuture] = {}
    for number in range(400):
        name = str(number)
        try:
            if how == "publish":
                js.publish("disk", bytes(64 * KIB), msg_id=name)
                stored.add(name)
            else:
                futures[name] = js.publish_async("disk", bytes(64 * KIB), msg_id=name)
        except Exception as error:
            failed[name] = error
            if len(failed) == 3:
                break
    for name, future in futures.items():
        refused = future.exception(30)
        if refused is None:
            stored.add(name)
        else:
            assert isinstance(refused, Exception)
            failed[name] = refused
    return stored, failed


# --- accounts ---------------------------------------------------------------------------------------------------

ACCOUNT = """
accounts: { A: { jetstream: { max_file: %d, max_mem: 1MB, max_streams: 3, max_consumers: 2 }, users: [
  { user: a, password: a }
] } }
no_auth_user: a
"""


def test_the_limits_of_an_account() -> None:
    with NatsServer(ACCOUNT % (4 * MIB)) as server, jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        stream = js.create_stream(StreamConfig(name="S", subjects=["s.>"]))
        bucket = keyvalue.create_key_value(js, keyvalue.KeyValueConfig(bucket="b"))
        store = objectstore.create_object_store(js, objectstore.ObjectStoreConfig(bucket="o"))
        with pytest.raises(errors.ApiError) as streams:
            js.create_stream(StreamConfig(name="T", subjects=["t"]))
        for name in ("A", "B"):
            stream.create_consumer(ConsumerConfig(durable_name=name))
        with pytest.raises(errors.ApiError) as consumers:
            stream.create_consumer(ConsumerConfig(durable_name="C"))
        with pytest.raises(errors.ApiError) as full:
            for _ in range(100):
                js.publish("s.a", bytes(100 * KIB))
        futures = [js.publish_async("s.a", bytes(100 * KIB)) for _ in range(5)]
        assert all(isinstance(future.exception(20), errors.ApiError) for future in futures)
        with pytest.raises(errors.ApiError):
            bucket.put("key", bytes(100 * KIB))
        with pytest.raises(errors.ApiError):
            store.put("object", bytes(2 * MIB))
        told = [type(error.value).__name__ for error in (streams, consumers, full)]
        assert told == ["AccountLimitExceeded"] * 3, [str(error.value) for error in (streams, consumers, full)]

        stream.purge()
        js.publish("s.a", bytes(100 * KIB))
        bucket.put("key", bytes(100 * KIB))
        store.put("object", bytes(2 * MIB))
        assert store.get_bytes("object") == bytes(2 * MIB)
        stream.delete_consumer("A")
        stream.create_consumer(ConsumerConfig(durable_name="C"))
        objectstore.delete_object_store(js, "o")
        js.create_stream(StreamConfig(name="T", subjects=["t"]))


def test_an_account_gets_more_at_a_reload() -> None:
    """What was refused is taken by the same connection, and what was there stays."""
    with reloadable(NatsServer(ACCOUNT % MIB)) as server, jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="S", subjects=["s"]))
        with pytest.raises(errors.AccountLimitExceeded):
            for _ in range(30):
                js.publish("s", bytes(100 * KIB))
        server.reload(ACCOUNT % (8 * MIB))
        for _ in range(30):
            js.publish("s", bytes(100 * KIB), timeout=20)


# --- payload ----------------------------------------------------------------------------------------------------


def test_a_payload_limit_that_shrinks_at_a_reload() -> None:
    """The server does not tell: it ends the link at the first message that is too large. What follows knows it."""
    with reloadable(NatsServer("max_payload: 1MB\n")) as server, jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="S", subjects=["s.>"]))
        store = objectstore.create_object_store(js, objectstore.ObjectStoreConfig(bucket="o"))
        store.put("before", bytes(MIB))
        consumer = js.create_consumer("S", ConsumerConfig(durable_name="C"))
        js.publish("s.large", bytes(500 * KIB))
        server.reload("max_payload: 64KB\n")

        with pytest.raises((errors.PayloadTooLarge, errors.PublishUnknown)):
            js.publish("s.sync", bytes(500 * KIB), msg_id="1")
        wait_until(lambda: nc.is_connected and nc.max_payload == 64 * KIB, 20)
        with pytest.raises(errors.PayloadTooLarge):
            js.publish("s.sync", bytes(500 * KIB))
        with pytest.raises(errors.PayloadTooLarge):
            js.publish_async("s.async", bytes(500 * KIB))
        with pytest.raises(errors.PayloadTooLarge):
            nc.publish("s.core", bytes(500 * KIB))
        with pytest.raises(errors.ConfigError):
            store.put("after", bytes(MIB))
        assert store.get_bytes("before") == bytes(MIB), "what is stored may be larger than the limit"
        assert len(consumer.next(timeout=10).data) == 500 * KIB
        assert not [entry.name for entry in store.list() if entry.name == "after"]
        reconnects = nc.stats().reconnects
        js.publish("s.small", bytes(60 * KIB))
        assert nc.stats().reconnects == reconnects

        server.reload("max_payload: 1MB\n")
        nc.force_reconnect()
        wait_until(lambda: nc.is_connected and nc.max_payload == MIB, 20)
        js.publish("s.sync", bytes(500 * KIB))
        store.put("after", bytes(MIB))


def test_what_waits_for_the_link_may_be_too_large_for_the_next_one() -> None:
    """Of what was kept while the link was down only the large ones are lost, and that is told; the link stays."""
    told: list[BaseException] = []
    with (
        NatsServer("max_payload: 1MB\n") as server,
        jsclient.connect(server.url, on_error=lambda nc, error, sub: told.append(error)) as nc,
    ):
        js = JetStream(nc, publish_async_ack_timeout=5)
        js.create_stream(StreamConfig(name="S", subjects=["s.>"]))
        server.stop()
        wait_until(lambda: not nc.is_connected)
        futures = [js.publish_async("s.a", bytes(size), msg_id=str(size)) for size in (10, 500 * KIB, 11)]
        for number in range(3):
            nc.publish("s.core", b"small%d" % number)
        nc.publish("s.core", bytes(500 * KIB))
        nc.publish("s.core", b"behind")
        server.config = "max_payload: 64KB\n"
        server.start()
        wait_until(lambda: nc.is_connected, 20)
        ends = [type(future.exception(30)).__name__ for future in futures]
        assert ends == ["NoneType", "PayloadTooLarge", "NoneType"], ends
        nc.flush(20)
        wait_until(lambda: nc.is_connected and js.publish("s.end", b"", timeout=20).seq > 0, 20)
        seen = nc.stats().reconnects
        nc.flush(20)
        assert nc.stats().reconnects == seen
        assert seen <= 3, "it went on and on"
        assert js.stream("S").info().state.messages == 2 + 4 + 1  # the second future and the large core message are not
        assert any(isinstance(error, errors.PayloadTooLarge) for error in told), told


# --- connections ------------------------------------------------------------------------------------------------


def test_no_room_for_the_connection_that_comes_back() -> None:
    """It tries on, calls end in their time, and what was published with an id is stored once when there is room."""
    with reloadable(NatsServer("max_connections: 10\n")) as server:
        with jsclient.connect(server.url) as nc, jsclient.connect(server.url) as other:
            js = JetStream(nc)
            js.create_stream(StreamConfig(name="S", subjects=["s"]))
            server.stop()
            server.config = "max_connections: 1\n"
            server.start()
            wait_until(lambda: nc.is_connected != other.is_connected, 20)
            out = nc if not nc.is_connected else other
            future = JetStream(out).publish_async("s", b"waits", msg_id="1")
            start = time.monotonic()
            with pytest.raises((errors.TimedOut, errors.NatsConnectionError)):
                out.request("$JS.API.INFO", b"", timeout=0.5)
            assert time.monotonic() - start < 5
            server.reload("max_connections: 10\n")
            wait_until(lambda: nc.is_connected and other.is_connected, 30)
            assert future.result(30).duplicate is False
            assert js.stream("S").info().state.messages == 1
            with jsclient.connect(server.url) as third:
                third.flush()


def test_a_reload_that_takes_connections_away() -> None:
    with NatsServer("max_connections: 10\n") as server:
        told: list[BaseException] = []
        many = [jsclient.connect(server.url, on_disconnected=lambda nc, error: told.append(error)) for _ in range(4)]
        try:
            for nc in many:
                nc.flush()
            server.reload("max_connections: 2\n")
            wait_until(lambda: sum(nc.is_connected for nc in many) == 2, 20)
            wait_until(lambda: len(told) >= 2)
            assert any(isinstance(error, errors.MaxConnectionsExceeded) for error in told), told
            server.reload("max_connections: 10\n")
            wait_until(lambda: all(nc.is_connected for nc in many), 30)
            for nc in many:
                nc.flush(20)
        finally:
            for nc in many:
                nc.close()
