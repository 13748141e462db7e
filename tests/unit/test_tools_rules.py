"""tools/rules.py finds what breaks a rule, and leaves alone what does not; the tree keeps its rules."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import jsclient
from tools import rules

UNDER_LOCK = """
from jsclient import waiting
class A:
    def __init__(self):
        self._lock = waiting.new_lock()
        self.ready = waiting.new_condition()
    def f(self, thread):
        with self._lock:
            """

#: What `dir()` shows of a Connection is its documentation.
CONNECTION = {
    *("options", "state", "closed", "is_connected", "is_draining", "connected_url", "servers", "server_info"),
    *("max_payload", "client_id", "last_error", "stats", "health", "link", "discovered_servers"),
    *("events", "set_callbacks", "barrier", "jetstream"),
    *("publish", "request", "request_many", "subscribe", "new_inbox", "flush", "rtt"),
    *("set_servers", "force_reconnect", "drain", "close"),
}


def found_in(root: Path, **files: str) -> list[str]:
    """What is found in a tree of these files; `a__b` is a/b.py."""
    for name, text in files.items():
        path = root / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return rules.findings(root)


@pytest.mark.slow
def test_the_tree_keeps_its_rules() -> None:
    assert rules.findings() == []


@pytest.mark.parametrize(
    ("file", "text", "finding"),
    [
        ("jsclient__a", "frame = b'PUB %b 2\\r\\nhi\\r\\n' % subject", "builds a frame by hand"),
        ("jsclient__spark__a", "def f(): return b''.join((b'HPUB ', subject))", "builds a frame by hand"),
        ("protocol__a", "b'UNSUB %d'", "builds a frame by hand"),
        ("jsclient__a", UNDER_LOCK + "thread.start()", "thread.start under a lock may wait"),
        ("jsclient__a", UNDER_LOCK + "if 1:\n                waiting.get(thread, 1)", "waiting.get under a lock may"),
        ("jsclient__a", "def f(connection):\n    return connection._hidden", "private to jsclient._connection"),
        ("tests__test_a", "threading.Event().wait(1)", "an Event that nothing sets"),
        ("tests__test_a", "a, pause = 1, threading.Event()\npause.wait(1)", "an Event that nothing sets"),
    ],
)
def test_a_breach_is_found(tmp_path: Path, file: str, text: str, finding: str) -> None:
    hidden = {"jsclient/_connection/b": "class Seen:\n    def _hidden(self): ..."}
    (found,) = found_in(tmp_path, **{**hidden, file: text})
    assert finding in found


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("protocol__frames", "b'SUB %b'"),
        ("jsclient__a", UNDER_LOCK + "{}.get(1)\n        thread.start()"),
        ("jsclient__a", UNDER_LOCK + "pass\n        with self.ready:\n            self.ready.wait(1)"),
        ("jsclient__testing__a", UNDER_LOCK + "thread.join()"),
        ("jsclient__a", "b'PUBLIC', b'_SUB '"),
        ("jsclient__a", "class A:\n    _own = 1\n    def f(self, other): self._mine = other._own + other._mine"),
        ("jsclient__a", "import sys\nsys._getframe()\ndef f(x): return x.__class__"),
        ("tests__test_a", "done = threading.Event()\nstart(done.set)\ndone.wait(1)"),
        ("tests__test_a", "def f(self):\n    self.done = threading.Event()\n    self.done.wait(1)"),
    ],
)
def test_what_is_allowed_is_not_found(tmp_path: Path, file: str, text: str) -> None:
    assert found_in(tmp_path, **{file: text}) == []


@pytest.mark.parametrize(
    "back",
    ["from jsclient.x.a import A", "if 1:\n    import jsclient.x.a", "def f():\n    from jsclient.x import a"],
)
def test_a_circle_of_imports_is_found(tmp_path: Path, back: str) -> None:
    assert found_in(tmp_path, jsclient__x__a="from jsclient.x.b import B", jsclient__x__b="import re") == []
    (found,) = found_in(tmp_path, jsclient__x__b=back)
    assert found.startswith("jsclient.x: ")
    assert "a imports b" in found


def test_only_modules_in_circles_are_excused() -> None:
    graphs = rules.graphs_of(list(rules.modules(rules.ROOT, "protocol", "jsclient")))
    idle = [
        f"{package}.{name}"
        for package, names in rules.CIRCULAR.items()
        for name in names
        if not rules.circle(graphs[package], names - {name})
    ]
    assert idle == []


def test_dir_of_a_connection_is_its_documentation() -> None:
    connection = jsclient.Connection(jsclient.ConnectOptions())
    shown = {name for name in dir(connection) if not name.startswith("_")}
    assert shown == CONNECTION
    assert len(shown) <= 34
    assert [name for name in sorted(shown) if not inspect.getdoc(getattr(jsclient.Connection, name))] == []
    assert jsclient.Connection.__mro__ == (jsclient.Connection, object)
