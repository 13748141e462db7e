"""Requests: replies, timeouts, no responders, many replies."""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.connection import engine_of
from jsclient.testing import FakeServer, NatsServer, ScriptFailed, wait_until


@pytest.fixture
def pair(server: NatsServer) -> Any:
    with jsclient.connect(server.url) as nc, jsclient.connect(server.url) as other:
        yield nc, other


def test_request_and_reply_with_headers(pair: Any) -> None:
    nc, other = pair
    other.subscribe("echo", lambda m: m.respond(m.data + b"!", headers={"Seen": m.headers["Mark"]}))
    other.flush()
    reply = nc.request("echo", "hi", headers={"Mark": "7"})
    assert reply.data == b"hi!"
    assert reply.headers["Seen"] == "7"


def test_no_responders_fails_at_once(pair: Any) -> None:
    nc, _ = pair
    start = time.monotonic()
    with pytest.raises(errors.NoResponders, match="nobody") as caught:
        nc.request("nobody", timeout=30)
    assert caught.value.subject == "nobody"
    assert time.monotonic() - start < 2


def test_timeouts(pair: Any) -> None:
    nc, other = pair
    other.subscribe("silent", lambda message: None)
    other.flush()
    with pytest.raises(errors.RequestTimeout, match=r"0\.05"):
        nc.request("silent", timeout=0.05)
    with pytest.raises(TimeoutError):
        nc.request("silent", timeout=0)
    with pytest.raises(ValueError, match="timeout"):
        nc.request("silent", timeout=-1)
    assert not engine_of(nc).requests.waiting


def test_late_replies_are_dropped(pair: Any) -> None:
    nc, other = pair
    asked = other.subscribe("late")
    other.flush()
    with pytest.raises(errors.RequestTimeout):
        nc.request("late", b"1", timeout=0.02)
    first = asked.next(timeout=5)

    def answer() -> None:
        second = asked.next(timeout=5)
        first.respond(b"old")
        second.respond(b"new")

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    assert nc.request("late", b"2", timeout=5).data == b"new"
    thread.join(5)


def test_an_empty_reply_with_a_status_header_of_the_user_is_a_reply(pair: Any) -> None:
    nc, other = pair
    other.subscribe("status", lambda m: m.respond(b"", headers={"Status": "503"}))
    other.flush()
    reply = nc.request("status")
    assert reply.status is None
    assert reply.headers["Status"] == "503"


def test_a_request_on_one_connection_answered_by_itself(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        nc.subscribe("self", lambda m: m.respond(m.data))
        assert nc.request("self", b"x").data == b"x"


def test_replies_whose_subject_an_import_rewrote() -> None:
    """One request under way and a reply on our sid with another subject: it can only be meant for that one."""

    def script(client: Any) -> None:
        client.handshake()
        client.expect(b"SUB _INBOX.")
        client.expect(b"PUB service ")
        client.line()
        client.send(b"MSG rewritten.subject 1 2\r\nok\r\n")
        try:
            client.expect(b"PING\r\n")
            client.send(b"PONG\r\n")
        except ScriptFailed:
            pass

    with FakeServer(script) as fake, jsclient.connect(fake.url) as nc:
        assert nc.request("service", b"x", timeout=5).data == b"ok"


# --- many replies ---------------------------------------------------------------------------------------


def responders(other: Any, number: int) -> None:
    for index in range(number):
        other.subscribe("many", lambda m, index=index: m.respond(b"%d" % index))
    other.flush()


def test_many_replies_up_to_a_count(pair: Any) -> None:
    nc, other = pair
    responders(other, 5)
    assert len(list(nc.request_many("many", max_messages=3, timeout=10))) == 3
    assert not engine_of(nc).requests.waiting


def test_many_replies_until_they_stall(pair: Any) -> None:
    nc, other = pair
    responders(other, 5)
    start = time.monotonic()
    got = sorted(m.data for m in nc.request_many("many", timeout=30, stall=1))
    assert got == [b"0", b"1", b"2", b"3", b"4"]
    assert time.monotonic() - start < 5


def test_many_replies_until_the_total_timeout(pair: Any) -> None:
    nc, other = pair
    responders(other, 2)
    start = time.monotonic()
    assert len(list(nc.request_many("many", timeout=1))) == 2
    assert 1 <= time.monotonic() - start < 2


def test_many_replies_until_the_sentinel(pair: Any) -> None:
    nc, other = pair

    def answer(message: jsclient.Msg) -> None:
        for part in (b"a", b"b", b"", b"late"):
            message.respond(part)

    other.subscribe("parts", answer)
    other.flush()
    got = list(nc.request_many("parts", timeout=30, sentinel=jsclient.empty_payload))
    assert [message.data for message in got] == [b"a", b"b"]


def test_many_replies_from_nobody(pair: Any) -> None:
    nc, other = pair
    with pytest.raises(errors.NoResponders):
        list(nc.request_many("nobody", timeout=30))
    other.subscribe("mute", lambda message: None)
    other.flush()
    assert list(nc.request_many("mute", timeout=0.05)) == []


def test_bad_arguments_fail_before_the_first_reply_is_asked_for(pair: Any) -> None:
    nc, _ = pair
    calls: list[Callable[[], object]] = [
        lambda: nc.request_many("a b"),
        lambda: nc.request_many("a", max_messages=0),
        lambda: nc.request_many("a", timeout=-1),
        lambda: nc.request_many("a", stall=-1),
    ]
    for call in calls:
        with pytest.raises(ValueError):
            call()


def test_an_iterator_that_is_given_up_forgets_its_request(pair: Any) -> None:
    nc, other = pair
    responders(other, 3)
    replies = nc.request_many("many", timeout=30)
    next(replies)
    replies.close()
    assert not engine_of(nc).requests.waiting


def interrupted(number: int, call: Callable[[], Any]) -> bool:
    """Run `call` with a Ctrl-C at its `number`-th entry into a function of ours; False when there are fewer."""
    left, struck = number, False

    def trace(frame: Any, event: str, arg: Any) -> None:
        nonlocal left, struck
        if not frame.f_globals.get("__name__", "").startswith("jsclient"):
            return  # a callback of the garbage collector, say, where it would only be printed
        if frame.f_code.co_flags & inspect.CO_GENERATOR:
            return  # Python 3.10 would skip the `finally` of a generator that is struck at its door; no signal does
        left -= 1
        if left == 0:
            sys.settrace(None)
            struck = True
            raise KeyboardInterrupt

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(previous)
    return struck


@pytest.mark.parametrize("call", ["request", "request_many"])
def test_ctrl_c_anywhere_in_a_request_leaves_nothing_behind(server: NatsServer, call: str) -> None:
    with jsclient.connect(server.url) as nc, jsclient.connect(server.url) as other:
        other.subscribe("echo.struck", lambda message: message.respond(b"y"))
        other.flush()
        calls: dict[str, Callable[[], Any]] = {
            "request": lambda: nc.request("echo.struck", b"x", timeout=5),
            "request_many": lambda: list(nc.request_many("echo.struck", b"x", timeout=5, max_messages=1)),
        }
        calls[call]()
        number = 1
        while interrupted(number, calls[call]):
            assert not engine_of(nc).requests.waiting, number
            assert nc.request("echo.struck", b"x", timeout=5).data == b"y"
            number += 1
        assert number > 10


def test_a_reconnect_that_ctrl_c_cuts_short_happens_all_the_same(server: NatsServer) -> None:
    with jsclient.connect(server.url, ping_interval=0.4) as nc:
        for number in range(1, 1000):
            struck = interrupted(number, nc.force_reconnect)
            start = time.monotonic()
            wait_until(lambda: healthy(nc), 5)
            assert time.monotonic() - start < 1, number
            if not struck:
                break
        assert number > 10


def healthy(nc: jsclient.Connection) -> bool:
    link = engine_of(nc).session.link
    if link is None or link.error is not None:
        return False
    try:
        nc.flush(timeout=1)
    except errors.JsClientError:
        return False
    return True


@pytest.mark.parametrize("timeout", [float("inf"), 1e300])
def test_a_timeout_beyond_what_clocks_count_is_none(pair: Any, timeout: float) -> None:
    nc, other = pair
    other.subscribe("for.ever", lambda message: message.respond(b"y"))
    other.flush()
    assert nc.request("for.ever", timeout=timeout).data == b"y"
    assert [m.data for m in nc.request_many("for.ever", timeout=timeout, max_messages=1)] == [b"y"]
    nc.flush(timeout=timeout)
    sub = nc.subscribe("for.ever.own")
    nc.publish("for.ever.own", b"x")
    assert sub.next(timeout=timeout).data == b"x"
    sub.drain(timeout=timeout)
    nc.drain(timeout=timeout)
