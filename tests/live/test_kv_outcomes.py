"""What a bucket says about its writes and reads when links are cut and servers disagree; and how long it takes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jsclient
from jsclient import errors, keyvalue
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
