"""From the events of one chunk to the sinks that take them: a table by subscription id.

Messages are dispatched by sid, never by subject: what is pulled from JetStream arrives on the inbox's sid with its
original subject. One chunk's messages are grouped, and every group is handed over once.
"""

from __future__ import annotations

from typing import Any, Protocol

from jsclient._engine.mailbox import OVERHEAD, message_size
from jsclient.message import Msg


class Sink(Protocol):
    """What the reader hands messages to. It runs on the reader thread: quick, no blocking, no user code, no raise."""

    def deliver(self, messages: list[Msg], nbytes: int) -> None: ...


class Dispatcher:
    """The sid table of a Connection. Changed by any thread under the subscription lock, read by the reader."""

    def __init__(self) -> None:
        self.sinks: dict[bytes, Sink] = {}
        self.messages_in: int = 0
        self.bytes_in: int = 0

    def dispatch(self, events: list[Any], nbytes: int) -> list[Any]:
        """Deliver the messages among the events; returns the others, in order (PONG after what it confirms)."""
        sink = self._only_sink(events)
        if sink is not None:
            # The common case: a chunk of one subscription weighs what was read.
            self.messages_in += len(events)
            self.bytes_in += nbytes
            sink.deliver(events, nbytes + OVERHEAD * len(events))
            return []
        groups: dict[bytes | None, list[Any]] = {}
        for event in events:
            sid = event.sid
            if sid in groups:
                groups[sid].append(event)
            else:
                groups[sid] = [event]
        control = groups.pop(None, [])
        self.messages_in += len(events) - len(control)
        self.bytes_in += nbytes
        for sid, group in groups.items():
            sink = self.sinks.get(sid)  # type: ignore[arg-type]
            if sink is not None:
                sink.deliver(group, sum(map(message_size, group)) + OVERHEAD * len(group))
        return control

    def _only_sink(self, events: list[Any]) -> Sink | None:
        """The sink that owns every event of this chunk, or None: 20 ns per message, grouping them takes 55."""
        sid = events[0].sid if events else None
        for event in events:
            if event.sid != sid:
                return None
        return None if sid is None else self.sinks.get(sid)
