"""Programs that end badly still end: an iterator that is left open when the interpreter goes down."""

from __future__ import annotations

import subprocess
import sys

import pytest

from jsclient.testing import NatsServer

LEFT_OPEN = """
import jsclient
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
with jsclient.connect({url!r}) as nc:
    stream = JetStream(nc).create_or_update_stream(StreamConfig(name="EXIT", subjects=["exit"]))
    messages = stream.create_or_update_consumer(ConsumerConfig(durable_name="c")).messages()
    {rest}
"""


@pytest.mark.parametrize("rest", ["raise AttributeError('the program is wrong')", "pass"])
def test_an_iterator_left_open_does_not_hold_the_exit_up(server: NatsServer, rest: str) -> None:
    program = LEFT_OPEN.format(url=server.url, rest=rest)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=15, check=False)
    assert done.returncode == (1 if rest.startswith("raise") else 0)
    assert "Exception ignored" not in done.stderr
