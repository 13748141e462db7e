from __future__ import annotations

import json
import pickle

import pytest

from jsclient.protocol import ConnectInfo, Info, InvalidInfo, ProtocolError, encode_connect, parse_version
from jsclient.protocol.info import MAX_DEPTH, decode_info

INFO_2_15 = (
    b'{"server_id":"NB","server_name":"n1","version":"2.15.1","proto":1,"git_commit":"abc","go":"go1.25",'
    b'"host":"0.0.0.0","port":4222,"headers":true,"max_payload":1048576,"jetstream":true,"client_id":7,'
    b'"client_ip":"127.0.0.1","nonce":"n","connect_urls":["a:1","b:2"],"api_lvl":5,"connect_info":true,'
    b'"remote_account":"$G","xkey":"X","something_new":{"a":[1,null]}}'
)


def test_fields() -> None:
    info = Info(INFO_2_15).decode()
    assert (info.server_name, info.max_payload, info.connect_urls) == ("n1", 1048576, ["a:1", "b:2"])
    assert (info.headers, info.jetstream, info.api_lvl, info.ldm) == (True, True, 5, False)


def test_absent_fields_have_defaults() -> None:
    info = Info(b"{}").decode()
    assert (info.max_payload, info.headers, info.connect_urls, info.version_tuple) == (0, False, [], (0, 0, 0))


def test_many_brackets_are_not_deep() -> None:
    urls = [f"[2001:db8::{number:x}]:4222" for number in range(20_000)]
    info = {"connect_urls": urls, "server_name": '\\"[[{' * 300, "new": [[number] for number in range(500)]}
    assert Info(json.dumps(info).encode()).decode().connect_urls == urls[:2000]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"x",
        b"[]",
        b"null",
        b'"text"',
        b"{",
        b"{}{}",
        b'{"max_payload":NaN}',
        b'{"max_payload":Infinity}',
        b'{"max_payload":1e400}',
        b'{"max_payload":1.5}',
        b'{"max_payload":"1"}',
        b'{"max_payload":null}',
        b'{"max_payload":' + b"9" * 30 + b"}",
        b'{"max_payload":' + b"9" * 6000 + b"}",
        b'{"headers":1}',
        b'{"connect_urls":"a:1"}',
        b'{"connect_urls":[1]}',
        b'{"connect_urls":null}',
        b'{"version":3}',
        b'{"version":"\xff"}',
        b'{"version":"\\ud800"}',
        b'{"new":' + b"[" * 520_000 + b"]" * 520_000 + b"}",
        b'{"new":' + b'{"a":' * 150_000 + b"1" + b"}" * 150_000 + b"}",
        b'{"new":["' + b"a" * 1000 + b'",' + b"[" * 101 + b"]" * 102 + b"}",
    ],
)
def test_bad_info(raw: bytes) -> None:
    with pytest.raises(InvalidInfo, match="INFO is not understood") as info:
        Info(raw).decode()
    assert isinstance(info.value, ProtocolError)
    assert len(info.value.what) < 300


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.15.1", (2, 15, 1)),
        ("v2.11.0-RC.1", (2, 11, 0)),
        ("2.9", (2, 9, 0)),
        ("3", (3, 0, 0)),
        ("", (0, 0, 0)),
        ("dev", (0, 0, 0)),
        ("9" * 5000, (999999999, 0, 0)),
    ],
)
def test_version(text: str, version: tuple[int, int, int]) -> None:
    assert parse_version(text) == version


def test_at_least() -> None:
    info = Info(b'{"version":"2.10.27-RC.2"}').decode()
    assert info.at_least(2)
    assert info.at_least(2, 10, 27)
    assert not info.at_least(2, 10, 28)
    assert not info.at_least(2, 11)


def test_connect_always_sends_what_servers_would_default_to_true() -> None:
    sent = json.loads(ConnectInfo().encode())
    assert (sent["verbose"], sent["pedantic"], sent["echo"], sent["protocol"]) == (False, False, True, 1)


def test_connect_has_exactly_the_given_keys() -> None:
    plain = set(json.loads(ConnectInfo().encode()))
    assert plain == {
        "verbose",
        "pedantic",
        "echo",
        "tls_required",
        "lang",
        "version",
        "protocol",
        "headers",
        "no_responders",
    }
    full = json.loads(
        ConnectInfo(name="n", user="u", password="p", jwt="j", nkey="k", sig="s", auth_token="t").encode()
    )
    assert set(full) - plain == {"name", "user", "pass", "jwt", "nkey", "sig", "auth_token"}
    assert full["pass"] == "p"


def test_nothing_breaks_out_of_the_connect_line() -> None:
    line = encode_connect(ConnectInfo(name="a\r\nPUB x 0\r\n\r\n", password="\u2028\x85\n"))
    assert line.startswith(b"CONNECT {")
    assert line.count(b"\r\n") == 1
    assert line.endswith(b"}\r\n")
    assert b"\n" not in line[:-2]


def test_secrets_are_not_shown() -> None:
    info = ConnectInfo(name="n", user="MARK", password="MARK", auth_token="MARK", jwt="MARK", sig="MARK", nkey="MARK")
    assert "MARK" not in repr(info)
    assert "name='n'" in str(info)


def test_server_info_pickles() -> None:
    info = Info(INFO_2_15).decode()
    assert pickle.loads(pickle.dumps(info)) == info


@pytest.mark.parametrize("key", ["connect_urls", "ws_connect_urls"])
def test_a_list_of_urls_is_cut(key: str) -> None:
    urls = [f"h{number}:1" for number in range(20_000)]
    info = Info(json.dumps({key: urls, "max_payload": 7}).encode()).decode()
    assert getattr(info, key) == urls[:2000]
    assert info.max_payload == 7


def test_info_may_be_nested_a_hundred_levels_deep() -> None:
    """The object of INFO itself is the first level."""
    assert decode_info(b'{"new":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}")
    with pytest.raises(InvalidInfo, match="nested"):
        decode_info(b'{"new":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}")
