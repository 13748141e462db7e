"""Every way to take messages x every way to end: the pull is withdrawn, no handler starts any more, what is held goes
back, and why it ended is said.

The rows are the ways of `endings_rig`, `ENDS` are the columns. A test says with `ends` which cells it fills;
`ELSEWHERE` and `IMPOSSIBLE` say where other cells are filled, and why there can be none. The last test finds every cell
in one of the three.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests import endings_rig, strict
from tests.endings_rig import (
    ALL,
    COUNT,
    FINITE,
    FREE,
    HANDLED,
    ITERATED,
    NEW,
    ORDERED,
    POOLS,
    WAYS,
    ConsumeOfFour,
    OrderedPushConsume,
    OrderedPushMessages,
    Pool,
    PoolByKey,
    PoolOfBatches,
    PoolOfOne,
    Scene,
    Way,
    set_up,
)

import jsclient
from jsclient import errors
from jsclient.testing import Cluster, NatsServer, Proxy, wait_until


@pytest.fixture
def scene(server: NatsServer, proxy: Proxy) -> Iterator[Scene]:
    yield from set_up(server.url, proxy.url)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as running:
        yield running


@pytest.fixture
def clustered(cluster: Cluster) -> Iterator[Scene]:
    yield from set_up(cluster.url, cluster.url, replicas=3)


def in_background(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    result: list[Any] = []

    def run() -> None:
        try:
            result.append(call())
        except BaseException as error:
            result.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, result


#: Close relatives of others: for the full tier.
RELATIVES = (OrderedPushConsume, OrderedPushMessages, PoolOfOne, PoolOfBatches)

ENDS = (
    "stop",
    "close",
    "drain",
    "with",
    "break",
    "exception",
    "BaseException",
    "connection closed",
    "connection failed",
    "connection drained",
    "consumer deleted",
    "stream deleted",
    "leader lost",
    "fork",
    "interpreter exit",
)


def is_slow(way: type[Way], how: str) -> bool:
    """For the full tier: close relatives, and what is found out only when heartbeats stop."""
    return way in RELATIVES or ("Push" in way.__name__ and how.endswith("deleted")) or way is PoolByKey


CELLS: dict[tuple[type[Way], str], str] = {}


def named(ways: Sequence[type[Way]]) -> Any:
    rows = [pytest.param(way, marks=pytest.mark.slow) if way in RELATIVES else way for way in ways]
    return pytest.mark.parametrize("way", rows, ids=lambda way: way.__name__)


def ends(*rows: tuple[str, Sequence[type[Way]]]) -> Callable[[Any], Any]:
    """The cells of a test: several ends, each with its ways; the test is called with `way` and `how`."""

    def decorate(test: Any) -> Any:
        cells = [(way, how) for how, ways in rows for way in ways]
        CELLS.update(dict.fromkeys(cells, test.__name__))
        if len(rows) == 1:
            return named(rows[0][1])(test)
        params = [
            pytest.param(way, how, marks=[pytest.mark.slow] if is_slow(way, how) else [], id=f"{way.__name__}-{how}")
            for way, how in cells
        ]
        return pytest.mark.parametrize(("way", "how"), params)(test)

    return decorate


#: (end, ways, test): filled in another file.
ELSEWHERE: list[tuple[str, Sequence[type[Way]], str]] = [
    ("connection drained", FINITE, "tests/live/test_endings_connection.py::test_what_a_fetch_holds_goes_back"),
    # Their consumers live on one server, which is killed or shut down there.
    ("leader lost", ORDERED, "tests/faults/test_reads_elections.py"),
]

#: (end, ways, why there is no such cell).
IMPOSSIBLE: list[tuple[str, Sequence[type[Way]], str]] = [
    ("stop", FINITE, "a finite read has no stop: the loop that takes from it is the application's; `close` ends it"),
    ("drain", FINITE, "a finite read has no drain: it ends by itself"),
    ("break", [*HANDLED, *POOLS], "there is no loop of the application's"),
]


# --- the application ends it ------------------------------------------------------------------------------------


@ends(("stop", WAYS), ("close", ALL))
def test_stop_and_close(scene: Scene, way: type[Way], how: str) -> None:
    taking = scene.begin(way)
    thread, _ = in_background(getattr(taking, how))
    if not taking.own:
        thread.join(10)
    scene.work.release.set()
    thread.join(10)
    assert taking.ended() is None
    if not taking.own:
        taking.close()  # what was stopped gives back when it is closed, or asked once more
    scene.nothing_starts()
    assert scene.work.failed == []
    assert scene.work.told == []
    if taking.acks:
        assert scene.nc is not None
        scene.nc.flush()
        scene.no_pull_is_left()
        scene.others_get_the_rest(0)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["in order", "by an exception"])
@ends(("with", ALL))
def test_the_with_block_is_left(scene: Scene, way: type[Way], how: str) -> None:
    taking = scene.begin(way)
    with contextlib.suppress(ValueError), taking.taking:
        scene.work.release.set()
        if how == "by an exception":
            raise ValueError("of the application")
    assert taking.ended() is None
    scene.nothing_starts()
    assert scene.work.failed == []
    if taking.acks:
        assert scene.nc is not None
        scene.nc.flush()
        scene.no_pull_is_left()
        scene.others_get_the_rest(0)


@ends(("drain", WAYS))
def test_drain(scene: Scene, way: type[Way]) -> None:
    """What was received is handled (a pool gives back what it has not begun), every ack arrives."""
    taking = scene.begin(way)
    thread, result = in_background(taking.drain)
    scene.work.release.set()
    thread.join(10)
    assert not any(isinstance(end, BaseException) for end in result)
    assert taking.ended() is None
    scene.nothing_starts()
    assert scene.work.failed == []
    if not isinstance(taking, Pool):
        assert scene.work.begun[:COUNT] == list(range(1, COUNT + 1)) or way is ConsumeOfFour
    if taking.acks:
        scene.no_pull_is_left()
        scene.others_get_the_rest(0)


# --- the connection ends ----------------------------------------------------------------------------------------


@ends(("connection closed", ALL))
def test_the_connection_is_closed(scene: Scene, way: type[Way]) -> None:
    taking = scene.begin(way)
    assert scene.nc is not None
    scene.nc.close()
    scene.work.release.set()
    error = taking.ended()
    if taking.own:
        assert error is None, "the application closed it itself"
    else:
        assert isinstance(error, errors.ConnectionClosed)
        assert error.reason is None
    assert scene.work.told == []
    scene.nothing_starts()
    assert len(scene.work.begun) <= FREE + taking.hands
    if taking.acks:
        scene.no_pull_is_left()
        scene.others_get_the_rest(len(scene.work.failed))


@ends(("connection drained", WAYS))
def test_the_connection_is_drained(scene: Scene, way: type[Way]) -> None:
    """With 20 messages it returned after 0.00 s; 17 handlers ran afterwards, and their acks raised."""
    taking = scene.begin(way)
    nc = scene.nc
    assert nc is not None
    thread, result = in_background(lambda: nc.drain(timeout=20))
    wait_until(lambda: nc.is_draining, 5)
    if taking.acks or taking.own:  # else it may close before the application comes for more
        assert not nc.closed
    scene.work.release.set()
    thread.join(15)
    assert result == [None]
    assert taking.ended() is None
    scene.nothing_starts()
    assert scene.work.failed == []
    assert scene.work.told == []
    if taking.acks:
        scene.no_pull_is_left()
        scene.others_get_the_rest(0)


@pytest.mark.parametrize("way", [way for way in ITERATED if not way.acks])
def test_what_needs_no_acks_is_read_to_its_end_after_a_drained_connection_has_closed(
    scene: Scene, way: type[Way]
) -> None:
    """It depended on a millisecond whether the loop ended in order or with ConnectionClosed."""
    taking = scene.begin(way)
    assert scene.nc is not None
    wait_until(lambda: taking.taking.buffered == COUNT - FREE - 1, 10)
    scene.nc.drain(timeout=20)
    assert scene.nc.closed
    scene.work.release.set()
    assert taking.ended() is None
    assert len(scene.work.begun) == COUNT
    scene.nothing_starts()
    assert scene.work.told == []


@ends(("connection failed", ALL))
def test_the_connection_is_lost_for_good(scene: Scene, proxy: Proxy, way: type[Way]) -> None:
    """A revoked password, used-up attempts: `wait` returned True, `error` was None, and nothing reached `on_error`."""
    taking = scene.begin(way, reconnect=jsclient.ReconnectPolicy(max_attempts=1, delay=lambda attempt: 0.0))
    assert scene.nc is not None
    proxy.refuse()
    wait_until(lambda: scene.nc is not None and scene.nc.closed, 10)
    scene.work.release.set()
    error = taking.ended()
    if taking.own:
        assert isinstance(error, errors.NatsConnectionError)
        assert not isinstance(error, errors.ConnectionClosed)
        assert taking.taking.error is error
        wait_until(lambda: scene.work.told, 5)
        assert scene.work.told == [error]
        with pytest.raises(type(error)):
            taking.taking.wait(timeout=1)
    else:
        assert isinstance(error, errors.ConnectionClosed)
        assert isinstance(error.reason, errors.NatsConnectionError)
    begun = list(scene.work.begun)
    proxy.accept()
    scene.nothing_starts()
    assert scene.work.begun == begun


# --- the server ends it -----------------------------------------------------------------------------------------

ACKING = [way for way in ALL if way.acks]


@ends(("consumer deleted", ACKING), ("stream deleted", ALL))
def test_it_is_deleted(scene: Scene, way: type[Way], how: str) -> None:
    taking = scene.begin(way)
    if how == "consumer deleted":
        scene.observer.delete_consumer("E", "C")
    else:
        scene.observer.delete_stream("E")
    scene.work.release.set()
    error = taking.ended()
    assert isinstance(error, errors.ConsumerDeleted if how == "consumer deleted" else errors.StreamNotFound)
    if taking.own and taking.acks:
        wait_until(lambda: scene.work.told, 5)
        assert [type(told) for told in scene.work.told] == [type(error)]


@ends(("consumer deleted", ORDERED))
def test_an_ordered_consumer_that_is_deleted_is_made_again(scene: Scene, way: type[Way]) -> None:
    taking = scene.begin(way)
    for name in scene.observer.consumer_names("E"):
        scene.observer.delete_consumer("E", name)
    scene.publish_new()
    scene.work.release.set()
    wait_until(lambda: len(scene.work.begun) >= COUNT + NEW, 20)
    assert scene.work.begun == list(range(1, COUNT + NEW + 1)), "each once, and in order"
    taking.close()
    assert taking.ended() is None


@pytest.mark.faults
@ends(("leader lost", ACKING))
def test_the_leader_is_lost(clustered: Scene, way: type[Way]) -> None:
    """That is no end: everything comes."""
    scene = clustered
    taking = scene.begin(way)
    nc = scene.observer.nc
    before = scene.leader()
    nc.request("$JS.API.CONSUMER.LEADER.STEPDOWN.E.C", timeout=10)
    wait_until(lambda: scene.leader() not in ("", before), 20)
    scene.publish_new()
    scene.work.release.set()
    wait_until(lambda: set(scene.work.begun) == set(range(1, COUNT + NEW + 1)), 40)
    taking.close()
    assert taking.ended() is None


# --- the handler or the loop ends it ----------------------------------------------------------------------------


@ends(("BaseException", HANDLED))
def test_sys_exit_in_a_handler(scene: Scene, way: type[Way]) -> None:
    """A consume with one worker was over without a word, one with four went on with three."""
    scene.work.raises = SystemExit(3)
    taking = scene.begin(way)
    scene.work.release.set()
    error = taking.ended()
    assert error is scene.work.raises
    assert scene.work.told == [error]
    scene.nothing_starts()
    if taking.acks:
        scene.no_pull_is_left()
        scene.others_get_the_rest(taking.hands)


@ends(("exception", [*HANDLED, *POOLS]), ("BaseException", POOLS))
def test_a_handler_that_raises_ends_nothing(scene: Scene, way: type[Way], how: str) -> None:
    scene.work.raises = ValueError("of the handler") if how == "exception" else SystemExit(3)
    taking = scene.begin(way)
    scene.work.release.set()
    if way is PoolByKey:  # the same key: those behind wait for the one that is tried again
        wait_until(lambda: len(scene.work.begun) > FREE + 1, 20)
    else:
        wait_until(lambda: set(scene.work.begun) == set(range(1, COUNT + 1)), 20)
    taking.close()
    assert taking.ended() is None


@ends(
    ("break", [*ITERATED, *FINITE]),
    ("exception", [*ITERATED, *FINITE]),
    ("BaseException", [*ITERATED, *FINITE]),
)
def test_the_loop_is_left(scene: Scene, way: type[Way], how: str) -> None:
    """In a `with` block."""
    raises = {"exception": ValueError("of the loop"), "BaseException": KeyboardInterrupt(), "break": None}[how]
    scene.work.leaves = "break"
    scene.work.raises = raises
    taking = scene.begin(way)
    scene.work.release.set()
    assert taking.ended() is raises
    scene.nothing_starts()
    assert scene.work.failed == []
    if taking.acks:
        assert scene.nc is not None
        scene.nc.flush()
        scene.no_pull_is_left()
        scene.others_get_the_rest(0 if raises is None else 1)


# --- the process ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
@ends(("fork", ALL))
def test_the_process_forks(scene: Scene, way: type[Way]) -> None:
    """In the child nothing is handled, nothing hangs and nothing is taken away; the parent goes on."""
    taking = scene.begin(way)
    assert scene.nc is not None
    pid = os.fork()
    if not pid:
        code = 1
        try:
            scene.work.release.set()
            begun = len(scene.work.begun)
            with contextlib.suppress(errors.ForkedConnection, AttributeError):
                taking.taking.stop(**({"wait": False} if isinstance(taking, Pool) else {}))
            scene.nc.close()
            code = 0 if len(scene.work.begun) == begun else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    scene.work.release.set()
    wait_until(lambda: set(scene.work.begun) == set(range(1, COUNT + 1)), 20)
    taking.close()
    assert taking.ended() is None
    assert scene.work.failed == []


EXITS = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("endings", sys.argv[1])
endings = importlib.util.module_from_spec(spec)
spec.loader.exec_module(endings)
work = endings.Work()
nc = endings.jsclient.connect(sys.argv[2])
way = getattr(endings, sys.argv[3])(endings.JetStream(nc), work)
endings.wait_until(lambda: work.is_held(way.at_once), 10)
nc.flush()
print(json.dumps(work.acked))
"""


@pytest.mark.slow
@ends(("interpreter exit", ALL))
def test_the_interpreter_exits(scene: Scene, server: NatsServer, way: type[Way]) -> None:
    """What waits in the process goes back at once; only what handlers had in hand waits for ack_wait."""
    done = subprocess.run(
        [*strict.PYTHON, "-c", EXITS, endings_rig.__file__, server.url, way.__name__],
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    scene.work.acked = json.loads(done.stdout)
    if way.acks:
        scene.no_pull_is_left()
        scene.others_get_the_rest(way.hands)


# --- the table --------------------------------------------------------------------------------------------------


def test_every_cell_is_filled_or_cannot_be() -> None:
    known: set[tuple[type[Way], str]] = set(CELLS)
    for end, ways, where in ELSEWHERE:
        file, _, name = where.partition("::")
        assert f"def {name}" in (Path(__file__).parents[2] / file).read_text()
        known |= {(way, end) for way in ways}
    for end, ways, _ in IMPOSSIBLE:
        assert not any((way, end) in CELLS for way in ways)
        known |= {(way, end) for way in ways}
    assert {end for _, end in known} == set(ENDS)
    missing = [f"{way.__name__} x {end}" for way in ALL for end in ENDS if (way, end) not in known]
    assert not missing
