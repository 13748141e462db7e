"""A publisher on a fake connection, and a clock that the test turns: for publishes without a plain ack."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from jsclient import errors, waiting
from jsclient._connection import Drainables
from jsclient.jetstream.publishing import questions as publish_questions
from jsclient.jetstream.publishing import recovery as publish_recovery
from jsclient.jetstream.publishing.asynchronous import AsyncPublisher
from jsclient.jetstream.publishing.future import PublishFuture
from jsclient.jetstream.publishing.options import HeaderCheck
from jsclient.jetstream.publishing.streams import Streams
from jsclient.message import Msg
from jsclient.protocol import frames
from jsclient.states import LinkEvent


class FakeClock:
    def __init__(self) -> None:
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self.calls.append((seconds, call))

    def call_soon(self, call: Callable[[], None]) -> None:
        call()

    def run(self) -> None:
        """Everything that is due now; what that asks for comes with the next run."""
        calls, self.calls = self.calls, []
        for _, call in calls:
            call()


class FakeConnection:
    """A connection and its engine in one."""

    max_payload = 1 << 20
    draining = False
    takes_headers = True

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.sent: list[bytes] = []
        self.is_connected = True
        self.closed: BaseException | None = None
        self.callbacks: list[tuple[Any, ...]] = []
        self.drainables = Drainables()
        self.round_trip = 0.0
        self._engine = self
        self.enqueue_now: Callable[[bytes], None] = self.enqueue

    def enqueue(self, frame: bytes) -> None:
        if self.closed is not None:
            raise self.closed
        if not self.is_connected:
            raise errors.ConnectionLost("not connected at the moment")
        self.sent.append(frame)

    def pub_start(self, subject: str, reply: bytes) -> bytes:
        return frames.with_reply(frames.pub_start(subject.encode()), reply)

    def encode(self, subject: str, payload: bytes, reply: bytes, block: bytes | None = None) -> bytes:
        start = self.pub_start(subject, reply)
        return frames.pub(start, payload) if block is None else frames.hpub(start, block, payload)

    def check_usable(self) -> None:
        if self.closed is not None:
            raise self.closed

    def wait_connected(self, timeout: float | None) -> bool:
        return self.is_connected

    def pause(self, seconds: float) -> None:
        waiting.Gate().wait(seconds)
        self.check_usable()

    def flush(self, timeout: float) -> None:
        """The inbox is permitted."""

    def new_inbox(self) -> str:
        return "_INBOX.x"

    def open_sink(self, subject: str, sink: Any) -> Any:
        return self

    def close(self) -> None:
        pass

    def add_violation_listener(self, listener: Any) -> None:
        pass

    remove_violation_listener = add_violation_listener

    def bound(self) -> None:
        """No call has a deadline for what it sends."""

    def flush_outbox(self) -> None:
        pass

    def run_callback(self, call: Callable[..., Any], *args: Any) -> None:
        call(*args)


class FakeApi:
    def subject(self, operation: str) -> str:
        return "$JS.API." + operation


class FakeJetStream:
    codec = None

    def __init__(self) -> None:
        self.nc = FakeConnection()
        self.api = FakeApi()
        self.header_check = HeaderCheck(lambda timeout: 5)
        self.publish_streams = Streams()


class Rig:
    """A publisher on a fake connection, and the server's side of it."""

    def __init__(self, **settings: Any) -> None:
        js: Any = FakeJetStream()
        self.nc: FakeConnection = js.nc
        settings.setdefault("duplicate_window", 120)
        self.publisher = AsyncPublisher(js, **settings)
        self.now = 1000.0

    def publish(self, subject: str = "s.a", msg_id: str | None = None) -> PublishFuture:
        return self.publisher.publish(subject, b"x", msg_id=msg_id)

    def reply_of(self, frame: bytes) -> bytes:
        return frames.reply_of(frame)

    def answer(self, frame: bytes, payload: bytes, headers: bytes | None = None) -> None:
        self.publisher.in_flight.deliver([Msg(self.reply_of(frame), b"1", None, payload, headers)], 0)

    def ack(self, frame: bytes, seq: int = 1) -> None:
        self.answer(frame, b'{"stream":"S","seq":%d}' % seq)

    def no_responders(self, frame: bytes) -> None:
        self.answer(frame, b"", b"NATS/1.0 503\r\n\r\n")

    def error(self, frame: bytes, err_code: int) -> None:
        self.answer(frame, b'{"error":{"code":503,"err_code":%d,"description":"x"},"stream":"S","seq":0}' % err_code)

    def take(self) -> list[bytes]:
        sent, self.nc.sent = self.nc.sent, []
        return sent

    def lose(self) -> None:
        self.nc.is_connected = False
        self.publisher.in_flight.link_event(LinkEvent.DISCONNECTED)

    def come_back(self) -> None:
        self.nc.is_connected = True
        self.publisher.in_flight.link_event(LinkEvent.RECONNECTED)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Rig, float], None]:
    """turn(rig, seconds): let time pass and run what is due."""
    now = [1000.0]

    class FakeTime:
        monotonic = staticmethod(lambda: now[0])

    monkeypatch.setattr(publish_recovery, "time", FakeTime)
    monkeypatch.setattr(publish_recovery, "elapsed", FakeTime.monotonic)
    monkeypatch.setattr(publish_questions, "time", FakeTime)

    def turn(rig: Rig, seconds: float) -> None:
        rig.nc.clock.run()  # what was published meanwhile is seen
        now[0] += seconds
        rig.nc.clock.run()

    return turn


Turn = Callable[[Rig, float], None]


def outcome(future: PublishFuture) -> type[BaseException] | None:
    error = future.exception(0)
    return None if error is None else type(error)


__all__ = ["clock"]


def info(window: float, max_age: float = 0, replicas: int = 1) -> bytes:
    config = {
        "name": "S",
        "subjects": ["s.>"],
        "duplicate_window": int(window * 1e9),
        "max_age": int(max_age * 1e9),
        "num_replicas": replicas,
    }
    return json.dumps({"config": config, "state": {}, "created": "2026-01-01T00:00:00Z"}).encode()


def answer_questions(rig: Rig, window: bytes) -> list[bytes]:
    """Answer what is asked about the stream; returns the other frames."""
    others: list[bytes] = []
    for _ in range(3):
        for frame in rig.take():
            if b"STREAM.NAMES" in frame:
                rig.answer(frame, b'{"streams":["S"],"total":1}')
            elif b"STREAM.INFO.S" in frame:
                rig.answer(frame, window)
            else:
                others.append(frame)
    return others


HEADERS = base64.b64encode(b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n")
