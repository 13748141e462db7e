"""The publishing methods of a JetStream object, without a socket."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.delivery_rig import LOST, SILENCE, Line

from jsclient import errors
from jsclient.jetstream.publishing.atomic_batch import AtomicBatch
from jsclient.jetstream.publishing.fast_batch import FastBatch
from jsclient.jetstream.publishing.future import PubMsg
from jsclient.jetstream.publishing.methods import Publishing

ACK = b'{"stream":"S","seq":7}'


class Js(Publishing[Any]):
    """What stands for a JetStream object."""

    def __init__(self, *answers: Any, **options: Any) -> None:
        line: Any = Line(*answers)
        self.nc = line
        self.codec = None
        self.publish_timeout = 5.0
        self.capabilities = SimpleNamespace(publish_level=lambda timeout: 5)  # type: ignore[assignment]
        self.api = SimpleNamespace(subject=lambda operation: operation)  # type: ignore[assignment]
        super().__init__(options)

    @property
    def line(self) -> Line:
        found: Any = self.nc
        return found  # type: ignore[no-any-return]


@pytest.mark.parametrize("timeout", [None, 1.0])
def test_a_message_is_stored(timeout: float | None) -> None:
    js = Js(ACK, ACK)
    assert js.publish("s.a", b"x", timeout=timeout).seq == 7
    assert js.publish_msg(PubMsg("s.a", b"x", {"A": "b"}), timeout=timeout).seq == 7
    assert b"A: b" in js.line.requested[1]


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_an_id_is_sent_again(timeout: float | None) -> None:
    js = Js(LOST, SILENCE, ACK, publish_async_duplicate_window=120)
    assert js.publish("s.a", msg_id="1", timeout=timeout).seq == 7
    assert len(js.line.requested) == 3


def test_without_a_link_it_waits_for_one() -> None:
    js = Js(ACK)
    js.line.is_connected = False
    with pytest.raises(errors.NotStored, match="did not come back in time"):
        js.publish("s.a", timeout=0.01)
    assert js.line.requested == []


def test_an_option_that_does_not_exist() -> None:
    for wrong in ({"max_pending": 5}, {"publish_async_pending": 5}):
        with pytest.raises(errors.ConfigError):
            Js(**wrong)


def test_asynchronous_publishes() -> None:
    js = Js()
    future = js.publish_async("s.a", b"x")
    js.publish_msg_async(PubMsg("s.a", b"y"), msg_id="1")
    assert js.publish_async_pending() == 2
    with pytest.raises(errors.TimedOut):
        js.publish_async_complete(0.01)
    assert not future.done()


def test_a_subclass_may_publish_otherwise() -> None:
    class Own(Js):
        def publish_async(self, subject: str, payload: Any = b"", **options: Any) -> Any:
            return super().publish_async(subject.upper(), payload, **options)

    assert Own().publish_async("s.a").subject == "S.A"


def test_batches() -> None:
    js = Js()
    assert isinstance(js.atomic_batch(ack_every=5), AtomicBatch)
    assert isinstance(js.fast_batch(gap="ok"), FastBatch)
