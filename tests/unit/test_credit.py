"""The credit of a fetch: one pull at a time, for what is still missing."""

from __future__ import annotations

from jsclient.jetstream.consuming.credit import FIRST_DELAY, REMEMBERED, FetchCredit
from jsclient.jetstream.consuming.pull_statuses import StatusMeaning, classify

TIMEOUT = classify(408, "Request Timeout")
LEADER = classify(409, "Leadership Change")


def test_a_pull_asks_for_all_that_is_missing_and_none_follows_while_it_is_out() -> None:
    credit = FetchCredit(10, 1000)
    assert credit.need() == (10, 1000)
    credit.opened(10, 1000)
    assert credit.need() is None
    credit.count, credit.taken_bytes = 4, 400
    assert credit.need() is None
    assert credit.outstanding(1) == 5


def test_none_follows_the_last_word_of_the_server_unless_the_fetch_goes_on() -> None:
    credit = FetchCredit(10)
    number = credit.opened(10, 0)
    credit.count = 4
    assert credit.ended(number, TIMEOUT, 0)
    assert (credit.meaning, credit.need()) == (TIMEOUT, None)
    credit.go_on()
    assert credit.need() == (6, 0)


def test_what_a_fetch_lives_through_is_followed_by_a_pull_after_a_pause() -> None:
    credit = FetchCredit(10)
    assert credit.ended(credit.opened(10, 0), LEADER, 0, now=100.0)
    assert credit.meaning is None
    assert credit.need(100.0) is None
    assert credit.need(101.0) == (10, 0)


def test_a_pull_that_is_forgotten_says_nothing_new() -> None:
    credit = FetchCredit(10)
    number = credit.opened(10, 0)
    credit.lost(0)
    assert not credit.ended(number, TIMEOUT, 0)
    assert credit.meaning is None
    assert credit.need() == (10, 0)


def test_nothing_is_missing_any_more() -> None:
    credit = FetchCredit(2)
    credit.count = 2
    assert credit.need() is None


def test_bytes_that_were_used_up_exactly_end_a_pull_that_nobody_ends() -> None:
    credit = FetchCredit(10, 100)
    credit.opened(10, 100)
    credit.count, credit.taken_bytes = 3, 100
    assert credit.outstanding(0) == 7
    assert credit.need() == (7, 1)
    assert credit.open == {}


def test_pulls_that_nobody_ends_are_not_remembered_for_ever() -> None:
    credit = FetchCredit(10)
    for _ in range(REMEMBERED + 5):
        credit.opened(1, 0)
    assert len(credit.open) == REMEMBERED


def test_only_a_window_grows() -> None:
    assert not FetchCredit(10).stop_growing(10)
    assert StatusMeaning("quiet").reason == ""


def test_the_bytes_of_a_pull_may_be_used_up_exactly() -> None:
    """No server says anything then: the rest is asked for at once. A pull without a limit is not over."""
    credit = FetchCredit(8, pull_bytes=100)
    assert credit.need() == (8, 100)
    credit.opened(8, 100)
    credit.count, credit.taken_bytes = 4, 99
    assert credit.need() is None
    credit.count, credit.taken_bytes = 5, 100
    assert credit.need() == (3, 100)
    credit.opened(1, 0)
    assert credit.need() is None


def test_the_back_off_begins_again_when_something_works() -> None:
    credit = FetchCredit(10)
    pauses = []
    for _ in range(6):
        credit.failed(100.0)
        pauses.append(round(credit.retry_at - 100.0, 3))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    credit.works()
    assert credit.need(100.0) == (10, 0)
    credit.failed(100.0)
    assert credit.retry_at == 100.0 + FIRST_DELAY


def test_a_pull_that_brought_its_messages_ends_the_back_off() -> None:
    credit = FetchCredit(10)
    credit.failed(100.0)
    number = credit.opened(10, 0)
    credit.count = 4
    assert credit.ended(number, classify(409, "Batch Completed"), 0, now=100.0)
    assert credit.retry_at == 0
