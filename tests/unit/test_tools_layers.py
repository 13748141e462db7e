"""tools/layers.py: the tree keeps its rules, and the checker sees each kind of breach."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path

import pytest

import jsclient

ROOT = Path(__file__).resolve().parents[2]


def load(name: str):  # type: ignore[no-untyped-def]
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


layers = load("layers")


def test_the_tree_keeps_its_rules() -> None:
    assert layers.findings() == []


UNDER_LOCK = """
from jsclient import waiting
class A:
    def __init__(self):
        self._lock = waiting.new_lock()
        self.ready = waiting.new_condition()
    def f(self, thread):
        with self._lock:
            """


CHECKING = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "


@pytest.mark.parametrize(
    ("file", "text", "finding"),
    [
        ("protocol/a.py", "import time", "must not know time"),
        ("protocol/a.py", "def f():\n    from socket import create_server", "must not know socket"),
        ("protocol/a.py", "from jsclient import errors", "must not know jsclient"),
        ("jsclient/a.py", "import pyspark.sql", "only jsclient/spark imports pyspark"),
        ("jsclient/errors.py", "import jsclient.connection", "stands above errors"),
        ("jsclient/errors.py", "from jsclient import connection", "stands above errors"),
        ("jsclient/errors.py", "from .connection import X", "stands above errors"),
        ("jsclient/connection.py", "from jsclient.jetstream import JetStream", "stands above connection"),
        ("jsclient/jetstream/a.py", "import socket", "must not know socket"),
        ("jsclient/keyvalue/a.py", "from jsclient.services import x", "do not know each other"),
        ("jsclient/a.py", "import tools.java", "imported by nothing"),
        ("jsclient/workers/a.py", "import threading\nthreading.Event()", "use waiting.Gate"),
        ("jsclient/a.py", "frame = b'PUB %b 2\\r\\nhi\\r\\n' % subject", "builds a frame by hand"),
        ("jsclient/spark/a.py", "def f(): return b''.join((b'HPUB ', subject))", "builds a frame by hand"),
        ("jsclient/spark/a.py", "def f(nc): return nc.new_inbox()", "new_inbox() asks by itself"),
        ("jsclient/arrow/a.py", "def f(engine): engine.open_sink('a', None)", "open_sink() asks by itself"),
        ("jsclient/exactly/a.py", "def f(nc): return nc.new_inbox()", "new_inbox() asks by itself"),
        ("jsclient/planning/a.py", "def f(engine): engine.post(1)", "post() asks by itself"),
        ("jsclient/planning/a.py", "import pyspark", "only jsclient/spark imports pyspark"),
        ("jsclient/planning/a.py", CHECKING + "from jsclient.spark.options import X", "any engine can use this"),
        ("jsclient/exactly/a.py", CHECKING + "from jsclient import spark", "any engine can use this"),
        ("jsclient/exactly/a.py", CHECKING + "from ..spark import options", "any engine can use this"),
        ("jsclient/arrow/a.py", CHECKING + "import jsclient.spark", "any engine can use this"),
        ("jsclient/exactly/a.py", "from jsclient.planning import x", "do not know each other"),
        ("jsclient/arrow/a.py", "from jsclient.exactly import x", "stands above arrow"),
        ("jsclient/exactly/a.py", "import jsclient.coordination", "stands above exactly"),
        ("protocol/a.py", "b'UNSUB %d'", "builds a frame by hand"),
        ("jsclient/spark/a.py", "from protocol.frames import hpub, pub_end", "joins a frame from pub_end"),
        ("jsclient/cli/a.py", "threading.Thread(target=print).start()", "threading.Thread may wait for ever"),
        ("jsclient/a.py", "from threading import Thread", "threading.Thread may wait for ever"),
        ("jsclient/testing/a.py", "class Mine(threading.Thread): ...", "threading.Thread may wait for ever"),
        ("jsclient/spark/a.py", "from concurrent.futures import ThreadPoolExecutor", "only jsclient/threads.py begins"),
        ("jsclient/a.py", UNDER_LOCK + "thread.start()", "thread.start under a lock may wait"),
        (
            "jsclient/a.py",
            UNDER_LOCK + "if 1:\n                waiting.get(thread, 1)",
            "waiting.get under a lock may",
        ),
        ("jsclient/a.py", "def f(connection):\n    return connection._hidden", "private to jsclient._engine"),
        ("jsclient/process.py", "from jsclient._engine.b import _hidden", "private to jsclient._engine"),
        ("jsclient/workers/a.py", "from jsclient._engine.b import Seen", "only jsclient._engine itself is for others"),
        ("jsclient/workers/a.py", "import jsclient._engine.b", "only jsclient._engine itself is for others"),
        ("tests/unit/test_a.py", "import time\ntime.sleep(1)", "sleeps"),
        ("tests/unit/test_a.py", "from time import sleep\nsleep(1)", "sleeps"),
        ("tests/unit/test_a.py", "threading.Event().wait(1)", "an Event that nothing sets"),
        ("tests/unit/test_a.py", "a, pause = 1, threading.Event()\npause.wait(1)", "an Event that nothing sets"),
    ],
)
def test_a_breach_is_found(tmp_path: Path, file: str, text: str, finding: str) -> None:
    packages = ("jetstream", "services", "exactly", "planning", "coordination")
    for known in ("jsclient/connection.py", *(f"jsclient/{package}/__init__.py" for package in packages)):
        (tmp_path / known).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / known).touch()
    (tmp_path / "jsclient/_engine").mkdir()
    (tmp_path / "jsclient/_engine/b.py").write_text("class Seen:\n    def _hidden(self): ...\ndef _hidden(): ...")
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    (found,) = layers.findings(tmp_path)
    assert finding in found


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("protocol/frames.py", "b'SUB %b'"),
        ("jsclient/a.py", UNDER_LOCK + "{}.get(1)\n        thread.start()"),
        ("jsclient/a.py", UNDER_LOCK + "pass\n        with self.ready:\n            self.ready.wait(1)"),
        ("jsclient/testing/a.py", UNDER_LOCK + "thread.join()"),
        ("jsclient/a.py", "b'PUBLIC', b'_SUB '"),
        ("jsclient/a.py", "from jsclient.threads import Thread\nThread('a', print).start()"),
        ("jsclient/a.py", "import threading\nmine: threading.Thread = threading.current_thread()"),
        ("protocol/a.py", "import re, msgspec\nfrom protocol.b import c\nfrom .b import d"),
        ("jsclient/errors.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import jsclient.connection"),
        ("jsclient/spark/a.py", "import pyspark\nfrom jsclient.jetstream import x\nfrom jsclient import connect"),
        ("jsclient/spark/a.py", "import jsclient.exactly.task\nfrom jsclient.planning import offsets"),
        ("jsclient/exactly/a.py", "from jsclient.arrow import access\nfrom jsclient.keyvalue import KeyValue"),
        ("jsclient/keyvalue/a.py", "from jsclient.jetstream.api.requests import Api"),
        ("tests/unit/test_a.py", "from jsclient.testing import wait_until\nwait_until(lambda: 1)"),
        ("tests/unit/test_a.py", "done = threading.Event()\nstart(done.set)\ndone.wait(1)"),
        ("tests/unit/test_a.py", "def f(self):\n    self.done = threading.Event()\n    self.done.wait(1)"),
    ],
)
def test_what_is_allowed_is_not_found(tmp_path: Path, file: str, text: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert layers.findings(tmp_path) == []


def tree(root: Path, **files: str) -> list[str]:
    """What is found in modules of jsclient; `a__b` is a/b.py."""
    for name, text in files.items():
        path = root / "jsclient" / f"{name.replace('__', '/', 1)}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found: list[str] = layers.findings(root)
    return found


@pytest.mark.parametrize(
    "second",
    [
        "import jsclient.a",
        "from jsclient import a",
        "from jsclient.a import x",
        "from . import a",
        "from .a import x",
        "def f():\n    from jsclient import a",
        "class B:\n    def f(self):\n        if self:\n            import jsclient.a",
    ],
)
def test_a_circle_is_found_once_with_its_way(tmp_path: Path, second: str) -> None:
    (found,) = tree(tmp_path, a="import os\nfrom jsclient import b\nx = 1", b=second)
    assert found == "jsclient/a.py:2: imports in a circle: jsclient.a -> jsclient.b -> jsclient.a"


def test_circles_of_three_and_those_beside_them(tmp_path: Path) -> None:
    found = tree(
        tmp_path,
        a="import jsclient.b",
        b="import jsclient.c",
        c="import jsclient.a\nimport jsclient.d",
        d="import jsclient.e",
        e="from jsclient.d import x",
        f="import jsclient.a",
    )
    assert found == [
        "jsclient/a.py:1: imports in a circle: jsclient.a -> jsclient.b -> jsclient.c -> jsclient.a",
        "jsclient/d.py:1: imports in a circle: jsclient.d -> jsclient.e -> jsclient.d",
    ]


def test_what_is_no_circle(tmp_path: Path) -> None:
    checking = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from jsclient.a import A"
    assert not tree(tmp_path, a="import jsclient.b\nimport jsclient.c", b="import jsclient.c", c=checking)
    assert not tree(tmp_path, d__x="from jsclient.d import y", d__y="import jsclient.a", d____init__="")


def test_sparks_own_part_stays_small(tmp_path: Path) -> None:
    most = layers.SPARK_LINES
    assert not tree(tmp_path, spark__a="\n" * (most - 100), spark__b="x = 1\n" * 100)
    (found,) = tree(tmp_path, spark__c="\n")
    assert found.startswith(f"jsclient/spark: has {most + 1} lines, at most {most}")


def test_names_of_headers_are_typed_once(tmp_path: Path) -> None:
    owner = 'STREAM = "Nats-Stream"\nTIME = "Nats-Time-Stamp"'
    found = tree(
        tmp_path,
        **{
            "jetstream__api/headers": owner,
            "arrow__a": 'a = b"Nats-Stream"',
            "cli__a": 'f"{a} Nats-Stream", "Nats-Other"',
        },
    )
    assert [one for one in found if "types" in one] == [
        "jsclient/arrow/a.py:1: types Nats-Stream once more; jsclient.jetstream.api.headers has it"
    ]


def test_modules_of_jetstream_have_a_test_of_their_name(tmp_path: Path) -> None:
    (tmp_path / "tests/unit").mkdir(parents=True)
    (tmp_path / "tests/unit/test_publish_a.py").touch()
    (tmp_path / "tests/unit/test_bs.py").touch()
    names = ["jetstream__publishing/a", "jetstream__consuming/b", "jetstream__consuming/c", "workers__d"]
    assert tree(tmp_path, **dict.fromkeys(names, "")) == [
        "jsclient/jetstream/consuming/c.py:1: no test file is named after it"
    ]


def test_private_names_of_ones_own_package_and_of_others_are_no_business_of_ours(tmp_path: Path) -> None:
    own = "class A:\n    _own = 1\n    def __init__(self, other):\n        self._mine = other._own + other._mine"
    assert not tree(tmp_path, workers__a=own, workers__b="def f(a): return a._mine, a._own")
    assert not tree(tmp_path, a="import sys\nsys._getframe()\ndef f(x): return x.__class__")
    assert not tree(tmp_path, services__a="class B(A):\n    def f(self): return self._mine")
    (found,) = tree(tmp_path, services__b="def f(a): return a._mine")
    assert found == "jsclient/services/b.py:1: a._mine is private to jsclient.workers"


def a_connection(*names: str, bases: str = "") -> str:
    return f"class Connection{bases}:\n" + "".join(f"    def {name}(self): ...\n" for name in names)


def test_a_connection_shows_what_is_on_its_list(tmp_path: Path) -> None:
    names = sorted(layers.CONNECTION)
    assert not tree(tmp_path, connection=a_connection("__init__", "_own", *names))
    assert "Connection inherits" in tree(tmp_path, connection=a_connection(*names, bases="(dict)"))[0]
    (found,) = tree(tmp_path, connection=a_connection(*names, "fail"))
    assert "Connection.fail is public and not on the list" in found
    (found,) = tree(tmp_path, connection=a_connection(*names) + "    def f_(self): self.number = 1".replace("f_", "_f"))
    assert "Connection.number is public and not on the list" in found
    (found,) = tree(tmp_path, connection=a_connection(*names[1:]))
    assert f"Connection.{names[0]} is on the list of its names, and missing" in found


def test_dir_of_a_connection_is_its_documentation() -> None:
    connection = jsclient.Connection(jsclient.ConnectOptions())
    shown = {name for name in dir(connection) if not name.startswith("_")}
    assert shown == layers.CONNECTION
    assert len(shown) <= 34
    assert [name for name in sorted(shown) if not inspect.getdoc(getattr(jsclient.Connection, name))] == []
    assert jsclient.Connection.__mro__ == (jsclient.Connection, object)


def test_tests_look_into_the_module_they_are_named_after(tmp_path: Path) -> None:
    for folder in ("protocol", "jsclient", "tests"):
        (tmp_path / folder).mkdir()
    (tmp_path / "jsclient" / "thing.py").write_text(
        "class Thing:\n    def __init__(self) -> None:\n        self._held = 1\n"
    )
    text = "def test(made: object) -> None:\n    assert made._held\n"
    (tmp_path / "tests" / "test_thing.py").write_text(text)
    assert layers.findings(tmp_path) == []
    (tmp_path / "tests" / "test_other.py").write_text(text)
    assert layers.findings(tmp_path) == ["tests/test_other.py:2: made._held is private to another module"]


def test_few_tests_look_elsewhere() -> None:
    assert len(layers.PRIVATE_IN_TESTS) < 20
    assert all(layers.PRIVATE_IN_TESTS.values())
