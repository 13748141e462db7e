"""The connections that a Python worker of Spark keeps."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from jsclient.spark.pool import Pool


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
