"""Core NATS on one connection: publish, request, flush, statistics, options that CONNECT carries."""

from __future__ import annotations

import contextlib
import pickle
import queue
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.pauses import time_passes
from tests.sockets import ProxySocket

import jsclient
from jsclient import ConnectionState, errors
from jsclient.connection import engine_of
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import FakeServer, NatsServer, ScriptFailed, info_line, wait_until

Count = Callable[[int, int], int]


def answer_pings(client: Any) -> None:
    """Behave until the client goes."""
    with contextlib.suppress(ScriptFailed):
        while True:
            client.expect(b"PING\r\n")
            client.send(b"PONG\r\n")


def test_publish_with_reply_and_headers(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        sub = nc.subscribe("core.*")
        nc.publish("core.a", "täxt", reply="answer.here", headers={"Key": ["1", "2"], "lower-Case": "x y"})
        message = sub.next(timeout=5)
        assert (message.subject, message.reply, message.data) == ("core.a", "answer.here", "täxt".encode())
        assert message.headers is not None
        assert message.headers.get_all("Key") == ["1", "2"]
        assert message.headers["lower-Case"] == "x y"
        assert message.status is None


def test_payload_types(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        sub = nc.subscribe("types")
        for payload in (b"a", "b", bytearray(b"c"), memoryview(b"d")):
            nc.publish("types", payload)
        assert b"".join(sub.next(timeout=5).data for _ in range(4)) == b"abcd"
        with pytest.raises(errors.ConfigError, match="int"):
            nc.publish("types", 5)  # type: ignore[arg-type]


def test_payloads_of_every_size(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        sub = nc.subscribe("size")
        sizes = [0, 1, 16_383, 16_384, 32_767, 32_768, 65_536, 262_144, 1_048_576]
        for size in sizes:
            nc.publish("size", b"x" * size)
        assert [len(sub.next(timeout=5).data) for _ in sizes] == sizes


def test_a_small_publish_leaves_without_a_flush(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc, jsclient.connect(server.url) as other:
        sub = other.subscribe("tick")
        other.flush()
        worst = 0.0
        for _ in range(20):
            start = time.monotonic()
            nc.publish("tick", b"")
            sub.next(timeout=5)
            worst = max(worst, time.monotonic() - start)
        assert worst < 0.5


def test_statistics(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        sub = nc.subscribe("stats")
        for _ in range(10):
            nc.publish("stats", b"x" * 100_000)
        for _ in range(10):
            sub.next(timeout=5)
        stats = nc.stats()
        assert (stats.messages_in, stats.messages_out, stats.subscriptions) == (10, 10, 1)
        assert 1_000_000 < stats.bytes_in < 1_010_000
        assert 1_000_000 < stats.bytes_out < 1_010_000
        assert (sub.dropped, sub.pending) == (0, 0)


def test_health_can_be_read_from_a_probe_thread(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=lambda: answers.put(nc.health()), daemon=True).start()
        health = answers.get(timeout=5)
        assert health.state is ConnectionState.CONNECTED
        assert health.server == server.url
        assert health.last_frame_age < 5
        assert (health.pings_outstanding, health.slow_consumers, health.reconnects) == (0, 0, 0)
        assert health.last_error == ""


def test_rtt_and_flush(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        assert 0 < nc.rtt() < 5
        server.pause()
        try:
            with pytest.raises(errors.FlushTimeout):
                nc.flush(timeout=0.05)
        finally:
            server.resume()
        nc.flush()
        with pytest.raises(ValueError, match="timeout"):
            nc.flush(timeout=-1)


def test_server_info_and_client_name(server: NatsServer) -> None:
    with jsclient.connect(server.url, name="näme with blanks") as nc:
        assert nc.server_info.version
        assert nc.max_payload == 1024 * 1024
        page = server.monitor(f"connz?cid={nc.client_id}")
        assert page["connections"][0]["name"] == "näme with blanks"
        assert page["connections"][0]["lang"].startswith("python")


def test_no_echo(server: NatsServer) -> None:
    with jsclient.connect(server.url, no_echo=True) as nc, jsclient.connect(server.url) as other:
        sub = nc.subscribe("echo")
        nc.flush()
        nc.publish("echo", b"mine")
        nc.flush()
        other.publish("echo", b"theirs")
        assert sub.next(timeout=5).data == b"theirs"


def test_verbose_and_pedantic(server: NatsServer) -> None:
    with jsclient.connect(server.url, verbose=True, pedantic=True) as nc:
        sub = nc.subscribe("loud")
        for _ in range(100):
            nc.publish("loud", b"x", headers={"a": "b"})
        for _ in range(100):
            sub.next(timeout=5)
        nc.flush()
        assert nc.stats().reconnects == 0


def test_connect_says_everything_it_must() -> None:
    said: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def script(client: Any) -> None:
        said.put(client.handshake())
        answer_pings(client)

    with FakeServer(script) as fake, jsclient.connect(fake.url, name="n"):
        connect = said.get(timeout=5)
    assert {"verbose", "pedantic", "echo", "protocol", "headers", "no_responders", "lang", "version"} <= set(connect)
    assert (connect["verbose"], connect["pedantic"], connect["echo"]) == (False, False, True)
    assert (connect["protocol"], connect["headers"], connect["no_responders"]) == (1, True, True)


def test_max_payload_follows_every_info() -> None:
    go = threading.Event()

    def script(client: Any) -> None:
        client.handshake(max_payload=1000)
        go.wait(10)
        client.send(info_line(max_payload=10))
        answer_pings(client)

    with FakeServer(script) as fake, jsclient.connect(fake.url) as nc:
        nc.publish("a", b"x" * 1000)
        with pytest.raises(errors.PayloadTooLarge, match="1001"):
            nc.publish("a", b"x" * 1001)
        go.set()
        wait_until(lambda: nc.max_payload == 10)
        with pytest.raises(errors.PayloadTooLarge):
            nc.publish("a", b"x" * 11)
        with pytest.raises(errors.PayloadTooLarge):
            nc.publish("a", b"", headers={"a": "b"})


def test_a_longest_legal_message_comes_back(server: NatsServer) -> None:
    """4,004 bytes of subject, names of 200 characters: the MSG line has about 4,450 bytes."""
    subject = "deep." + "x" * 3999
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        stream = js.create_stream(StreamConfig(name="S" * 200, subjects=["deep.>"]))
        consumer = stream.create_consumer(ConsumerConfig(durable_name="C" * 200))
        js.publish(subject, b"poison?")
        message = consumer.next(timeout=5)
        assert message is not None
        assert message.subject == subject
        message.double_ack(timeout=5)
        assert stream.consumer("C" * 200).info().num_ack_pending == 0
        js.delete_stream("S" * 200)


def test_core_headers_of_100_kilobytes(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        sub = nc.subscribe("head")
        nc.publish("head", b"x", headers={f"Key-{n}": "v" * 90 for n in range(1000)})
        headers = sub.next(timeout=5).headers
        assert headers is not None
        assert len(headers) == 1000


def test_custom_inbox_prefix(server: NatsServer) -> None:
    with jsclient.connect(server.url, inbox_prefix="_INBOX.me") as nc, jsclient.connect(server.url) as other:
        asked = other.subscribe("ask")
        other.flush()
        assert nc.new_inbox().startswith("_INBOX.me.")
        assert engine_of(nc).open_inbox().subject.startswith("_INBOX.me.")

        def answer() -> None:
            message = asked.next(timeout=5)
            message.respond(message.reply)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        assert nc.request("ask").data.startswith(b"_INBOX.me.")
        thread.join(5)


def test_live_objects_do_not_pickle_and_say_what_does(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        sub = nc.subscribe("pickle")
        js = JetStream(nc)
        for live in (nc, sub, engine_of(nc).open_inbox(), js, js.create_stream(StreamConfig(name="P", subjects=["p"]))):
            with pytest.raises(TypeError, match="ConnectOptions"):
                pickle.dumps(live)
        js.delete_stream("P")
        nc.publish("pickle", b"data", headers={"a": "b"})
        message = sub.next(timeout=5)
        copy = pickle.loads(pickle.dumps(message))
        assert (copy.subject, copy.data, copy.headers["a"]) == ("pickle", b"data", "b")
        assert pickle.loads(pickle.dumps(nc.options)) == nc.options


@pytest.mark.slow
def test_an_idle_connection_costs_nothing(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        nc.subscribe("idle", lambda message: None)
        nc.flush()
        start, used = time.monotonic(), time.process_time()
        time_passes(2, "what idling costs is measured")
        share = (time.process_time() - used) / (time.monotonic() - start)
        assert share < 0.01, f"{share:.2%} of a core"


def test_closed_connections_say_so(server: NatsServer) -> None:
    nc = jsclient.connect(server.url)
    sub = nc.subscribe("closed")
    nc.close()
    nc.close()
    nc.close(wait=False)
    nc.drain()
    assert nc.closed
    assert not nc.is_connected
    assert nc.state is ConnectionState.CLOSED
    for call in (
        lambda: nc.publish("a", b""),
        lambda: nc.request("a"),
        lambda: nc.subscribe("a"),
        lambda: nc.flush(),
        lambda: nc.rtt(),
        lambda: nc.force_reconnect(),
        lambda: engine_of(nc).open_inbox(),
        lambda: list(nc.request_many("a")),
        lambda: sub.next(timeout=1),
    ):
        with pytest.raises(errors.ConnectionClosed):
            call()
    assert "closed" in repr(nc)


def test_close_sends_what_was_published(server: NatsServer) -> None:
    with jsclient.connect(server.url) as other:
        sub = other.subscribe("last.*", pending_messages=10**7, pending_bytes=1 << 30)
        other.flush()
        for payload, number in ((b"x", 50_000), (b"y" * 100_000, 200)):
            nc = jsclient.connect(server.url)
            for _ in range(number):
                nc.publish("last.data", payload)
            nc.close()
            wait_until(lambda number=number: sub.pending == number, 10, f"{sub.pending} of {number}")  # type: ignore[misc]
            for _ in range(number):
                sub.next(timeout=0)


def test_a_shared_connection_does_not_wait_for_the_dial_of_another(server: NatsServer) -> None:
    """One server that says nothing holds up only calls for that one; two calls for the same get the same."""
    silent = socket.create_server(("127.0.0.1", 0))
    dead = jsclient.ConnectOptions(servers=f"nats://127.0.0.1:{silent.getsockname()[1]}", connect_timeout=3)
    alive = jsclient.ConnectOptions(servers=server.url, name="shared-alive")
    failed: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    def dial() -> None:
        try:
            jsclient.shared(dead)
        except errors.ConnectFailed as error:
            failed.put(error)

    thread = threading.Thread(target=dial)
    thread.start()
    found: list[jsclient.Connection] = []
    try:
        taken, _ = silent.accept()  # it is dialling now
        threads = [threading.Thread(target=lambda: found.append(jsclient.shared(alive))) for _ in range(8)]
        for other in threads:
            other.start()
        for other in threads:
            other.join(2)
        assert len(found) == 8
        assert len(set(map(id, found))) == 1
        assert thread.is_alive(), "the other one still dials"
    finally:
        taken.close()
        silent.close()
        thread.join(10)
        for connection in found[:1]:
            connection.close()
    failed.get(timeout=1)


def test_calls_in_line_for_a_shared_connection_have_one_result() -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    dead = jsclient.ConnectOptions(servers=f"nats://127.0.0.1:{silent.getsockname()[1]}", connect_timeout=1)
    failed: list[BaseException] = []

    def dial() -> None:
        with pytest.raises(errors.ConnectFailed) as caught:
            jsclient.shared(dead)
        failed.append(caught.value)

    threads = [threading.Thread(target=dial) for _ in range(4)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert len(failed) == 4
        assert len(set(map(id, failed))) == 1, "one attempt for all"
        dial()
        assert failed[4] is not failed[0], "a later call tries again"
    finally:
        silent.close()


def test_a_socket_that_sends_in_python_may_be_full(server: NatsServer) -> None:
    def dial(host: str, port: int, timeout: float | None) -> socket.socket:
        made = ProxySocket()
        made.settimeout(timeout)
        made.connect((host, port))
        return made

    with jsclient.connect(server.url) as reader, jsclient.connect(server.url, socket_factory=dial) as nc:
        taken = reader.subscribe("full.>", pending_messages=10**6, pending_bytes=10**9)
        reader.flush()
        for number in range(20_000):
            nc.publish("full.x", b"%08192d" % number)
        nc.flush(timeout=30)
        assert [int(taken.next(timeout=10).data[-8:]) for _ in range(20_000)] == list(range(20_000))
        assert nc.stats().reconnects == 0
