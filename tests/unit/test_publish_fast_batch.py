"""A fast batch beside a server that loses, refuses and forgets; without a socket."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fast_rig import NOBODY, Answer, Line, ack, end, on, stream

from jsclient import errors
from jsclient.durations import Deadline
from jsclient.jetstream.publishing.fast_batch import APPEND, COMMIT_END, PING, START, FastBatch
from jsclient.jetstream.publishing.future import PubMsg
from jsclient.states import LinkEvent


def batch_of(answer: Answer | None = None, **options: Any) -> FastBatch[Any]:
    return FastBatch(stream(answer), **options)


def line(batch: FastBatch[Any]) -> Line:
    found: Any = batch._nc
    return found  # type: ignore[no-any-return]


def test_it_is_stored_and_counted() -> None:
    with batch_of() as batch:
        assert [batch.add("s", b"x"), batch.add_msg(PubMsg("s", b"y"))] == [1, 2]
        assert len(batch) == 2
        assert "size=2 acked=0 open" in repr(batch)
    assert batch.ack is not None
    assert (batch.ack.count, batch.acked, batch.closed) == (2, 2, True)
    with pytest.raises(errors.BatchClosed, match="was committed"):
        batch.add("s")
    batch.discard()


def test_a_last_message_ends_it() -> None:
    batch = batch_of()
    batch.add("s")
    assert batch.commit("s", b"last").count == 2
    alone = batch_of(on(COMMIT_END, end(1)))
    assert alone.commit("s", b"last").count == 1


def test_an_empty_one_is_not_sent() -> None:
    with batch_of() as batch:
        pass
    assert line(batch).operations == []
    with pytest.raises(errors.ConfigError, match="empty"):
        batch_of().commit()


def test_an_end_that_counts_fewer_is_no_success() -> None:
    batch = batch_of(on(COMMIT_END, end(1)))
    for _ in range(3):
        batch.add("s")
    with pytest.raises(errors.PublishUnknown, match="counted 1 of 3"):
        batch.commit()


def test_where_gaps_are_allowed_the_end_counts_what_was_stored() -> None:
    batch = batch_of(on(COMMIT_END, end(1)), gap="ok")
    for _ in range(3):
        batch.add("s")
    assert batch.commit().count == 1


def test_no_answer_is_no_success() -> None:
    batch = batch_of(on(COMMIT_END, ""))
    batch.add("s")
    with pytest.raises(errors.PublishUnknown, match="no answer within"):
        batch.commit(timeout=0.01)
    assert batch.closed
    assert PING in line(batch).operations


def test_a_lost_answer_is_asked_for() -> None:
    pings: list[int] = []

    def answer(number: int, operation: int) -> Any:
        if operation == PING:
            pings.append(number)
            return ack(number)
        return None

    batch = batch_of(answer, flow=2, max_outstanding=1)
    for number in range(1, 200):
        assert batch.add("s") == number
    assert pings
    assert batch.acked >= pings[-1]


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"not JSON", errors.InvalidPubAck),
        ({"type": "gap", "last_seq": 2, "seq": 4}, errors.BatchGap),
        ({"type": "err", "seq": 2, "error": {"code": 400, "err_code": 10071}}, errors.WrongLastSequence),
        ({"type": "", "error": {"code": 503, "err_code": 10008}}, errors.PublishUnknown),
        (NOBODY, errors.PublishUnknown),
        (LinkEvent.DISCONNECTED, errors.PublishUnknown),
        (errors.ConnectionLost("lost"), errors.PublishUnknown),
    ],
    ids=["nonsense", "gap", "refused", "ended", "nobody", "link event", "no link"],
)
def test_what_ends_it(said: Any, error: type[Exception]) -> None:
    batch = batch_of(on(APPEND, said, 2))
    batch.add("s")
    with pytest.raises(error):
        batch.add("s")
    assert batch.closed
    assert line(batch).inbox.closed
    with pytest.raises(errors.BatchClosed):
        batch.commit()


def test_a_new_link_alone_is_no_loss() -> None:
    batch = batch_of(on(APPEND, LinkEvent.RECONNECTED))
    assert [batch.add("s"), batch.add("s")] == [1, 2]


def test_what_may_be_lost_is_collected() -> None:
    def answer(number: int, operation: int) -> Any:
        if operation != APPEND:
            return None
        if number == 2:
            return {"type": "gap", "last_seq": 2, "seq": 4}
        return {"type": "err", "seq": 3, "error": {"code": 400, "err_code": 10071}}

    batch = batch_of(answer, gap="ok")
    for _ in range(3):
        batch.add("s")
    assert batch.gaps == [range(2, 4)]
    assert list(batch.errors) == [3]


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"type": "", "error": {"code": 400, "err_code": 10205}}, errors.ApiError),
        (errors.ConnectionLost("lost"), errors.PublishUnknown),
        (b"not JSON", errors.InvalidPubAck),
    ],
)
def test_a_first_message_that_is_not_taken(said: Any, error: type[Exception]) -> None:
    batch = batch_of(on(START, said))
    with pytest.raises(error):
        batch.add("s")
    assert batch.closed


def test_a_stream_without_a_leader_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jsclient.jetstream.publishing.fast_batch.RETRY_WAIT", 0.001)
    said = [NOBODY, NOBODY]
    batch = batch_of(lambda number, operation: said.pop() if said else None)
    assert batch.add("s") == 1
    assert line(batch).operations == [START] * 3


def test_nobody_in_time_is_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jsclient.jetstream.publishing.fast_batch.RETRY_WAIT", 10.0)
    batch = batch_of(on(START, NOBODY))
    with pytest.raises(errors.NoStreamResponse):
        batch.add("s", timeout=1)
    assert batch.closed


def test_a_link_that_is_lost_before_the_commit() -> None:
    batch = batch_of(on(COMMIT_END, errors.ConnectionLost("lost")))
    batch.add("s")
    with pytest.raises(errors.PublishUnknown, match="the link was lost"):
        batch.commit()


UNSENT = errors.ConnectionLost("not connected at the moment", sent=False)


def test_a_first_message_waits_for_the_link() -> None:
    """Nothing of it was sent while there was none, so it goes out when there is one; what is told of the old link says
    nothing about it."""
    said: list[Any] = [UNSENT, UNSENT]
    batch = batch_of(lambda number, operation: said.pop() if said else None)
    batch._open(Deadline(1))
    batch._inbox.items.append(LinkEvent.DISCONNECTED)
    assert batch.add("s") == 1
    assert line(batch).operations == [START] * 3
    assert batch.commit().count == 1


def test_a_link_that_is_lost_between_two_attempts_leaves_no_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jsclient.jetstream.publishing.fast_batch.RETRY_WAIT", 0.001)

    def answer(number: int, operation: int) -> Any:
        if line(batch).operations == [START]:
            line(batch).inbox.items += [NOBODY, LinkEvent.DISCONNECTED, LinkEvent.RECONNECTED]
            return ""
        return None

    batch = batch_of(answer)
    assert batch.add("s") == 1


@pytest.mark.parametrize("why", [UNSENT, errors.BufferFull("it takes no data")])
def test_a_first_message_that_was_not_sent_in_time_is_not_stored(why: Exception) -> None:
    batch = batch_of(on(START, why))
    with pytest.raises(errors.NotStored, match="not sent") as caught:
        batch.add("s", timeout=0.05)
    assert "Nothing of it was sent" not in str(caught.value)
    assert batch.closed
    assert line(batch).inbox.closed


def test_a_message_that_was_not_sent_behind_confirmed_ones_is_not_stored() -> None:
    def answer(number: int, operation: int) -> Any:
        return UNSENT if number == 3 else ack(number)

    for last in (False, True):
        batch = batch_of(answer)
        assert [batch.add("s"), batch.add("s")] == [1, 2]
        with pytest.raises(errors.NotStored, match=r"message 3 of the batch was not sent \(not connected"):
            batch.commit("s", b"x") if last else batch.add("s")
        assert batch.acked == 2
        assert batch.closed


def test_a_message_that_was_not_sent_behind_others_leaves_those_unknown() -> None:
    batch = batch_of(on(APPEND, UNSENT, 3))
    batch.add("s")
    batch.add("s")
    with pytest.raises(errors.PublishUnknown, match=r"\(not connected at the moment\). It is .* message 0 of 2;"):
        batch.add("s")


def test_leaving_the_block_with_an_error_commits_nothing() -> None:
    with pytest.raises(KeyError), batch_of() as batch:
        batch.add("s")
        raise KeyError
    assert COMMIT_END not in line(batch).operations
    assert batch.closed


@pytest.mark.parametrize("options", [{"gap": "perhaps"}, {"flow": 0}, {"flow": 65_536}, {"max_outstanding": 0}])
def test_bad_settings(options: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigError):
        batch_of(**options)


def test_a_message_may_have_a_time_of_its_own() -> None:
    with batch_of() as batch:
        batch.add("s", timeout=5)
        assert batch.add("s", timeout=5) == 2
    assert batch.ack is not None


def test_an_end_that_nobody_asked_for() -> None:
    """The stream has committed by itself: what comes later must not be called stored."""
    batch = batch_of(lambda number, operation: end(1) if operation == START else None)
    with pytest.raises(errors.BatchClosed, match="was committed"):
        batch.add("s")
