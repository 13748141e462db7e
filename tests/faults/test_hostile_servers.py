"""Servers that mean harm: a typed error or a bounded pool within a second, and memory stays where it was."""

from __future__ import annotations

import gc
import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.testing import FakeClient, FakeServer, info_line, wait_until

MEMORY = 4 * 1024 * 1024
SECONDS = 1.0

Script = Callable[[FakeClient], None]


@pytest.fixture
def bounded() -> Iterator[None]:
    """The peak of what Python allocates stays within 4 MB of where it was."""
    gc.collect()
    tracemalloc.start()
    base = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak - base < MEMORY, f"{(peak - base) / 1e6:.1f} MB"


ENDLESS = b"x" * 65536


def endless(start: bytes) -> Script:
    def script(client: FakeClient) -> None:
        client.send(start)
        for _ in range(10_000):
            client.send(ENDLESS)

    return script


def says(data: bytes) -> Script:
    def script(client: FakeClient) -> None:
        client.send(data)
        client.hold()

    return script


BAD_INFO = {
    "endless line": endless(b"INFO "),
    "endless line of nothing": endless(b""),
    "nested": says(b"INFO " + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\r\n"),
    "nested lists": says(b'INFO {"connect_urls":' + b"[" * 100_000 + b"]" * 100_000 + b"}\r\n"),
    "a list": says(b"INFO []\r\n"),
    "no JSON": says(b"INFO {\r\n"),
    "not a number": says(b'INFO {"max_payload":NaN}\r\n'),
    "max_payload is text": says(info_line(max_payload="big")),
    "headers is text": says(info_line(headers="yes")),
    "urls are numbers": says(info_line(connect_urls=[1, 2])),
    "HTTP": says(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "SSH": says(b"SSH-2.0-OpenSSH_9\r\n"),
    "MSG first": says(b"MSG a 1 1\r\nx\r\n"),
    "10^10 bytes": says(b"MSG a 1 10000000000\r\n"),
    "binary": says(bytes(range(256)) * 10),
}


@pytest.mark.parametrize("script", BAD_INFO.values(), ids=BAD_INFO.keys())
@pytest.mark.usefixtures("bounded")
def test_instead_of_info(script: Script) -> None:
    with FakeServer(script) as fake:
        started = time.monotonic()
        with pytest.raises((errors.NotANatsServer, errors.ConnectFailed)) as caught:
            jsclient.connect(fake.url, connect_timeout=5)
        assert time.monotonic() - started < 2 * SECONDS
        assert len(str(caught.value)) < 1000


def then(*data: bytes) -> Script:
    def script(client: FakeClient) -> None:
        client.handshake()
        client.expect(b"PUB go 0")
        for chunk in data:
            client.send(chunk)
        client.hold()

    return script


def then_endless(start: bytes) -> Script:
    def script(client: FakeClient) -> None:
        client.handshake()
        client.expect(b"PUB go 0")
        endless(start)(client)

    return script


LATER = {
    "endless line": then_endless(b"MSG "),
    "endless headers": then_endless(b"HMSG a 1 9999999999 9999999999\r\nNATS/1.0\r\n"),
    "10^10 bytes": then(b"MSG a 1 10000000000\r\n"),
    "headers beyond the total": then(b"HMSG a 1 100 10\r\n" + b"x" * 200),
    "no line end after a payload": then(b"MSG a 1 1\r\nxyz\r\n"),
    "negative size": then(b"MSG a 1 -1\r\n"),
    "an unknown verb": then(b"NONSENSE\r\n"),
    "bad INFO": then(b"INFO []\r\n"),
    "nested INFO": then(b"INFO " + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\r\n"),
}


@pytest.mark.parametrize("script", LATER.values(), ids=LATER.keys())
def test_on_a_live_connection(script: Script) -> None:
    """The link is given up and dialled anew; the next server behaves."""

    def good(client: FakeClient) -> None:
        client.handshake()
        while client._fill():
            if client.received.endswith(b"PING\r\n"):
                client.send(b"PONG\r\n")

    gc.collect()
    with FakeServer(script, good) as fake:
        tracemalloc.start()
        base = tracemalloc.get_traced_memory()[0]
        try:
            with jsclient.connect(fake.url) as nc:
                nc.publish("go")
                started = time.monotonic()
                wait_until(lambda: nc.stats().reconnects == 1 and nc.is_connected, 5)
                assert time.monotonic() - started < 2 * SECONDS
                assert isinstance(nc.last_error, errors.ConnectionLost)
                assert "not NATS" in str(nc.last_error)
                nc.flush()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak - base < MEMORY


def test_twenty_thousand_servers_in_info() -> None:
    urls = [f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}:4222" for i in range(20_000)]

    def script(client: FakeClient) -> None:
        client.handshake(connect_urls=[*urls, "junk url", "", "x:99999"])
        client.send(b"INFO " + json.dumps({"connect_urls": urls}).encode() + b"\r\n")
        while client._fill():
            if client.received.endswith(b"PING\r\n"):
                client.send(b"PONG\r\n")

    with FakeServer(script) as fake:
        started = time.monotonic()
        with jsclient.connect(fake.url) as nc:
            nc.flush()
            assert time.monotonic() - started < 2 * SECONDS
            assert len(nc.servers) == 1000
            assert fake.url in nc.servers


def test_an_err_text_cannot_flood_or_forge_a_log(caplog: pytest.LogCaptureFixture) -> None:
    def script(client: FakeClient) -> None:
        client.send(info_line())
        client.expect(b"CONNECT ")
        client.send(b"-ERR '" + b"a\x1b[31m\x00" + b"b" * 60_000 + b"'\r\n")
        client.hold()

    with FakeServer(script) as fake:
        with pytest.raises(errors.JsClientError) as caught:
            jsclient.connect(fake.url)
        text = str(caught.value)
        assert len(text) < 1000
        assert "\x1b" not in text
        assert "\x00" not in text


def test_info_in_the_middle_and_pings_in_a_flood() -> None:
    """A thousand PINGs at once are answered, and INFO may come at any time."""
    answers: list[int] = []

    def script(client: FakeClient) -> None:
        client.handshake()
        before = len(client.received)
        client.send((b"PING\r\n" * 10 + info_line(max_payload=2048)) * 100)
        wait_until(lambda: client._fill() and client.received.count(b"PONG\r\n", before) >= 1000)
        answers.append(client.received.count(b"PONG\r\n", before))
        while client._fill():
            if client.received.endswith(b"PING\r\n"):
                client.send(b"PONG\r\n")

    with FakeServer(script) as fake, jsclient.connect(fake.url) as nc:
        wait_until(lambda: answers == [1000])
        assert nc.max_payload == 2048


def test_a_server_that_accepts_and_says_nothing() -> None:
    def script(client: FakeClient) -> None:
        client.hold()

    with FakeServer(script) as fake:
        started = time.monotonic()
        with pytest.raises(errors.ConnectFailed, match="INFO"):
            jsclient.connect(fake.url, connect_timeout=0.3)
        assert time.monotonic() - started < 2


def test_injection_is_refused_before_a_byte_is_sent() -> None:
    """Each illegal input is refused where it is illegal, and the server sees nothing of it."""
    seen: list[bytes] = []

    def script(client: FakeClient) -> None:
        client.handshake()
        before = len(client.received)
        client.expect(b"PING\r\n")
        seen.append(bytes(client.received[before:]))
        client.send(b"PONG\r\n")
        client.expect(b"PING\r\n")
        client.send(b"PONG\r\n")

    evil = ["a\r\nPUB b 1\r\nx", "a\nb", "a b", "a\tb", "a\x00b", "", "a..b", ".a", "a.", "a" * 5000]
    with FakeServer(script) as fake, jsclient.connect(fake.url) as nc:
        calls: list[Callable[[str], Any]] = [
            lambda text: nc.publish(text, b""),
            lambda text: nc.publish("ok", b"", reply=text) if text else nc.publish("", b""),
            lambda text: nc.subscribe(text),
            lambda text: nc.request(text, b""),
        ]
        for text in [*evil, "*", "a.>"]:
            for index, call in enumerate(calls):
                if text in ("*", "a.>") and index == 2:
                    continue
                with pytest.raises(errors.InvalidSubject):
                    call(text)
        for text in ["a\r\nb", "a b", "a\tb", "a\x00b"]:
            with pytest.raises(errors.InvalidSubject):
                nc.subscribe("ok", queue=text)
            with pytest.raises(errors.InvalidHeader):
                nc.publish("ok", b"", headers={text: "x"})
        for text in ["a\r\nb", "a\nb", "a\x00b"]:
            with pytest.raises(errors.InvalidHeader):
                nc.publish("ok", b"", headers={"X": text})
            with pytest.raises(errors.ConfigError):
                jsclient.ConnectOptions(name=text)
        for text in ["a b", "a.*", "a.>", "a.", "", "a\r\nb"]:
            with pytest.raises(errors.ConfigError):
                jsclient.ConnectOptions(inbox_prefix=text)
        nc.flush()
    # The inbox for replies is ours; nothing of what was refused is there.
    [lines] = [text.split(b"\r\n") for text in seen]
    assert all(line in (b"", b"PING") or line.startswith(b"SUB _INBOX.") for line in lines), lines
