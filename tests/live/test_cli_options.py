"""The command line: what is imported, where options may be, which source of a setting wins, what usage errors print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jsclient.testing import NatsServer

Run = Callable[..., subprocess.CompletedProcess[str]]

USERS = """
authorization { users = [
  { user: alice, password: secret }
  { user: bob, password: secret }
] }
"""


@pytest.fixture(scope="module")
def users() -> Iterator[NatsServer]:
    with NatsServer(USERS) as server:
        yield server


@pytest.fixture(scope="module")
def tokens() -> Iterator[NatsServer]:
    with NatsServer("authorization { token: marker }") as server:
        yield server


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run `jsclient` as a program, in a clean home."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("NATS_")}
        clean.update(HOME=str(tmp_path), XDG_CONFIG_HOME=str(tmp_path / "config"), COLUMNS="100", **environment)
        command = [sys.executable, "-m", "jsclient", *arguments]
        return subprocess.run(command, env=clean, capture_output=True, text=True, timeout=30, check=False)

    return run


def context(tmp_path: Path, name: str = "here", select: bool = False, **settings: Any) -> None:
    folder = tmp_path / "config" / "nats" / "context"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(settings))
    if select:
        (folder.parent / "context.txt").write_text(name)


# --- what is imported


IMPORTED = """
import sys
from jsclient.cli import main
try:
    status = main({words!r})
except SystemExit as end:
    status = end.code
ours = [name for name in sys.modules if name.partition(".")[0] == "jsclient"]
print(status, *sorted(ours), file=sys.stderr)
"""


def imported(*words: str) -> tuple[str, list[str]]:
    """(exit status, our modules) after a command in a fresh interpreter."""
    program = [sys.executable, "-c", IMPORTED.format(words=list(words))]
    status, *ours = subprocess.run(program, capture_output=True, text=True, check=True).stderr.split()
    return status, ours


@pytest.mark.parametrize(
    ("words", "most"),
    [(["--help"], 90), (["--version"], 90), (["context", "ls"], 90), (["completion", "--help"], 90)],
)
def test_a_light_command_imports_little(words: list[str], most: int) -> None:
    status, ours = imported(*words)
    assert status in ("0", "None")
    assert len(ours) <= most, ours
    assert not [name for name in ours if name.startswith(("jsclient.jetstream", "jsclient.workers"))]


def test_a_command_imports_no_other_one(server: NatsServer) -> None:
    _, ours = imported("pub", "a", "b", "-s", server.url)
    commands = {name for name in ours if name.startswith("jsclient.cli.")}
    assert commands == {f"jsclient.cli.{name}" for name in ("arguments", "commands", "connection", "core", "output")}
    assert "jsclient.jetstream" not in ours


# --- where options may be


def test_options_of_the_connection_come_before_or_after(run: Run, server: NatsServer) -> None:
    ways = [
        ["-s", server.url, "--json", "stream", "ls"],
        ["--json", "stream", "ls", "-s", server.url],
        [f"--server={server.url}", "stream", "ls", "-j"],
        [f"-s{server.url}", "stream", "--help"],
        ["--timeout", "3", "-s", server.url, "check", "connection"],
    ]
    for words in ways:
        done = run(*words)
        assert done.returncode == 0, (words, done.stderr)


def test_the_option_after_the_command_wins(run: Run, server: NatsServer) -> None:
    assert run("-s", "nats://127.0.0.1:1", "rtt", "-s", server.url).returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["strem", "ls"], "did you mean stream"),
        (["stream", "ls", "--wrong"], "usage: jsclient stream ls"),
        (["stream", "nothing"], "usage: jsclient stream"),
        (["pub"], "usage: jsclient pub"),
        (["next", "S", "c", "--count", "many"], "must be 1 or more, not many"),
        (["--wrong", "pub"], "there is no option --wrong"),
        ([], "COMMAND"),
    ],
)
def test_a_usage_error_shows_the_usage_of_its_command(run: Run, words: list[str], said: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_help_folds_the_options_of_the_connection(run: Run) -> None:
    text = run("stream", "ls", "--help").stdout
    assert "--tlscert" not in text
    assert "Connection options" in text
    assert text.index("--subject") < text.index("--json") or text.index("--names") < text.index("Connection options")
    assert "--tlscert" in run("--help").stdout


# --- which source wins


def test_credentials_of_another_kind_replace_earlier_ones(
    run: Run, users: NatsServer, tokens: NatsServer, tmp_path: Path
) -> None:
    context(tmp_path, url=tokens.url, token="marker", select=True)
    assert run("rtt").returncode == 0
    # the environment before the context, an option before both
    assert run("rtt", NATS_URL=users.url, NATS_USER="alice", NATS_PASSWORD="secret").returncode == 0
    assert run("rtt", "--token", "marker", NATS_USER="alice", NATS_PASSWORD="secret").returncode == 0
    assert run("rtt", "--user", "bob", "--password", "wrong", "-s", users.url, NATS_USER="alice").returncode == 1
    # a password of the environment belongs to the user of an option
    assert run("rtt", "-s", users.url, "--user", "bob", NATS_PASSWORD="secret").returncode == 0


def test_a_user_alone_is_a_token(run: Run, tokens: NatsServer) -> None:
    assert run("rtt", "-s", tokens.url, "--user", "marker").returncode == 0
    assert run("rtt", "-s", tokens.url, NATS_TOKEN="marker").returncode == 0


def test_no_context(run: Run, server: NatsServer, tmp_path: Path) -> None:
    context(tmp_path, url="nats://127.0.0.1:1", select=True)
    assert run("rtt", "--timeout", "1").returncode == 1
    assert run("rtt", "--no-context", NATS_URL=server.url).returncode == 0


def test_a_selected_context_that_is_gone_is_a_warning(run: Run, server: NatsServer, tmp_path: Path) -> None:
    context(tmp_path, url="nats://127.0.0.1:1", select=True)
    (tmp_path / "config" / "nats" / "context" / "here.json").unlink()
    done = run("rtt", NATS_URL=server.url)
    assert done.returncode == 0
    assert "'here'" in done.stderr
    assert run("rtt", "--context", "here", NATS_URL=server.url).returncode == 2


def test_one_tls_setting_replaces_that_one(run: Run, tmp_path: Path) -> None:
    from jsclient.testing import certificates

    certs = certificates(tmp_path)
    with NatsServer(certs.server_config(verify=True), jetstream=False) as server:
        files = {"cert": str(certs.client.cert), "key": str(certs.client.key)}
        context(tmp_path, url=server.url, ca=str(tmp_path / "nothing.pem"), select=True, **files)
        assert run("rtt").returncode != 0
        assert run("rtt", "--tlsca", str(certs.ca)).returncode == 0
