"""A task or the driver dies at each step of an exactly-once batch; the replay comes after the window of the sink."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest

from jsclient import errors
from jsclient.exactly import task
from jsclient.exactly.journal import Journal
from jsclient.keyvalue import KeyValue
from jsclient.testing import NatsServer

from .conftest import Js, mode_works
from .journal_rig import Crash, Sink, cut, pass_the_window

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(autouse=True)
def idle_connections_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(task, "SETTLED", 0.0)
    yield
    from jsclient.spark import close_idle

    close_idle()


Patched = Callable[[pytest.MonkeyPatch], AbstractContextManager[Any]]


def dies(name: str, after: bool) -> Patched:
    """The step `name` of the journal is the last one: before it is done, or after."""

    @contextmanager
    def patched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        real = getattr(Journal, name)

        def step(self: Journal, *args: Any) -> None:
            if after:
                real(self, *args)
            raise Crash

        with monkeypatch.context() as patch:
            patch.setattr(Journal, name, step)
            yield

    return patched


@contextmanager
def lost_answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each entry of the journal is written, and the first answer does not arrive."""
    real, lost = KeyValue.update, set()

    def update(self: KeyValue, key: str, value: Any, revision: int, **more: Any) -> int:
        stored = real(self, key, value, revision, **more)
        if (key, bytes(value)) not in lost:
            lost.add((key, bytes(value)))
            raise errors.RequestTimeout("the answer was lost")
        return stored

    with monkeypatch.context() as patch:
        patch.setattr(KeyValue, "update", update)
        yield


POINTS: dict[str, tuple[Patched, tuple[int, int] | None, str]] = {
    # name: what is patched, (partition, rows) after which a task dies, what the driver commits
    "before the batch is entered": (dies("_begin_batch", after=False), None, "none"),
    "the batch is entered": (dies("_begin_batch", after=True), None, "none"),
    "the partition is entered": (dies("begin", after=True), None, "none"),
    "no row is stored": (lambda _: nullcontext(), (0, 0), "none"),
    "some rows are stored": (lambda _: nullcontext(), (1, 20), "none"),
    "all rows are stored": (dies("end", after=False), None, "none"),
    "the receipt is written": (dies("end", after=True), None, "none"),
    "answers are lost": (lost_answers, None, "none"),
    "the driver before its part": (lambda _: nullcontext(), None, "none"),
    "the driver in its part": (lambda _: nullcontext(), None, "half"),
    "the driver after its part": (lambda _: nullcontext(), None, "all"),
}


@pytest.mark.parametrize("mode", ["async", "fast"])
@pytest.mark.parametrize("point", list(POINTS))
def test_each_row_is_stored_once(
    js: Js, server: NatsServer, monkeypatch: pytest.MonkeyPatch, point: str, mode: str
) -> None:
    """Died once at the point, then again in a replay that is cut otherwise, then replayed to the end."""
    patched, crash, commit = POINTS[point]
    name = f"P{list(POINTS).index(point)}_{mode}"
    sinks = [Sink(server, js, f"{name}_{kind}", monkeypatch, mode) for kind in ("retry", "restart")]
    rows = [b"%d" % (n % 40) for n in range(60)]  # some are equal
    with mode_works(server, mode):
        for sink in sinks:
            with patched(monkeypatch):
                sink.run("run-0", cut(rows, 3), crash, commit)
        pass_the_window()
        for number, sink in enumerate(sinks):
            # Spark tries the task again in the same run and with the same rows, or the driver is started again.
            with patched(monkeypatch):
                sink.run("run-0" if number == 0 else "run-1", cut(rows, 3 if number == 0 else 2), crash, commit)
        pass_the_window()
        for number, sink in enumerate(sinks):
            sink.run("run-0" if number == 0 else "run-2", cut(rows, 3 if number == 0 else 4))
            assert sink.contents() == Counter(rows), sink.name
