"""The exit of an interpreter whose daemon threads wait on a connection: it is quiet, and reports what failed before."""

from __future__ import annotations

import subprocess

import pytest
from tests import strict

from jsclient.testing import NatsServer

PROGRAM = """
import sys, threading
import jsclient
from jsclient.jetstream import JetStream
from jsclient.testing import wait_until

nc = jsclient.connect(sys.argv[1])
js = JetStream(nc)
js.create_stream(name="EXIT", subjects=["exit.>"])
js.create_consumer("EXIT", durable_name="C")
sub = nc.subscribe("own")
began = []

def loop(make):
    items = make()
    began.append(items)
    for _ in items:
        pass

def wait(call):
    began.append(call)
    call()

LOOPS = (
    lambda: nc.subscribe("iterated"),
    lambda: js.consumer("EXIT", "C").messages(),
    lambda: js.ordered_consumer("EXIT").messages(),
    nc.events,
)
CALLS = (lambda: sub.next(timeout=None), lambda: js.consumer("EXIT", "C").fetch(1, timeout=60))
for thread in [threading.Thread(target=loop, args=(make,), daemon=True) for make in LOOPS]:
    thread.start()
for thread in [threading.Thread(target=wait, args=(call,), daemon=True) for call in CALLS]:
    thread.start()
wait_until(lambda: len(began) == len(LOOPS) + len(CALLS), 20)
nc.flush()
"""


def run(server: NatsServer, program: str) -> str:
    done = subprocess.run(
        [*strict.PYTHON, "-c", program, server.url], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0
    return done.stderr


def test_daemon_threads_that_wait_print_nothing_at_the_exit(server: NatsServer) -> None:
    assert run(server, PROGRAM) == ""


@pytest.mark.parametrize("daemon", [True, False])
def test_a_connection_that_is_closed_before_the_exit_is_an_error_as_any(server: NatsServer, daemon: bool) -> None:
    program = f"""
import sys, threading, jsclient
nc = jsclient.connect(sys.argv[1])
sub = nc.subscribe("closed")
thread = threading.Thread(target=lambda: sub.next(timeout=60), daemon={daemon})
thread.start()
nc.close()
thread.join()
"""
    assert "ConnectionClosed" in run(server, program)
