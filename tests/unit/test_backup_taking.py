"""Backups: what a server says of its streams, and what is none of that."""

from __future__ import annotations

from typing import Any

import pytest

from jsclient.backup.taking import about
from jsclient.errors import BadResponse

STREAM: dict[str, Any] = {"config": {"name": "S", "subjects": ["s.>"]}, "state": {"messages": 3, "last_seq": 7}}


def test_what_a_backup_needs_of_an_answer() -> None:
    found = about({**STREAM, "sources": [{"name": "O", "lag": 2, "active": 5}], "ts": "x"})
    assert (found.config.name, found.state.messages, found.state.last_seq, found.state.bytes) == ("S", 3, 7, 0)
    assert [(one.name, one.lag) for one in found.sources or ()] == [("O", 2)]


@pytest.mark.parametrize(
    "changed",
    [
        {"config": None},
        {"config": []},
        {"config": {}},
        {"config": {"name": 5}},
        {"config": {"name": "S", "sources": 5}},
        {"state": 1.5},
        {"state": {"bytes": "9999-99-99T99:99:99Z"}},
        {"sources": ["O"]},
    ],
)
def test_what_no_server_says_of_a_stream(changed: dict[str, Any]) -> None:
    with pytest.raises(BadResponse):
        about({**STREAM, **changed})
    with pytest.raises(BadResponse):
        about({})
