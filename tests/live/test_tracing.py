"""The way of a message through servers, streams and accounts."""

from __future__ import annotations

import pytest

from jsclient import errors
from jsclient.jetstream import JetStream, Stream, StreamConfig
from jsclient.jetstream.tracing import trace
from jsclient.testing import NatsServer, wait_until


@pytest.fixture
def stream(js: JetStream) -> Stream:
    stream = js.create_stream(StreamConfig(name="S", subjects=["s.>"]))
    for number in range(3):
        js.publish(f"s.{number}", b"x")
    return stream


def test_message_trace(js: JetStream, stream: Stream, server: NatsServer) -> None:
    if server.version < (2, 11):
        with pytest.raises(errors.NotSupported, match=r"2\.11"):
            trace(js.nc, "s.x")
        return
    (report,) = trace(js.nc, "s.x", b"hello", headers={"A": "b"})
    assert report.stored_in == ["S"]
    assert report.request.msgsize > 0
    assert (report.request.header or {})["Nats-Trace-Only"] == ["true"]
    assert [event.type for event in report.events or ()] == ["in", "js"]
    assert report.server.ver == js.nc.server_info.version
    assert stream.info().state.messages == 3  # it was only looked at
    assert trace(js.nc, "nowhere")[0].stored_in == []
    trace(js.nc, "s.y", deliver=True)
    wait_until(lambda: stream.info().state.messages == 4, 5)
