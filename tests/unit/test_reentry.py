"""Signal handlers and finalizers at any point of a call: nothing hangs, nothing gets out of step."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from jsclient import Connection, ConnectOptions, errors, waiting
from jsclient._connection import pings
from jsclient._connection import requests as requesting
from jsclient._connection import subscriptions as table
from jsclient._connection.sender import LinkFrame
from jsclient.connection import engine_of
from jsclient.jetstream.publishing import in_flight
from jsclient.subscription import Subscription


def struck(number: int, module: Any, strike: Callable[[], Any], call: Callable[[], Any]) -> bool:
    """Run `call`, and `strike` on top of it before its `number`-th bytecode in a module; False when it has fewer."""
    left, done = number, False

    def local(frame: Any, event: str, arg: Any) -> Any:
        nonlocal left, done
        if event in ("line", "opcode") and not done:  # 3.12 does not tell of every opcode
            left -= 1
            if left == 0:
                done = True
                sys.settrace(None)
                strike()
        return None if done else local

    def enter(frame: Any, event: str, arg: Any) -> Any:
        if done or frame.f_code.co_filename != module.__file__:
            return None
        frame.f_trace_opcodes = True
        return local

    previous = sys.gettrace()
    sys.settrace(enter)
    try:
        call()
    finally:
        sys.settrace(previous)
    return done


def at_every_point(module: Any, run: Callable[[Callable[[Callable[[], Any], Callable[[], Any]], bool]], None]) -> int:
    """Call `run(struck)` for each bytecode until there are no more; returns how many there are."""
    number, more = 0, True

    def one(strike: Callable[[], Any], call: Callable[[], Any]) -> bool:
        nonlocal more
        more = struck(number, module, strike, call)
        return more

    while more:
        number += 1
        run(one)
    return number


class Wire:
    """A transport that takes everything, and tells what the server then knows."""

    exact = True
    never_blocks = True
    needs_flush = False
    unsent = 0

    def __init__(self) -> None:
        self.taken = b""

    def write(self, blocks: Sequence[bytes]) -> Iterator[int]:
        data = b"".join(blocks)
        self.taken += data
        yield len(data)

    def subscribed(self) -> dict[bytes, bytes]:
        """sid -> its limit, b"" without one."""
        found: dict[bytes, bytes] = {}
        for line in self.taken.split(b"\r\n"):
            words = line.split()
            if words[:1] == [b"SUB"]:
                found.setdefault(words[-1], b"")
            elif words[:1] == [b"UNSUB"] and len(words) == 2:
                found.pop(words[1], None)
            elif words[:1] == [b"UNSUB"] and words[1] in found:
                found[words[1]] = words[2]
        return found


class Rig:
    """A connection without threads; its links are made here."""

    def __init__(self) -> None:
        self.nc = Connection(ConnectOptions())
        self.wire = Wire()
        self.up()

    def up(self) -> None:
        self.wire = Wire()
        link: Any = SimpleNamespace(stream=self.wire)
        engine_of(self.nc).session.pings.begin()
        engine_of(self.nc).link_up(link)

    def down(self) -> None:
        engine_of(self.nc).outbox.go_offline()
        engine_of(self.nc).outbox.detach()
        engine_of(self.nc).session.pings.fail(lambda: errors.ConnectionLost("gone"))

    def check(self) -> None:
        engine_of(self.nc).outbox.drain()
        assert set(self.wire.subscribed()) == set(engine_of(self.nc).subscriptions.sinks)


# --- pings ----------------------------------------------------------------------------------------------


def relink(rig: Rig) -> None:
    rig.down()
    rig.up()


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("kind", ["another ping", "Ctrl-C", "the link is lost", "a new link"])
def test_pings_and_those_who_wait_for_them_stay_in_step(kind: str) -> None:
    def run(one: Any) -> None:
        rig = Rig()
        sent = engine_of(rig.nc).session.pings
        own: waiting.Ticket[Any] = waiting.Ticket()
        other: waiting.Ticket[Any] = waiting.Ticket()
        strikes = {
            "another ping": lambda: sent.send(other),
            "Ctrl-C": interrupt,
            "the link is lost": rig.down,
            "a new link": lambda: relink(rig),
        }
        try:
            one(strikes[kind], lambda: sent.send(own))
        except KeyboardInterrupt:
            own = waiting.Ticket()
        queued = [frame for frame in engine_of(rig.nc).outbox.frames if isinstance(frame, pings.Ping)]
        assert len(queued) == len(sent.waiters)
        assert all(a is b for a, b in zip(queued, sent.waiters, strict=True))
        waits = [ping.ticket for ping in sent.waiters]
        if kind in ("the link is lost", "a new link"):
            assert own in waits or isinstance(own.get_nowait(), errors.ConnectionLost)

    assert at_every_point(pings, run) > 5


# --- the table of subscriptions -------------------------------------------------------------------------


@pytest.mark.parametrize("nested", ["subscribe", "close", "limit", "the link is lost", "a new link"])
@pytest.mark.parametrize("call", ["subscribe", "close", "limit", "a new link"])
def test_the_server_knows_what_the_table_holds(call: str, nested: str) -> None:
    """Whatever strikes, and wherever: after all of it (and a new link, if there is none) both are the same."""
    if call == "a new link" and nested in ("the link is lost", "a new link"):
        return  # one thread does these, one after the other

    def run(one: Any) -> None:
        rig = Rig()
        nc = rig.nc
        subs: list[Subscription] = [nc.subscribe(f"s.{n}") for n in range(6)]
        actions = {
            "subscribe": lambda: nc.subscribe("more"),
            "close": lambda: subs.pop().close(),
            "limit": lambda: subs.pop(0).unsubscribe(7),
            "the link is lost": rig.down,
            "a new link": lambda: relink(rig),
        }
        calls = [call, nested] if one(actions[nested], actions[call]) else [call]
        if engine_of(nc).outbox.offline:
            rig.up()
        rig.check()
        limits = [limit for limit in rig.wire.subscribed().values() if limit]
        assert limits == [b"7"] * calls.count("limit")

    at_every_point(table, run)


def test_what_is_subscribed_while_the_connection_closes_is_ended() -> None:
    def run(one: Any) -> None:
        rig = Rig()

        def close() -> None:
            engine_of(rig.nc).session.closing.set()
            engine_of(rig.nc).shutdown._let_go()

        try:
            one(close, lambda: rig.nc.subscribe("late"))
        except errors.ConnectionClosed:
            pass
        for sub in engine_of(rig.nc).subscriptions.sinks.values():
            assert sub.mailbox.closed is not None or not rig.nc.closed

    assert at_every_point(table, run) > 5


# --- the inbox of requests, the window of asynchronous publishes ----------------------------------------


def test_a_request_on_top_of_the_first_request() -> None:
    def run(one: Any) -> None:
        made = engine_of(Connection(ConnectOptions())).requests
        one(made._open_inbox, made._open_inbox)
        assert made.prefix is not None

    at_every_point(requesting, run)


def test_a_publish_on_top_of_the_window() -> None:
    def run(one: Any) -> None:
        window = in_flight.Window(1, 10)
        window.pending[b"1"] = None  # type: ignore[assignment]
        one(lambda: window.wait_for_room(1, 0.001), lambda: window.wait_for_room(1, 0.001))
        assert not window.parked

    at_every_point(in_flight, run)


# --- the rule -------------------------------------------------------------------------------------------


def test_locks_let_a_nested_call_in_and_are_free_in_a_child() -> None:
    lock, turn = waiting.new_lock(), waiting.new_turn()
    with lock, lock, turn:
        waiting.free_locks()  # the holder itself has forked, in a signal handler
    holder = threading.Thread(target=lambda: (lock.acquire(), turn.acquire()))
    holder.start()
    holder.join()
    waiting.free_locks()  # in a child the holder is not there
    for made in (lock, turn):
        assert made.acquire(False)
        made.release()


def test_the_holder_of_a_turn_is_known() -> None:
    turn, found = waiting.new_turn(), []
    assert waiting.holder(turn) == 0
    with turn:
        thread = threading.Thread(target=lambda: found.append(waiting.holder(turn)))
        thread.start()
        thread.join()
        assert found == [threading.get_ident()]
    assert waiting.holder(turn) == 0
    assert waiting.holder(object()) is None


def test_a_turn_that_is_ones_own_is_refused() -> None:
    turn = waiting.new_turn()
    waiting.check_turn(turn, "it was used")
    with turn, pytest.raises(errors.Reentered, match="it was used in a signal handler or finalizer"):
        waiting.check_turn(turn, "it was used")


def test_a_wait_without_limit_on_top_of_a_lock_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LONG", 0.01)
    lock = waiting.new_lock()
    with lock:
        for timeout in (None, 1e10):
            with pytest.raises(errors.Reentered, match="without a limit"):
                waiting.Gate().wait(timeout)
        assert waiting.Gate().wait(0.02) is False, "it ends by itself"
    ticket: waiting.Ticket[int] = waiting.Ticket()
    threading.Timer(0.05, lambda: ticket.put(1)).start()
    assert waiting.get(ticket, None) == 1, "nobody holds it now"


def test_nothing_waits_on_the_reader_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LONG", 0.01)
    rig = Rig()
    with waiting.as_reader():
        with pytest.raises(errors.Reentered, match="reader thread"):
            waiting.get(waiting.Ticket(), 5)
        for call in (
            lambda: rig.nc.request("s", timeout=5),
            lambda: next(iter(rig.nc.request_many("s", timeout=5))),
            lambda: rig.nc.flush(timeout=5),
            lambda: rig.nc.subscribe("s").next(timeout=5),
        ):
            with pytest.raises(errors.Reentered):
                call()
    assert not waiting.on_reader()
    with pytest.raises(queue.Empty):
        waiting.get(waiting.Ticket(), 0.02)
    assert not any(isinstance(frame, LinkFrame) and b"PUB" in bytes(frame) for frame in engine_of(rig.nc).outbox.frames)
