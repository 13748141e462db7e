"""The fuzz harness itself: it runs, and it finds a planted bug."""

from __future__ import annotations

import pytest

from jsclient.protocol import Event, Parser
from tools import fuzz


def test_no_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.run(seconds=10, seed=7, rounds=80) == 0
    assert "80 rounds without a finding" in capsys.readouterr().out


def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Forgetful(Parser):  # type: ignore[type-arg]
        def feed(self, data: bytes) -> list[Event]:
            return [event for event in super().feed(data) if event.sid != b"12"]

    monkeypatch.setattr(fuzz, "Parser", Forgetful)
    assert fuzz.run(seconds=10, seed=7, rounds=300) == 1
    assert "FINDING at seed 7" in capsys.readouterr().out


def test_the_reference_parser_agrees_with_the_table(stream: list[tuple[bytes, Event]]) -> None:
    data = b"".join(frame for frame, _ in stream)
    assert fuzz.reference(data) == ([event for _, event in stream], False)
