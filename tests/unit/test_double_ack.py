"""Many acks with one wait: which of them are confirmed, and why not; the server is scripted."""

from __future__ import annotations

from typing import Any

import pytest
from tests.ack_rig import CONFIRMED, NOBODY, Asked, delivered, info

from jsclient import errors
from jsclient.jetstream.consuming.double_ack import double_ack_many
from jsclient.jetstream.message import JetStreamMsg
from jsclient.message import Msg


def test_of_many_those_that_were_forgotten_are_told_and_the_others_asked_again() -> None:
    connection = Asked(({0: CONFIRMED}, None), info(2, 2), ({0: CONFIRMED}, None))
    messages = [delivered(connection, number) for number in (1, 2, 3)]
    result = double_ack_many(messages, 5.0)
    assert result.confirmed == messages[:2]
    assert [type(error) for error in result.errors] == [errors.StaleDelivery]
    assert connection.subjects[2] == "1 acks"
    assert [message.is_acked for message in messages] == [True, True, False]


def test_when_all_were_forgotten_nobody_is_asked_again() -> None:
    connection = Asked(({}, None), info(0, 0))
    assert [type(error) for error in double_ack_many([delivered(connection, 1)], 5.0).errors] == [errors.StaleDelivery]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (({0: NOBODY}, None), errors.NoResponders),
        (({}, None), errors.RequestTimeout),
        (({}, errors.ConnectionLost("lost")), errors.ConnectionLost),
        (errors.BufferFull("full"), errors.BufferFull),
    ],
)
def test_why_an_ack_is_not_confirmed(answer: Any, error: type[Exception]) -> None:
    message = delivered(Asked(answer), 1)
    result = double_ack_many([message], 0.1)
    assert not result
    assert [type(each) for each in result.errors] == [error]
    assert not message.is_acked


def test_the_end_of_the_connection_is_raised() -> None:
    message = delivered(Asked(({}, errors.ConnectionClosed("closed"))), 1)
    with pytest.raises(errors.ConnectionClosed):
        double_ack_many([message], 0.1)
    assert not message.is_acked


def test_if_one_of_them_cannot_be_acked_none_is() -> None:
    connection = Asked()
    good, without = delivered(connection, 1), JetStreamMsg(Msg(b"s", b"1", None, b"x"), connection)  # type: ignore[arg-type]
    with pytest.raises(errors.MsgNoReply):
        double_ack_many([good, without])
    assert not good.is_acked


def test_of_none_there_is_nothing_to_wait_for() -> None:
    assert double_ack_many([]) == ([], [], [])
