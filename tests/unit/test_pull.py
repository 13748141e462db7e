"""The bookkeeping of pulls, without sockets and clocks."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsclient import errors, protocol
from jsclient.jetstream.consuming.credit import LONGEST_DELAY, REMEMBERED, UNLIMITED_BATCH, FetchCredit, WindowCredit
from jsclient.jetstream.consuming.pull_options import PullTerms
from jsclient.jetstream.consuming.pull_statuses import StatusMeaning, classify

PENDING = {"Nats-Pending-Messages": "7", "Nats-Pending-Bytes": "1000"}

#: code, description, kind, error, all pulls gone, back-off, reason
STATUSES = [
    (100, "Idle Heartbeat", "alive", None, False, False, ""),
    (404, "No Messages", "quiet", None, False, False, "no messages"),
    (408, "Request Timeout", "quiet", None, False, False, "timeout"),
    (408, "Interest Expired", "quiet", None, False, False, "timeout"),
    (408, "Requests Pending", "quiet", None, False, False, "no messages"),
    (408, "Message Size Exceeds MaxBytes", "quiet", errors.MaxBytesExceeded, False, False, "max bytes"),
    (409, "Message Size Exceeds MaxBytes", "quiet", errors.MaxBytesExceeded, False, False, "max bytes"),
    (409, "Batch Completed", "quiet", None, False, False, "complete"),
    (409, "Consumer Deleted", "terminal", errors.ConsumerDeleted, True, False, ""),
    (409, "consumer deleted", "terminal", errors.ConsumerDeleted, True, False, ""),
    (409, "Leadership Change", "report", errors.ConsumerLeadershipChanged, True, True, ""),
    (409, "Server Shutdown", "report", errors.PullServerShutdown, True, True, ""),
    (409, "Consumer is push based", "terminal", errors.NotPullConsumer, True, False, ""),
    (409, "Exceeded MaxRequestBatch of 10", "report", errors.BadPullRequest, False, True, ""),
    (409, "Exceeded MaxRequestExpires of 5s", "report", errors.BadPullRequest, False, True, ""),
    (409, "Exceeded MaxRequestMaxBytes of 10", "report", errors.BadPullRequest, False, True, ""),
    (409, "Exceeded MaxWaiting", "report", errors.MaxWaitingExceeded, False, True, ""),
    (409, "Something New", "report", errors.PullStatusError, False, True, ""),
    (412, "Required Api Level", "report", errors.PullStatusError, False, True, ""),
    (423, "Nats-Pin-Id mismatch", "report", errors.PinIdMismatch, True, False, ""),
    (423, "Nats-Wrong-Pin-Id", "report", errors.PinIdMismatch, True, False, ""),
    (400, "Bad Request - heartbeat value too large", "terminal", errors.BadPullRequest, False, False, ""),
    (400, "Bad Request - Priority Group missing", "terminal", errors.BadPullRequest, False, False, ""),
    (503, "", "report", errors.PullNoResponders, False, True, ""),
    (500, "whatever", "report", errors.PullStatusError, False, True, ""),
]


@pytest.mark.parametrize(("code", "text", "kind", "error", "everything", "back_off", "reason"), STATUSES)
def test_every_status_has_its_verdict(
    code: int, text: str, kind: str, error: type[Exception] | None, everything: bool, back_off: bool, reason: str
) -> None:
    meaning = classify(code, text)
    assert (meaning.kind, meaning.all_pulls, meaning.back_off, meaning.reason) == (kind, everything, back_off, reason)
    assert type(meaning.error) is (error or type(None))
    assert meaning.forget_pin is (code == 423)


def test_no_responders_is_also_a_no_responders_error() -> None:
    error = classify(503, "", subject="X").error
    assert isinstance(error, errors.NoResponders)
    assert error.subject == "X"


@pytest.mark.parametrize("headers", [None, {}, {"Nats-Pending-Messages": "many"}])
def test_without_readable_pending_headers_nothing_is_known(headers: dict[str, str] | None) -> None:
    assert classify(408, "Request Timeout", headers).unserved is None


def test_pending_headers_say_what_will_not_come() -> None:
    assert classify(408, "Request Timeout", protocol.Headers(PENDING)).unserved == (7, 1000)


# --- credit -----------------------------------------------------------------------------------------------------


def opened(state: WindowCredit, now: float = 0.0) -> tuple[int, int, int]:
    need = state.need(now)
    assert need is not None
    return (state.opened(*need), *need)


def take(state: WindowCredit, count: int) -> bool:
    """Whether the last of `count` messages made a new pull due."""
    return [state.take() >= state.check_at for _ in range(count)][-1]


def test_the_first_pull_asks_for_everything_and_none_follows_while_it_is_out() -> None:
    state = WindowCredit(500)
    assert opened(state)[1:] == (500, 0)
    assert state.need() is None


def test_a_pull_is_due_below_the_threshold_and_asks_for_what_was_taken() -> None:
    state = WindowCredit(10)
    opened(state)
    assert not take(state, 5)  # 5 are under way, the threshold is 5
    assert take(state, 1)
    assert state.need() == (6, 0)


@pytest.mark.parametrize(("maximum", "threshold", "due_after"), [(1, None, 1), (2, None, 2), (10, 10, 1), (10, 1, 10)])
def test_thresholds(maximum: int, threshold: int | None, due_after: int) -> None:
    state = WindowCredit(maximum, threshold_messages=threshold)
    opened(state)
    if due_after > 1:
        assert not take(state, due_after - 1)
    assert take(state, 1)
    assert state.need() == (due_after, 0)


def test_an_expired_pull_gives_its_credit_back() -> None:
    state = WindowCredit(10)
    number, _, _ = opened(state)
    take(state, 2)
    assert state.ended(number, classify(408, "Request Timeout", {"Nats-Pending-Messages": "8"}), 0)
    assert state.need() == (10, 0)


def test_a_refused_pull_gives_its_credit_back_without_headers() -> None:
    state = WindowCredit(10)
    number, _, _ = opened(state)
    assert state.ended(number, classify(404, "No Messages"), 0)
    assert state.need() == (10, 0)


def test_what_is_buffered_is_never_given_back() -> None:
    state = WindowCredit(10)
    number, _, _ = opened(state)
    state.ended(number, classify(408, "Request Timeout", {"Nats-Pending-Messages": "10"}), 4)
    assert state.need() == (6, 0)


def test_a_status_of_a_forgotten_pull_changes_nothing() -> None:
    state = WindowCredit(10)
    first, _, _ = opened(state)
    assert state.ended(first, classify(409, "Leadership Change"), 0)
    second, _, _ = opened(state, now=100.0)
    assert not state.ended(first, classify(409, "Leadership Change"), 0)
    assert state.need(100.0) is None
    assert state.ended(second, classify(408, "Request Timeout", {"Nats-Pending-Messages": "10"}), 0)


def test_a_status_counts_once() -> None:
    state = WindowCredit(10)
    number, _, _ = opened(state)
    assert state.ended(number, classify(404, ""), 0)
    assert not state.ended(number, classify(404, ""), 0)


def test_a_status_without_a_readable_number_counts_by_its_headers() -> None:
    state = WindowCredit(10)
    opened(state)
    assert state.ended(None, classify(408, "Request Timeout", PENDING), 0)
    assert state.need() == (7, 0)


@pytest.mark.parametrize("text", ["Leadership Change", "Server Shutdown"])
def test_all_pulls_are_gone_with_the_leader(text: str) -> None:
    state = WindowCredit(10)
    first, _, _ = opened(state)
    take(state, 6)
    opened(state)
    assert state.ended(first, classify(409, text), 3)
    assert state.need(now=100.0) == (7, 0)
    assert not state.open


def test_reconnect_counts_what_is_buffered() -> None:
    state = WindowCredit(10, 1000)
    opened(state)
    state.lost(4, 400)
    assert state.need() == (6, 500)


def test_more_than_was_asked_for_is_forgiven() -> None:
    """After a reconnect the old pull can be served beside the new one."""
    state = WindowCredit(10)
    opened(state)
    take(state, 15)
    assert state.need() == (10, 0)


def test_back_off_doubles_up_to_its_limit_and_ends_when_something_works() -> None:
    state = WindowCredit(10)
    waits = []
    for _ in range(10):
        number = opened(state, now=1000.0)[0]
        state.ended(number, classify(503, ""), 0, now=0.0)
        waits.append(state.retry_at)
    assert waits[:3] == [0.1, 0.2, 0.4]
    assert waits[-1] == LONGEST_DELAY
    assert state.need(now=0.9) is None
    state.works()
    assert state.need(now=1.0) == (10, 0)


def test_a_pull_gets_half_of_the_bytes_so_that_two_can_overlap() -> None:
    state = WindowCredit(10, 1000)
    assert opened(state)[1:] == (10, 500)
    state.taken_bytes += 450  # large messages: 75 each
    take(state, 6)
    assert opened(state)[1:] == (6, 500)
    assert state.need() is None


def test_small_messages_reserve_few_bytes() -> None:
    state = WindowCredit(10, 100_000)
    assert opened(state)[1:] == (10, 50_000)
    state.taken_bytes += 60
    take(state, 6)
    assert opened(state)[1:] == (6, 100_000 // 16)


def test_no_pull_goes_out_with_a_rest_of_bytes_that_is_too_small() -> None:
    state = WindowCredit(10, 1000)
    opened(state)
    state.taken_bytes += 100
    take(state, 6)
    opened(state)
    take(state, 6)
    state.taken_bytes += 100
    assert state.need() is None  # 700 of 1000 are reserved by the two that are out
    take(state, 4)
    assert state.need() == (10, 500)


def test_a_message_larger_than_half_gets_all_bytes() -> None:
    state = WindowCredit(10, 1000)
    number = opened(state)[0]
    headers = {"Nats-Pending-Messages": "10", "Nats-Pending-Bytes": "500"}
    state.ended(number, classify(409, "Message Size Exceeds MaxBytes", headers), 0)
    assert state.need() == (10, 1000)


def test_pulls_that_their_bytes_will_end_overlap() -> None:
    """One that asked for all messages of the window kept the next one from being due: the server stood still."""
    state = WindowCredit(100, 1000)
    first, messages, nbytes = opened(state)
    assert (messages, nbytes) == (100, 500)
    take(state, 10)
    state.taken_bytes += 500
    state.ended(first, StatusMeaning("quiet", unserved=(90, 0), reason="max bytes"), 0)
    assert opened(state)[1:] == (20, 500)  # 10 will fit
    assert opened(state)[1:] == (20, 500)
    assert state.need() is None


def test_a_window_does_not_grow_beyond_what_its_bytes_hold() -> None:
    state = WindowCredit(10, 1000, most_messages=1000)
    for now in range(1, 50):
        pull = state.need(now / 1000)
        if pull is not None:
            state.opened(*pull)
        take(state, 10)
        state.taken_bytes += 500
    assert state.max_messages == 40  # twice what fits


def test_tiny_messages_behind_large_ones_are_not_asked_for_as_if_they_were_large() -> None:
    """By the mean of all there were windows of 16 to 95: 114 s over 100 ms of round trip for what took 0.4."""
    state = WindowCredit(500, 16 << 20)
    for _ in range(20_000):
        state.take()
    state.taken_bytes = state.granted_bytes = 20_000 << 20
    state.granted = 20_000
    asked = []
    for _ in range(10):
        pull = state.need()
        if pull is not None:
            state.opened(*pull)
            asked.append(pull[0])
        take(state, 10)
        state.taken_bytes += 1280
    assert max(asked) > 400


def test_only_bytes() -> None:
    state = WindowCredit(UNLIMITED_BATCH, 1000)
    assert opened(state)[1:] == (UNLIMITED_BATCH, 500)
    state.taken_bytes += 10
    assert take(state, 1)
    assert opened(state)[2] == 500
    take(state, 1)
    assert state.need() is None


def test_bytes_left_over_by_a_full_pull_are_given_back_when_nothing_is_under_way() -> None:
    """2.9 ends a pull that has all its messages without saying how many bytes were left."""
    state = WindowCredit(4, 1000)
    opened(state)
    take(state, 4)
    state.taken_bytes += 1000
    assert state.need() == (4, 500)


def test_a_completed_batch_gives_back_its_bytes() -> None:
    state = WindowCredit(4, 1000)
    number, _, _ = opened(state)
    take(state, 3)
    state.taken_bytes += 300
    headers = {"Nats-Pending-Messages": "0", "Nats-Pending-Bytes": "200"}
    state.ended(number, classify(409, "Batch Completed", headers), 1)
    assert state.granted_bytes == 300


def test_no_messages_are_under_way_when_no_bytes_are() -> None:
    """Servers (2.9 to 2.15) do not tell the end of a pull when its bytes were used up exactly."""
    state = WindowCredit(10, 1000)
    opened(state)
    take(state, 4)
    state.taken_bytes += 499
    assert state.need() is None
    take(state, 1)
    state.taken_bytes += 1
    assert opened(state)[1:] == (10, 500)
    assert len(state.open) == 1


def too_small(state: WindowCredit, number: int, messages: int, nbytes: int) -> None:
    headers = {"Nats-Pending-Messages": str(messages), "Nats-Pending-Bytes": str(nbytes)}
    assert state.ended(number, classify(409, "Message Size Exceeds MaxBytes", headers), 0)


def test_a_message_that_needs_all_bytes_waits_until_nothing_else_is_under_way() -> None:
    state = WindowCredit(10, 1000, threshold_messages=10)
    first, _, _ = opened(state)
    take(state, 7)
    state.taken_bytes += 70
    second, _, nbytes = opened(state)
    too_small(state, second, 7, nbytes)
    assert state.need() is None
    too_small(state, first, 3, 500 - 70)
    third, _, nbytes = opened(state)
    assert nbytes < 1000
    too_small(state, third, 10, nbytes)
    assert state.need() == (10, 1000)


# --- a window that may grow -------------------------------------------------------------------------------------


def drain(state: WindowCredit, count: int, now: float) -> tuple[int, int] | None:
    """What is asked for after `count` messages were taken until `now`."""
    if count:
        take(state, count)
    need = state.need(now)
    if need is not None:
        state.opened(*need)
    return need


def test_the_window_is_what_is_taken_in_a_tenth_of_a_second() -> None:
    state = WindowCredit(500, most_messages=2000)
    assert drain(state, 0, 100.0) == (500, 0)
    assert drain(state, 300, 100.05) == (600 - 200, 0)  # 300 in 0.05 s: 600 in 0.1 s
    assert drain(state, 301, 100.06) == (2000 - 299, 0)  # the most
    assert drain(state, 1001, 109.0) is None  # slow: no more until half of 500 are left
    assert drain(state, 749, 110.0) is None
    assert drain(state, 1, 110.0) == (500 - 249, 0)


def over_a_line(state: WindowCredit, round_trip: float, seconds: float, quick: float = 1e6) -> float:
    """Messages per second of an application that takes up to `quick` of them, from a stream that has enough."""
    now, taken = 0.0, 0
    arriving: list[tuple[float, int]] = []
    while now < seconds:
        while (need := state.need(now, round_trip)) is not None:
            state.opened(*need)
            arriving.append((now + round_trip, need[0]))
        due, count = arriving.pop(0)
        if due > now:
            state.begin_wait(now)
            now = due
            state.end_wait(now)
        while count:
            now += 1 / quick
            count, taken = count - 1, taken + 1
            if state.take() >= state.check_at and (need := state.need(now, round_trip)) is not None:
                state.opened(*need)
                arriving.append((now + round_trip, need[0]))
    return taken / now


@pytest.mark.parametrize("round_trip", [0.03, 0.06, 0.1, 0.2])
def test_the_window_fits_the_round_trip(round_trip: float) -> None:
    state = WindowCredit(500, most_messages=32_000)
    over_a_line(state, round_trip, 10 * round_trip)
    assert state.max_messages == min(32_000, int(40_000 * max(0.1, 16 * round_trip)))
    assert over_a_line(WindowCredit(500, most_messages=32_000), round_trip, 5.0) > 40_000
    assert over_a_line(WindowCredit(500), round_trip, 5.0) < 500 / round_trip


@pytest.mark.parametrize("threads_wait", [False, True])
def test_the_round_trip_of_a_pull_is_no_time_of_the_application(threads_wait: bool) -> None:
    """The window is large enough after the first messages: how long these were under way does not count."""
    state = WindowCredit(500, most_messages=32_000)
    assert state.need(100.0, 0.3) == (500, 0)
    state.opened(500, 0)
    state.begin_wait(100.0)
    if not threads_wait:  # else others do, and this thread takes what came
        state.end_wait(100.31)
    take(state, 251)
    assert state.need(100.315, 0.3) == (32_000 - 249, 0)


def test_a_line_that_brings_little_at_a_time_is_not_taken_for_a_long_one() -> None:
    """64 KiB/s over 300 ms: the messages came one by one for 0.8 s. More than seconds of them would only wait."""
    state = WindowCredit(500, most_messages=32_000)
    state.need(100.0, 0.3)
    state.opened(500, 0)
    state.begin_wait(100.0)
    take(state, 251)
    state.need(101.1, 0.3)
    assert state.max_messages == pytest.approx(251 / 0.8 * 4.8, rel=0.01)


@pytest.mark.parametrize("round_trip", [0.0001, 0.06, 0.2, 30.0])
def test_one_that_works_on_its_messages_gets_no_large_window_over_any_line(round_trip: float) -> None:
    slow, quicker = WindowCredit(500, most_messages=32_000), WindowCredit(500, most_messages=32_000)
    over_a_line(slow, min(round_trip, 0.2), 60.0, quick=100.0)
    assert slow.max_messages == 500
    over_a_line(quicker, round_trip, 60.0, quick=2_000.0)
    assert quicker.max_messages <= 10_000  # what it takes in 5 s


def test_a_window_that_was_given_stays() -> None:
    state = WindowCredit(500)
    assert drain(state, 0, 100.0) == (500, 0)
    assert drain(state, 251, 100.001) == (251, 0)


def test_a_window_that_was_refused_grows_no_more() -> None:
    state = WindowCredit(500, most_messages=2000)
    drain(state, 0, 100.0)
    need = drain(state, 300, 100.001)
    assert need == (1800, 0)
    number = max(state.open)
    assert state.stop_growing(1800)
    assert state.ended(number, StatusMeaning("quiet"), 0)
    assert drain(state, 200, 100.002) == (500, 0)
    assert not state.stop_growing(500)


def test_stop_after_never_asks_for_more_than_remains() -> None:
    state = WindowCredit(10, stop_after=12)
    assert opened(state)[1:] == (10, 0)
    take(state, 6)
    assert opened(state)[1:] == (2, 0)
    take(state, 5)
    assert state.need() is None
    assert take(state, 1)
    assert state.need() is None


def test_reading_the_count_does_not_change_it() -> None:
    state = WindowCredit(10, stop_after=5)
    take(state, 3)
    for _ in range(100):
        state.need()
    assert state.delivered(state.taken()) == 3


def test_the_table_of_open_pulls_is_bounded() -> None:
    state = WindowCredit(10)
    for _ in range(REMEMBERED + 10):
        state.opened(1, 0)
    assert len(state.open) == REMEMBERED


@given(st.lists(st.tuples(st.sampled_from(["deliver", "take", "expire", "leader", "reconnect"]), st.integers(1, 30))))
def test_buffered_and_requested_never_exceed_the_limit(steps: list[tuple[str, int]]) -> None:
    """A model of the server beside it: after every step the credit is at most the limit, and a consumer that
    takes everything always gets a new pull."""
    state = WindowCredit(20)
    pulls: dict[int, int] = {}
    buffered = 0
    for step, amount in steps:
        need = state.need(1e9)
        if need is not None:
            pulls[state.opened(*need)] = need[0]
        assert buffered + sum(pulls.values()) <= 20
        if step == "deliver":
            for number in list(pulls):
                count = min(amount, pulls[number])
                amount -= count
                buffered += count
                pulls[number] -= count
                if not pulls[number]:
                    del pulls[number]
        elif step == "take":
            for _ in range(min(amount, buffered)):
                state.take()
                buffered -= 1
        elif step == "expire" and pulls:
            number, left = pulls.popitem()
            state.ended(number, StatusMeaning("quiet", unserved=(left, 0)), buffered)
        elif step in ("leader", "reconnect"):
            pulls.clear()
            state.lost(buffered)
    while buffered:
        state.take()
        buffered -= 1
    for number, left in pulls.items():
        state.ended(number, StatusMeaning("quiet", unserved=(left, 0)), 0)
    assert state.need(1e9) == (20, 0)


# --- requests -------------------------------------------------------------------------------------------------


def test_a_request_names_only_what_is_set_and_keeps_priority_zero() -> None:
    body = PullTerms(expires=30.0, heartbeat=5.0, group="g", priority=0).request(10, 1000, "pin")
    assert msgspec.json.decode(body) == {
        "batch": 10,
        "expires": 30_000_000_000,
        "idle_heartbeat": 5_000_000_000,
        "max_bytes": 1000,
        "group": "g",
        "id": "pin",
        "priority": 0,
    }
    assert msgspec.json.decode(PullTerms(expires=0.0, no_wait=True).request(1)) == {"batch": 1, "no_wait": True}


def test_pending_below_zero_gives_no_credit() -> None:
    """Servers say "Nats-Pending-Messages: -1" of a pull that has nothing left."""
    state = WindowCredit(10)
    number = state.opened(10, 0)
    for _ in range(10):
        state.take()
    meaning = classify(408, "Request Timeout", {"Nats-Pending-Messages": "-1", "Nats-Pending-Bytes": "-7"})
    assert meaning.unserved == (0, 0)
    assert state.ended(number, meaning, 0)
    assert state.need(1.0) == (10, 0)


def test_the_last_message_that_was_asked_for_is_outstanding() -> None:
    state = WindowCredit(1)
    state.opened(1, 0)
    assert [state.outstanding(0), state.outstanding(1), state.outstanding(0)] == [1, 0, 1]
    state.take()
    assert state.outstanding(0) == 0


def test_behind_a_message_that_needs_more_than_half_of_the_bytes_pulls_get_all_of_them() -> None:
    state = WindowCredit(10, 1000)
    wanted = StatusMeaning("quiet", unserved=(10, 500), reason="max bytes")
    pulls = []
    for _ in range(10):
        while (need := state.need(1.0)) is not None:
            pulls.append(need)
            number = state.opened(*need)
            if need[1] >= 700:
                state.taken_bytes += 700
                state.take()
                state.ended(
                    number, StatusMeaning("quiet", unserved=(need[0] - 1, need[1] - 700), reason="max bytes"), 0
                )
                break
            state.ended(number, wanted, 0)
    assert len(pulls) <= 13


def test_a_fetch_asks_for_large_messages_one_by_one_while_they_come() -> None:
    credit = FetchCredit(5, pull_bytes=100)
    pulls: list[tuple[int, int]] = []
    for _ in range(12):
        need = credit.need(1.0)
        if need is None:
            break
        pulls.append(need)
        number = credit.opened(*need)
        if need[1]:
            credit.ended(number, StatusMeaning("quiet", unserved=need, reason="max bytes"), 0)
            credit.go_on()
        else:
            credit.count, credit.taken_bytes = credit.count + 1, credit.taken_bytes + 150
            credit.ended(number, StatusMeaning("quiet", unserved=(0, 0), reason="complete"), 0)
            credit.go_on()
    assert credit.count == 5
    assert pulls == [(5, 100)] + [(1, 0)] * 5
