"""The connections that a Python worker of Spark keeps."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from jsclient.spark.pool import Pool
from jsclient.testing import wait_until


def test_a_task_does_not_fail_because_no_thread_can_close_connections_later(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    connection: Any = SimpleNamespace(close=lambda *_, **__: closed.append("closed"), closed=False)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = Pool()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        pool.give_back("key", connection)
    assert closed == ["closed"]
    assert not len(pool)


def test_an_idle_connection_that_lost_its_link_is_closed_and_does_not_go_on_dialling() -> None:
    closed: list[str] = []

    def one(name: str, is_connected: bool) -> Any:
        return SimpleNamespace(close=lambda: closed.append(name), closed=False, is_connected=is_connected)

    pool = Pool()
    pool.give_back("key", one("lost", False))
    pool.give_back("key", one("alive", True))
    wait_until(lambda: bool(closed), 10)
    assert closed == ["lost"]
    assert len(pool) == 1
    closer = next(thread for thread in threading.enumerate() if thread.name == "jsclient-spark-idle")
    pool.close()
    closer.join(10)
    assert closed == ["lost", "alive"]
    assert not closer.is_alive()
