"""Outages are seen: in the log without configuration, in `health`, and by callbacks that other events hold up."""

from __future__ import annotations

import logging
import queue
import threading

import pytest

import jsclient
from jsclient.options import ReconnectPolicy
from jsclient.testing import NatsServer, Proxy, free_port, wait_until

DENIED = 'authorization { users: [{ user: u, password: p, permissions: { publish: { deny: "denied" } } }] }\n'


def test_a_flood_of_errors_hides_no_loss_of_the_link() -> None:
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    let_go = threading.Event()
    with NatsServer(DENIED, jetstream=False) as server, Proxy(server.port) as proxy:
        with (
            jsclient.connect(
                proxy.url.replace("//", "//u:p@"),
                on_error=lambda *_: let_go.wait(30),
                on_disconnected=lambda *_: told.put("disconnected"),
                on_reconnected=lambda *_: told.put("reconnected"),
            ) as nc,
            nc.events() as events,
        ):
            for _ in range(70_000):
                nc.publish("denied")
            wait_until(lambda: nc.stats().callbacks_dropped > 0, 30)
            nc.flush(30)
            proxy.cut()
            wait_until(lambda: nc.stats().reconnects == 1, 30)
            let_go.set()
            assert [told.get(timeout=30), told.get(timeout=30)] == ["disconnected", "reconnected"]
            nc.close()
            kinds = [event.kind for event in events if event.kind != "error"]
            assert kinds == ["disconnected", "reconnected", "disconnected", "closed"]
            assert events.dropped > 0


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record for record in caplog.records if record.name == "jsclient.connection"]
    return [record.getMessage() for record in found if record.levelno == logging.WARNING]


def test_an_outage_is_logged_and_shown_by_health(server: NatsServer, caplog: pytest.LogCaptureFixture) -> None:
    policy = ReconnectPolicy(delay=lambda round: 0.002)
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url, reconnect=policy) as nc:
        nc.flush()
        health = nc.health()
        assert (health.connected, health.outage, health.failed_attempts) == (True, None, 0)
        assert warnings(caplog) == []
        proxy.refuse()
        wait_until(lambda: nc.health().failed_attempts >= 25, 30)
        health = nc.health()
        assert not health.connected
        assert health.outage is not None
        assert 0 < health.outage < 30
        proxy.accept()
        wait_until(lambda: nc.health().connected, 30)
        nc.flush(20)
        assert (nc.health().outage, nc.health().failed_attempts) == (None, 0)
        wait_until(lambda: any("connected again" in text for text in warnings(caplog)), 20)
        texts = warnings(caplog)
        assert texts[0].startswith(f"connection {nc_number(nc)} lost its link to {proxy.url}: ")
        refused = [text for text in texts if f"cannot connect to {proxy.url} (attempt " in text]
        assert [int(text.split("(attempt ")[1].split(")")[0]) for text in refused][:3] == [1, 10, 20]
        assert texts[-1].endswith(f"s, to {proxy.url}")
        assert len(texts) == 2 + len(refused)
        caplog.clear()
    assert warnings(caplog) == []  # closing is no outage
    assert not nc.health().connected


def nc_number(nc: jsclient.Connection) -> str:
    return repr(nc).split()[1]


def test_a_first_link_that_comes_late_is_an_outage_until_then(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    with jsclient.connect(f"nats://127.0.0.1:{port}", retry_on_failed_connect=True) as nc:
        wait_until(lambda: nc.health().failed_attempts > 0, 20)
        assert not nc.health().connected
        with NatsServer(port=port, jetstream=False):
            wait_until(lambda: nc.health().connected, 20)
            wait_until(lambda: len(warnings(caplog)) >= 2, 20)
    assert "(attempt 1)" in warnings(caplog)[0]
    assert "is connected to" in warnings(caplog)[1]


def test_what_connect_raises_is_not_logged_as_well(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(jsclient.errors.ConnectFailed):
        jsclient.connect(f"nats://127.0.0.1:{free_port()}")
    assert warnings(caplog) == []
