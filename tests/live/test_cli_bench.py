"""`jsclient bench` measures with a temporary stream, and leaves nothing behind."""

from __future__ import annotations

from tests.live.test_cli import cli, lines

import jsclient
from jsclient.jetstream import JetStream
from jsclient.testing import NatsServer


def test_it_measures_each_way_and_leaves_no_stream(server: NatsServer) -> None:
    rows = lines(cli(server, "bench", "--messages", "400", "--size", "16", "--json"))
    assert [row["messages"] for row in rows] == [400, 20, 400, 420]
    assert all(row["rate"] > 0 and row["seconds"] > 0 for row in rows)
    with jsclient.connect(server.url) as nc:
        assert list(JetStream(nc).stream_names()) == []


def test_a_message_that_is_too_large_is_wrong_usage(server: NatsServer) -> None:
    done = cli(server, "bench", "--size", "2000000", "--messages", "2")
    assert done.returncode == 2
    assert "max_payload" in done.stderr
    with jsclient.connect(server.url) as nc:
        assert list(JetStream(nc).stream_names()) == []


def test_text_shows_rates(server: NatsServer) -> None:
    shown = cli(server, "bench", "--messages", "100").stdout
    assert shown.count("messages/s") == 4
    assert "fetch and ack" in shown
