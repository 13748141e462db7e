"""Watching a bucket: what comes, in which order, when it is complete, and how it ends."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import jsclient
from jsclient import errors, keyvalue
from jsclient.jetstream import JetStream
from jsclient.keyvalue import KeyValue, KeyValueConfig, KeyWatcher, Operation
from jsclient.testing import NatsServer, Proxy, wait_until


@pytest.fixture
def kv(js: JetStream) -> KeyValue:
    return keyvalue.create_key_value(js, KeyValueConfig(bucket="b", history=64, storage="memory"))


def take(watcher: KeyWatcher, number: int) -> list[Any]:
    """The next entries as (key, value), or None for the marker."""
    found: list[Any] = []
    for _ in range(number):
        entry = watcher.next(5)
        found.append(None if entry is None else (entry.key, entry.value))
    return found


def nothing_more(watcher: KeyWatcher) -> None:
    with pytest.raises(errors.TimedOut):
        watcher.next(0.3)


def test_current_values_then_none_then_changes(kv: KeyValue) -> None:
    for key in ("a", "c", "a"):
        kv.put(key, b"1")
    kv.put("a", b"3")
    with kv.watch() as watcher:
        assert not watcher.initial_complete
        assert take(watcher, 3) == [("c", b"1"), ("a", b"3"), None]
        assert watcher.initial_complete
        kv.put("d", b"4")
        kv.delete("c")
        assert take(watcher, 2) == [("d", b"4"), ("c", b"")]
        nothing_more(watcher)


def test_an_empty_bucket_is_complete_at_once(kv: KeyValue) -> None:
    with kv.watch() as watcher:
        assert watcher.next(0) is None
        nothing_more(watcher)
        kv.put("a", b"1")
        assert take(watcher, 1) == [("a", b"1")]


def test_options(kv: KeyValue) -> None:
    for number in range(3):
        kv.put("a", b"%d" % number)
    kv.put("gone", b"x")
    kv.delete("gone")
    with kv.watch(include_history=True) as watcher:
        expected = [("a", b"0"), ("a", b"1"), ("a", b"2"), ("gone", b"x"), ("gone", b""), None]
        assert take(watcher, 6) == expected
    with kv.watch(ignore_deletes=True) as watcher:
        assert take(watcher, 2) == [("a", b"2"), None]
        kv.delete("a")
        kv.put("a", b"9")
        assert take(watcher, 1) == [("a", b"9")]
    with kv.watch(meta_only=True) as watcher:
        entry = watcher.next(5)
        assert entry is not None
        assert (entry.key, entry.value, entry.revision, entry.delta) == ("gone", b"", 5, 1)
        assert entry.operation is Operation.DELETE
    with kv.watch(resume_from_revision=6) as watcher:
        assert take(watcher, 3) == [("a", b""), ("a", b"9"), None]
    with kv.watch(updates_only=True) as watcher:
        assert watcher.initial_complete
        kv.put("new", b"1")
        assert take(watcher, 1) == [("new", b"1")]
        nothing_more(watcher)


def test_resuming_where_a_watcher_stopped(kv: KeyValue) -> None:
    for number in range(10):
        kv.put("a", b"%d" % number)
    with kv.watch(include_history=True) as watcher:
        seen = [watcher.next(5) for _ in range(4)]
    last = seen[-1]
    assert last is not None
    with kv.watch(resume_from_revision=last.revision + 1) as watcher:
        assert [entry.value for entry in watcher.initial()] == [b"%d" % number for number in range(4, 10)]


def test_filters_of_one_and_many_keys(kv: KeyValue) -> None:
    for key in ("a.x", "a.y", "c.x", "d.x.y"):
        kv.put(key, key.encode())
    expectations = {
        ("a.x",): ["a.x"],
        ("a.*",): ["a.x", "a.y"],
        ("*.x",): ["a.x", "c.x"],
        ("d.>",): ["d.x.y"],
        ("a.x", "c.x"): ["a.x", "c.x"],
        ("a.y", "d.>"): ["a.y", "d.x.y"],
        ("none", "neither"): [],
    }
    for patterns, keys in expectations.items():
        with kv.watch(*patterns) as watcher:
            assert sorted(entry.key for entry in watcher.initial()) == keys
            kv.put("c.z", b"not for them")
            for key in keys[:1]:
                kv.put(key, b"changed")
                assert take(watcher, 1) == [(key, b"changed")]


def test_changes_made_after_the_call_come_after_the_values_before(kv: KeyValue, js: JetStream) -> None:
    """A bucket that keeps one value would otherwise lose it between the call and the first look."""
    single = keyvalue.create_key_value(js, KeyValueConfig(bucket="single"))
    single.put("a", b"before")
    for number in range(20):
        with single.watch() as watcher:
            single.put("a", b"after %d" % number)
            entries = take(watcher, 3)
            assert entries[1] is None
            assert entries[2] == ("a", b"after %d" % number)


def test_values_that_go_away_on_the_way_do_not_keep_it_waiting(kv: KeyValue, js: JetStream) -> None:
    for number in range(3000):
        js.publish_async(f"$KV.b.k{number}", b"x" * 100)
    js.publish_async_complete(timeout=30)
    with kv.watch() as watcher:
        first = watcher.next(5)
        assert first is not None
        js.stream(kv.stream_name).purge()
        rest = watcher.initial()
        assert len(rest) <= 2999  # before 2.10 all are read before the first is given
        assert watcher.initial_complete
        kv.put("a", b"1")
        assert take(watcher, 1) == [("a", b"1")]


def test_it_is_an_iterator_with_a_timeout(kv: KeyValue) -> None:
    kv.put("a", b"1")
    with kv.watch(timeout=0.2) as watcher:
        seen: list[Any] = []
        with pytest.raises(errors.TimedOut):
            seen.extend(entry.key for entry in watcher)
        assert seen == ["a"]  # no marker in a loop
        assert watcher.initial_complete
        kv.put("c", b"2")
        assert take(watcher, 1) == [("c", b"2")]
    for bad in (-1, float("nan")):
        with pytest.raises(ValueError):
            kv.watch(timeout=bad)


@pytest.mark.parametrize(("keys", "seen"), [("a", 0), ("abc", 0), ("abc", 1)])
def test_a_stopped_watch_does_not_say_that_the_bucket_has_no_more(kv: KeyValue, keys: str, seen: int) -> None:
    for key in keys:
        kv.put(key, b"1")
    watcher = kv.watch()
    for _ in range(seen):
        watcher.next(5)
    watcher.stop()
    assert not watcher.initial_complete
    with pytest.raises(errors.IteratorClosed):
        watcher.initial(1)
    assert list(watcher) == []


def test_any_thread_may_stop_it(kv: KeyValue) -> None:
    watcher = kv.watch()
    assert watcher.next(5) is None
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.extend(watcher))
    thread.start()
    kv.put("a", b"1")
    wait_until(lambda: ended, 5)
    watcher.stop()
    thread.join(5)
    assert not thread.is_alive()
    assert [entry.key for entry in ended] == ["a"]
    with pytest.raises(errors.IteratorClosed):
        watcher.next(1)
    watcher.stop()
    assert watcher.stopped


def test_closing_the_connection_ends_it(server: NatsServer, kv: KeyValue) -> None:
    with jsclient.connect(server.url) as nc:
        watcher = keyvalue.key_value(JetStream(nc), "b").watch()
        assert watcher.next(5) is None
        failed: list[BaseException] = []

        def wait() -> None:
            try:
                watcher.next(None)
            except errors.JsClientError as error:
                failed.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        nc.close()
        thread.join(5)
        assert not thread.is_alive()
        assert isinstance(failed[0], errors.ConnectionClosed)
        watcher.stop()


def test_watchers_leave_no_consumers_behind(kv: KeyValue, js: JetStream) -> None:
    kv.put("a", b"1")
    for _ in range(5):
        list(kv.keys())
        kv.history("a")
    listing = kv.keys()
    next(listing)
    listing.close()  # type: ignore[attr-defined]
    with kv.watch():
        pass
    wait_until(lambda: not list(js.consumer_names("KV_b")), 10, "consumers were left behind")


def test_cut_links_lose_and_repeat_nothing(server: NatsServer, kv: KeyValue) -> None:
    with Proxy(server.port) as proxy, jsclient.connect(f"nats://127.0.0.1:{proxy.port}") as nc:
        watched = keyvalue.key_value(JetStream(nc), "b")
        revisions: list[int] = []
        with watched.watch("a.>", include_history=True) as watcher:
            assert watcher.next(5) is None
            for round_ in range(5):
                for number in range(20):
                    kv.put(f"a.{number % 3}", b"%d" % round_)
                    if number == 10:
                        proxy.cut()
                while len(revisions) < 20 * (round_ + 1):
                    entry = watcher.next(20)
                    assert entry is not None
                    revisions.append(entry.revision)
            nothing_more(watcher)
        assert revisions == list(range(1, 101))


def test_changes_made_while_cut_off_come_once_even_without_any_before(server: NatsServer, kv: KeyValue) -> None:
    """Also where the first pass brought nothing, or ended before the last message of the stream."""
    kv.put("other", b"1")
    ways: list[dict[str, Any]] = [{}, {"updates_only": True}]
    for options in ways:
        with Proxy(server.port) as proxy, jsclient.connect(f"nats://127.0.0.1:{proxy.port}") as nc:
            with keyvalue.key_value(JetStream(nc), "b").watch("a.*", **options) as watcher:
                if not options:
                    assert watcher.next(5) is None
                proxy.refuse()
                proxy.cut()
                wait_until(lambda nc=nc: not nc.is_connected, 5)  # type: ignore[misc]
                for number in range(5):
                    kv.put("a.x", b"%d" % number)
                proxy.accept()
                assert take(watcher, 5) == [("a.x", b"%d" % number) for number in range(5)]
                nothing_more(watcher)
        kv.purge_all()
        kv.purge_deletes(0)


def test_a_callback_gets_every_entry(kv: KeyValue, js: JetStream) -> None:
    """On a thread of its own; one that fails is told to `on_error`, and the next entry comes all the same."""
    told: list[BaseException] = []
    js.nc.set_callbacks(on_error=lambda _, error, __: told.append(error))
    kv.put("a", b"1")
    seen: list[tuple[str, bytes]] = []

    def note(entry: keyvalue.KeyValueEntry) -> None:
        seen.append((entry.key, entry.value))
        if entry.value == b"2":
            raise RuntimeError("two")

    with kv.watch(callback=note) as watcher:
        wait_until(lambda: seen == [("a", b"1")])
        kv.put("a", b"2")
        kv.put("b", b"3")
        wait_until(lambda: seen == [("a", b"1"), ("a", b"2"), ("b", b"3")])
        wait_until(lambda: [str(error) for error in told] == ["two"])
    assert watcher.stopped
    kv.put("c", b"4")
    assert len(seen) == 3
    js.nc.set_callbacks(on_error=None)
