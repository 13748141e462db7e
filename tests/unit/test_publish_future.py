"""The future of a publish: how it is waited for, what is told of it, and what it says of the message."""

from __future__ import annotations

import concurrent.futures
import pickle
import threading

import pytest
from tests.publish_rig import FakeConnection, Rig

from jsclient import errors
from jsclient.jetstream.publishing.future import PublishFuture, PubMsg
from jsclient.protocol import Headers


def acked(rig: Rig) -> PublishFuture:
    future = rig.publish(msg_id="1")
    rig.ack(rig.take()[0], 7)
    return future


def refused(rig: Rig) -> PublishFuture:
    future = rig.publish()
    rig.error(rig.take()[0], 10077)
    return future


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setattr(FakeConnection, "run_last_callback", lambda self, call: call(), raising=False)
    return Rig()


def test_it_says_what_was_published(rig: Rig) -> None:
    future = rig.publish(msg_id="1")
    assert future.msg == PubMsg("s.a", b"x", future.headers)
    assert (future.msg_id, future.headers["Nats-Msg-Id"]) == ("1", "1")
    assert "pending" in repr(future)
    plain = rig.publish()
    assert (plain.msg_id, plain.headers) == (None, Headers())
    assert (plain.msg.data, plain.msg.reply) == (b"x", "")


def test_it_waits_no_longer_than_it_is_told(rig: Rig) -> None:
    future = rig.publish()
    with pytest.raises(errors.TimedOut, match="the ack is still expected|The message may be stored"):
        future.result(0.01)
    with pytest.raises(errors.ConfigError):
        future.result(-1)
    rig.ack(rig.take()[0], 3)
    assert future.result(0).seq == 3
    assert future.exception() is None


def test_another_thread_is_woken(rig: Rig) -> None:
    future = rig.publish()
    frame = rig.take()[0]
    timer = threading.Timer(0.02, rig.ack, (frame, 5))
    timer.start()
    assert future.result(10).seq == 5
    timer.join()


def test_every_caller_gets_an_error_of_its_own(rig: Rig) -> None:
    future = refused(rig)
    one, other = future.exception(), future.exception()
    assert type(one) is errors.StoreFailed
    assert one is not other
    assert one is not None
    assert other is not None
    assert one.args == other.args
    with pytest.raises(errors.StoreFailed):
        future.result()
    assert "StoreFailed" in repr(future)


def test_callbacks_are_told_before_and_after(rig: Rig) -> None:
    told: list[PublishFuture] = []
    future = rig.publish()
    future.add_done_callback(told.append)
    assert told == []
    rig.ack(rig.take()[0])
    assert told == [future]
    future.add_done_callback(told.append)
    assert told == [future, future]


def test_a_future_of_the_standard_library(rig: Rig) -> None:
    later = rig.publish()
    converted = later.to_concurrent()
    assert not converted.done()
    rig.ack(rig.take()[0], 9)
    assert converted.result(0).seq == 9
    assert acked(rig).to_concurrent().result(0).seq == 7
    failed = refused(rig).to_concurrent()
    assert type(failed.exception(0)) is errors.StoreFailed
    assert isinstance(failed, concurrent.futures.Future)


def test_it_belongs_to_its_process(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: FakeConnection, what: object) -> None:
        raise TypeError("cannot be pickled")

    monkeypatch.setattr(FakeConnection, "refuse_pickle", refuse, raising=False)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(rig.publish())
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(rig.publisher)
