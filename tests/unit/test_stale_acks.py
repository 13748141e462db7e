"""Acks of copies that the server has forgotten to have delivered; the server is scripted."""

from __future__ import annotations

from typing import Any

import pytest
from tests.ack_rig import CONFIRMED, SILENCE, Asked, delivered, info

from jsclient import errors
from jsclient.durations import DEFAULT, Deadline
from jsclient.jetstream.consuming import stale_acks
from jsclient.jetstream.consuming.stale_acks import confirmed_ack, consumer_of, forgotten


def test_an_ack_that_is_confirmed() -> None:
    connection: Any = Asked(CONFIRMED)
    confirmed_ack(delivered(connection, 1), b"+ACK", 5.0)
    assert len(connection.subjects) == 1


def test_without_a_confirmation_the_server_is_asked_what_it_has_delivered() -> None:
    connection: Any = Asked(SILENCE, info(9, 9), CONFIRMED)
    confirmed_ack(delivered(connection, 9), b"+ACK", DEFAULT)
    assert connection.subjects[1] == "$JS.API.CONSUMER.INFO.S.C"
    assert not connection.forgetful


@pytest.mark.parametrize("state", [(8, 9), (9, 8), (0, 0)])
def test_a_copy_that_the_server_has_forgotten_is_not_waited_for(state: tuple[int, int]) -> None:
    connection: Any = Asked(SILENCE, info(*state))
    with pytest.raises(errors.StaleDelivery, match="message 9 of 'S'"):
        confirmed_ack(delivered(connection, 9), b"+ACK", 5.0)
    assert connection.forgetful == {"S.C"}


def test_a_server_that_has_forgotten_once_is_asked_before_each_ack_until_it_knows_again() -> None:
    connection: Any = Asked(info(8, 8), info(9, 9), CONFIRMED)
    connection.forgetful.add("S.C")
    with pytest.raises(errors.StaleDelivery):
        confirmed_ack(delivered(connection, 9), b"+ACK", 5.0)
    confirmed_ack(delivered(connection, 9), b"+ACK", 5.0)
    assert not connection.forgetful


@pytest.mark.parametrize(
    "answer", [SILENCE, b"nonsense", b'{"error":{"code":404,"err_code":10014}}'], ids=["silence", "nonsense", "gone"]
)
def test_who_learns_nothing_waits_on(answer: Any) -> None:
    connection: Any = Asked(SILENCE, answer, CONFIRMED)
    confirmed_ack(delivered(connection, 9), b"+ACK", 5.0)
    assert len(connection.subjects) == 3


@pytest.mark.parametrize("knows", ["", "$JS.API.CONSUMER.MSG.NEXT.S.C $JS.d.API.CONSUMER.MSG.NEXT.S.C"])
def test_it_must_be_known_whom_to_ask(knows: str) -> None:
    connection: Any = Asked(knows=knows)
    assert forgotten([delivered(connection, 9)], Deadline(1)) == []


def test_a_message_whose_ack_subject_was_rewritten_names_no_consumer() -> None:
    message = delivered(Asked(), 1, b"elsewhere.1.2")
    assert consumer_of(message) == ""
    assert forgotten([message], Deadline(1)) == []


def test_little_time_is_given_to_the_ack_alone() -> None:
    connection: Any = Asked(SILENCE)
    with pytest.raises(errors.RequestTimeout):
        confirmed_ack(delivered(connection, 9), b"+ACK", stale_acks.ASK_AFTER)
    assert len(connection.subjects) == 1
