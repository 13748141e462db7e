"""How long an asynchronous publish waits for its ack; a fake connection, a clock that the test turns."""

from __future__ import annotations

from tests.publish_rig import Rig, Turn, answer_questions, clock, info, outcome

from jsclient import errors

__all__ = ["clock"]


def test_503s_until_the_ack_timeout_are_certainly_not_stored(clock: Turn) -> None:
    rig = Rig(ack_timeout=2)
    future = rig.publish()
    clock(rig, 0)
    for _ in range(20):
        for frame in rig.take():
            if frame.startswith(b"PUB s.a"):
                rig.no_responders(frame)
        clock(rig, 0.25)
        if future.done():
            break
    assert outcome(future) is errors.NoStreamResponse


def test_silence_is_unknown_and_an_id_is_sent_again(clock: Turn) -> None:
    rig = Rig(ack_timeout=30)
    plain, with_id = rig.publish(), rig.publish(msg_id="1")
    rig.take()
    clock(rig, 4)
    assert not rig.take()
    clock(rig, 2)
    (again,) = rig.take()
    assert b"Nats-Msg-Id: 1" in again
    clock(rig, 6)
    assert len(rig.take()) == 1
    rig.answer(again, b'{"stream":"S","seq":9,"duplicate":true}')
    assert with_id.result(0).duplicate
    clock(rig, 20)
    assert outcome(plain) is errors.PublishUnknown
    assert not rig.take()


def test_held_messages_are_given_up_in_the_end(clock: Turn) -> None:
    rig = Rig(ack_timeout=10, duplicate_window=60)
    with_id = rig.publish(msg_id="1")
    clock(rig, 1)
    rig.lose()
    never = rig.publish()
    clock(rig, 30)
    assert not with_id.done()
    assert not never.done()
    clock(rig, 61)
    assert outcome(with_id) is errors.PublishUnknown
    assert outcome(never) is errors.NotStored


def test_the_sweep_ends_when_nothing_is_pending() -> None:
    rig = Rig()
    rig.publish()
    assert rig.publisher.recovery.sweeping
    rig.ack(rig.take()[0])
    rig.nc.clock.run()
    assert not rig.publisher.recovery.sweeping
    assert not rig.nc.clock.calls
    rig.publish()
    assert rig.publisher.recovery.sweeping


def test_what_waits_behind_others_on_a_slow_line_is_not_late(clock: Turn) -> None:
    """Each ack takes 4 s: the last message would have been sent ten times, and called unknown after 30 s."""
    rig = Rig(ack_timeout=30)
    futures = [rig.publish(msg_id=str(number)) for number in range(12)]
    frames = rig.take()
    for seq, frame in enumerate(frames, 1):
        for _ in range(8):
            clock(rig, 0.5)
        assert not rig.take()
        rig.ack(frame, seq)
    assert [future.result(0).seq for future in futures] == list(range(1, 13))


def test_one_that_others_have_overtaken_is_late(clock: Turn) -> None:
    rig = Rig(ack_timeout=30)
    lost = rig.publish(msg_id="lost")
    rig.take()
    again = 0
    for number in range(16):
        later = rig.publish(msg_id=str(number))
        *others, frame = rig.take()
        again += len(others)
        rig.ack(frame, number + 1)
        assert later.done()
        clock(rig, 0.5)
    again += len(rig.take())
    assert again >= 1
    assert not lost.done()


def test_a_timeout_is_no_progress(clock: Turn) -> None:
    """Two without an id and without an ack end together, and not one after the other."""
    rig = Rig(ack_timeout=10)
    futures = [rig.publish(), rig.publish()]
    rig.take()
    for _ in range(22):
        clock(rig, 0.5)
    assert [outcome(future) for future in futures] == [errors.PublishUnknown] * 2


def test_an_only_copy_that_was_refused_until_the_end_is_not_stored(clock: Turn) -> None:
    rig = Rig(ack_timeout=2)
    future = rig.publish(msg_id="1")
    clock(rig, 0)
    for _ in range(20):
        for frame in rig.take():
            rig.error(frame, 10008)
        clock(rig, 0.25)
        if future.done():
            break
    assert outcome(future) is errors.JetStreamTemporarilyUnavailable


def test_the_sweep_is_started_once() -> None:
    rig = Rig()
    rig.publisher.recovery.start_sweep()
    rig.publisher.recovery.start_sweep()
    assert len(rig.nc.clock.calls) == 1


def test_what_is_still_being_looked_for_ends_with_the_ack_timeout(clock: Turn) -> None:
    rig = Rig(ack_timeout=1)
    future = rig.publish(msg_id="1")
    clock(rig, 0)
    rig.error(rig.take()[0], 10164)
    clock(rig, 0.5)
    assert not future.done()
    clock(rig, 0.6)
    assert outcome(future) is errors.PublishUnknown


def test_what_waits_for_a_window_has_no_longer(clock: Turn) -> None:
    """The window is known for 10 s. What waited for it got all of the time again, without end when that was short."""
    rig = Rig(ack_timeout=30, duplicate_window=None)
    future = rig.publish(msg_id="1")
    waited = 0.0
    while not future.done():
        for frame in answer_questions(rig, info(120)):
            if waited < 15:
                rig.error(frame, 10158)
        clock(rig, 0.25)
        waited += 0.25
    assert 29 < waited < 31
    assert outcome(future) is errors.PublishUnknown


def test_a_new_link_begins_it_anew(clock: Turn) -> None:
    rig = Rig(ack_timeout=30)
    future = rig.publish(msg_id="1")
    clock(rig, 20)
    rig.lose()
    clock(rig, 5)
    rig.come_back()
    clock(rig, 20)
    assert not future.done()
    clock(rig, 11)
    assert outcome(future) is errors.PublishUnknown
