"""Backups: what a server says of its streams, and what is none of that."""

from __future__ import annotations

from typing import Any

import pytest

from jsclient.backup.taking import state_of
from jsclient.errors import BadResponse

STREAM: dict[str, Any] = {"config": {"name": "S", "subjects": ["s.>"]}, "state": {"messages": 3, "last_seq": 7, "x": 1}}


def test_what_a_backup_needs_of_an_answer() -> None:
    found = state_of(STREAM)
    assert (found.messages, found.last_seq, found.bytes) == (3, 7, 0)
    assert STREAM["state"] == {"messages": 3, "last_seq": 7, "x": 1}, "it goes to the folder unchanged"


@pytest.mark.parametrize(
    "changed",
    [
        {"config": None},
        {"config": []},
        {"config": {}},
        {"config": {"name": 5}},
        {"state": 1.5},
        {"state": {"bytes": "9999-99-99T99:99:99Z"}},
    ],
)
def test_what_no_server_says_of_a_stream(changed: dict[str, Any]) -> None:
    with pytest.raises(BadResponse):
        state_of({**STREAM, **changed})
    with pytest.raises(BadResponse):
        state_of({})
