"""Finite reads without a server: what is lost on the way is waited for, and nothing else is."""

from __future__ import annotations

import datetime as dt
import pickle
import threading
from typing import Any

import pytest
from tests.finite_rig import END, LOST, Consumer

from jsclient import errors, waiting
from jsclient.jetstream.consuming.finite import FiniteRead, OrderedRead


def read_of(consumer: Any, end_seq: int | None = None, **options: Any) -> FiniteRead:
    return FiniteRead(consumer, end_seq, timeout=options.pop("timeout", 5.0), **options)


def sequences(read: FiniteRead) -> list[int]:
    return [message.stream_seq for message in read]


def test_what_lies_beyond_the_end_is_not_lost() -> None:
    consumer = Consumer()
    consumer.brings(consumer.message(1), error=LOST)
    consumer.brings(consumer.message(2, beyond=True), consumer.message(3, beyond=True))
    consumer.says(ack_pending=2, pending=7)  # others go on storing
    assert sequences(read_of(consumer, time=END)) == [1]
    assert consumer.asked == 1
    assert len(consumer.nc.server.returned) == 2, "they go back"


def test_what_was_lost_is_given_before_the_end() -> None:
    consumer = Consumer()
    consumer.brings(consumer.message(1), error=LOST)
    consumer.brings(consumer.message(3, beyond=True))
    consumer.says(ack_pending=2)
    consumer.brings(consumer.message(4, beyond=True))  # no reason to begin anew
    consumer.says(ack_pending=3)
    consumer.brings(consumer.message(5, beyond=True), consumer.message(2))
    consumer.says(ack_pending=3)
    assert sequences(read_of(consumer, time=END)) == [1, 2]


def test_a_copy_of_what_waits_here_does_not_stand_for_what_is_lost() -> None:
    consumer = Consumer()
    consumer.brings(consumer.message(1), error=LOST)
    consumer.brings(consumer.message(3, beyond=True), consumer.message(3, beyond=True))
    consumer.says(ack_pending=2)
    consumer.brings(consumer.message(2))
    consumer.says(ack_pending=1)
    assert sequences(read_of(consumer, time=END)) == [1, 2]


def test_what_was_lost_may_have_come_behind_the_end() -> None:
    consumer = Consumer()
    consumer.brings(consumer.message(1), error=LOST)
    consumer.brings(consumer.message(3, beyond=True), consumer.message(2))
    consumer.says(ack_pending=1)
    assert sequences(read_of(consumer, time=END)) == [1, 2]


def test_what_never_comes_again_is_told_in_time() -> None:
    consumer = Consumer()
    consumer.brings(consumer.message(1), error=LOST)
    for sequence in range(3, 3000):
        consumer.brings(consumer.message(sequence, beyond=True))
        consumer.says(ack_pending=sequence - 1)
    read = read_of(consumer, time=END, timeout=0.05)
    assert next(read).stream_seq == 1
    with pytest.raises(errors.ReadStalled, match="1 messages of the consumer were sent and neither acked"):
        next(read)
    assert consumer.batches, "the timeout ended it"


def test_at_the_end_of_the_stream_what_was_lost_is_waited_for() -> None:
    consumer = Consumer(last=3)
    consumer.brings(consumer.message(1), consumer.message(3), error=LOST)
    consumer.brings()
    consumer.brings()
    consumer.says(ack_pending=1)
    consumer.brings(consumer.message(2))
    consumer.brings()
    consumer.brings()
    consumer.says()
    assert sequences(read_of(consumer, drained=True)) == [1, 3, 2]


@pytest.mark.parametrize(("delivered", "expected"), [(2, [1, 2]), (3, errors.ReadStalled)])
def test_without_acks_the_sequences_tell_what_is_lost(delivered: int, expected: Any) -> None:
    consumer = Consumer(ack_none=True, last=9)
    consumer.brings(consumer.message(1), consumer.message(2), error=LOST)
    consumer.brings()
    consumer.brings()
    consumer.says(delivered=delivered, pending=0 if delivered == 3 else 1)
    read = read_of(consumer, 9)
    if isinstance(expected, list):
        assert sequences(read) == expected
    else:
        assert [next(read).stream_seq, next(read).stream_seq] == [1, 2]
        with pytest.raises(expected):
            next(read)


def test_a_server_without_an_answer_is_asked_again() -> None:
    consumer = Consumer(last=1)
    consumer.batches = [errors.NoResponders("nobody", "s"), errors.RequestTimeout("nothing")]
    consumer.infos = [errors.RequestTimeout("nothing"), errors.RequestTimeout("nothing")]
    consumer.brings(consumer.message(1))
    consumer.says()
    assert sequences(read_of(consumer, 1)) == [1]


def test_a_consumer_that_is_gone_ends_it() -> None:
    consumer = Consumer()
    consumer.batches = [errors.NoResponders("nobody", "s")]
    consumer.infos = [errors.ConsumerNotFound(404, 10014, "gone")]
    with pytest.raises(errors.NoResponders):
        next(read_of(consumer, 1))


def test_a_link_that_stays_down_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer()
    consumer.batches = [LOST]
    consumer.nc.is_connected = False
    with pytest.raises(errors.ConnectionLost):
        next(read_of(consumer, 1, timeout=0.05))


def test_an_end_in_the_future_is_not_passed() -> None:
    consumer = Consumer()
    soon = dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=0.3)
    assert sequences(read_of(consumer, time=soon)) == []
    assert dt.datetime.now(dt.timezone.utc) > soon


def test_it_belongs_to_its_process() -> None:
    consumer = Consumer()
    with read_of(consumer, 1) as read, pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(read)


class Stuck:
    """Messages of an ordered consumer that ask the server, which does not answer."""

    source = "the consumer"

    def __init__(self) -> None:
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
    consumer: Any = Consumer()
    messages = Stuck()
    consumer.js.api.is_imported = False
    consumer.open_messages = lambda *_, **__: messages
    read = OrderedRead(consumer, 9, timeout=5.0)
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.extend(read), daemon=True)
    thread.start()
    assert messages.asking.wait(5)
    read.close()
    thread.join(5)
    assert not thread.is_alive()
    assert (ended, messages.closed) == ([], 2)


@pytest.mark.parametrize(("ack_none", "frames"), [(False, 2), (True, 0)])
def test_the_end_of_the_connection_hands_back_what_was_not_taken(ack_none: bool, frames: int) -> None:
    consumer = Consumer(ack_none=ack_none)
    consumer.brings(*[consumer.message(number) for number in (1, 2, 3)])
    read = read_of(consumer, 9)
    assert next(read).stream_seq == 1
    read.end(errors.ConnectionClosed("closed"))
    assert len(read.hand_back()) == frames
    with pytest.raises(errors.ConnectionClosed):
        next(read)
    read.close()
