"""An atomic batch beside a server that refuses, is silent, or cannot be reached; without a socket."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from tests.delivery_rig import LOST, NO_LEADER, NOBODY, REFUSED, SILENCE, UNSENT, Line, stream

from jsclient import errors
from jsclient.jetstream.publishing.atomic_batch import AtomicBatch
from jsclient.jetstream.publishing.future import PubMsg


def batch_of(*answers: Any, **options: Any) -> AtomicBatch[Any]:
    return AtomicBatch(stream(*answers), **options)


def line(batch: AtomicBatch[Any]) -> Line:
    found: Any = batch._nc
    return found  # type: ignore[no-any-return]


def test_it_is_committed_whole() -> None:
    with batch_of() as batch:
        assert [batch.add("s", b"1"), batch.add_msg(PubMsg("s", b"2")), batch.add("s", b"3")] == [1, 2, 3]
        assert "size=3 open" in repr(batch)
    assert batch.ack is not None
    assert (len(batch), batch.ack.count, batch.closed) == (3, 3, True)
    assert len(line(batch).sent) == 1, "the first is a request, the last one the commit"
    with pytest.raises(errors.BatchClosed):
        batch.commit()


def test_an_ack_that_was_found_in_the_stream_is_completed() -> None:
    batch = batch_of(b'{"stream":"S","seq":1}')
    batch.add("s")
    ack = batch.commit()
    assert (ack.batch, ack.count) == (batch.id, 1)


def test_an_empty_one_is_not_committed() -> None:
    with batch_of() as batch:
        pass
    assert line(batch).requested == []
    with pytest.raises(errors.ConfigError):
        batch_of().commit()


def test_leaving_the_block_with_an_error_discards_it() -> None:
    with pytest.raises(KeyError), batch_of() as batch:
        batch.add("s")
        raise KeyError
    assert (batch.closed, line(batch).requested) == (True, [])
    batch.discard()


@pytest.mark.parametrize("options", [{"ack_every": -1}, {"max_messages": 0}])
def test_bad_settings(options: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigError):
        batch_of(**options)


def test_headers_of_the_batch_itself_are_refused() -> None:
    with pytest.raises(errors.ConfigError, match="set by the batch itself"):
        batch_of().add("s", headers={"Nats-Batch-Id": "mine"})


def test_it_has_a_size() -> None:
    batch = batch_of(max_messages=1)
    batch.add("s")
    with pytest.raises(errors.BatchTooLarge):
        batch.add("s")


# --- before the commit --------------------------------------------------------------------------------------------


def add_two(batch: AtomicBatch[Any], **options: Any) -> None:
    batch.add("s")
    batch.add("s", **options)


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ([REFUSED], errors.WrongLastSequence),
        ([b"nonsense"], errors.InvalidPubAck),
        ([b'{"stream":"S","seq":1}'], errors.InvalidPubAck),  # it was stored alone: the stream knows no batches
        ([SILENCE], errors.NotStored),
        ([LOST], errors.NotStored),
    ],
)
def test_a_first_message_that_is_not_taken(answers: list[Any], error: type[Exception]) -> None:
    batch = batch_of(*answers)
    with pytest.raises(error):
        add_two(batch)
    assert batch.closed


@pytest.mark.parametrize("passing", [NO_LEADER, NOBODY, UNSENT])
def test_a_first_message_is_tried_again_as_long_as_it_was_not_taken(
    passing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jsclient.jetstream.publishing.atomic_batch.RETRY_WAIT", 0.001)
    batch = batch_of(passing, passing)
    add_two(batch)
    assert len(line(batch).requested) == 3


@pytest.mark.parametrize("error", [SILENCE, LOST, NOBODY])
def test_a_look_in_between_that_brings_no_answer(error: Exception) -> None:
    batch = batch_of(b"", error, ack_every=2)
    add_two(batch)
    with pytest.raises(errors.NotStored, match="failed before its commit"):
        batch.add("s")
    with pytest.raises(errors.BatchClosed, match="has failed"):
        batch.commit()


def test_a_look_in_between_may_tell_of_a_refusal() -> None:
    batch = batch_of(b"", REFUSED, ack_every=2)
    add_two(batch)
    with pytest.raises(errors.WrongLastSequence):
        batch.add("s")


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_a_message_that_cannot_be_sent(timeout: float | None) -> None:
    given: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    batch = batch_of()
    add_two(batch)
    line(batch).is_connected = False
    with pytest.raises(errors.NotStored):
        batch.add("s", **given)


# --- the commit ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (REFUSED, errors.WrongLastSequence),
        (SILENCE, errors.PublishUnknown),
        (LOST, errors.PublishUnknown),
        (UNSENT, errors.NotStored),
        (NOBODY, errors.NoStreamResponse),
        (NO_LEADER, errors.ApiError),
    ],
)
def test_what_becomes_of_a_commit(answer: Any, error: type[Exception]) -> None:
    batch = batch_of(b"", answer)
    add_two(batch)
    with pytest.raises(error):
        batch.commit()
    assert (batch.closed, batch.ack) == (True, None)


def test_a_batch_of_one_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jsclient.jetstream.publishing.atomic_batch.RETRY_WAIT", 0.001)
    batch = batch_of(NO_LEADER, NOBODY, UNSENT)
    batch.add("s")
    assert batch.commit().count == 3
    assert len(line(batch).requested) == 4


def test_nobody_takes_a_batch_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jsclient.jetstream.publishing.atomic_batch.RETRY_WAIT", 10.0)
    batch = batch_of(NOBODY)
    batch.add("s")
    with pytest.raises(errors.NoStreamResponse):
        batch.commit()


def test_it_belongs_to_its_process() -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(batch_of())
