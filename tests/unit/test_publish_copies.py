"""Copies of messages: when the first was sent, which may be stored."""

from __future__ import annotations

from jsclient.jetstream.publishing.copies import LOOK_EVERY, Copies


def test_a_message_is_as_old_as_the_look_before_it_was_seen() -> None:
    copies = Copies(10.0)
    assert not copies.due(10.0 + LOOK_EVERY)
    assert copies.due(10.1 + LOOK_EVERY)
    copies.look([b"a"], 20.0)
    assert copies.age(b"a", 21.0) == 11.0
    copies.look([b"a", b"b"], 30.0)
    assert (copies.age(b"a", 31.0), copies.age(b"b", 31.0)) == (21.0, 11.0)
    assert copies.age(b"not seen yet", 31.0) == 1.0


def test_what_was_acknowledged_is_forgotten() -> None:
    copies = Copies(0.0)
    copies.look([b"a"], 1.0)
    copies.unanswered([b"a"])
    copies.look([], 2.0)
    copies.look([b"a"], 3.0)
    assert copies.age(b"a", 4.0) == 2.0
    copies.refused([b"a"], 4.0)  # no longer in doubt
    assert copies.age(b"a", 4.0) == 0.0


def test_a_refused_copy_does_not_count_unless_another_may_be_stored() -> None:
    copies = Copies(0.0)
    copies.look([b"a", b"b"], 1.0)
    copies.unanswered([b"b"])
    copies.refused([b"a", b"b", b"nobody knows it"], 9.0)
    assert (copies.age(b"a", 10.0), copies.age(b"b", 10.0)) == (1.0, 10.0)
