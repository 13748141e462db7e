"""The engine of a connection: what layers see of it, and how it is laid out."""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable
from functools import partial

import pytest

import jsclient
from jsclient._connection import Engine
from jsclient._connection.fork import ForkedEngine
from jsclient.connection import engine_of

INTERFACE = sorted(name for name in vars(Engine) if not name.startswith("_"))
ALLOWED = ("close", "closed", "refuse_pickle")


@pytest.fixture
def nc() -> jsclient.Connection:
    return jsclient.Connection(jsclient.ConnectOptions())


def test_the_interface_is_documented(nc: jsclient.Connection) -> None:
    engine = engine_of(nc)
    assert [name for name in INTERFACE if not inspect.getdoc(getattr(Engine, name))] == []
    assert engine.connection is nc


@pytest.mark.skipif(sys.version_info < (3, 11), reason="before 3.11 each instance has a dictionary")
def test_its_attributes_stand_in_the_instance_itself(nc: jsclient.Connection) -> None:
    """From 30 on CPython gives each instance a dictionary of its own, and every call gets slower."""
    engine = engine_of(nc)
    held = gc.get_referents(engine)  # asked first: `vars` makes that dictionary
    own = vars(engine)
    assert not any(found is own for found in held), len(own)


def test_a_forked_engine_refuses_its_whole_interface(nc: jsclient.Connection) -> None:
    engine = engine_of(nc)
    publish, request = nc.publish, engine.request  # taken before the fork
    engine.__class__ = ForkedEngine
    for name in INTERFACE:
        if name not in ALLOWED:
            with pytest.raises(jsclient.errors.ForkedConnection):
                getattr(engine, name)
    of_a_subject: list[Callable[..., object]] = [publish, request, nc.request, nc.subscribe]
    plain: list[Callable[[], object]] = [nc.flush, nc.drain, nc.new_inbox, nc.stats, nc.health]
    calls: list[Callable[[], object]] = [*(partial(call, "a") for call in of_a_subject), *plain]
    for call in calls:
        with pytest.raises(jsclient.errors.ForkedConnection):
            call()
    assert nc.closed
    assert nc.options == jsclient.ConnectOptions()
    assert repr(nc) == "<jsclient.Connection of the parent process>"
    nc.close()


def test_a_wait_for_the_link_ends_with_the_link_the_time_or_the_connection(nc: jsclient.Connection) -> None:
    engine = engine_of(nc)
    assert not engine.wait_connected(0.01)
    engine.session.connected.set()
    assert engine.wait_connected(5)
    engine.pause(0.01)
    nc.close()
    with pytest.raises(jsclient.errors.ConnectionClosed):
        engine.wait_connected(5)
    with pytest.raises(jsclient.errors.ConnectionClosed):
        engine.pause(5)
