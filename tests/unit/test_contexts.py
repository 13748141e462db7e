"""jsclient.contexts: files of the NATS CLI as options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jsclient.cli import main
from jsclient.contexts import context_names, jetstream_options, load_context, selected_context
from jsclient.errors import ConfigError
from jsclient.options import ConnectOptions, TLSOptions

SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "nats" / "context"
    path.mkdir(parents=True)
    return path


def save(folder: Path, name: str, **fields: Any) -> None:
    # The CLI writes every field, empty when unset.
    empty = dict.fromkeys(["description", "url", "token", "user", "password", "creds", "nkey", "cert", "key", "ca"], "")
    (folder / f"{name}.json").write_text(json.dumps({**empty, **fields}))


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, {}),
        ({"url": "nats://a,nats://b"}, {"servers": "nats://a,nats://b"}),
        ({"user": "u", "password": "p"}, {"user": "u", "password": "p"}),
        ({"user": "u"}, {"user": "u", "password": ""}),
        ({"token": "t"}, {"token": "t"}),
        ({"creds": "/x/user.creds"}, {"credentials": "/x/user.creds"}),
        ({"nkey": "/x/user.nk"}, {"nkey_seed_file": "/x/user.nk"}),
        ({"user_jwt": "a.b.c", "user_seed": SEED}, {"jwt": "a.b.c", "nkey_seed": SEED}),
        ({"user": "u", "creds": "/x", "token": "t"}, {"user": "u", "password": ""}),
        ({"creds": "/x", "nkey": "/y"}, {"credentials": "/x"}),
        ({"inbox_prefix": "_INBOX_me"}, {"inbox_prefix": "_INBOX_me"}),
        ({"ca": "/ca.pem"}, {"tls": TLSOptions(ca_file="/ca.pem")}),
        (
            {"cert": "/c.pem", "key": "/k.pem", "tls_first": True},
            {"tls": TLSOptions(cert_file="/c.pem", key_file="/k.pem", handshake_first=True)},
        ),
        ({"color_scheme": "", "windows_ca_certs_match": None, "unknown": 3}, {}),
    ],
)
def test_fields(folder: Path, fields: dict[str, Any], options: dict[str, Any]) -> None:
    save(folder, "one", **fields)
    assert load_context("one") == options
    ConnectOptions(**options)


def test_files_expand_home_and_variables(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("CREDS", "/secret")
    save(folder, "home", creds="~/user.creds")
    save(folder, "variable", creds="$CREDS/user.creds")
    assert load_context("home") == {"credentials": "/home/somebody/user.creds"}
    assert load_context("variable") == {"credentials": "/secret/user.creds"}


def test_selected_context(folder: Path) -> None:
    save(folder, "one", url="nats://one")
    save(folder, "two", url="nats://two")
    assert context_names() == ["one", "two"]
    assert selected_context() is None
    with pytest.raises(ConfigError, match="no NATS context is selected"):
        load_context()
    (folder.parent / "context.txt").write_text("two\n")
    assert selected_context() == "two"
    assert load_context() == {"servers": "nats://two"}


def test_by_path(folder: Path, tmp_path: Path) -> None:
    save(tmp_path, "elsewhere", url="nats://x")
    assert load_context(tmp_path / "elsewhere.json") == {"servers": "nats://x"}
    assert load_context(str(tmp_path / "elsewhere.json")) == {"servers": "nats://x"}


def test_the_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".config/nats/context").mkdir(parents=True)
    save(tmp_path / ".config/nats/context", "one", url="nats://x")
    assert load_context("one") == {"servers": "nats://x"}


def test_jetstream_settings(folder: Path) -> None:
    save(folder, "one", jetstream_domain="hub", jetstream_api_prefix="")
    assert jetstream_options("one") == {"domain": "hub"}
    assert load_context("one") == {}


def test_an_unknown_name_lists_the_known_ones(folder: Path) -> None:
    save(folder, "one")
    with pytest.raises(ConfigError, match="known: one"):
        load_context("two")


@pytest.mark.parametrize("name", ["", "..", "a..b", "x\0y"])
def test_wrong_names(folder: Path, name: str) -> None:
    with pytest.raises(ConfigError):
        load_context(name)


@pytest.mark.parametrize("content", ["", "[]", "{", '"x"', "[" * 100_000, '{"password": 3}', '{"creds": "op://x/y"}'])
def test_wrong_files(folder: Path, content: str) -> None:
    (folder / "bad.json").write_text(content)
    with pytest.raises(ConfigError):
        load_context("bad")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load_context(tmp_path / "missing.json")
    (tmp_path / "big.json").write_text(" " * (1024 * 1024 + 2))
    with pytest.raises(ConfigError, match="1 MB"):
        load_context(tmp_path / "big.json")


@pytest.mark.parametrize("key", ["nsc", "socks_proxy", "windows_cert_store"])
def test_what_cannot_be_followed_is_refused(folder: Path, key: str) -> None:
    save(folder, "one", **{key: "something"})
    with pytest.raises(ConfigError, match=key):
        load_context("one")


def test_a_context_names_no_environment_variables(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JSCLIENT_TEST_SECRET", "marker")
    name = "env:JSCLIENT_TEST_SECRET"
    save(folder, "one", user="u", password=name)
    save(folder, "two", token=name)
    save(folder, "three", creds=name)
    assert ConnectOptions(**load_context("one")).authenticator().fields(None).password == name
    assert ConnectOptions(**load_context("two")).authenticator().fields(None).auth_token == name
    with pytest.raises(ConfigError) as caught:
        ConnectOptions(**load_context("three")).authenticator().fields("n")
    assert "marker" not in str(caught.value)


@pytest.mark.parametrize("linked", [False, True])
def test_a_context_that_others_could_read_becomes_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "nats" / "context"
    folder.mkdir(parents=True)
    path = folder / "mine.json"
    kept = tmp_path / "kept.json" if linked else path
    kept.write_text("{}")
    kept.chmod(0o644)
    if linked:
        path.symlink_to(kept)
    with kept.open() as reader:
        assert main(["context", "add", "mine", "--url", "nats://x", "--user", "u", "--password", "s3", "-f"]) == 0
        assert "s3" not in reader.read(), "who had it open does not see the password"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text())["password"] == "s3"
    assert path.is_symlink() == linked
    assert [file.name for file in folder.iterdir()] == ["mine.json"]
