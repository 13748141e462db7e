"""What a bucket says about its writes and reads when links are cut and servers disagree; and how long it takes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jsclient
from jsclient import errors, keyvalue, services
from jsclient.jetstream import JetStream, PubAck
from jsclient.keyvalue import KeyValue, KeyValueConfig, conditional
from jsclient.testing import NatsServer, Proxy

contexts: dict[Any, JetStream] = {}  # of each bucket


@pytest.fixture
def kv(server: NatsServer, proxy: Proxy) -> Iterator[KeyValue]:
    with jsclient.connect(proxy.url) as nc, jsclient.connect(server.url) as direct:
        js = JetStream(nc)
        made = keyvalue.create_key_value(js, KeyValueConfig(bucket="b", history=3, storage="memory"))
        contexts[made] = js
        yield made
        home = JetStream(direct)
        for name in list(home.stream_names()):
            with contextlib.suppress(errors.StreamNotFound):  # a request that was held back deletes it, too
                home.delete_stream(name)


class Stale:
    """Stores a message and reports what a leader of before a partition answers first: that the sequence is wrong."""

    def __init__(self, js: JetStream) -> None:
        self.js = js
        self.publish = js.publish

    def __call__(self, subject: str, payload: bytes | str = b"", **options: Any) -> PubAck:
        self.publish(subject, payload, **options)
        raise errors.WrongLastSequence(400, 10071, "wrong last sequence: 0")


def test_a_write_that_was_refused_and_stored_is_not_somebody_elses(kv: KeyValue) -> None:
    js = contexts[kv]
    stale = Stale(js)
    js.publish = stale  # type: ignore[assignment]
    assert kv.create("a", b"1") == 1
    assert kv.update("a", b"2", 1) == 2
    kv.delete("a", revision=2)
    assert kv.create("a", b"4") == 4
    kv.purge("a", revision=4)
    js.publish = stale.publish  # type: ignore[method-assign]
    kv.put("b", b"x")
    with pytest.raises(errors.KeyExists):
        kv.create("b", b"y")
    with pytest.raises(errors.RevisionMismatch):
        kv.update("b", b"y", 1)
    with pytest.raises(errors.RevisionMismatch):
        kv.delete("b", revision=1)


def test_a_refusal_for_what_is_not_there_says_nothing_false(kv: KeyValue) -> None:
    """2.15.1 refuses compare-and-sets because of writes that it never keeps, when leaders are killed."""
    js = contexts[kv]
    kv.put("a", b"1")

    def refuse(*_: Any, **__: Any) -> PubAck:
        raise errors.WrongLastSequence(400, 10071, "wrong last sequence: 9")

    js.publish = refuse  # type: ignore[method-assign]
    with pytest.raises(errors.RevisionMismatch, match=r"for revision 1, which the key still has.*Nothing was stored"):
        kv.update("a", b"2", 1)
    with pytest.raises(errors.RevisionMismatch, match="is not at revision 7"):
        kv.update("a", b"2", 7)
    with pytest.raises(errors.RevisionMismatch, match="which the key still has"):
        kv.delete("a", revision=1)
    with pytest.raises(errors.NotStored, match="had no value of it at each look"):
        kv.create("b", b"1")
    assert kv.get("a").value == b"1"


def test_a_write_that_was_refused_stays_refused_when_the_time_is_up(
    kv: KeyValue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there is looked at after a refusal; when that takes too long, the refusal is the outcome all the same."""
    kv.put("a", b"1")

    def late(kv: KeyValue, key: str, deadline: Any) -> Any:
        raise errors.RequestTimeout("no time was left to ask: this was not sent", sent=False)

    monkeypatch.setattr(conditional, "last_message", late)
    with pytest.raises(errors.NotStored):
        kv.create("a", b"2")
    with pytest.raises(errors.RevisionMismatch):
        kv.update("a", b"2", 7)
    with pytest.raises(errors.RevisionMismatch):
        kv.delete("a", revision=7)
    assert kv.get("a").value == b"1"


@pytest.mark.parametrize("direct", [True, False])
def test_a_read_is_repeated_after_a_cut(
    kv: KeyValue, proxy: Proxy, direct: bool, count: Callable[[int, int], int]
) -> None:
    kv.put("a", b"1")
    for _ in range(count(5, 1)):
        proxy.cut_after(30, "down")  # in the middle of the answer
        assert kv.get("a", direct=direct).value == b"1"
        proxy.cut_after(30, "down")
        assert kv.get_revision("a", 1, direct=direct).value == b"1"
    proxy.cut_after(1, "down")
    assert kv.create("b", b"2") > 1
    proxy.cut_after(1, "down")
    assert kv.update("b", b"3", kv.get("b").revision) > 2


CALLS: dict[str, Callable[[KeyValue, float], object]] = {
    "get": lambda kv, timeout: kv.get("a", timeout=timeout),
    "get from the leader": lambda kv, timeout: kv.get("a", direct=False, timeout=timeout),
    "get_many": lambda kv, timeout: kv.get_many(["a", "b"], timeout=timeout),
    "get_revision": lambda kv, timeout: kv.get_revision("a", 1, timeout=timeout),
    "put": lambda kv, timeout: kv.put("a", b"x", timeout=timeout),
    "create": lambda kv, timeout: kv.create("b", b"x", timeout=timeout),
    "update": lambda kv, timeout: kv.update("a", b"x", 1, timeout=timeout),
    "delete": lambda kv, timeout: kv.delete("a", timeout=timeout),
    "purge": lambda kv, timeout: kv.purge("a", timeout=timeout),
    "keys": lambda kv, timeout: list(kv.keys(timeout=timeout)),
    "history": lambda kv, timeout: kv.history("a", timeout=timeout),
    "watch": lambda kv, timeout: kv.watch(timeout=timeout),
    "purge_all": lambda kv, timeout: kv.purge_all(timeout=timeout),
    "purge_deletes": lambda kv, timeout: kv.purge_deletes(0, timeout=timeout),
    "status": lambda kv, timeout: kv.status(timeout=timeout),
    "key_value": lambda kv, timeout: keyvalue.key_value(contexts[kv], "b", timeout=timeout),
    "create_key_value": lambda kv, timeout: keyvalue.create_key_value(
        contexts[kv], KeyValueConfig(bucket="b", history=4, storage="memory"), timeout=timeout
    ),
    "update_key_value": lambda kv, timeout: keyvalue.update_key_value(
        contexts[kv], KeyValueConfig(bucket="b", history=4, storage="memory"), timeout=timeout
    ),
    "create_or_update_key_value": lambda kv, timeout: keyvalue.create_or_update_key_value(
        contexts[kv], KeyValueConfig(bucket="b", history=4, storage="memory"), timeout=timeout
    ),
    "delete_key_value": lambda kv, timeout: keyvalue.delete_key_value(contexts[kv], "b", timeout=timeout),
    "key_value_store_names": lambda kv, timeout: list(keyvalue.key_value_store_names(contexts[kv], timeout=timeout)),
    "key_value_stores": lambda kv, timeout: list(keyvalue.key_value_stores(contexts[kv], timeout=timeout)),
}


@pytest.mark.slow  # test_deadlines.py does it side by side, with four kinds of peers
@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_timeout_bounds_every_call(kv: KeyValue, proxy: Proxy, direction: Any) -> None:
    """The peer takes nothing more, or answers nothing."""
    kv.put("a", b"1")
    proxy.stall(direction)
    late = {}
    for name, call in CALLS.items():
        started = time.monotonic()
        with pytest.raises(errors.TimedOut):
            call(kv, 0.1)
        took = time.monotonic() - started
        if took > 0.1 + 0.2:
            late[name] = took
    proxy.resume()
    assert late == {}


@pytest.mark.slow
def test_a_timeout_bounds_every_call_over_a_slow_link(kv: KeyValue, proxy: Proxy) -> None:
    """Each answer takes a part of the time, and the call many of them."""
    for number in range(4):
        kv.put(f"a{number}", b"1")
    kv.delete("a1")
    proxy.delay(0.06)
    late = {}
    for name, call in CALLS.items():
        # The best of three: a loaded machine may be away for longer than the promised time.
        took = min(timed(lambda call=call: call(kv, 0.2)) for _ in range(3))  # type: ignore[misc]
        if took > 0.2 + 0.2:
            late[name] = took
    proxy.delay(0)
    assert late == {}


def timed(call: Callable[[], object]) -> float:
    started = time.monotonic()
    with contextlib.suppress(errors.TimedOut, errors.JetStreamError):
        call()
    return time.monotonic() - started


def test_services_are_asked_in_time(kv: KeyValue, proxy: Proxy) -> None:
    proxy.stall()
    for ask in (services.ping, services.info, services.stats):
        took = min(timed(lambda ask=ask: list(ask(contexts[kv].nc, timeout=0.1))) for _ in range(3))  # type: ignore[misc]
        assert took < 0.1 + 0.2
    proxy.resume()


def test_every_call_is_in_that_list() -> None:
    asks_nobody = {"batch", "bucket", "stream_name", "typed", "encoded", "read_only"}
    methods = {name for name in dir(KeyValue) if not name.startswith("_")} - asks_nobody
    assert methods <= {name.split()[0] for name in CALLS}
    functions = {name for name in keyvalue.__all__ if name[0].islower()}
    assert functions <= set(CALLS)
