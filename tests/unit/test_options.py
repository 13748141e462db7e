"""ConnectOptions: checked when made, frozen, comparable, picklable, silent about secrets."""

from __future__ import annotations

import pickle

import attrs
import pytest

from jsclient import ConnectOptions, ReconnectPolicy, TLSOptions, errors


def test_defaults_are_those_of_the_documents() -> None:
    options = ConnectOptions()
    assert options.servers == ("nats://127.0.0.1:4222",)
    assert (options.connect_timeout, options.request_timeout, options.drain_timeout) == (5.0, 5.0, 30.0)
    assert (options.ping_interval, options.max_pings_out) == (8.0, 2)
    assert (options.pending_buffer, options.pending_block) == (8 * 1024 * 1024, None)
    assert options.reconnect == ReconnectPolicy()
    assert not options.wants_tls


def test_servers_as_text_or_list() -> None:
    assert ConnectOptions(servers="a, b ,c").servers == ("a", "b", "c")
    assert ConnectOptions(servers=["a", "b"]).servers == ("a", "b")


def test_frozen_and_comparable() -> None:
    one = ConnectOptions(servers="a", name="n", password="p", user="u")
    assert one == ConnectOptions(servers="a", name="n", password="p", user="u")
    assert one != attrs.evolve(one, password="q")
    assert hash(one) == hash(ConnectOptions(servers="a", name="n", password="p", user="u"))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        one.name = "other"  # type: ignore[misc]


def test_pickles() -> None:
    options = ConnectOptions(servers="a", user="u", password="p", tls=TLSOptions(ca_file="x"), name="n")
    assert pickle.loads(pickle.dumps(options)) == options


def test_repr_shows_no_secret() -> None:
    options = ConnectOptions(servers="nats://joe:hunter2@host,nats://s3cret@other", user=None, token=None)
    assert "hunter2" not in repr(options)
    assert "s3cret" not in repr(options)
    assert "host" in repr(options)
    assert "tok3n" not in repr(ConnectOptions(token="tok3n"))


def test_repr_shows_what_is_set() -> None:
    options = ConnectOptions(servers="a", name="n", ping_interval=3.0, user="u", password="hunter2", on_error=print)
    assert repr(options) == (
        "ConnectOptions(servers='a', name='n', ping_interval=3.0, user=<set>, password=<set>, on_error=<set>)"
    )
    assert repr(ConnectOptions(servers="a")) == "ConnectOptions(servers='a')"


@pytest.mark.parametrize(
    "wrong",
    [
        {"user": "u", "token": "t"},
        {"password": "p"},
        {"servers": ()},
        {"pending_buffer": -1},
        {"pending_block": -0.1},
        {"ping_interval": float("nan")},
        {"inbox_prefix": "a.*"},
        *({"inbox_prefix": prefix} for prefix in ("", "a.", "a..b", ">", "a b", "a\r\nPUB x 1", "a\x00b")),
        *({"name": name} for name in ("a\nb", "a\rb", "a\x00b", "\x1b[31m")),
    ],
    ids=str,
)
def test_what_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        ConnectOptions(**wrong)  # type: ignore[arg-type]


def test_tls_is_wanted_by_any_tls_option() -> None:
    assert ConnectOptions(tls=True).wants_tls
    assert ConnectOptions(tls=TLSOptions()).wants_tls
    assert not ConnectOptions(tls=False).wants_tls


def test_all_errors_are_of_one_family() -> None:
    with pytest.raises(errors.JsClientError):
        ConnectOptions(name="\x00")
