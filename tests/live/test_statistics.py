"""The counters of a connection: messages and bytes that did not leave are not counted."""

from __future__ import annotations

import pytest

import jsclient
from jsclient import errors
from jsclient.testing import Proxy, wait_until


def test_what_a_stalled_server_does_not_take_is_not_sent(proxy: Proxy) -> None:
    with jsclient.connect(proxy.url, write_timeout=0.2) as nc:
        nc.flush()
        proxy.stall()
        before, sent = nc.stats(), 0
        payload = bytes(200_000)
        with pytest.raises(errors.BufferFull):
            while True:
                nc.publish("stalled", payload)
                sent += 1
        stats, waiting = nc.stats(), nc.health().buffered_bytes
        assert waiting > len(payload)
        assert stats.messages_out - before.messages_out == sent
        handed_over = sent * (len(payload) + len(b"PUB stalled 200000\r\n\r\n"))
        assert stats.bytes_out - before.bytes_out == handed_over - waiting
        with pytest.raises((errors.RequestTimeout, errors.BufferFull)):
            nc.request("stalled", timeout=0.1)
        assert nc.stats().messages_out == stats.messages_out
        proxy.resume()
        nc.flush(20)
        wait_until(lambda: nc.stats().bytes_out - before.bytes_out >= handed_over, 20)


def test_what_was_kept_and_is_thrown_away_is_not_counted(proxy: Proxy, caplog: pytest.LogCaptureFixture) -> None:
    with jsclient.connect(proxy.url) as nc:
        nc.flush()
        nc.publish("out", b"x")
        nc.flush()
        before = nc.stats()
        proxy.refuse()
        wait_until(lambda: not nc.is_connected, 20)
        for _ in range(10):
            nc.publish("out", b"x")
        with pytest.raises(errors.TimedOut):
            nc.request("out", timeout=0.1)
        assert nc.stats().bytes_out == before.bytes_out
        nc.close()
        after = nc.stats()
        assert (after.messages_out, after.bytes_out) == (before.messages_out, before.bytes_out)
        assert "closed with 10 messages unsent" in caplog.text


def test_a_frame_that_goes_out_on_the_next_link_is_counted_once(proxy: Proxy) -> None:
    with jsclient.connect(proxy.url) as nc:
        nc.flush()
        before = nc.stats()
        proxy.refuse()
        wait_until(lambda: not nc.is_connected, 20)
        for _ in range(10):
            nc.publish("out", bytes(1000))
        proxy.accept()
        nc.flush(20)
        after = nc.stats()
        assert after.messages_out - before.messages_out == 10
        assert 10_000 <= after.bytes_out - before.bytes_out < 10_500
