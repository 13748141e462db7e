"""jsclient.threads: a thread begins, or its starter is told that it never will.

CPython's `Thread.start` waits without a limit for a thread that died before it could say that it runs.
"""

from __future__ import annotations

import _thread
import gc
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jsclient import errors, threads
from jsclient.testing import wait_until
from jsclient.threads import Thread, start_all


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The interpreter tells of threads that die too early, and knows of none afterwards."""
    monkeypatch.setattr(sys, "unraisablehook", lambda told: None)
    before = set(threading.enumerate())
    yield
    wait_until(lambda: set(threading.enumerate()) <= before, 20)


def dies_before(step: str) -> Callable[[pytest.MonkeyPatch], None]:
    """The thread has no memory for this step of the interpreter."""

    def patched(patch: pytest.MonkeyPatch) -> None:
        def fail(*args: Any) -> None:
            raise MemoryError

        patch.setattr(threading.Thread, step, fail)

    return patched


def is_never_entered(patch: pytest.MonkeyPatch) -> None:
    """As when there is no memory for the first frame: no Python code of it runs."""
    for name in ("_start_new_thread", "_start_joinable_thread"):
        if hasattr(threading, name):
            patch.setattr(threading, name, lambda *args, **options: None)


def is_refused(patch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise RuntimeError("can't start new thread")

    for name in ("_start_new_thread", "_start_joinable_thread"):
        if hasattr(threading, name):
            patch.setattr(threading, name, refuse)


def has_no_memory_to_be_made(patch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise MemoryError

    for name in ("_start_new_thread", "_start_joinable_thread"):
        if hasattr(threading, name):
            patch.setattr(threading, name, refuse)


def dies_within_run(patch: pytest.MonkeyPatch) -> None:
    def fail(thread: Thread) -> None:
        raise MemoryError

    patch.setattr(Thread, "run", fail)
    patch.setattr(threading, "excepthook", lambda told: None)


FAILURES = {
    "_bootstrap": dies_before("_bootstrap"),
    "_bootstrap_inner": dies_before("_bootstrap_inner"),
    "_set_ident": dies_before("_set_ident"),
    "never entered": is_never_entered,
    "refused": is_refused,
    "no memory": has_no_memory_to_be_made,
    "run": dies_within_run,
}


def wait_for_end(thread: Thread) -> None:
    """From 3.13 on it is alive for a moment longer than its code runs."""
    wait_until(lambda: not thread.is_alive())


@pytest.mark.parametrize("failure", FAILURES)
def test_a_thread_that_cannot_begin_is_told_at_once(monkeypatch: pytest.MonkeyPatch, failure: str) -> None:
    monkeypatch.setattr(threads, "LOOKS", 10_000)  # nobody waits for that
    ran: list[int] = []
    thread = Thread("jsclient-test", ran.append, 1)
    with monkeypatch.context() as patch:
        FAILURES[failure](patch)
        with pytest.raises(errors.NoThread, match=r"no thread jsclient-test: .*raise the system's limit"):
            thread.start()
    assert not thread.began
    wait_for_end(thread)
    assert not ran
    assert thread not in threading.enumerate()
    gone = weakref.ref(thread)
    del thread
    gc.collect()
    assert gone() is None


def test_a_thread_that_comes_too_late_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its starter has given up, and said so."""
    monkeypatch.setattr(threads, "LOOKS", 1)
    monkeypatch.setattr(threads, "SLICE", 0.01)
    name = "_start_joinable_thread" if hasattr(threading, "_start_joinable_thread") else "_start_new_thread"
    start, late = getattr(threading, name), []
    monkeypatch.setattr(threading, name, lambda *args, **options: late.append((args, options)))
    ran: list[int] = []
    thread = Thread("jsclient-test", ran.append, 1)
    with pytest.raises(errors.NoThread, match=r"did not begin within 0\.01 s"):
        thread.start()
    ((args, options),) = late
    start(*args, **options)
    wait_until(lambda: thread not in threading.enumerate())
    assert not ran
    assert not thread.began


def test_a_thread_that_is_late_in_the_middle_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "LOOKS", 1)
    monkeypatch.setattr(threads, "SLICE", 0.01)
    go_on, inner = threading.Event(), threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def slowly(thread: threading.Thread) -> None:
        go_on.wait(30)
        inner(thread)

    monkeypatch.setattr(threading.Thread, "_bootstrap_inner", slowly)
    ran: list[int] = []
    thread = Thread("jsclient-test", ran.append, 1)
    with pytest.raises(errors.NoThread, match="did not begin"):
        thread.start()
    go_on.set()
    wait_until(lambda: thread not in threading.enumerate() and not thread.is_alive())
    assert not ran
    assert not thread.began


def test_a_thread_that_begins_as_any() -> None:
    ran: list[Any] = []
    thread = Thread("jsclient-test", lambda *args: ran.append((args, threading.current_thread().name)), 1, 2)
    assert thread.daemon
    assert not thread.began
    with pytest.raises(RuntimeError):
        thread.join()
    thread.start()
    assert thread.began
    assert thread.ident is not None
    thread.join(20)
    assert ran == [((1, 2), "jsclient-test")]
    assert not thread.is_alive()
    assert thread.began
    with pytest.raises(RuntimeError, match="once") as raised:
        thread.start()
    assert not isinstance(raised.value, errors.NoThread)


def test_many_at_once() -> None:
    """A thread that ends before its starter looks, or while it does, has begun."""
    ran: list[int] = []

    def start_some() -> None:
        for _ in range(100):
            Thread("jsclient-test", ran.append, 1).start()

    starters = [Thread("jsclient-test", start_some) for _ in range(8)]
    start_all(starters, "a test")
    for starter in starters:
        starter.join(30)
    wait_until(lambda: len(ran) == 800)


def test_an_error_of_its_function_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args.exc_type))

    def fail() -> None:
        raise MemoryError

    thread = Thread("jsclient-test", fail)
    thread.start()
    thread.join(20)
    assert thread.began
    wait_until(lambda: told == [MemoryError])


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_ends_the_wait_and_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has not begun by then never begins."""
    go_on, entered = threading.Event(), threading.Event()
    inner = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def slowly(thread: threading.Thread) -> None:
        if thread.name == "jsclient-test":
            entered.set()
            go_on.wait(30)
        inner(thread)

    def interrupt() -> None:
        entered.wait(30)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    monkeypatch.setattr(threading.Thread, "_bootstrap_inner", slowly)
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    ran: list[int] = []
    thread = Thread("jsclient-test", ran.append, 1)
    try:
        _thread.start_new_thread(interrupt, ())
        with pytest.raises(KeyboardInterrupt):
            thread.start()
    finally:
        signal.signal(signal.SIGINT, previous)
        go_on.set()
    wait_until(lambda: thread not in threading.enumerate() and not thread.is_alive())
    assert not ran
    assert not thread.began


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_begins_threads_of_its_own() -> None:
    """Those of the parent have ended there, whichever thread has forked."""
    pipe, done, children = os.pipe(), threading.Event(), []

    def fork() -> None:
        child = os.fork()
        if child:
            children.append(child)
            return
        try:  # the child
            another = Thread("jsclient-child", os.write, pipe[1], b"began")
            another.start()
            another.join(20)
            os.write(pipe[1], b" 1" if waiting.is_alive() else b" 0")
        finally:
            os._exit(0)

    waiting = Thread("jsclient-waits", done.wait, 30)
    forking = Thread("jsclient-forks", fork)
    start_all([waiting, forking], "a test")
    try:
        forking.join(30)
        os.waitpid(children[0], 0)
        assert os.read(pipe[0], 100) == b"began 0"
    finally:
        done.set()
        for end in pipe:
            os.close(end)


def test_too_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    made = [Thread(f"jsclient-test-{number}", ran.append, number) for number in range(3)]
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread is made[2]:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(errors.NoThread, match="x needs 3 threads and got 2: can't start new thread"):
        start_all(made, "x")
    for thread in made[:2]:
        thread.join(5)
    assert sorted(ran) == [0, 1]
    assert [thread.began for thread in made] == [True, True, False]
