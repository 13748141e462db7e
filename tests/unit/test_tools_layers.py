"""tools/layers.py: the tree keeps its rules, and the checker sees each kind of breach."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

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
        ("protocol/a.py", "b'UNSUB %d'", "builds a frame by hand"),
        ("tests/unit/test_a.py", "import time\ntime.sleep(1)", "sleeps"),
        ("tests/unit/test_a.py", "from time import sleep\nsleep(1)", "sleeps"),
    ],
)
def test_a_breach_is_found(tmp_path: Path, file: str, text: str, finding: str) -> None:
    for known in ("jsclient/connection.py", "jsclient/jetstream/__init__.py", "jsclient/services/__init__.py"):
        (tmp_path / known).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / known).touch()
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    (found,) = layers.findings(tmp_path)
    assert finding in found


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("protocol/frames.py", "b'SUB %b'"),
        ("jsclient/a.py", "b'PUBLIC', b'_SUB '"),
        ("protocol/a.py", "import re, msgspec\nfrom protocol.b import c\nfrom .b import d"),
        ("jsclient/errors.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import jsclient.connection"),
        ("jsclient/spark/a.py", "import pyspark\nfrom jsclient.jetstream import x\nfrom jsclient import connect"),
        ("jsclient/keyvalue/a.py", "from jsclient.jetstream.api.requests import Api"),
        ("tests/unit/test_a.py", "from jsclient.testing import wait_until\nwait_until(lambda: 1)"),
    ],
)
def test_what_is_allowed_is_not_found(tmp_path: Path, file: str, text: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert layers.findings(tmp_path) == []
