"""The rows of a bucket: a row that is sent again must not come after a newer one of its key."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from jsclient.exactly import publishing
from jsclient.exactly.publishing import TaskPublisher
from jsclient.exactly.row_publisher import Row, Totals
from jsclient.spark import options as known


class Recorder:
    """Takes the place of the publisher of rows."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.totals = Totals()

    def publish(self, rows: list[Row]) -> None:
        self.calls.append(b"".join(row[0] for row in rows).decode())

    def finish(self) -> Totals:
        self.calls.append("wait")
        return self.totals

    def close(self) -> None:
        pass


def calls(monkeypatch: pytest.MonkeyPatch, *portions: str, compacted: bool = True) -> list[str]:
    """The calls for rows with these letters as keys."""
    recorder = Recorder()
    monkeypatch.setattr(publishing, "row_publisher", lambda *_: recorder)
    given = {"servers": "nats://n", "publishmode": "async", "deliverysemantics": "at-least-once"}
    options = attrs.evolve(known.parse(given, known.WRITE), compacted=compacted)
    nc: Any = None
    with TaskPublisher(nc, options, 0) as publisher:
        for portion in portions:
            publisher.publish([(key.encode(), b"", b"", None) for key in portion])
    return [call for call in recorder.calls if call]


def test_one_row_of_a_key_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    assert calls(monkeypatch, "abc", "de") == ["abc", "de"]
    assert calls(monkeypatch, "abacdd") == ["ab", "wait", "acd", "wait", "d"]
    assert calls(monkeypatch, "ab", "ca", "b") == ["ab", "c", "wait", "a", "b"]


def test_rows_of_a_stream_may_share_a_subject(monkeypatch: pytest.MonkeyPatch) -> None:
    assert calls(monkeypatch, "aba", "a", compacted=False) == ["aba", "a"]


def test_the_memory_for_keys_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "MOST_SENT", 3)
    assert calls(monkeypatch, "abcdefg") == ["abc", "wait", "def", "wait", "g"]
