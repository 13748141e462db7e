"""A finite read without a server."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from jsclient import errors, waiting
from jsclient.jetstream.consuming.ordered import OrderedRead


class Stuck:
    """Messages of an ordered consumer that ask the server, which does not answer."""

    def __init__(self) -> None:
        api = SimpleNamespace(timeout=5.0, is_imported=False)
        self.source = SimpleNamespace(js=SimpleNamespace(api=api), stream_name="S")
        self.asking, self.stopped, self.closed = waiting.Gate(), waiting.Gate(), 0

    def _get(self, timeout: float | None) -> Any:
        self.asking.set()
        self.stopped.wait(10)
        raise errors.IteratorClosed("closed")

    def stop(self) -> None:
        pass

    def close(self) -> None:
        self.closed += 1
        self.stopped.set()


def test_an_ordered_read_is_closed_beside_a_thread_that_gets_no_answer() -> None:
    messages = Stuck()
    consumer: Any = SimpleNamespace(js=messages.source.js, stream_name="S", open_messages=lambda *_, **__: messages)
    read = OrderedRead(consumer, 9, timeout=5.0)
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.extend(read), daemon=True)
    thread.start()
    assert messages.asking.wait(5)
    read.close()
    thread.join(5)
    assert not thread.is_alive()
    assert (ended, messages.closed) == ([], 2)
