"""Renaming an object while other clients change it, and when the link breaks between two steps."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

import jsclient
from jsclient import errors, objectstore
from jsclient.jetstream import JetStream, Stream
from jsclient.objectstore import ObjectMeta, ObjectStore
from jsclient.testing import NatsServer, Proxy

OLD, NEW = os.urandom(300_000), os.urandom(200_000)
STEPS = 3
"""Publishes of a rename: the old name notes the new one, the new one is stored, the old one is marked as deleted."""


@pytest.fixture
def js(js: JetStream) -> JetStream:
    objectstore.create_object_store(js, bucket="o", storage="memory").put("a", OLD)
    return js


def contents(js: JetStream) -> dict[str, bytes]:
    """What every name has. Each of them is whole, and no chunk belongs to none."""
    store = ObjectStore(js, "o")
    infos = list(store.list())
    chunks = {name.rsplit(".", 1)[1]: count for name, count in js.stream("OBJ_o").subjects("$O.o.C.>")}
    assert chunks == {info.nuid: info.chunks for info in infos}
    return {info.name: store.get_bytes(info.name) for info in infos}


def at_step(js: JetStream, step: int, do: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Call `do` before that publish of this context (the one after the last: when all are over)."""
    publish, done = js.publish, [0]

    def stepped(*args: Any, **options: Any) -> Any:
        done[0] += 1
        if done[0] == step:
            do()
        ack = publish(*args, **options)
        if done[0] == STEPS == step - 1:
            do()
        return ack

    monkeypatch.setattr(js, "publish", stepped)


OTHERS: dict[str, tuple[Callable[[ObjectStore], object], tuple[dict[str, bytes], ...]]] = {
    "puts a": (lambda store: store.put("a", NEW), ({"a": NEW}, {"a": NEW, "b": OLD})),
    "puts b": (lambda store: store.put("b", NEW), ({"a": OLD, "b": NEW}, {"b": NEW})),
    "deletes a": (lambda store: store.delete("a"), ({}, {"b": OLD})),
    "describes a": (
        lambda store: store.update_meta("a", ObjectMeta(name="a", description="d")),
        ({"a": OLD}, {"b": OLD}),
    ),
    "renames a to c": (lambda store: store.update_meta("a", ObjectMeta(name="c")), ({"c": OLD}, {"b": OLD})),
    "links from b": (lambda store: store.add_bucket_link("b", "o"), ({"a": OLD}, {"b": OLD})),
}


@pytest.mark.parametrize("step", range(1, STEPS + 2))
@pytest.mark.parametrize("other", OTHERS)
def test_a_change_by_another_client_is_never_destroyed(
    server: NatsServer, js: JetStream, other: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, possible = OTHERS[other]
    failures: list[errors.JsClientError] = []
    with jsclient.connect(server.url) as second:
        theirs = ObjectStore(JetStream(second), "o")

        def interfere() -> None:
            try:
                change(theirs)
            except errors.BucketError as error:
                failures.append(error)

        mine = JetStream(js.nc)
        at_step(mine, step, interfere, monkeypatch)
        try:
            ObjectStore(mine, "o").update_meta("a", ObjectMeta(name="b"))
            renamed = True
        except (errors.ObjectChanged, errors.ObjectExists):
            renamed = False
    store = ObjectStore(js, "o")
    if other == "links from b" and not failures:  # a link has no data; stored before the rename, it stays
        assert not renamed
        store.delete("b")
    left = contents(js)
    assert left in possible
    if not failures and other.startswith("puts"):
        assert left[other[-1]] == NEW, "the put had returned"
    if renamed and other not in ("puts b",) and step <= STEPS:
        assert left.get("b") == OLD


THEN = ("delete a", "delete b", "put a", "put b", "repeat", "rename a", "rename b")


@pytest.mark.parametrize("step", range(1, STEPS + 1))
@pytest.mark.parametrize("direction", ["down", pytest.param("up", marks=pytest.mark.slow)])
@pytest.mark.parametrize("then", THEN)
def test_a_rename_that_was_interrupted_leaves_whole_objects(
    server: NatsServer, js: JetStream, step: int, direction: Any, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is done with one name afterwards, the other one keeps its data."""
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        mine = JetStream(nc)
        at_step(mine, step, lambda: proxy.stall(direction), monkeypatch)
        with pytest.raises(errors.UnknownOutcome) as caught:
            ObjectStore(mine, "o").update_meta("a", ObjectMeta(name="b"), timeout=0.3)
        proxy.resume()
    store = ObjectStore(js, "o")
    if step == STEPS:
        assert "deleting one keeps the other" in str(caught.value)
    before = {info.name: store.get_bytes(info.name) for info in store.list()}
    assert before in ({"a": OLD}, {"a": OLD, "b": OLD}, {"b": OLD})
    verb, name, *_ = [*then.split(), ""]
    expected = dict(before)
    if verb == "repeat":
        if "a" in before:
            store.update_meta("a", ObjectMeta(name="b"))
        expected = {"b": OLD}
    elif name not in before and verb != "put":
        with pytest.raises(errors.ObjectNotFound):
            (store.info if verb == "delete" else lambda n: store.update_meta(n, ObjectMeta(name="c")))(name)
    elif verb == "delete":
        store.delete(name)
        del expected[name]
    elif verb == "put":
        store.put(name, NEW)
        expected[name] = NEW
    elif len(before) == 2:
        with pytest.raises(errors.ObjectChanged, match="interrupted"):
            store.update_meta(name, ObjectMeta(name="c"))
    else:
        store.update_meta(name, ObjectMeta(name="c"))
        expected["c"] = expected.pop(name)
    assert {info.name: store.get_bytes(info.name) for info in store.list()} == expected
    for last in list(expected):
        store.delete(last)
        del expected[last]
        assert {info.name: store.get_bytes(info.name) for info in store.list()} == expected
    assert contents(js) == {}


def test_watchers_see_that_the_old_name_is_gone(js: JetStream) -> None:
    store = ObjectStore(js, "o")
    with store.watch(updates_only=True) as watcher:
        store.update_meta("a", ObjectMeta(name="b"))
        seen = {info.name: info.deleted for _ in range(3) if (info := watcher.next(5)) is not None}
    assert seen == {"a": True, "b": False}
    assert [info.name for info in store.list(show_deleted=True)] == ["b"]


def test_an_unfinished_put_does_not_take_the_chunks_of_a_renamed_object(
    server: NatsServer, js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The put was stored, but its ack was lost; another client has renamed the object when this one cleans up."""
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        mine = JetStream(nc)
        store = ObjectStore(mine, "o")
        at_step(mine, 1, lambda: proxy.stall("down"), monkeypatch)
        with pytest.raises(errors.UnknownOutcome):
            store.put("u", NEW, timeout=0.5)
        proxy.resume()
        theirs = ObjectStore(js, "o")
        theirs.update_meta("u", ObjectMeta(name="v"))
        store.put("w", b"next")
    assert contents(js) == {"a": OLD, "v": NEW, "w": b"next"}


def test_a_repair_removes_what_a_delete_left(js: JetStream, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore(js, "o")

    def refused(*args: object, **options: object) -> int:
        raise errors.RequestTimeout("the server is away")

    with monkeypatch.context() as context:
        context.setattr(Stream, "purge", refused)
        store.delete("a")
    assert ObjectStore(js, "o").status(repair=True).repaired == 1
    assert contents(js) == {}
