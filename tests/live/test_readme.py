"""The examples of the README files and of the site's pages run unchanged and print what the pages show."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import tutorials

import jsclient
from jsclient.jetstream import JetStream
from jsclient.testing import NatsServer

ROOT = Path(__file__).parents[2]


def programs(path: Path) -> list[tutorials.Program]:
    return [step for step in tutorials.steps(path) if isinstance(step, tutorials.Program)]


# Blocks marked `python spark` need a JVM: tests/spark/test_readme.py runs them.
# Packages for engines and not for programs have none: tests/live/test_batch_engines.py is one.
APART = {"spark", "exactly", "planning"}
CHAPTERS = [path for path in sorted((ROOT / "jsclient").rglob("README.md")) if not APART & set(path.parts)]
# tests/live/test_tutorials.py, tests/spark/test_tutorial.py and tests/spark/test_readme.py follow these.
TUTORIALS = {"start", "service", "troubleshooting", "spark-job", "dataframe-once", "spark-recipes"}
PAGES = [
    path
    for path in sorted((ROOT / "tools" / "docs" / "pages").glob("*.md"))
    if path.stem not in TUTORIALS and programs(path)
]
NAMES = [str(path.relative_to(ROOT)) for path in [ROOT / "README.md", *CHAPTERS, *PAGES]]


@pytest.fixture
def own_signals() -> Iterator[None]:
    """A program may set a handler for SIGTERM; children that were forked later would not end by it."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("own_signals")
@pytest.mark.parametrize("name", NAMES)
def test_examples_run_in_order(server: NatsServer, name: str) -> None:
    """Twice: a reader of a chapter runs a program again, and meets what the first run has left on the server."""
    if "/arrow/" in name:
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    found = list(enumerate(programs(ROOT / name), 1))
    with jsclient.connect(server.url) as nc:  # what earlier pages have left
        js = JetStream(nc)
        for stream in list(js.stream_names()):
            js.delete_stream(stream)
    assert found
    for number, program in found:
        printed = tutorials.run(program, f"<{name} example {number}>", server.url)
        if program.output is not None:
            tutorials.check(f"{name} example {number}", program.output, printed)
    for number, program in found:
        if tutorials.USUAL in program.code:  # the others have servers of their own
            tutorials.run(program, f"<{name} example {number}, second run>", server.url)
    for connection in jsclient.live_connections():
        connection.close()  # what jsclient.shared made lives as long as the process
