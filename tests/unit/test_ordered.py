"""The handle of an ordered consumer, without a server: one reader at a time, fetches, and what it says of itself."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from tests.ordered_rig import GONE, SILENCE, sent, stream

from jsclient import errors
from jsclient.jetstream.consuming.fetch import BatchEnd
from jsclient.jetstream.consuming.ordered import OrderedConsumer


class Rig:
    def __init__(self) -> None:
        self.js = stream()
        self.consumer = OrderedConsumer(self.js, "S")
        assert not self.consumer.fetch(1, timeout=0)  # makes it

    def comes(self, *items: Any) -> None:
        (inbox,) = self.js.nc.inboxes.values()
        for item in items:
            inbox.mailbox.items.append(sent(self.consumer.state.name, *item) if isinstance(item, tuple) else item)


def test_a_fetch_takes_what_is_there() -> None:
    rig = Rig()
    rig.comes((1, 1), (2, 2))
    batch = rig.consumer.fetch(3, timeout=0.01)
    assert ([message.stream_seq for message in batch], batch.ended) == ([1, 2], BatchEnd.TIMEOUT)
    rig.comes((3, 3))
    assert rig.consumer.next(timeout=5).stream_seq == 3
    with pytest.raises(errors.NoMessages):
        rig.consumer.next(timeout=0)
    rig.consumer.close()


def test_one_that_cannot_be_made_again_in_time_is_no_empty_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jsclient.jetstream.consuming.ordered.NO_WAIT_TIMEOUT", 0.05)
    rig = Rig()
    rig.js.api.answers["CONSUMER.INFO"] = [GONE]
    rig.js.api.answers["CONSUMER.CREATE"] = [SILENCE] * 1000
    with pytest.raises(errors.ReadStalled, match="could not be made again in time"):
        rig.consumer.fetch(1, timeout=0)


def test_one_that_is_gone_each_time_is_told_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jsclient.jetstream.consuming.ordered.NO_WAIT_TIMEOUT", 0.05)
    rig = Rig()
    rig.js.api.answers["CONSUMER.INFO"] = [GONE] * 100_000
    with pytest.raises((errors.ConsumerNotFound, errors.ReadStalled)):
        rig.consumer.fetch(1, timeout=0)


def test_one_reader_at_a_time() -> None:
    rig = Rig()
    with rig.consumer.messages(), pytest.raises(errors.OrderedConsumerConcurrentRequests):
        rig.consumer.fetch(1, timeout=0)
    assert not rig.consumer.fetch(1, timeout=0)


def test_what_it_says_of_itself() -> None:
    js = stream()
    with OrderedConsumer(js, "S") as consumer:
        assert repr(consumer) == "<OrderedConsumer of 'S' after sequence 0>"
        assert consumer.cached_info is None
        with pytest.raises(errors.OrderedConsumerNotCreated):
            consumer.info()
        with pytest.raises(errors.ConfigError):
            consumer.fetch(0)
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(consumer)


def test_a_fetch_that_ends_in_an_error_returns_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.comes((1, 1))
    (inbox,) = rig.js.nc.inboxes.values()
    denied = errors.PermissionViolation("not permitted", "s", "publish")
    monkeypatch.setattr(inbox, "next", lambda seconds: denied)
    batch = rig.consumer.fetch(2, timeout=5)
    assert ([message.stream_seq for message in batch], batch.ended, batch.error) == ([1], BatchEnd.ERROR, denied)
