"""The cursor of ordered consumers, without a server."""

from __future__ import annotations

import datetime as dt

import pytest

from jsclient import errors
from jsclient.jetstream.consuming.ordered_sequence import DELIVER, GAP, SKIP, STALE, OrderedOptions, OrderedState


def reply(state: OrderedState, stream_seq: int, consumer_seq: int, form: int = 9) -> bytes:
    head = b"$JS.ACK.S" if form == 9 else b"$JS.ACK._.hash.S"
    tail = b".random" if form == 12 else b""
    return b"%b.%b.1.%d.%d.1700000000000000000.5%b" % (head, state.name, stream_seq, consumer_seq, tail)


def begun(**options: object) -> OrderedState:
    state = OrderedState(OrderedOptions(**options))  # type: ignore[arg-type]
    state.next_config()
    return state


@pytest.mark.parametrize("form", [9, 11, 12])
def test_consecutive_messages_are_delivered(form: int) -> None:
    state = begun()
    for number in range(1, 20):
        if form == 12 and number == 1:
            with pytest.raises(errors.NotJetStreamMessage):
                state.check(b"$JS.ACK.x")
        assert state.check(reply(state, number * 3, number, form)) is DELIVER
    assert state.last_seq == 57


@pytest.mark.parametrize("form", [9, 11])
def test_sequences_that_are_no_numbers(form: int) -> None:
    state = begun()
    for broken in (b".x.1.", b".3.x.", b"..1."):
        with pytest.raises(errors.NotJetStreamMessage, match="its reply is"):
            state.check(reply(state, 3, 1, form).replace(b".3.1.", broken))
    assert state.check(reply(state, 3, 1, form)) is DELIVER
    assert state.check(reply(state, 5, 2, form).replace(b".5.2.", b".x.2.")) is DELIVER
    with pytest.raises(errors.NotJetStreamMessage, match="its stream sequence is"):
        state.last_seq  # noqa: B018


def test_a_gap_is_told_and_nothing_changes() -> None:
    state = begun()
    assert state.check(reply(state, 1, 1)) is DELIVER
    assert state.check(reply(state, 3, 3)) is GAP
    assert (state.last_seq, state.expected) == (1, 2)


def test_messages_of_an_earlier_consumer_and_repeated_ones_are_stale() -> None:
    state = begun()
    old = reply(state, 2, 2)
    assert state.check(reply(state, 1, 1)) is DELIVER
    assert state.check(reply(state, 1, 1)) is STALE
    state.next_config()
    assert state.check(old) is STALE
    assert state.check(reply(state, 2, 1)) is DELIVER


def test_each_consumer_begins_after_the_last_message() -> None:
    state = OrderedState(OrderedOptions(name_prefix="p", filter_subjects="a.*"))
    first = state.next_config()
    assert (first.name, first.deliver_policy, first.opt_start_seq) == ("p_1", "all", None)
    assert (first.ack_policy, first.mem_storage, first.num_replicas, first.filter_subject) == ("none", True, 1, "a.*")
    state.check(reply(state, 41, 1))
    second = state.next_config()
    assert (second.name, second.deliver_policy, second.opt_start_seq) == ("p_2", "by_start_sequence", 42)
    third = state.next_config()
    assert (third.name, third.opt_start_seq) == ("p_3", 42)


def test_the_start_of_the_user_holds_until_a_message_came() -> None:
    moment = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)
    state = OrderedState(OrderedOptions(deliver_policy="by_start_time", opt_start_time=moment))
    assert state.next_config().opt_start_time == moment
    assert state.next_config().opt_start_time == moment
    state = OrderedState(OrderedOptions(deliver_policy="by_start_sequence", opt_start_seq=7))
    assert state.next_config().opt_start_seq == 7
    assert state.next_config().opt_start_seq == 7


def test_a_snapshot_that_was_cut_is_taken_again_and_the_known_part_skipped() -> None:
    state = OrderedState(OrderedOptions(deliver_policy="last_per_subject"))
    assert state.next_config().filter_subject == ">"
    state.created(num_pending=3)
    assert state.check(reply(state, 10, 1)) is DELIVER
    assert state.check(reply(state, 20, 2)) is DELIVER
    again = state.next_config()
    assert (again.deliver_policy, again.opt_start_seq) == ("last_per_subject", None)
    state.created(num_pending=3)
    assert state.check(reply(state, 10, 1)) is SKIP
    assert state.check(reply(state, 20, 2)) is SKIP
    assert state.check(reply(state, 30, 3)) is DELIVER
    assert state.next_config().opt_start_seq == 31
    assert state.next_config().opt_start_seq == 31


def test_what_was_checked_and_not_taken_is_read_again() -> None:
    state = begun()
    for number in range(1, 5):
        state.check(reply(state, number * 10, number))
    state.rewind(reply(state, 30, 3))
    assert state.next_config().opt_start_seq == 30


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((), {}),
        ("a", {"filter_subject": "a"}),
        (["a"], {"filter_subject": "a"}),
        (("a", "b"), {"filter_subjects": ["a", "b"]}),
    ],
)
def test_filters(given: object, expected: dict[str, object]) -> None:
    assert OrderedOptions(filter_subjects=given).filters() == expected  # type: ignore[arg-type]


def test_attempts_must_be_positive() -> None:
    with pytest.raises(errors.ConfigError):
        OrderedOptions(max_reset_attempts=0)


def test_a_row_counts_when_its_last_message_is_the_expected_one() -> None:
    state = begun()
    assert state.head == b"\0.", "no message was checked yet: nothing begins with it"
    assert not state.advance(reply(state, 3, 3), 3)
    assert state.check(reply(state, 1, 1)) is DELIVER
    assert reply(state, 2, 2).startswith(state.head)
    assert state.advance(reply(state, 9, 4), 3)
    assert (state.expected, state.last_seq) == (5, 9)


def test_a_row_with_a_hole_or_of_another_consumer_counts_nothing() -> None:
    state = begun()
    old = reply(state, 4, 4)
    assert state.check(reply(state, 1, 1)) is DELIVER
    assert not state.advance(reply(state, 4, 4), 2)
    assert not state.advance(b"$JS.ACK.other", 2)
    assert (state.expected, state.last_seq) == (2, 1)
    state.next_config()
    assert not old.startswith(state.head)
    assert not state.advance(old, 4)
    assert state.check(reply(state, 2, 1)) is DELIVER
    assert not state.advance(old, 3)


def test_a_snapshot_that_was_not_taken_whole_is_taken_again() -> None:
    """What was received and not taken goes back: to begin by sequence then would bring values that are not the last."""
    state = begun(deliver_policy="last_per_subject")
    state.created(3)
    replies = [reply(state, seq, number) for number, seq in enumerate((5, 9, 12), 1)]
    assert [state.check(each) for each in replies] == [DELIVER] * 3
    assert not state.in_snapshot
    state.rewind(replies[1])  # 9 and 12 were not taken
    again = state.next_config()
    assert (again.deliver_policy, state.last_seq) == ("last_per_subject", 8)
    assert [state.check(reply(state, seq, number)) for number, seq in enumerate((5, 9, 12), 1)] == [
        SKIP,
        DELIVER,
        DELIVER,
    ]


def test_a_heartbeat_that_names_a_missing_message() -> None:
    state = begun()
    assert not state.behind(0)
    assert state.behind(1)
    assert state.check(reply(state, 3, 1)) is DELIVER
    assert not state.behind(1)
    assert state.behind(2)
