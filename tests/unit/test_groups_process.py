"""What proves that the process of a member is dead, and what does not; and what members store of themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from jsclient.groups import process
from jsclient.groups.process import here, is_dead
from jsclient.groups.records import Work

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere nothing is ever proven")


def test_a_process_is_dead_when_it_has_ended_and_not_before() -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with sleeper:
        assert here()
        assert not is_dead(here(), sleeper.pid)
        sleeper.send_signal(signal.SIGSTOP)
        assert not is_dead(here(), sleeper.pid), "a frozen one can wake up"
        sleeper.kill()
        sleeper.wait(10)
        assert is_dead(here(), sleeper.pid)
        assert not is_dead(f"{here()}1", sleeper.pid), "of another machine, or container, nothing is known"
        assert not is_dead("", sleeper.pid)
        assert not is_dead(here(), 0)
        assert not is_dead(here(), -1)
        assert not is_dead(here(), 10**30), "stored by others, and no number of a process"


def test_a_process_of_another_user_is_not_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", refuse)
    assert not is_dead(here(), 4711)


def test_where_the_system_tells_no_place_nothing_is_proven(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("BOOT", "PIDS"):
        with monkeypatch.context() as patch:
            patch.setattr(process, name, tmp_path / "is not there")
            assert here() == ""
            assert not is_dead(here(), 10**8)


class Before(msgspec.Struct, frozen=True):
    """What a member of the first version stored, and reads."""

    id: str
    partitions: list[int]


def test_members_of_the_first_version_read_what_is_stored_now_and_the_other_way_round() -> None:
    stored = msgspec.json.encode(Work("one", [1, 2], here(), 7))
    assert msgspec.json.decode(stored, type=Before) == Before("one", [1, 2])
    assert msgspec.json.decode(msgspec.json.encode(Before("one", [1])), type=Work) == Work("one", [1], "", 0)
    assert msgspec.json.encode(Work("one", [1])) == msgspec.json.encode(Before("one", [1]))
