"""Finding a nats-server, with programs that only pretend."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from jsclient.testing import ServerNotFound, find, find_server, server_version, wait_until


def pretend(folder: Path, answer: str) -> Path:
    """A program called nats-server that answers --version like this."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "nats-server"
    program.write_text(f"#!/bin/sh\necho '{answer}'\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any nats-server."""
    monkeypatch.delenv("NATS_SERVER", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(find, "SYSTEM_FOLDERS", (str(tmp_path / "sbin"),))
    monkeypatch.setattr(find, "tools_folder", lambda: tmp_path / ".tools")
    monkeypatch.setattr(shutil, "which", lambda name: shadow if (shadow := str(tmp_path / "bin" / name)) else None)
    return tmp_path


def test_the_version_is_read(machine: Path) -> None:
    assert server_version(pretend(machine, "nats-server: v2.15.1")) == (2, 15, 1)
    assert server_version(pretend(machine, "nats-server: v2.9.10-beta.3")) == (2, 9, 10)


@pytest.mark.parametrize("answer", ["hello", "nats-server: unknown", ""])
def test_another_program_is_not_taken_for_a_server(machine: Path, answer: str) -> None:
    with pytest.raises(ServerNotFound):
        server_version(pretend(machine, answer))


def test_the_order_is_path_then_sbin_then_tools(machine: Path) -> None:
    tools = pretend(machine / ".tools", "nats-server: v2.15.0")
    assert find_server() == str(tools)
    sbin = pretend(machine / "sbin", "nats-server: v2.15.0")
    assert find_server() == str(sbin)
    on_path = pretend(machine / "bin", "nats-server: v2.15.0")
    assert find_server() == str(on_path)


def test_an_old_server_is_passed_over(machine: Path) -> None:
    pretend(machine / "bin", "nats-server: v2.9.10")
    sbin = pretend(machine / "sbin", "nats-server: v2.14.0")
    assert find_server() == str(sbin)
    assert find_server((2, 9)) == str(machine / "bin" / "nats-server")
    with pytest.raises(ServerNotFound, match=r"is 2\.9\.10.*is 2\.14\.0.*Install a release"):
        find_server((3, 0))


def test_the_named_server_is_the_users_word(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(machine / "bin", "nats-server: v2.15.0")
    named = pretend(machine / "mine", "nats-server: v2.9.10")
    monkeypatch.setenv("NATS_SERVER", str(named))
    assert find_server() == str(named)
    monkeypatch.setenv("NATS_SERVER", str(machine / "missing"))
    with pytest.raises(ServerNotFound, match="NATS_SERVER"):
        find_server()


def test_nothing_at_all_is_one_clear_message(machine: Path) -> None:
    with pytest.raises(ServerNotFound, match=r"No nats-server 2\.14 or newer was found \(nothing on PATH"):
        find_server()


def test_wait_until_returns_what_it_waited_for_or_says_so() -> None:
    values = iter([0, None, "", 7])
    assert wait_until(lambda: next(values)) == 7
    with pytest.raises(TimeoutError, match="no luck"):
        wait_until(lambda: False, 0, "no luck")


def test_a_server_of_the_least_version_is_taken(machine: Path) -> None:
    on_path = pretend(machine / "bin", "nats-server: v2.10.0")
    assert find_server((2, 10, 0)) == str(on_path)


def test_a_condition_that_never_holds_ends_in_time() -> None:
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match=r"still False after 0\.05 s"):
        wait_until(lambda: False, 0.05)
    assert time.monotonic() - begun < 5
