"""From the events of a chunk to the sinks: by sid, in order, each group once."""

from __future__ import annotations

from typing import Any

import jsclient
from jsclient import protocol
from jsclient._connection.mailbox import OVERHEAD
from jsclient.connection import engine_of
from jsclient.message import Msg


class Sink:
    def __init__(self) -> None:
        self.calls: list[tuple[list[bytes], int]] = []

    def deliver(self, messages: list[Msg], nbytes: int) -> None:
        self.calls.append(([message.data for message in messages], nbytes))


def table() -> Any:
    return engine_of(jsclient.Connection(jsclient.ConnectOptions())).subscriptions


def message(sid: bytes, payload: bytes) -> Msg:
    return Msg(b"subject", sid, None, payload)


def test_one_subscription_gets_one_list_that_weighs_the_chunk() -> None:
    known, sink = table(), Sink()
    known.sinks[b"1"] = sink
    assert known.dispatch([message(b"1", b"a"), message(b"1", b"b")], 100) == []
    assert sink.calls == [([b"a", b"b"], 100 + 2 * OVERHEAD)]
    assert (known.messages_in, known.bytes_in) == (2, 100)


def test_several_subscriptions_and_control_events() -> None:
    known, one, two = table(), Sink(), Sink()
    known.sinks.update({b"1": one, b"2": two})
    events = [message(b"1", b"a"), protocol.Pong(), message(b"2", b"bb"), message(b"1", b"c"), protocol.Ping()]
    control = known.dispatch(events, 100)
    assert [type(event) for event in control] == [protocol.Pong, protocol.Ping]
    assert [payloads for payloads, _ in one.calls] == [[b"a", b"c"]]
    assert one.calls[0][1] == 2 * (len(b"subject") + 1 + OVERHEAD)
    assert two.calls == [([b"bb"], len(b"subject") + 2 + OVERHEAD)]
    assert known.messages_in == 3


def test_messages_that_nobody_wants_any_more_are_forgotten() -> None:
    known, sink = table(), Sink()
    known.sinks[b"1"] = sink
    assert known.dispatch([message(b"9", b"late")], 10) == []
    assert known.dispatch([message(b"9", b"late"), message(b"1", b"x")], 10) == []
    assert [payloads for payloads, _ in sink.calls] == [[b"x"]]
