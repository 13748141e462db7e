"""Batches that are read ahead over a long line, beside a model of the server."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.pull_rig import Connection, Server, Source, Stored

from jsclient import errors
from jsclient.cancel import Cancel
from jsclient.jetstream import ConsumerConfig
from jsclient.jetstream.consuming.batches_ahead import GROWTH, BatchesAhead, may_read_ahead
from jsclient.jetstream.consuming.fetch import Batch, Ended, Fetch
from jsclient.jetstream.consuming.pull_options import PullOptions, window_for
from jsclient.jetstream.consuming.pull_request import terms_for
from jsclient.jetstream.message import JetStreamMsg
from jsclient.message import Msg

WANT = 5
FAR = 0.3


class Rig:
    """A stream of 100 messages, far away."""

    def __init__(self, timeout: float = 5.0, stored: int = 100, **options: Any) -> None:
        self.server = Server(random.Random(1), [Stored(number, 100) for number in range(1, stored + 1)])
        self.connection = Connection(self.server)
        self.connection.round_trip = FAR
        self.source: Any = Source(self.connection, "P")  # type: ignore[arg-type]
        self.fetches = 0
        self.fails: Exception | None = None
        self.batches = BatchesAhead(
            self.source,
            WANT,
            timeout,
            PullOptions(**options),
            fetch=self.fetch,
            finish=lambda batch, _: batch,
            make=JetStreamMsg,
        )

    def fetch(self, want: int, timeout: Any) -> Batch[Any]:
        self.fetches += 1
        if self.fails is not None:
            raise self.fails
        terms = terms_for(timeout, 0.0, no_wait=timeout == 0)
        return Fetch(self.source, want, terms, JetStreamMsg, timeout=timeout).run()

    def take(self, times: int = 1) -> list[int]:
        batches = [self.batches.next() for _ in range(times)]
        assert all(batch.ended is Ended.COMPLETE for batch in batches)
        return [message.stream_seq for batch in batches for message in batch]

    def says(self, text: bytes, headers: bytes = b"") -> None:
        """A status that ends the newest pull."""
        pull = self.server.pulls.pop()
        pull.inbox.mailbox.items.append(Msg(pull.reply, b"1", None, b"", b"NATS/1.0 " + text + b"\r\n\r\n"))


def test_one_fetch_and_then_the_window() -> None:
    rig = Rig()
    assert rig.take() == list(range(1, 6))
    assert not rig.server.pulls  # nothing is asked for before it is known how quick the application is
    for number in range(1, 20):
        rig.server.most = WANT * GROWTH**number
        assert rig.take() == list(range(5 * number + 1, 5 * number + 6))
    assert rig.fetches == 1
    rig.batches.close()
    assert not rig.server.pulls


def test_near_the_server_each_is_a_fetch() -> None:
    rig = Rig()
    rig.connection.round_trip = 0.001
    assert rig.take(20) == list(range(1, 101))
    assert rig.fetches == 20


def test_with_a_slow_application_it_ends() -> None:
    rig = Rig()
    rig.take(3)
    rig.connection.round_trip = 0.0  # as if the work had become so long
    rest: list[int] = []
    while len(rest) < 85:
        rest += rig.take()
        assert not rig.server.pulls
    assert rest == list(range(16, 101))
    assert rig.fetches > 1


def test_what_was_not_handed_out_goes_back() -> None:
    rig = Rig()
    rig.take(2)
    rig.batches.close()
    assert len(rig.server.left) + len(rig.server.returned) == 90
    assert not rig.server.pulls
    rig.batches.close()


def test_a_batch_that_is_not_full_ends_it() -> None:
    rig = Rig(timeout=0.2, stored=13)
    assert rig.take(2) == list(range(1, 11))
    short = rig.batches.next()
    assert ([message.stream_seq for message in short], short.ended) == ([11, 12, 13], Ended.TIMEOUT)
    assert not rig.server.pulls
    empty = rig.batches.next()
    assert (len(empty), empty.ended, rig.fetches) == (0, Ended.TIMEOUT, 2)


@pytest.mark.parametrize("got", [0, 2])
def test_an_end_of_the_consumer_is_raised_or_told(got: int) -> None:
    rig = Rig(stored=10 + got)
    rig.take(2)

    def deleted() -> bool:
        rig.says(b"409 Consumer Deleted")
        return True

    rig.server.step = deleted  # type: ignore[method-assign]
    for _ in range(got):
        rig.server._serve_one()
    if got:
        batch = rig.batches.next()
        assert (len(batch), batch.ended) == (got, Ended.ERROR)
        assert isinstance(batch.error, errors.ConsumerDeleted)
    else:
        with pytest.raises(errors.ConsumerDeleted):
            rig.batches.next()


@pytest.mark.parametrize("fails", [False, True])
def test_what_the_pump_would_survive_is_left_to_a_fetch(fails: bool) -> None:
    rig = Rig()
    rig.take(2)
    step: Callable[[], bool] = rig.server.step

    def trouble() -> bool:
        rig.server.step = step  # type: ignore[method-assign]
        rig.says(b"409 Exceeded MaxWaiting")
        return True

    while rig.server._serve_one():
        pass
    rig.take(3)
    rig.server.step = trouble  # type: ignore[method-assign]
    if not fails:
        rig.take(1)
        assert rig.fetches == 2
        return
    rig.fails = errors.MaxWaitingExceeded(409, "Exceeded MaxWaiting", "too many")
    with pytest.raises(errors.MaxWaitingExceeded):
        rig.batches.next()


def test_a_server_that_takes_no_larger_pull() -> None:
    rig = Rig()
    rig.take(1)
    step: Callable[[], bool] = rig.server.step

    def refused() -> bool:
        rig.server.step = step  # type: ignore[method-assign]
        rig.says(b"409 Exceeded MaxRequestBatch of 5")
        return True

    rig.server.step = refused  # type: ignore[method-assign]
    rig.take(1)
    assert rig.fetches == 1
    rig.server.most = WANT
    rig.take(2)
    assert rig.fetches == 3


def test_an_interrupted_call_gives_back() -> None:
    rig = Rig(stored=12)
    rig.take(2)

    def interrupt() -> bool:
        raise KeyboardInterrupt

    while rig.server._serve_one():
        pass
    rig.server.step = interrupt  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        rig.batches.next()
    assert len(rig.server.returned) == 2


def test_a_cancelled_one_tells_what_it_has() -> None:
    token = Cancel()
    rig = Rig(stored=12, cancel=token)
    rig.take(2)

    def cancel() -> bool:
        token.cancel()
        return True

    while rig.server._serve_one():
        pass
    rig.server.step = cancel  # type: ignore[method-assign]
    batch = rig.batches.next()
    assert (len(batch), batch.ended, type(batch.error)) == (2, Ended.ERROR, errors.Cancelled)


def test_where_nothing_could_go_back_nothing_is_read_ahead() -> None:
    assert may_read_ahead(ConsumerConfig())
    assert not may_read_ahead(ConsumerConfig(ack_policy="none"))
    assert not may_read_ahead(ConsumerConfig(max_deliver=1))


def test_the_options_of_the_window_are_those_of_the_fetches() -> None:
    config = ConsumerConfig(max_ack_pending=100)
    options = window_for({"group": "g", "min_pending": 3, "heartbeat": 1.0}, config)
    assert (options.group, options.min_pending, options.seconds_between_heartbeats) == ("g", 3, 1.0)
    assert options.most_messages == 500
    assert window_for({"heartbeat": None}, config).seconds_between_heartbeats == 0
    assert window_for({"heartbeat": 100.0}, config).seconds_between_heartbeats == 5
    assert window_for({}, ConsumerConfig(max_batch=7)).most_messages == 7
