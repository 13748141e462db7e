"""What most of the live tests begin with: a connection to the module's server, and JetStream on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import jsclient
from jsclient.jetstream import JetStream
from jsclient.testing import NatsServer


@pytest.fixture
def nc(server: NatsServer) -> Iterator[jsclient.Connection]:
    with jsclient.connect(server.url) as nc:
        yield nc


@pytest.fixture
def js(nc: jsclient.Connection) -> Iterator[JetStream]:
    """A file that needs a stream in each test makes it in a fixture `js(js)` of its own. All streams are deleted."""
    js = JetStream(nc)
    yield js
    for name in list(js.stream_names()):
        js.delete_stream(name)
