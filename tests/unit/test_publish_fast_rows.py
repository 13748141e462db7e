"""Rows in fast batches: after any break what is not confirmed goes into a new batch, if that does no harm."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fast_rig import NOBODY, Answer, ack, end, on, stream

from jsclient import errors
from jsclient.exactly import fast_rows
from jsclient.exactly.fast_rows import FastRowPublisher
from jsclient.jetstream.publishing.fast_batch import APPEND, COMMIT_END, PING, START
from jsclient.jetstream.publishing.outcome import Rules
from jsclient.states import LinkEvent

RULES = Rules(ack_timeout=5.0, resend_after=1.0, retry_wait=0.001, copies_allowed=True)
LOST = errors.ConnectionLost("lost")


def publisher(answer: Answer | None = None, rules: Rules = RULES, guard: Any = None) -> Any:
    js = stream(answer)
    js.nc.check_headers = lambda: None
    js.publish_streams.stated = 120.0
    return FastRowPublisher(js, rules, guard)


def some(count: int, ids: bool = False) -> list[Any]:
    return [(b"s.r", b"", b"%d" % number, b"id-%d" % number if ids else None) for number in range(count)]


def once(operation: int, said: Any, number: int = 0) -> Answer:
    """Says it the first time that such a message comes."""
    left = [said]
    return lambda given, kind: left.pop() if left and kind == operation and number in (0, given) else None


def operations(of: Any) -> list[int]:
    found: list[int] = of._engine.operations
    return found


def test_rows_are_stored_and_counted() -> None:
    of = publisher()
    of.publish(some(3))
    of.publish([])
    totals = of.finish()
    assert (totals.rows, totals.bytes, totals.streams) == (3, 3, {"S": (3, 3)})
    assert operations(of) == [START, APPEND, APPEND, COMMIT_END]
    of.close()


def test_rows_that_were_all_there_have_no_sequence() -> None:
    of = publisher(once(COMMIT_END, {"stream": "S", "seq": 0, "batch": "b", "count": 3}))
    of.publish(some(3, ids=True))
    totals = of.finish()
    assert (totals.rows, totals.streams, of.seen) == (3, {}, {"S"})


def test_large_lists_leave_in_blocks_and_obey_the_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_rows, "BLOCK", 200)
    monkeypatch.setattr(fast_rows, "FIRST_FLOW", 2)
    of = publisher(lambda number, operation: ack(number, 2) if operation in (START, APPEND) else None)
    of.publish(some(20, ids=True))
    assert of.finish().rows == 20


def test_a_lost_answer_in_the_middle_is_asked_for_on_a_subject_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_rows, "FIRST_FLOW", 2)
    asked: list[bytes] = []

    def answer(number: int, operation: int) -> Any:
        return ack(number, 50) if operation == PING else "" if operation in (START, APPEND) else None

    of = publisher(answer)
    enqueue = of._engine.enqueue

    def enqueue_now(frame: bytes, deadline: Any = None) -> None:
        asked.append(bytes(frame))
        enqueue(frame)

    of._engine.enqueue_now = enqueue_now
    of.publish(some(10))
    pings = [frame for frame in asked if b".%d.$FI " % PING in frame]
    assert pings
    assert all(frame.startswith(b"PUB s.r ") for frame in pings)


def test_the_rows_of_a_batch_are_numbered_also_beyond_what_is_remembered() -> None:
    known = fast_rows.KNOWN_STEPS
    steps = list(fast_rows._steps(known + 3))
    assert steps[:2] == [b"1.0.$FI", b"2.1.$FI"]
    assert steps[known - 1 :] == [b"%d.1.$FI" % number for number in range(known, known + 4)]
    assert list(fast_rows._steps(5))[:5] == steps[:5]


@pytest.mark.parametrize(
    "broken",
    [
        once(START, LOST),
        once(START, NOBODY),
        once(APPEND, {"type": "gap", "last_seq": 2, "seq": 3}),
        once(APPEND, {"type": "", "error": {"code": 503, "err_code": 10008}}),
        once(COMMIT_END, {"type": "", "error": {"code": 400, "err_code": 10208}}),
        once(COMMIT_END, end(1)),
        once(START, {"type": "", "error": {"code": 429, "err_code": 10167}}),
    ],
    ids=["lost", "nobody", "gap", "no leader", "forgotten", "miscounted", "overload"],
)
def test_after_a_break_another_batch_stores_them(broken: Answer) -> None:
    of = publisher(broken)
    of.publish(some(3))
    assert operations(of).count(START) == 2
    assert of.finish().rows == 3


def test_what_is_confirmed_is_not_sent_again() -> None:
    said = [ack(2), {"type": "gap", "last_seq": 3, "seq": 4}]
    of = publisher(lambda number, operation: said.pop(0) if said and operation == APPEND else None)
    of.publish(some(3))
    assert operations(of)[-2:] == [START, COMMIT_END], "one row was left"
    assert of.finish().rows == 3


def test_all_may_be_confirmed_when_the_end_gets_lost() -> None:
    lost = [LinkEvent.DISCONNECTED]

    def answer(number: int, operation: int) -> Any:
        if operation == COMMIT_END:
            return lost.pop() if lost else end(number - 1)
        return ack(number) if operation == APPEND else None

    of = publisher(answer)
    of.publish(some(250, ids=True))
    assert of.finish().rows == 250


def test_a_row_that_the_stream_refuses_ends_it() -> None:
    for said in (
        {"type": "", "error": {"code": 400, "err_code": 10071}},
        {"type": "err", "seq": 1, "error": {"code": 400, "err_code": 10071}},
    ):
        of = publisher(once(APPEND, said))
        with pytest.raises(errors.JsClientError):
            of.publish(some(3))
        assert operations(of).count(START) == 1


def test_rows_without_ids_are_not_sent_twice_where_copies_do_harm() -> None:
    of = publisher(once(START, LOST), Rules(ack_timeout=5.0, resend_after=1.0, retry_wait=0.001))
    with pytest.raises(errors.PublishUnknown, match="3 rows, of which the last goes to 's.r'"):
        of.publish(some(3))


@pytest.mark.parametrize(
    "why", [errors.ConnectionLost("not connected", sent=False), errors.BufferFull("it takes no data")]
)
def test_rows_of_which_nothing_was_sent_are_not_in_doubt(why: Exception) -> None:
    of = publisher(once(START, why), Rules(ack_timeout=5.0, resend_after=1.0, retry_wait=0.001))
    of.publish(some(3))
    assert operations(of)[-4:] == [START, APPEND, APPEND, COMMIT_END]
    of = publisher(on(START, why), Rules(ack_timeout=0.05, resend_after=0.05, retry_wait=0.001))
    with pytest.raises(errors.NotStored):
        of.publish(some(3))


def test_rows_with_ids_are_sent_again_within_the_window() -> None:
    rules = Rules(ack_timeout=5.0, resend_after=1.0, retry_wait=0.001)
    of = publisher(once(START, LOST), rules)
    of.publish(some(3, ids=True))
    assert operations(of).count(START) == 2


def test_the_guard_is_asked_before_rows_are_sent_again() -> None:
    def guard() -> None:
        raise RuntimeError("somebody else writes them")

    of = publisher(once(START, LOST), guard=guard)
    with pytest.raises(RuntimeError):
        of.publish(some(3))
    assert operations(of).count(START) == 1


def test_a_row_that_is_too_large() -> None:
    with pytest.raises(errors.PayloadTooLarge):
        publisher().publish([(b"s.r", b"A: b\r\n", b"x" * (2 << 20), None)])


def test_the_table_of_subjects_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_rows, "MAX_CACHED", 2)
    of = publisher()
    of.publish([(b"s.%d" % number, b"", b"x", None) for number in range(5)])
    assert len(of._starts) <= 2


def test_nothing_is_under_way_between_two_lists() -> None:
    of = publisher()
    assert of.settle(0.0)
    of.publish(some(1))
    assert of.settle(0.0)
