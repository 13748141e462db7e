"""The pieces of a restore on their way: another client of a real server takes the place of the server that restores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import accumulate

import pytest

import jsclient
from jsclient import errors
from jsclient.backup.sending import PATIENCE, STEP_TIMEOUT, UNDER_WAY, upload
from jsclient.durations import Deadline
from jsclient.message import Msg
from jsclient.testing import NatsServer, Proxy

PIECES = [bytes([number]) * (256 * 1024 if number % 3 else 1000) for number in range(40)]
TARGET = "restore.here"


@pytest.fixture
def restorer(server: NatsServer) -> Iterator[jsclient.Connection]:
    with jsclient.connect(server.url) as nc:
        yield nc


def sent(url: str, seconds: float = 20.0, pieces: list[bytes] = PIECES, patience: float = PATIENCE) -> list[int]:
    with jsclient.connect(url) as nc:
        return list(upload(nc, TARGET, pieces, Deadline(seconds), patience))


def test_every_piece_once_in_order_and_only_some_unanswered(server: NatsServer, restorer: jsclient.Connection) -> None:
    got: list[Msg] = []
    most = held = 0
    waiting: list[Msg] = []

    def take(message: Msg) -> None:
        nonlocal most, held
        got.append(message)
        waiting.append(message)
        held += len(message.data)
        most = max(most, held)
        # Answered late, as long as there is more to come: the window has to fill.
        if len(got) == 1 or held > UNDER_WAY - 256 * 1024 or len(got) > len(PIECES) - 12:
            for one in waiting:
                one.respond(b"")
            waiting.clear()
            held = 0

    with restorer.subscribe(TARGET, callback=take):
        restorer.flush()
        assert sent(server.url) == [len(piece) for piece in PIECES]
    assert [message.data for message in got] == PIECES
    assert len({message.reply for message in got}) == len(PIECES)
    assert 1 << 20 < most <= UNDER_WAY


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda message, number: message.respond(b'{"error":{"code":500,"description":"no space"}}'), errors.ApiError),
        (lambda message, number: None, errors.RequestTimeout),
    ],
)
def test_what_goes_wrong_in_the_middle_is_told(
    server: NatsServer, answer: Callable[[Msg, int], None], error: type[Exception]
) -> None:
    count = 0

    def take(message: Msg) -> None:
        nonlocal count
        count += 1
        if count < 5:
            message.respond(b"")
        else:
            answer(message, count)

    with jsclient.connect(server.url) as nc, nc.subscribe(TARGET, callback=take):
        nc.flush()
        with pytest.raises(error):
            sent(server.url, 1.0 if error is errors.RequestTimeout else 20.0)


def test_a_server_that_has_given_up_is_told_at_once(server: NatsServer, restorer: jsclient.Connection) -> None:
    def take(message: Msg) -> None:
        listening.unsubscribe()
        restorer.flush()
        message.respond(b"")  # from the next piece on nobody listens

    listening = restorer.subscribe(TARGET, callback=take)
    restorer.flush()
    with pytest.raises(errors.NoResponders):
        sent(server.url)


@pytest.mark.parametrize("count", [40, 4], ids=["a full window", "the last of few"])
def test_a_server_that_is_gone_with_what_it_had_taken_is_told(
    server: NatsServer, restorer: jsclient.Connection, count: int
) -> None:
    """No answer can come to what it had taken: the piece in hand finds out that nobody listens."""
    most = min(count - 1, 1 + sum(held <= UNDER_WAY for held in accumulate(map(len, PIECES[1:]))))
    taken = 0

    def take(message: Msg) -> None:
        nonlocal taken
        if taken == 0:
            message.respond(b"")
        taken += 1
        if taken == most:
            listening.unsubscribe()
            restorer.flush()

    listening = restorer.subscribe(TARGET, callback=take)
    restorer.flush()
    start = time.monotonic()
    with pytest.raises(errors.NoResponders):
        sent(server.url, 2 * STEP_TIMEOUT, PIECES[:count], patience=1.0)
    assert time.monotonic() - start < STEP_TIMEOUT / 2


def test_a_server_that_is_slow_for_a_while_gets_every_piece_once(
    server: NatsServer, restorer: jsclient.Connection
) -> None:
    """Pieces beyond the window go out while nothing is answered; their order and their count stay."""
    got: list[Msg] = []

    def take(message: Msg) -> None:
        got.append(message)
        if len(got) == 1:
            message.respond(b"")
        elif len(got) == len(PIECES):
            for one in got[1:]:
                one.respond(b"")

    with restorer.subscribe(TARGET, callback=take):
        restorer.flush()
        assert sent(server.url, patience=0.01) == [len(piece) for piece in PIECES]
    assert [message.data for message in got] == PIECES


def test_an_answer_out_of_turn_is_a_piece_that_was_lost(server: NatsServer, restorer: jsclient.Connection) -> None:
    count = 0

    def take(message: Msg) -> None:
        nonlocal count
        count += 1
        if count != 6:
            message.respond(b"")

    with restorer.subscribe(TARGET, callback=take):
        restorer.flush()
        with pytest.raises(errors.ConnectionLost, match="out of turn"):
            sent(server.url)


def test_a_lost_link_ends_it_at_once(server: NatsServer, restorer: jsclient.Connection) -> None:
    count = 0
    with Proxy(server.port) as proxy:

        def take(message: Msg) -> None:
            nonlocal count
            count += 1
            if count < 8:
                message.respond(b"")
            elif count == 8:
                proxy.cut()

        with restorer.subscribe(TARGET, callback=take):
            restorer.flush()
            with pytest.raises(errors.ConnectionLost):
                sent(proxy.url)
