"""The sink's publishers over links that break: an id is sent again only as long as the stream remembers it. No Java."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.exactly.sending import fast_publisher, row_publisher
from jsclient.jetstream import JetStream, StreamConfig
from jsclient.spark.options import WRITE, parse
from jsclient.testing import NatsServer, Proxy, wait_until

ROWS = 20
PUBLISHERS = [row_publisher, fast_publisher]


class Writing:
    """A task that publishes rows, and loses their acks together with the link."""

    def __init__(self, nc: jsclient.Connection, made: Any, ids: bool) -> None:
        self.nc = nc
        self.made = made
        self.ids = ids
        self.error: BaseException | None = None
        self.totals: Any = None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        try:
            ids = [b"id-%d" % number if self.ids else None for number in range(ROWS)]
            self.made.publish([(b"rows.a", b"", b"value", msg_id) for msg_id in ids])
            self.totals = self.made.finish()
        except BaseException as error:
            self.error = error
        finally:
            self.made.close()

    def end(self) -> None:
        self.thread.join(30)
        assert not self.thread.is_alive()
        self.nc.close()


def begin(js: JetStream, server: NatsServer, proxy: Proxy, publisher: Any, window: float, ids: bool = True) -> Writing:
    """Rows that are all stored, of which no ack has come; then the link is cut."""
    for name in list(js.stream_names()):
        js.delete_stream(name)
    config = StreamConfig(name="ROWS", subjects=["rows.>"], storage="memory", duplicate_window=window)
    fast = publisher is fast_publisher
    js.create_stream(config.replace(allow_batched=True) if fast else config)
    js.create_stream(StreamConfig(name="CLOCK", subjects=["clock"], storage="memory", duplicate_window=window))
    nc = jsclient.connect(proxy.url, reconnect=jsclient.ReconnectPolicy())
    options = parse({"servers": "nats://unused", "subject": "rows.a"}, WRITE)
    made = publisher(nc, options)
    nc.flush()
    proxy.stall("down")
    writing = Writing(nc, made, ids)
    wait_until(lambda: js.stream("ROWS").info().state.messages == ROWS)
    return writing


def stored(js: JetStream) -> int:
    messages: int = js.stream("ROWS").info().state.messages
    return messages


@pytest.mark.parametrize("publisher", [row_publisher, pytest.param(fast_publisher, marks=pytest.mark.slow)])
def test_rows_are_not_sent_again_when_the_stream_has_forgotten_their_ids(
    js: JetStream, server: NatsServer, publisher: Any
) -> None:
    if publisher is fast_publisher and not js.nc.server_info.at_least(2, 14):
        pytest.skip("fast batches need 2.14")
    with Proxy(server.port) as proxy:
        writing = begin(js, server, proxy, publisher, 0.6)
        js.publish("clock", b"", msg_id="tick")
        proxy.refuse()
        wait_until(lambda: not js.publish("clock", b"", msg_id="tick").duplicate)
        proxy.heal()
        writing.end()
    assert isinstance(writing.error, errors.PublishUnknown), writing.error
    assert "may be stored" in str(writing.error)
    assert stored(js) == ROWS


@pytest.mark.slow
@pytest.mark.parametrize("publisher", PUBLISHERS)
@pytest.mark.parametrize(("window", "ids"), [(120.0, True), (0.1, False)])
def test_rows_are_sent_again_within_the_window_or_where_copies_do_no_harm(
    js: JetStream, server: NatsServer, publisher: Any, window: float, ids: bool
) -> None:
    if publisher is fast_publisher and not js.nc.server_info.at_least(2, 14):
        pytest.skip("fast batches need 2.14")
    with Proxy(server.port) as proxy:
        writing = begin(js, server, proxy, publisher, window, ids)
        proxy.refuse()
        proxy.heal()
        writing.end()
    assert writing.error is None
    assert writing.totals.rows == ROWS
    assert stored(js) == ROWS if ids else stored(js) > ROWS
