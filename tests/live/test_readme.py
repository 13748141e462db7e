"""The examples of the README files and of the site's pages run as they stand, against a private server."""

from __future__ import annotations

import inspect
import re
import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import jsclient
from jsclient.jetstream import JetStream, PubAck
from jsclient.testing import NatsServer

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
USUAL = "nats://127.0.0.1:4222"


def blocks(path: Path) -> list[str]:
    return BLOCK.findall(path.read_text(encoding="utf-8"))


# Blocks marked `python spark` need a JVM: tests/spark/test_readme.py runs them.
# Packages for engines and not for programs have none: tests/live/test_batch_engines.py is one.
APART = {"spark", "exactly", "planning"}
CHAPTERS = [path for path in sorted((ROOT / "jsclient").rglob("README.md")) if not APART & set(path.parts)]
PAGES = [path for path in sorted((ROOT / "tools" / "docs" / "pages").glob("*.md")) if blocks(path)]
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
    found = list(enumerate(blocks(ROOT / name), 1))
    assert found
    again = [(number, code) for number, code in found if USUAL in code]  # the others have servers of their own
    for turn, programs in (("first", found), ("second", again)):
        for number, code in programs:
            program = compile(code.replace(USUAL, server.url), f"<{name} example {number}, {turn} run>", "exec")
            exec(program, {"__name__": "__main__"})
    for connection in jsclient.live_connections():
        connection.close()  # what jsclient.shared made lives as long as the process


def test_the_example_of_help_runs(server: NatsServer) -> None:
    """`help(JetStream)` begins with it."""
    indented = re.findall(r"(?:^(?:    .*)?\n)+", inspect.getdoc(JetStream) or "", re.M)
    code = textwrap.dedent(next(block for block in indented if block.strip())).replace(USUAL, server.url)
    names: dict[str, object] = {"jsclient": jsclient, "JetStream": JetStream}
    exec(compile(code, "help(JetStream)", "exec"), names)
    assert isinstance(names["ack"], PubAck)
