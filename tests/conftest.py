"""Fixtures for all tests: a private server per module, counts for the short and the full tier, the leak check."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pauses import time_passes

from jsclient.testing import NatsServer, Proxy, running_servers, wait_until

HERE = Path(__file__).parent
SPARK = importlib.util.find_spec("pyspark") is not None
#: The folders of the tests that run against a real server: marked `live`, and nothing may be left behind by them.
LIVE = ("live", "faults", "chaos", "examples", "spark")
FULL = os.environ.get("JSCLIENT_FULL") == "1"
LONGEST = ("tests/chaos/test_soak.py", "tests/faults/test_groups_kills.py", "tests/unit/test_outbox_orders.py")


def pytest_configure() -> None:
    """A shell that starts us in the background ignores SIGINT for us and our children: the Ctrl-C tests need it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str | None:
    return None if SPARK else "left out: the Spark tests (pyspark is not installed; it needs Python 3.11)"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Without pyspark the modules of its tests cannot even be imported."""
    if SPARK:
        return None
    return collection_path.name.startswith("test_spark_") or HERE / "spark" in (collection_path, collection_path.parent)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        assert " at 0x" not in item.nodeid, f"another process would call it otherwise: {item.nodeid}"
        if item.path.relative_to(HERE).parts[0] in LIVE:
            item.add_marker(pytest.mark.live)


def pytest_collection_finish() -> None:
    """The tests themselves are never garbage: a collection that looks at all of them takes 0.2 s.

    pytest's plugin of hypothesis imports it later, and that looks for references among what is frozen here.
    """
    if importlib.util.find_spec("hypothesis"):
        importlib.import_module("hypothesis")
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def cryptography() -> Any:
    """For tests that sign or make certificates. Python 3.13 without the interpreter lock has no build of it."""
    return pytest.importorskip("cryptography")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`pytest -n 2`: a file stays in one process, and the whole of Spark in one, where it has one session. The files
    that last longest are the first, or all would wait for them in the end."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "tests/spark" if nodeid.startswith("tests/spark/") else super()._split_scope(nodeid)

        def _assign_work_unit(self, node: Any) -> None:
            for path in reversed(LONGEST):
                if path in self.workqueue:
                    self.workqueue.move_to_end(path, last=False)
            super()._assign_work_unit(node)

    return ByFile(config, log)


@pytest.fixture(scope="session")
def full() -> bool:
    """True in `make test-full`."""
    return FULL


@pytest.fixture(scope="session")
def count() -> Callable[[int, int], int]:
    """count(full, short): the number a promise states, or at least a tenth of it in the short tier."""

    def choose(full: int, short: int) -> int:
        assert short * 10 >= full, "the short tier runs at least a tenth of the stated count"
        return full if FULL else short

    return choose


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    """A private nats-server with JetStream, shared by the tests of one module; `NATS_SERVER_CONFIG` adds settings."""
    with NatsServer(os.environ.get("NATS_SERVER_CONFIG", "")) as running:
        yield running


@pytest.fixture
def proxy(server: NatsServer) -> Iterator[Proxy]:
    """A line to `server` that a test cuts, stalls or slows down."""
    with Proxy(server.port) as running:
        yield running


@pytest.fixture(scope="module")
def nats_url(request: pytest.FixtureRequest) -> str:
    """NATS_URL where somebody names a server of their own, else that of `server`."""
    named = os.environ.get("NATS_URL")
    if named:
        return named
    server: NatsServer = request.getfixturevalue("server")
    return server.url


def open_sockets() -> dict[str, str]:
    """Socket inode -> descriptor of this process; empty where /proc does not tell."""
    found: dict[str, str] = {}
    folder = Path("/proc/self/fd")
    for entry in folder.iterdir() if folder.is_dir() else []:
        try:
            target = os.readlink(entry)
        except OSError:  # the descriptor of the listing itself
            continue
        if target.startswith("socket:"):
            found[target] = entry.name
    return found


def our_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("jsclient-")}


WRITTEN_AFTER = 0.03


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Let the server write its blocks before a fixture deletes the streams of the test.

    nats-server 2.15.1 writes a block up to 20 ms late, and then into the folder of a stream that was deleted
    meanwhile; a new stream of that name begins with the old messages (measured: 79 of 500, with this pause 0 of 500).
    """
    if any(any(Path(server.store_dir).glob("jetstream/*/streams/*/msgs")) for server in running_servers()):
        time_passes(WRITTEN_AFTER, "nothing tells when the server has written a block")


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """After a live test the threads, sockets and servers that it started are gone (module fixtures are older)."""
    if request.node.path.relative_to(HERE).parts[0] not in LIVE[:4]:
        yield
        return
    if "server" in request.fixturenames:
        request.getfixturevalue("server")
    threads, sockets, servers = our_threads(), open_sockets(), set(running_servers())
    yield
    left = ""

    def clean() -> bool:
        nonlocal left
        leaked = [thread.name for thread in our_threads() - threads]
        leaked += [f"fd {number}" for inode, number in open_sockets().items() if inode not in sockets]
        leaked += [repr(server) for server in set(running_servers()) - servers]
        left = ", ".join(leaked)
        return not left

    try:
        wait_until(clean, 5)
    except TimeoutError:
        pytest.fail(f"left behind: {left}")
    for server in running_servers():
        forget_deleted_streams(server)


def forget_deleted_streams(server: NatsServer) -> None:
    """Wait for the store of streams that were deleted to be gone.

    nats-server 2.15.1 answers a delete before it has removed the files; a stream of the same name that is created
    within these milliseconds begins with the old messages (seen 1 time in 40, also with other clients' requests) or
    is refused with "error creating store" (1 in 20,000, on a busy machine that has not begun to remove them).
    """
    folders = list(Path(server.store_dir).glob("jetstream/*/streams/*"))
    if not folders:
        return
    try:
        alive = streams_of(server)
    except OSError:  # it is about to stop, or stands still
        return
    for folder in folders:
        if (folder.parts[-3], folder.name) in alive:
            continue
        try:
            wait_until(lambda folder=folder: not folder.exists(), 1)  # type: ignore[misc]
        except TimeoutError:
            if not (folder / "meta.inf").exists():
                shutil.rmtree(folder, ignore_errors=True)


def streams_of(server: NatsServer) -> set[tuple[str, str]]:
    """(account, stream) of the streams that the server has, as it says itself."""
    page = server.monitor("jsz?accounts=true&streams=true&limit=10000")
    accounts = page.get("account_details") or []
    return {(one["id"], stream["name"]) for one in accounts for stream in one.get("stream_detail") or []}
